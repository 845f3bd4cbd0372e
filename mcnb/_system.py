"""What this host's operating system provides: addresses, ports and the death of a parent."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from mcnb.errors import ClusterError, OptionError

_PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


def prctl(option: int, value: Any) -> None:
    """Call Linux's prctl; do nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    """Have the system kill this process when its parent ends, where the system can."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def reserve_port(host: str) -> tuple[socket.socket, int]:
    """Hold a free port for JAX's coordinator, which gRPC binds with SO_REUSEPORT.

    While it is bound here, the system gives it to nobody who asks for any port; and as it does not
    listen here, connections reach the coordinator alone.

    Args:
        host: At which of this host's addresses.

    Returns:
        What holds it, to be closed when the coordinator listens, and the port.
    """
    reservation = socket.socket()
    if hasattr(socket, "SO_REUSEPORT"):
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind((host, 0))
    return reservation, reservation.getsockname()[1]


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Hold a free port of loopback for JAX's coordinator."""
    reservation, port = reserve_port("127.0.0.1")
    with reservation:
        yield port


LOOPBACK = "127.0.0.1"
# An address that belongs to nobody: https://www.rfc-editor.org/rfc/rfc5737. To be connected to it
# by UDP sends nothing; it is asked which way that would go.
_NOBODY = "192.0.2.1"
_ANY_PORT = 9


def address_toward(hosts: Iterable[str]) -> str:
    """Return this host's address as those hosts reach it: loopback, if they are this host itself.

    Args:
        hosts: Names or addresses.

    Raises:
        ClusterError: A host's name is not known.

    Example:
        >>> address_toward(["localhost", "127.0.0.1"])
        '127.0.0.1'
    """
    others = [address for address in map(_address_of, hosts) if not is_own(address)]
    return _source_toward(others[0]) if others else LOOPBACK


def outward_address() -> str:
    """Return the address at which this host is on its network; loopback if it is on none."""
    with contextlib.suppress(OSError):
        return _source_toward(_NOBODY)
    return LOOPBACK


def is_own(address: str) -> bool:
    """Return whether an address is one of this host's."""
    with socket.socket() as trial:
        try:
            trial.bind((address, 0))
        except OSError:
            return False
    return True


def check_listen(address: str) -> None:
    """See that an address that a user gave is one of this host's; empty is none.

    Raises:
        OptionError: It is not.
    """
    if address and not is_own(address):
        import psutil  # takes its time

        own = sorted(
            {
                one.address
                for addresses in psutil.net_if_addrs().values()
                for one in addresses
                if one.family == socket.AF_INET
            }
        )
        raise OptionError(
            f"--listen {address}: this machine has no such address. It has: {', '.join(own)}"
        )


def local_end(host: str) -> str:
    """Return which of this host's addresses a connection to that host begins at."""
    return _source_toward(host)


def _address_of(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        raise ClusterError(f"There is no host {host}, as far as this one knows") from None


def _source_toward(address: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
        question.connect((address, _ANY_PORT))
        source: str = question.getsockname()[0]
        return source
