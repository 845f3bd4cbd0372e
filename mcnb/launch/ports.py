"""A free port for JAX's coordinator."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


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
