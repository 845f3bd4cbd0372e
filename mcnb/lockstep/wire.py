"""How clients and the referee's server talk: lines of JSON over a stream socket.

An address is the path of a Unix socket, for processes of this machine, or host and port, for
others. Both ends prove that they know a common key before anything else is said: each sends a
nonce, and answers the other's with its HMAC.

A client has two connections. On the first, "launches", it announces, and the thread that waits for
the answer reads it: to hand it over would take longer than to send it. On the second, "control",
comes what may come at any time; a thread of its own reads it.

What a client says, on "launches" but for the first:

    ["hello", role, process, nonce, proof]  who it is
    ["launch", number, data]                what a number stands for from now on
    ["at", ticket, number, line, place, alone, tickets, held]
                                            a thread is about to make a launch, and waits if it is
                                            held; alone, if only those with these tickets are left
    ["quiet", cell, over, tickets]          only the threads with these tickets are left, while it
                                            runs this cell or after that
    ["sync", ticket]                        what was said until now should be heard
    ["back", ticket]                        the thread that waits with that ticket was interrupted
    ["detail", ticket, data]                the answer to "explain"
    ["failed", error]                       it ends with an error
    ["left"]                                it ends, as it wanted to

What the server says on "launches":

    ["nonce", nonce], ["welcome", proof]
    ["go", ticket]                          the launch may go ahead
    ["stop", ticket, message, lines, kind]  it never will, and the kind of the verdict
    ["synced", ticket]                      it was heard

and on "control":

    ["backed", ticket], ["went", ticket]    it was called back in time, or not
    ["explain", ticket]
    ["abort", ports]                        end what hangs
    ["interrupt", cell, attempt]            interrupt the cell of that number; the process may not
                                            have begun it
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import threading
from dataclasses import dataclass
from typing import Any, TypeAlias

Message: TypeAlias = list[Any]

MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Address:
    """Where a server listens, and the key that opens it.

    Attributes:
        path: The path of a Unix socket; empty for TCP.
        host: The host, for TCP.
        port: The port, for TCP.
        key: What both ends know.
    """

    path: str = ""
    host: str = ""
    port: int = 0
    key: str = ""

    def connect(self) -> socket.socket:
        """Return a socket that is connected to it."""
        if self.path:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.path)
        else:
            connection = socket.create_connection((self.host, self.port))
            at_once(connection)
        return connection


def at_once(connection: socket.socket) -> None:
    """Have TCP send each message as it comes."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def nonce() -> str:
    """Return text that nobody can have foreseen."""
    return secrets.token_hex(16)


def proof(key: str, role: str, text: str) -> str:
    """Return what proves that its sender knows the key.

    Args:
        key: The key.
        role: Whose proof it is, so that an answer can't be handed back as one's own.
        text: The other end's nonce.
    """
    return hmac.new(key.encode(), f"{role} {text}".encode(), hashlib.sha256).hexdigest()


def encode(message: Message) -> bytes:
    """Return a message as it is sent."""
    return _ENCODER.encode(message).encode() + b"\n"


# json.dumps makes an encoder for each call that asks for anything but the default.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Inbox:
    r"""What came in over a socket, as messages.

    Example:
        >>> inbox = Inbox()
        >>> inbox.feed(b'["go",1]\n["g')
        [['go', 1]]
        >>> inbox.feed(b'o",2]\n')
        [['go', 2]]
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are whole by now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Channel:
    """A process's end of a connection.

    Args:
        address: Where the server listens.
        process: The process's index.
        role: `"launches"` or `"control"`.

    Raises:
        OSError: The server can't be reached.
        PermissionError: One of the two ends does not know the key.
    """

    def __init__(self, address: Address, process: int, role: str) -> None:
        self.socket = address.connect()
        self._inbox = Inbox()
        self._sending = threading.RLock()
        [[_, theirs]] = self.receive()
        mine = nonce()
        self.send(["hello", role, process, mine, proof(address.key, "client", theirs)])
        if self.receive() != [["welcome", proof(address.key, "server", mine)]]:
            self.socket.close()
            raise PermissionError("the referee's server and this process know different keys")

    def send(self, *messages: Message) -> None:
        """Send messages, one after the other without others between."""
        data = b"".join(map(encode, messages))
        with self._sending:
            self.socket.sendall(data)

    def receive(self) -> list[Message]:
        """Wait for messages; an empty list means that the other end is gone."""
        messages: list[Message] = []
        while not messages:
            data = self.socket.recv(MOST_BYTES)
            if not data:
                break
            messages = self._inbox.feed(data)
        return messages

    def close(self) -> None:
        """End the connection; whoever waits for messages is told."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
