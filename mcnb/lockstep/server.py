"""The referee behind a socket: hears the sentries, and tells them what it ruled."""

from __future__ import annotations

import collections
import contextlib
import hmac
import os
import secrets
import selectors
import socket
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from mcnb.lockstep.launches import Launch
from mcnb.lockstep.referee import Go, Referee, Ruling, Stop
from mcnb.lockstep.verdicts import Detail, Stand, Verdict
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
from mcnb.lockstep.wording import explain

# Processes that were asked for details are not waited for longer: a verdict is late otherwise.
DETAILS_S = 0.15
LONGEST_PATH = 100  # of a Unix socket; the system's limit is 104 to 108 bytes


@dataclass(slots=True)
class _Guest:
    """A connection.

    Attributes:
        socket: Its socket.
        nonce: What it has to prove its key with.
        role: Which of the process's two connections it is.
        process: Whose it is; None until it has proved it.
    """

    socket: socket.socket
    inbox: Inbox
    nonce: str
    launches: dict[int, Launch]
    role: str = ""
    process: int | None = None


@dataclass(slots=True)
class _Hearing:
    """A verdict that waits for details.

    Attributes:
        waiters: Process and ticket of each that will be told.
        asked: Those that were asked and have not answered.
        details: What the others said.
        until: When it is given without the rest, on the monotonic clock.
    """

    waiters: tuple[tuple[int, int], ...]
    asked: set[tuple[int, int]]
    details: dict[int, Detail]
    until: float


@dataclass(frozen=True, slots=True)
class Waits:
    """That a process waits before a launch.

    Attributes:
        stand: Where.
        since: Since when, on the monotonic clock, in seconds.
    """

    stand: Stand
    since: float


