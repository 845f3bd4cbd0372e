"""How sentries and the referee's server talk: lines of JSON over a stream socket.

An address is the path of a Unix socket, for processes of this machine, or host and port, for
others. Both ends prove that they know a common key before anything else is said: each sends a
nonce, and answers the other's with its HMAC.

What a sentry says:

    ["hello", process, nonce, proof]        who it is
    ["launch", number, data]                what a number stands for from now on
    ["at", ticket, number, line, place, alone, released]
    ["quiet", released]                     all threads wait or have ended
    ["back", ticket]                        the thread that waits with that ticket was interrupted
    ["detail", ticket, data]                the answer to "explain"
    ["left"]                                it ends, as it wanted to

What the server says:

    ["nonce", nonce], ["welcome", proof]
    ["go", ticket]                          the launch may go ahead
    ["stop", ticket, message, lines]        it never will
    ["backed", ticket]                      it was called back in time
    ["explain", ticket]
    ["abort", ports]                        end what hangs
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
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
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


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
