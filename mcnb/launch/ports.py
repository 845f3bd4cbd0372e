"""A free port for JAX's coordinator."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Hold a free port of loopback for JAX's coordinator, which gRPC binds with SO_REUSEPORT.

    While it is bound here, the system gives it to nobody who asks for any port; and as it does not
    listen here, connections reach the coordinator alone.
    """
    with socket.socket() as reservation:
        if hasattr(socket, "SO_REUSEPORT"):
            reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
        yield reservation.getsockname()[1]
