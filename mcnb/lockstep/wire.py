"""Exchange messages between clients and the referee's server: JSON lines over a stream socket.

An address is the path of a Unix socket, for processes of this machine, or a host and a port, for
other machines. A path that begins with a null byte is a name without a file, which Linux has.
Before any other message, both ends prove that they know a common key: each end sends a nonce, and
answers the other end's nonce with its HMAC.

A client has two connections. The client announces launches on the first, "launches", and the
thread that waits for a ruling reads it, because handing it over would take longer than sending it.
The second, "control", carries messages that may come at any time; a separate thread reads them.

A client sends, on "launches" except for the first message, which opens each connection:

    ["hello", role, process, nonce, proof]  the client's identity
    ["launch", number, data]                the launch that a number refers to from now on
    ["at", ticket, number, line, place, alone, tickets, held, values]
                                            a thread is about to make a launch, and waits if held;
                                            alone: only threads with these tickets remain; values:
                                            null, or [digests by slice, exact, seconds]
    ["quiet", cell, over, tickets]          only the threads with these tickets remain, during the
                                            cell or after it
    ["sync", ticket]                        a request for "synced"; ticket -1: only to be read
    ["back", ticket]                        the thread that waits with that ticket was interrupted
    ["detail", ticket, data]                the answer to "explain"
    ["values", ticket, data]                the answer to "compare"
    ["failed", error]                       the process exits with an error
    ["left"]                                the process exits normally

The server sends on "launches":

    ["nonce", nonce], ["welcome", proof]
    ["go", ticket]                          the launch may go ahead
    ["go", ticket, true]                    the same; the next launch of the computation is to be
                                            announced with digests
    ["stop", ticket, message, lines, kind, only_names]
                                            the launch will never go ahead; the verdict's kind, and
                                            whether only the names of a barrier differ
    ["synced", ticket]                      all messages before "sync" were received

and on "control":

    ["backed", ticket], ["went", ticket]    the launch was withdrawn, or has gone ahead before
    ["explain", ticket]                     a request for "detail"
    ["compare", ticket, slice, blocks]      a request for "values"
    ["abort", ports]                        abort the collectives that hang
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
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeAlias

Message: TypeAlias = list[Any]

MOST_BYTES = 1 << 16
# Ends what was sent of messages whose sender was interrupted: ASCII's "cancel", which JSON escapes.
TORN = b"\x18"
# When TCP takes a host for gone that does not answer: after ten minutes. A host may be paused.
_KEEPALIVE = {"TCP_KEEPIDLE": 120, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 16}


@dataclass(frozen=True)
class Address:
    """The address of a server, with its key.

    Attributes:
        path: The path of a Unix socket; empty for TCP.
        host: The host, for TCP.
        port: The port, for TCP.
        key: The key that both ends know.
    """

    path: str = ""
    host: str = ""
    port: int = 0
    key: str = ""

    def connect(self) -> socket.socket:
        """Return a socket that is connected to the server."""
        if self.path:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.path)
        else:
            connection = socket.create_connection((self.host, self.port))
            at_once(connection)
        return connection


def at_once(connection: socket.socket) -> None:
    """Make TCP send each message without delay, and detect that the other host is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # macOS has not all of them
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def nonce() -> str:
    """Return an unpredictable text."""
    return secrets.token_hex(16)


def proof(key: str, role: str, text: str) -> str:
    """Return an HMAC that proves that its sender knows the key.

    Args:
        key: The key.
        role: The sender's role, so that a proof can't be returned to its own sender.
        text: The other end's nonce.
    """
    return hmac.new(key.encode(), f"{role} {text}".encode(), hashlib.sha256).hexdigest()


def encode(message: Message) -> bytes:
    """Encode a message as a line of JSON."""
    return _ENCODER.encode(message).encode() + b"\n"


