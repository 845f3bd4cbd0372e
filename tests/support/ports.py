"""Ports for daemons that have to be told one, and that another program must not take meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

LOOPBACK = "127.0.0.1"


@contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a port of loopback for a daemon that binds it with SO_REUSEADDR.

    A socket that is bound and does not listen keeps the system from giving the port to others.
    Until the daemon listens, connections to the port are refused.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((LOOPBACK, 0))
        yield reservation.getsockname()[1]
