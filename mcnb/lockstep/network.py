"""Prepare JAX's connections for machines with a proxy, a pause, or a name that is not known.

JAX's coordination service uses gRPC, which goes through the proxy that the environment names. It
takes a process for dead that has been silent for 100 seconds, as on a laptop that was closed. Gloo,
which connects CPU devices, listens on the address that belongs to the host's name.
"""

from __future__ import annotations

import contextlib
import inspect
import ipaddress
import socket
from collections.abc import MutableMapping

from mcnb._system import LOOPBACK, local_end

# After so many seconds of silence, JAX may take a process for dead: two weeks. mcnb itself detects
# processes that end. In milliseconds, the number fits into 32 bits.
SILENCE_S = 14 * 24 * 3600
_LIMIT = "heartbeat_timeout_seconds"
# What gRPC reads: doc/environment_variables.md in https://github.com/grpc/grpc. An entry is the end
# of a host's name, or a range of addresses.
_NO_PROXY, _NO_PROXY_EITHER = "no_grpc_proxy", "no_proxy"
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def bypass_proxy(coordinator: str, environment: MutableMapping[str, str]) -> None:
    """Have gRPC connect to JAX's coordinator without a proxy, and to other hosts as before.

    Args:
        coordinator: The coordinator's host and port.
        environment: The environment of this process, which is changed.

    Example:
        >>> environment = {"https_proxy": "http://proxy:3128", "no_proxy": ".example.org"}
        >>> bypass_proxy("10.0.0.1:8476", environment)
        >>> environment["no_grpc_proxy"]
        '.example.org,10.0.0.1'
    """
    if not any(environment.get(name) for name in _PROXIES):
        return
    host = host_of(coordinator)
    before = environment.get(_NO_PROXY, environment.get(_NO_PROXY_EITHER, ""))
    entries = [entry for entry in before.split(",") if entry.strip()]
    if host not in entries:
        environment[_NO_PROXY] = ",".join([*entries, host])


def tolerate_silence(given: inspect.BoundArguments) -> None:
    """Raise JAX's limit on the silence of a process, unless the program has set another one.

    JAX passes its own default on to the method that is replaced here, so the default does not tell
    whether the program has set it.

    Args:
        given: The arguments of `jax.distributed.initialize`, which are changed.
    """
    limit = given.signature.parameters.get(_LIMIT)
    if limit is not None and given.arguments.get(_LIMIT, limit.default) == limit.default:
        given.arguments[_LIMIT] = SILENCE_S


def address_for_gloo(coordinator: str) -> str:
    """Return the address on which Gloo should listen; empty if this host's own name is right.

    It is not if the name can't be resolved, or if it is a loopback address and processes of other
    hosts take part, as on Debian, where `/etc/hosts` has the host's name at 127.0.1.1.

    Args:
        coordinator: The host and port of JAX's coordinator, which all processes reach.
    """
    with contextlib.suppress(OSError):
        own = socket.gethostbyname(socket.gethostname())
        if not is_loopback(own) or is_loopback(host_of(coordinator)):
            return ""
    try:
        return local_end(host_of(coordinator))
    except OSError:
        return LOOPBACK if is_loopback(host_of(coordinator)) else ""


def host_of(address: str) -> str:
    """Return the host of an address with a port.

    Example:
        >>> host_of("node1:8476"), host_of("[::1]:8476")
        ('node1', '::1')
    """
    return address.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Return whether a host is this one, by a name or an address that is the same everywhere.

    Example:
        >>> is_loopback("127.0.1.1"), is_loopback("localhost"), is_loopback("10.0.0.1")
        (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
