"""Listen for the clients of a referee: connections, proofs of the key, and messages."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mcnb.lockstep.wire import MOST_BYTES, Address, Inbox, Message, at_once, encode, nonce, proof

CONNECTIONS = 2  # of each process
_CREDENTIALS = "3i"  # process, user and group: `struct ucred` in unix(7)
LONGEST_PATH = 100  # of a Unix socket, in bytes; the system's limit is 104 to 108


@dataclass(slots=True)
class _Guest:
    """A client's connection.

    Attributes:
        socket: The connection's socket.
        nonce: The nonce for the client's proof.
        inbox: The decoder of received messages.
        key: The client's process, and `"launches"` or `"control"`; None before the proof.
    """

    socket: socket.socket
    nonce: str
    inbox: Inbox = field(default_factory=Inbox)
    key: tuple[int, str] | None = None


class Listener:
    """Accepts connections from the clients of n processes, and receives their messages.

    Args:
        count, folder, host: As for `Server`.
        hear: Called with a process and its message. If the call raises because the message is
            invalid, the connection is closed.
        miss: Called with a process and a role when that connection ends.

    Attributes:
        address: The address to which clients connect.
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
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        path = "" if host or not hasattr(socket, "AF_UNIX") else self._path(folder)
        key = secrets.token_hex(32)
        if not path or len(os.fsencode(path)) > LONGEST_PATH:
            host = host or "127.0.0.1"
            self._socket = socket.create_server((host, 0))
            self.address = Address(host=host, port=self._socket.getsockname()[1], key=key)
        else:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(path)
            self._socket.listen(count)
            self.address = Address(path=path, key=key)
        self._bell, self._rung = socket.socketpair()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._rung, selectors.EVENT_READ)

    def _path(self, folder: Path | None) -> str:
        """Return the path for a Unix socket."""
        if folder is None and sys.platform != "linux":
            self._folder = tempfile.TemporaryDirectory(prefix="mcnb-")
            folder = Path(self._folder.name)
        if folder is not None:
            return str(folder / "lockstep")
        return f"\0mcnb-{secrets.token_hex(16)}"  # no file, which a kill would leave behind

    @property
    def present(self) -> set[int]:
        """The processes that are connected."""
        return {k for k, _ in list(self._guests)}

    def poll(self, timeout: float | None) -> bool:
        """Wait for connections and messages, and handle them; return False after `end`."""
        for key, _ in self._selector.select(timeout):
            if key.data is not None:
                self._read(key.data)
            elif key.fileobj is self._socket:
                self._welcome()
            elif b"x" in self._rung.recv(64):  # maybe after bytes from `wake`
                return False
        return True

    def wake(self) -> None:
        """Make a running `poll` return, from another thread."""
        self._bell.send(b".")

    def end(self) -> None:
        """Make a running `poll` return False, from another thread."""
        with contextlib.suppress(OSError):  # the listener is closed
            self._bell.send(b"x")

    def send(self, k: int, data: bytes, role: str = "launches") -> None:
        """Send data to a process, if the process is connected."""
        guest = self._guests.get((k, role))
        if guest is not None:
            with contextlib.suppress(OSError):  # `_read` handles its end
                guest.socket.sendall(data)

    def close(self) -> None:
        """Close all connections, and remove the socket."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._bell.close()
        if self._folder is not None:
            self._folder.cleanup()
        elif self.address.path and not _has_no_file(self.address):
            Path(self.address.path).unlink(missing_ok=True)

    def _welcome(self) -> None:
        connection, _ = self._socket.accept()
        if connection.family != socket.AF_UNIX:
            at_once(connection)
        elif _has_no_file(self.address) and _user_of(connection) != os.geteuid():
            connection.close()  # no folder keeps other users out
            return
        guest = _Guest(connection, nonce())
        self._selector.register(connection, selectors.EVENT_READ, guest)
        with contextlib.suppress(OSError):
            connection.sendall(encode(["nonce", guest.nonce]))

    def _read(self, guest: _Guest) -> None:
        try:
            data = guest.socket.recv(MOST_BYTES)
            for message in guest.inbox.feed(data):
                if guest.key is None:
                    self._admit(guest, *message)
                else:
                    self._hear(guest.key[0], message)
        except (OSError, ValueError, KeyError, IndexError, TypeError):  # gone, or not a client
            data = b""
        if not data:
            self._selector.unregister(guest.socket)
            guest.socket.close()
            if guest.key is not None and self._guests.get(guest.key) is guest:
                del self._guests[guest.key]
                self._miss(*guest.key)

    def _admit(
        self, guest: _Guest, kind: str, role: str, process: int, theirs: str, answer: str
    ) -> None:
        expected = proof(self.address.key, "client", guest.nonce)
        if kind != "hello" or not hmac.compare_digest(expected, answer):
            raise ValueError("it does not know the key")
        if process not in range(self._count) or not isinstance(role, str):
            raise ValueError("there is no such process")
        guest.key = process, role
        self._guests[guest.key] = guest
        if self._folder is not None and len(self._guests) == CONNECTIONS * self._count:
            self._folder.cleanup()  # all are connected; a kill leaves no folder behind
        guest.socket.sendall(encode(["welcome", proof(self.address.key, "server", theirs)]))


def _has_no_file(address: Address) -> bool:
    """Return whether an address is a name in Linux's abstract namespace; see unix(7)."""
    return address.path.startswith("\0")


def _user_of(connection: socket.socket) -> int:
    """Return the user at the other end of a Unix socket, on Linux."""
    size = struct.calcsize(_CREDENTIALS)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    user: int = struct.unpack(_CREDENTIALS, credentials)[1]
    return user