# json.dumps creates an encoder for each call with other than the default options.
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Inbox:
    r"""Splits the bytes received from a socket into messages.

    Example:
        >>> inbox = Inbox()
        >>> inbox.feed(b'["go",1]\n["g')
        [['go', 1]]
        >>> inbox.feed(b'o",2]\n["torn\x18\n["go",3]\n')
        [['go', 2], ['go', 3]]
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """Add received bytes; return the messages that are now complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if not line.endswith(TORN)]


class DisconnectedError(Exception):
    """The connection to the server is broken.

    It is no `OSError`: a signal handler of the learner's may raise one in the middle of a call.
    """


class Channel:
    """A process's end of a connection to the server.

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
        # What `hear` received, the number of its lines that were heard, and how many calls run.
        self._pieces: list[bytes] = []
        self._heard = self._calls = 0
        self._sending = threading.RLock()
        self._torn = False
        mine = nonce()
        try:
            [[_, theirs]] = self.receive()
            self.send(["hello", role, process, mine, proof(address.key, "client", theirs)])
            welcome = self.receive()
        except DisconnectedError as error:
            raise ConnectionError(str(error)) from error
        if welcome != [["welcome", proof(address.key, "server", mine)]]:
            self.socket.close()
            raise PermissionError("the referee's server and this process know different keys")

    def send(self, *messages: Message) -> None:
        """Send messages in order, without messages of other threads in between.

        If an exception of a signal handler ends the call, it is not known whether they were sent.

        Raises:
            DisconnectedError: The connection is broken.
        """
        data = b"".join(map(encode, messages))
        with self._sending:
            if self._torn:
                data = TORN + b"\n" + data
            self._torn = True
            try:
                self.socket.sendall(data)
            except OSError as error:
                _raise_if_own(error)
                raise
            self._torn = False

    def receive(self) -> list[Message]:
        """Wait for messages; an empty list means that the connection is closed.

        Raises:
            DisconnectedError: The connection is broken.
        """
        messages: list[Message] = []
        try:
            while not messages and (data := self.socket.recv(MOST_BYTES)):
                messages = self._inbox.feed(data)
        except OSError as error:
            _raise_if_own(error)
            raise
        return messages

    def hear(self, listen: Callable[[Message], object]) -> bool:
        """Wait for messages, and call a function for each of them.

        A signal handler may call this in the middle of a call: messages that the other call has
        received and not heard are heard again, so that one may be heard twice, but none too late.
        Do not mix it with `receive`.

        Returns:
            Whether the connection is open.

        Raises:
            DisconnectedError: The connection is broken.
        """
        self._calls += 1
        try:
            if self._calls == 1:
                count = len(self._pieces)
                rest = b"\n".join(b"".join(self._pieces[:count]).split(b"\n")[self._heard :])
                # In one statement without a call, in which no signal handler is called.
                self._pieces[:count], self._heard = [rest], 0
            if self._hear_all(listen):
                return True
            count = len(self._pieces)
            self._receive()
            self._hear_all(listen)
            return self._pieces[count] != b""
        finally:
            self._calls -= 1

    def _receive(self) -> None:
        """Add a piece to those received; an empty one if the connection is closed.

        No signal handler is called after it was received and before it was added: both happen in
        one call of native code.
        """
        piece = islice(iter(partial(self.socket.recv, MOST_BYTES), None), 1)
        try:
            self._pieces.extend(piece)
        except OSError as error:
            _raise_if_own(error)
            raise

    def _hear_all(self, listen: Callable[[Message], object]) -> bool:
        """Call a function for each message received; return whether there is one."""
        number = self._heard
        lines = b"".join(self._pieces).split(b"\n")[number:-1]
        for line in lines:
            if not line.endswith(TORN):
                listen(json.loads(line))
            number += 1
            self._heard = max(self._heard, number)
        return bool(lines)

    def close(self) -> None:
        """Shut the connection down, which wakes a thread that waits for messages."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


def _raise_if_own(error: OSError) -> None:
    """Raise `DisconnectedError` for an error of a socket, rather than of a signal handler.

    The error was caught by the function that called the socket: a handler has a frame of its own.
    """
    if error.__traceback__ is not None and error.__traceback__.tb_next is None:
        raise DisconnectedError(str(error)) from error
