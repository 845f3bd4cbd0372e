"""The referee behind a socket: hears the clients, and tells them what it ruled."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
import selectors
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import Detail, Launch, ProcessExit, Stand, Verdict
from mcnb.lockstep.referee import Go, Referee, Ruling, Stop
from mcnb.lockstep.wire import MOST_BYTES, Address, Inbox, Message, at_once, encode, nonce, proof

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
    """Listens for the clients of n processes.

    Args:
        count: How many processes there are.
        folder: Where to put the socket, a folder that only this user can enter; by default one of
            its own.
        host: Listen on this host's address instead, for processes of other machines.
        hear: Called with a process and what it says. If it raises because that makes no sense,
            the process is not listened to any more.
        miss: Called with a process and a role when that connection ends.

    Attributes:
        address: Where clients find it.
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
        except (OSError, ValueError, KeyError, IndexError, TypeError):  # gone, or no client of ours
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
        expected = proof(self.address.key, "client", guest.nonce)
        if kind != "hello" or not hmac.compare_digest(expected, answer):
            raise ValueError("it does not know the key")
        if process not in range(self._count):
            raise ValueError("there is no such process")
        guest.process, guest.role = process, role
        self._guests[process, role] = guest
        if self._folder is not None and len(self._guests) == CONNECTIONS * self._count:
            self._folder.cleanup()  # all are in; where this process is killed, nothing is left
        guest.socket.sendall(encode(["welcome", proof(self.address.key, "server", theirs)]))


# Processes that were asked for details are not waited for longer: a verdict is late otherwise. They
# stand still and answer within milliseconds, unless the machine is very busy; and without details,
# the same parting would be worded otherwise.
DETAILS_S = 1.0


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


@dataclass(slots=True)
class _Announced:
    """A launch that a process made without waiting.

    What a process launches so is taken in its order: the next counts when the one before has been
    met, as it is on the devices.
    """

    ticket: int
    launch: Launch
    line: int | None
    place: str


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
        how: Returns how a process ended that is gone without a word. It is called in the server's
            own thread, and may take a moment to find out.
        lost: Called with a process that is gone, where it runs cells; in the server's own thread.

    Attributes:
        address: Where clients find it.

    Example:
        >>> from mcnb.lockstep.source import Place
        >>> from mcnb.lockstep.client import Client
        >>> with Server(2) as server:
        ...     client = Client(server.address, 0, lambda frame: False)
        ...     server.finish(1)
        ...     with client.passing(Launch("jit(f)", "1", (0, 1)), Place(line=3)):
        ...         print("never reached")
        Traceback (most recent call last):
        mcnb.errors.LockstepError: missing: process 0 waits at line 3 in jit(f); process 1 \