class Server:
    """Runs a referee for n processes in a thread.

    Args:
        count: How many processes there are.
        folder: Where to put the socket, a folder that only this user can enter; by default one of
            its own.
        host: Listen on this host's address instead, for processes of other machines.
        cells: Whether processes run cells that are begun, as those of a notebook; otherwise they
            run from the start.

    Attributes:
        address: Where sentries find it.

    Example:
        >>> from mcnb.lockstep.places import Place
        >>> from mcnb.lockstep.sentry import Sentry
        >>> with Server(2) as server:
        ...     sentry = Sentry(server.address, 0, lambda frame: False)
        ...     server.finish(1)
        ...     with sentry.passing(Launch("jit(f)", "1", (0, 1)), Place(line=3)):
        ...         print("never reached")
        Traceback (most recent call last):
        mcnb.errors.LockstepError: missing: process 0 waits at line 3 in jit(f); process 1 \
finished without it...
    """

    def __init__(
        self, count: int, folder: Path | None = None, host: str = "", cells: bool = False
    ) -> None:
        self.count = count
        self._cells = cells
        self._lock = threading.RLock()
        self._referee = Referee(count)
        if cells:
            self._referee.begin(())
        self._guests: dict[tuple[int, str], _Guest] = {}
        self._arrivals: dict[tuple[int, int], float] = {}
        self._holding = True
        self._queues: dict[int, collections.deque[tuple[int, Launch, int | None, str]]] = {}
        self._hearing: _Hearing | None = None
        self._details: dict[int, Detail] = {}
        self._selector = selectors.DefaultSelector()
        self._folder = tempfile.TemporaryDirectory(prefix="mcnb-") if folder is None else None
        path = Path(self._folder.name if self._folder else str(folder)) / "lockstep"
        key = secrets.token_hex(32)
        if host or not hasattr(socket, "AF_UNIX") or len(os.fsencode(path)) > LONGEST_PATH:
            host = host or "127.0.0.1"
            self._listener = socket.create_server((host, 0))
            self.address = Address(host=host, port=self._listener.getsockname()[1], key=key)
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self._listener.listen(count)
            self.address = Address(path=str(path), key=key)
        self._bell, wake = socket.socketpair()
        self._wake = wake
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="mcnb referee", daemon=True)
        self._thread.start()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def verdict(self) -> Verdict | None:
        """How the processes parted in this cell, or None."""
        with self._lock:
            verdict = self._referee.verdict
            if verdict is None or self._hearing is not None:
                return verdict
            return replace(verdict, details={**verdict.details, **self._details})

    def begin(self, processes: Iterable[int], *, holding: bool = True) -> None:
        """Begin a cell on these processes.

        Args:
            processes: The processes that run it.
            holding: Whether they wait before their launches. If not, what each announces is taken
                in its order: the next counts when the one before has been met, as it is on the
                devices.
        """
        with self._lock:
            self._details = {}
            self._holding = holding
            self._queues = {k: collections.deque() for k in range(self.count)}
            self._rule(self._referee.begin(processes))

    def finish(self, process: int, *, busy: bool = False) -> None:
        """Take note that a process has finished the cell; see `Referee.finish`."""
        with self._lock:
            self._rule(self._referee.finish(process, busy=busy))

    def fail(self, process: int, error: str, *, busy: bool = False) -> None:
        """Take note that the cell ended with an error on a process; see `Referee.fail`."""
        with self._lock:
            self._rule(self._referee.fail(process, error, busy=busy))

    def die(self, process: int, how: str) -> None:
        """Take note that a process died; see `Referee.die`."""
        with self._lock:
            self._rule(self._referee.die(process, how))

    def stands(self) -> dict[int, Stand]:
        """Return where each process stands."""
        with self._lock:
            return self._referee.stands()

    def waits(self) -> dict[int, Waits]:
        """Return which processes wait before a launch, and since when."""
        with self._lock:
            since: dict[int, float] = {}
            for (k, _), at in self._arrivals.items():
                since[k] = min(at, since.get(k, at))
            return {
                k: Waits(stand, since[k])
                for k, stand in self._referee.stands().items()
                if stand.doing == "waits" and k in since
            }

    def abort(self, ports: Iterable[int]) -> None:
        """Have all processes end what hangs in them.

        Args:
            ports: The ports at which their communicators listen.
        """
        with self._lock:
            for k in range(self.count):
                self._send(k, ["abort", list(ports)], "control")

    def close(self) -> None:
        """Let everybody pass who waits, and listen no more."""
        with contextlib.suppress(OSError):
            self._wake.send(b"x")
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                hearing = self._hearing
                timeout = None if hearing is None else max(hearing.until - time.monotonic(), 0)
                for key, _ in self._selector.select(timeout):
                    if key.data is not None:
                        self._read(key.data)
                    elif key.fileobj is self._listener:
                        self._welcome()
                    elif self._bell.recv(64).startswith(b"x"):
                        return
                if self._hearing is not None:
                    with self._lock:
                        if self._hearing and time.monotonic() >= self._hearing.until:
                            self._give_verdict()
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            self._wake.close()
            if self._folder is not None:
                self._folder.cleanup()
            elif self.address.path:
                Path(self.address.path).unlink(missing_ok=True)

    def _welcome(self) -> None:
        connection, _ = self._listener.accept()
        if connection.family != socket.AF_UNIX:
            at_once(connection)
        guest = _Guest(connection, Inbox(), nonce(), {})
        self._selector.register(connection, selectors.EVENT_READ, guest)
        with contextlib.suppress(OSError):
            connection.sendall(encode(["nonce", guest.nonce]))

    def _read(self, guest: _Guest) -> None:
        try:
            data = guest.socket.recv(MOST_BYTES)
            messages = guest.inbox.feed(data)
            with self._lock:
                for message in messages:
                    self._hear(guest, message)
        except (OSError, ValueError, KeyError, IndexError, TypeError):  # gone, or no sentry of ours
            data = b""
        if not data:
            self._selector.unregister(guest.socket)
            guest.socket.close()
            with self._lock:
                key = (guest.process or 0, guest.role)
                if guest.process is not None and self._guests.get(key) is guest:
                    del self._guests[key]
                    # How a notebook's process ended is told by who keeps it.
                    if not self._cells and guest.role == "launches":
                        self._rule(self._referee.leave(guest.process))

    def _hear(self, guest: _Guest, message: Message) -> None:
        kind, *rest = message
        if guest.process is None:
            if kind != "hello":
                raise ValueError("not a sentry")
            self._admit(guest, *rest)
            return
        k = guest.process
        if kind == "at":
            ticket, number, line, place, alone, waiting = rest
            launch = guest.launches[number]
            alone = alone and self._still_wait(k, waiting)
            self._arrivals[k, ticket] = time.monotonic()
            if not self._holding:
                self._queues[k].append((ticket, launch, line, place))
                if len(self._queues[k]) == 1:
                    self._announce_next(k)
                return
            self._rule(
                self._referee.announce(k, ticket, launch, line=line, place=place, alone=alone)
            )
        elif kind == "launch":
            guest.launches[rest[0]] = Launch.from_data(rest[1])
        elif kind == "quiet":
            if self._still_wait(k, rest[0]):
                self._rule(self._referee.quiet(k))
        elif kind == "back":
            self._call_back(k, rest[0])
        elif kind == "detail":
            ticket, data = rest
            if self._hearing is not None and (k, ticket) in self._hearing.asked:
                self._hearing.asked.discard((k, ticket))
                self._hearing.details[k] = Detail.from_data(data)
                if not self._hearing.asked:
                    self._give_verdict()
        elif kind == "left" and not self._cells:
            self._rule(self._referee.leave(k))

    def _still_wait(self, k: int, tickets: list[int]) -> bool:
        """Return whether threads that a process saw waiting had not been let go meanwhile.

        If one was, the process will look again when it hears of it.
        """
        return all((k, ticket) in self._arrivals for ticket in tickets)

    def _admit(self, guest: _Guest, role: str, process: int, theirs: str, answer: str) -> None:
        expected = proof(self.address.key, "sentry", guest.nonce)
        if not hmac.compare_digest(expected, answer) or process not in range(self.count):
            raise ValueError("it does not know the key")
        guest.process, guest.role = process, role
        self._guests[process, role] = guest
        guest.socket.sendall(encode(["welcome", proof(self.address.key, "server", theirs)]))

    def _announce_next(self, k: int) -> None:
        """Announce what a process has launched next, in its own order, without waiting."""
        if self._queues[k]:
            ticket, launch, line, place = self._queues[k][0]
            self._rule(self._referee.announce(k, ticket, launch, line=line, place=place))

    def _call_back(self, k: int, ticket: int) -> None:
        if self._hearing is not None and (k, ticket) in self._hearing.waiters:
            return  # the verdict is the answer
        if self._arrivals.pop((k, ticket), None) is None:
            self._send(k, ["went", ticket], "control")
        else:
            self._rule(self._referee.withdraw(k, ticket))
            self._send(k, ["backed", ticket], "control")

    def _rule(self, rulings: list[Ruling]) -> None:
        for ruling in rulings:
            if isinstance(ruling, Go):
                for k, ticket in ruling.waiters:
                    self._arrivals.pop((k, ticket), None)
                    if self._holding:
                        self._send_data(k, b'["go",%d]\n' % ticket)
                    else:
                        self._queues[k].popleft()
                if not self._holding:
                    for k, _ in ruling.waiters:
                        self._announce_next(k)
            else:
                self._hold_hearing(ruling)

    def _hold_hearing(self, stop: Stop) -> None:
        """Ask those that will be told what they stand at, in words."""
        fresh = {w for w in stop.waiters if w[0] not in self._details}
        if self._hearing is None:
            until = time.monotonic() + DETAILS_S
            self._hearing = _Hearing(stop.waiters, fresh, {}, until)
        else:
            self._hearing.waiters += stop.waiters
            self._hearing.asked |= fresh
        for k, ticket in sorted(fresh):
            self._send(k, ["explain", ticket], "control")
        if not self._hearing.asked:
            self._give_verdict()
        elif threading.current_thread() is not self._thread:
            self._wake.send(b".")  # it has a time to keep now

    def _give_verdict(self) -> None:
        hearing, self._hearing = self._hearing, None
        assert hearing is not None
        self._details.update(hearing.details)
        verdict = self.verdict
        assert verdict is not None
        wording = explain(verdict, self.count)
        for k, ticket in hearing.waiters:
            self._arrivals.pop((k, ticket), None)
            if self._holding:
                self._send(k, ["stop", ticket, wording.sentence, list(wording.lines)])

    def _send(self, k: int, message: Message, role: str = "launches") -> None:
        self._send_data(k, encode(message), role)

    def _send_data(self, k: int, data: bytes, role: str = "launches") -> None:
        guest = self._guests.get((k, role))
        if guest is not None:
            with contextlib.suppress(OSError):  # its end is seen where it is read
                guest.socket.sendall(data)
