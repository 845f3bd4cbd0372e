"""At which of this host's addresses other hosts reach it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable

import psutil

from mcnb.errors import ClusterError, OptionError

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