finished without it...
    """

    def __init__(
        self,
        count: int,
        folder: Path | None = None,
        host: str = "",
        cells: bool = False,
        how: Callable[[int], ProcessExit] = lambda _: ProcessExit(),
        lost: Callable[[int], None] | None = None,
    ) -> None:
        self.count = count
        self._cells = cells
        self._how = how
        self._lost = lost
        self._told: set[int] = set()  # those that have said that they end
        self._lock = threading.RLock()
        self._referee = Referee(count)
        if cells:
            self._referee.begin(())
        self._launches: dict[tuple[int, int], Launch] = {}
        self._arrivals: dict[tuple[int, int], float] = {}
        self._unheld: list[deque[_Announced]] = [deque() for _ in range(count)]
        self._cell = 0
        self._given = [0] * count  # the last cell that each was given
        self._quiet_after = [-1] * count  # the last cell of which no threads are left
        self._hearing: _Hearing | None = None
        self._details: dict[int, Detail] = {}
        self._listener = Listener(count, folder, host, self._hear, self._miss)
        self.address: Address = self._listener.address
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

    @property
    def present(self) -> set[int]:
        """The processes that are connected."""
        return self._listener.present

    def begin(self, processes: Iterable[int]) -> int:
        """Begin a cell on these processes; return its number, which their clients have to know."""
        with self._lock:
            if self._hearing is not None:
                self._give_verdict()
            self._cell += 1
            self._details = {}
            for k, queue in enumerate(self._unheld):
                if queue:
                    self._rule(self._referee.withdraw(k, queue[0].ticket))
                for announced in queue:
                    self._arrivals.pop((k, announced.ticket), None)
                queue.clear()
            invited = list(processes)
            for k in invited:
                self._given[k] = self._cell
            self._rule(self._referee.begin(invited))
            return self._cell

    def finish(self, process: int, *, busy: bool = False) -> None:
        """Take note that a process has finished the cell; see `Referee.finish`."""
        with self._lock:
            self._rule(self._referee.finish(process, busy=busy and self._may_be_busy(process)))

    def fail(self, process: int, error: str, *, busy: bool = False) -> None:
        """Take note that the cell ended with an error on a process; see `Referee.fail`."""
        with self._lock:
            busy = busy and self._may_be_busy(process)
            self._rule(self._referee.fail(process, error, busy=busy))

    def die(self, process: int, how: ProcessExit) -> None:
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

    def interrupt(self, process: int, attempt: int = 1) -> None:
        """Have a process interrupt the cell that was begun last, also if it has not begun it yet.

        Args:
            process: The process's index.
            attempt: How often the cell was to be interrupted by now, this time included.
        """
        with self._lock:
            self._send(process, ["interrupt", self._cell, attempt], "control")

    def close(self) -> None:
        """Let everybody pass who waits, and listen no more."""
        self._listener.end()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._listener.poll(self._time_left()):
                if self._time_left() == 0:
                    with self._lock:
                        if self._hearing is not None:
                            self._give_verdict()
        finally:
            self._listener.close()

    def _time_left(self) -> float | None:
        """Return for how long a hearing still goes on, in seconds; None if there is none."""
        hearing = self._hearing
        return None if hearing is None else max(hearing.until - time.monotonic(), 0)

    def _miss(self, k: int, role: str) -> None:
        # How a notebook's process ended is told by who keeps it, if somebody does.
        if self._cells and role == "control" and self._lost is not None:
            self._lost(k)
        if not self._cells and role == "launches" and k not in self._told:
            how = self._how(k)
            with self._lock:
                self._rule(self._referee.die(k, how))

    def _hear(self, k: int, message: Message) -> None:
        with self._lock:
            kind, *rest = message
            if kind == "at":
                self._announced(k, *rest)
            elif kind == "launch":
                self._launches[k, rest[0]] = Launch.from_data(rest[1])
            elif kind == "quiet":
                self._quiet(k, *rest)
            elif kind == "back":
                self._call_back(k, rest[0])
            elif kind == "sync":
                self._send(k, ["synced", rest[0]])
            elif kind == "detail":
                self._explained(k, *rest)
            elif kind in ("left", "failed") and not self._cells and k not in self._told:
                self._told.add(k)
                self._rule(self._referee.fail(k, *rest) if rest else self._referee.leave(k))

    def _announced(
        self,
        k: int,
        ticket: int,
        number: int,
        line: int | None,
        place: str,
        alone: bool,
        tickets: list[int],
        held: bool,
    ) -> None:
        launch = self._launches[k, number]
        alone = alone and self._still_wait(k, tickets)
        self._arrivals[k, ticket] = time.monotonic()
        if held:
            self._rule(
                self._referee.announce(k, ticket, launch, line=line, place=place, alone=alone)
            )
        else:
            self._unheld[k].append(_Announced(ticket, launch, line, place))
            if len(self._unheld[k]) == 1:
                self._announce_next(k)

    def _still_wait(self, k: int, tickets: list[int]) -> bool:
        """Return whether threads that a process saw waiting had not been let go meanwhile.

        If one was, the process will look again when it hears of it.
        """
        return all((k, ticket) in self._arrivals for ticket in tickets)

    def _quiet(self, k: int, cell: int, over: bool, tickets: list[int]) -> None:
        if cell != self._given[k] or not self._still_wait(k, tickets):
            return
        if over:
            self._quiet_after[k] = cell
        # Where its cell is over for the process itself, the notebook may not have said so yet.
        if not over or self._referee.ended(k):
            self._rule(self._referee.quiet(k))

    def _may_be_busy(self, k: int) -> bool:
        return self._quiet_after[k] != self._given[k]

    def _explained(self, k: int, ticket: int, data: dict[str, object]) -> None:
        if self._hearing is not None and (k, ticket) in self._hearing.asked:
            self._hearing.asked.discard((k, ticket))
            self._hearing.details[k] = Detail.from_data(data)
            if not self._hearing.asked:
                self._give_verdict()

    def _announce_next(self, k: int) -> None:
        """Announce what a process has launched next, in its own order, without waiting."""
        if self._unheld[k]:
            one = self._unheld[k][0]
            self._rule(
                self._referee.announce(k, one.ticket, one.launch, line=one.line, place=one.place)
            )

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
                met = []
                for k, ticket in ruling.waiters:
                    self._arrivals.pop((k, ticket), None)
                    if self._is_unheld(k, ticket):
                        self._unheld[k].popleft()
                        met.append(k)
                    else:
                        self._listener.send(k, b'["go",%d]\n' % ticket)
                for k in met:
                    self._announce_next(k)
            else:
                self._hold_hearing(ruling)

    def _is_unheld(self, k: int, ticket: int) -> bool:
        return bool(self._unheld[k]) and self._unheld[k][0].ticket == ticket

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
            self._listener.wake()  # it has a time to keep now

    def _give_verdict(self) -> None:
        hearing, self._hearing = self._hearing, None
        assert hearing is not None
        self._details.update(hearing.details)
        verdict = self.verdict
        assert verdict is not None
        wording = explain(verdict, self.count)
        for k, ticket in hearing.waiters:
            self._arrivals.pop((k, ticket), None)
            if not self._is_unheld(k, ticket):
                said = [wording.sentence, list(wording.lines), verdict.kind]
                self._send(k, ["stop", ticket, *said])

    def _send(self, k: int, message: Message, role: str = "launches") -> None:
        self._listener.send(k, encode(message), role)
