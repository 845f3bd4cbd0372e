"""Where sentries call: lets in those that know the key, and passes on what they say."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import selectors
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mcnb.lockstep.wire import (
    MOST_BYTES,
    Address,
    Inbox,
    Message,
    at_once,
    encode,
    nonce,
    proof,
)

CONNECTIONS = 2  # of each process
LONGEST_PATH = 100  # of a Unix socket; the system's limit is 104 to 108 bytes


@dataclass(slots=True)
class _Guest:
    """A connection.

    Attributes:
        socket: Its socket.
        nonce: What it has to prove its key with.
        inbox: What it says.
        role: Which of the process's two connections it is.
        process: Whose it is; None until it has proved it.
    """

    socket: socket.socket
    nonce: str
    inbox: Inbox = field(default_factory=Inbox)
    role: str = ""
    process: int | None = None


class Listener:
    """Listens for the sentries of n processes.

    Args:
        count: How many processes there are.
        folder: Where to put the socket, a folder that only this user can enter; by default one of
            its own.
        host: Listen on this host's address instead, for processes of other machines.
        hear: Called with a process and what it says. If it raises because that makes no sense,
            the process is not listened to any more.
        miss: Called with a process and a role when that connection ends.

    Attributes:
        address: Where sentries find it.
    """

    def __init__(
        self,
        count: int,
        folder: Path | None,
        host: str,
        hear: Callable[[int, Message], None],
        miss: Callable[[int, str], None],
    ) -> None:
        self._count = count
        self._hear = hear
        self._miss = miss
        self._guests: dict[tuple[int, str], _Guest] = {}
        self._selector = selectors.DefaultSelector()
        self._folder = tempfile.TemporaryDirectory(prefix="mcnb-") if folder is None else None
        path = Path(self._folder.name if self._folder else str(folder)) / "lockstep"
        key = secrets.token_hex(32)
        if host or not hasattr(socket, "AF_UNIX") or len(os.fsencode(path)) > LONGEST_PATH:
            host = host or "127.0.0.1"
            self._socket = socket.create_server((host, 0))
            self.address = Address(host=host, port=self._socket.getsockname()[1], key=key)
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(str(path))
            self._socket.listen(count)
            self.address = Address(path=str(path), key=key)
        self._bell, self._rung = socket.socketpair()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._rung, selectors.EVENT_READ)

    @property
    def present(self) -> set[int]:
        """The processes that are connected."""
        return {k for k, _ in list(self._guests)}

    def poll(self, timeout: float | None) -> bool:
        """Wait for something to happen, and see to it.

        Args:
            timeout: For how many seconds at most; None for ever.

        Returns:
            Whether it shall go on.
        """
        for key, _ in self._selector.select(timeout):
            if key.data is not None:
                self._read(key.data)
            elif key.fileobj is self._socket:
                self._welcome()
            elif b"x" in self._rung.recv(64):  # maybe after words that woke it
                return False
        return True

    def wake(self) -> None:
        """Have a `poll` that is under way return; from another thread."""
        self._bell.send(b".")

    def end(self) -> None:
        """Have a `poll` that is under way return False; from another thread."""
        with contextlib.suppress(OSError):  # it has ended
            self._bell.send(b"x")

    def send(self, k: int, data: bytes, role: str = "launches") -> None:
        """Send a process something, if it is there."""
        guest = self._guests.get((k, role))
        if guest is not None:
            with contextlib.suppress(OSError):  # its end is seen where it is read
                guest.socket.sendall(data)

    def close(self) -> None:
        """End all connections."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._bell.close()
        if self._folder is not None:
            self._folder.cleanup()
        elif self.address.path:
            Path(self.address.path).unlink(missing_ok=True)

    def _welcome(self) -> None:
        connection, _ = self._socket.accept()
        if connection.family != socket.AF_UNIX:
            at_once(connection)
        guest = _Guest(connection, nonce())
        self._selector.register(connection, selectors.EVENT_READ, guest)
        with contextlib.suppress(OSError):
            connection.sendall(encode(["nonce", guest.nonce]))

    def _read(self, guest: _Guest) -> None:
        try:
            data = guest.socket.recv(MOST_BYTES)
            for message in guest.inbox.feed(data):
                if guest.process is None:
                    self._admit(guest, *message)
                else:
                    self._hear(guest.process, message)
        except (OSError, ValueError, KeyError, IndexError, TypeError):  # gone, or no sentry of ours
            data = b""
        if not data:
            self._selector.unregister(guest.socket)
            guest.socket.close()
            key = (guest.process or 0, guest.role)
            if guest.process is not None and self._guests.get(key) is guest:
                del self._guests[key]
                self._miss(guest.process, guest.role)

    def _admit(
        self, guest: _Guest, kind: str, role: str, process: int, theirs: str, answer: str
    ) -> None:
        expected = proof(self.address.key, "sentry", guest.nonce)
        if kind != "hello" or not hmac.compare_digest(expected, answer):
            raise ValueError("it does not know the key")
        if process not in range(self._count):
            raise ValueError("there is no such process")
        guest.process, guest.role = process, role
        self._guests[process, role] = guest
        if self._folder is not None and len(self._guests) == CONNECTIONS * self._count:
            self._folder.cleanup()  # all are in; where this process is killed, nothing is left
        guest.socket.sendall(encode(["welcome", proof(self.address.key, "server", theirs)]))
