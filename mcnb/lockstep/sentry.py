"""The sentry: a process's end. It announces each launch that communicates, and waits for its go.

It knows nothing of notebooks, and nothing of JAX either: what it is asked to let pass is a
`Launch`, and where the process stands is told by who asks.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType

from mcnb.errors import LockstepError
from mcnb.lockstep.launches import Launch, LaunchRecord
from mcnb.lockstep.places import Place
from mcnb.lockstep.verdicts import Detail
from mcnb.lockstep.wire import MOST_BYTES, Address, Inbox, Message, encode, nonce, proof

# While a thread waits, it is looked this often whether others of the process still run.
LOOK_S = 0.05
# More launches of one cell are not kept.
MOST_RECORDS = 100_000


@dataclass(slots=True)
class _Slot:
    """A thread that waits.

    Attributes:
        place: Where it stands.
        thread: Its identifier.
        woken: Held until there is an answer.
        answer: The answer.
        turn: Which of the process's launches it is to make, once it may.
    """

    place: Place
    thread: int
    woken: threading.Lock
    answer: Message = field(default_factory=list)
    turn: int = 0


class Sentry:
    """Stands before a process's launches.

    Args:
        address: Where the referee listens.
        process: The process's index.
        is_learners: Whether a frame runs code of the learner's.
        detail: Returns what there is to tell of a launch, from its place and the innermost frame
            of the thread that stands at it.
        abort: Ends what hangs in this process, given the ports at which communicators listen.

    Raises:
        OSError: The referee can't be reached.
        PermissionError: One of the two ends does not know the key.

    Attributes:
        holding: Whether a launch waits for its go; otherwise it is announced and goes ahead.
        records: The launches since they were last taken.
        dropped: How many more there were than are kept.
    """

    def __init__(
        self,
        address: Address,
        process: int,
        is_learners: Callable[[FrameType], bool],
        detail: Callable[[Place, FrameType | None], Detail] = lambda *_: Detail(),
        abort: Callable[[list[int]], None] = lambda _: None,
    ) -> None:
        self.process = process
        self.holding = True
        self.records: list[LaunchRecord] = []
        self.dropped = 0
        self._is_learners = is_learners
        self._detail = detail
        self._abort = abort
        self._inbox = Inbox()
        self._early: list[Message] = []
        self._socket = address.connect()
        self._greet(address.key)
        self._sending = threading.RLock()
        self._numbers: dict[Launch, int] = {}
        self._slots: dict[int, _Slot] = {}
        self._passed: dict[int, Place] = {}
        self._tickets = itertools.count()
        # Threads that were there before any code of the learner's: they never run it.
        self._not_learners: set[int | None] = {
            *sys._current_frames().keys() - {threading.main_thread().ident}
        }
        self._released = 0
        self._told_alone = (False, 0)
        self._busy = False
        self._suspended: set[int] = set()
        self._turns = threading.Condition(threading.RLock())
        self._turn = 0
        self._turn_owner: int | None = None
        self._closed = False
        listener = threading.Thread(target=self._listen, name="mcnb sentry", daemon=True)
        listener.start()
        self._not_learners.add(listener.ident)

    @contextmanager
    def passing(self, launch: Launch, place: Place) -> Iterator[None]:
        """Wait until a launch may be made; make it inside.

        Raises:
            LockstepError: It never may: the processes have parted.
        """
        if threading.get_ident() in self._suspended:
            yield
            return
        announced = time.monotonic()
        began: float | None = None
        try:
            if not launch.communicates or self._closed:
                began = announced
                yield
                return
            interrupt: BaseException | None = None
            # Not the thread's identifier: a finalizer may launch something while its thread waits.
            ticket = next(self._tickets)
            if not self.holding:
                self._passed[ticket] = place
                self._announce(ticket, launch, place)
                began = announced
                yield
                return
            slot = _Slot(place, threading.get_ident(), threading.Lock())
            slot.woken.acquire()
            self._slots[ticket] = slot
            try:
                self._announce(ticket, launch, place)
                interrupt = self._wait(ticket, slot)
            finally:
                del self._slots[ticket]
            if slot.answer[0] == "stop":
                raise LockstepError(slot.answer[2], slot.answer[3])
            if slot.answer[0] == "backed":
                assert interrupt is not None
                raise interrupt
            with self._in_turn(slot.turn):
                began = time.monotonic()
                yield
            if interrupt is not None:
                # The others were on their way: the launch was made, or they would wait for ever.
                raise interrupt
        finally:
            if len(self.records) < MOST_RECORDS:
                returned = None if began is None else time.monotonic()
                self.records.append(
                    LaunchRecord(self.process, launch, place.line, announced, began, returned)
                )
            else:
                self.dropped += 1

    def take_records(self) -> tuple[LaunchRecord, ...]:
        """Return the launches since the last call, and forget them."""
        records, self.records = self.records, []
        self._passed.clear()
        return tuple(records)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Let the launches of this thread pass, unannounced."""
        self._suspended.add(threading.get_ident())
        try:
            yield
        finally:
            self._suspended.discard(threading.get_ident())

    def finished(self) -> bool:
        """Take note that the cell has ended; return whether threads still run the learner's code.

        The referee is told when they don't any more.
        """
        self._busy = self._others_run()
        return self._busy

    def close(self) -> None:
        """Tell the referee that the process ends, and let all further launches pass."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._send(["left"])
            self._socket.shutdown(socket.SHUT_RDWR)

    def _greet(self, key: str) -> None:
        """Prove who this is, and have the server do the same."""
        [(_, theirs)] = self._receive(1)
        mine = nonce()
        self._socket.sendall(encode(["hello", self.process, mine, proof(key, "sentry", theirs)]))
        answer = self._receive(1)
        if not answer or answer[0] != ["welcome", proof(key, "server", mine)]:
            raise PermissionError("the referee's server and this process know different keys")

    def _receive(self, least: int) -> list[Message]:
        messages, self._early = self._early, []
        while len(messages) < least:
            data = self._socket.recv(MOST_BYTES)
            if not data:
                break
            messages += self._inbox.feed(data)
        self._early = messages[least:]
        return messages[:least]

    def _send(self, message: Message) -> None:
        data = encode(message)
        with self._sending:
            self._socket.sendall(data)

    def _announce(self, ticket: int, launch: Launch, place: Place) -> None:
        number = self._numbers.get(launch)
        described = b""
        if number is None:
            number = self._numbers[launch] = len(self._numbers)
            described = encode(["launch", number, launch.as_data()])
        released = self._released
        alone = not self._others_run()
        self._told_alone = (alone, released)
        at = ["at", ticket, number, place.line, place.name, alone, released]
        with self._sending:
            self._socket.sendall(described + encode(at))

    def _wait(self, ticket: int, slot: _Slot) -> BaseException | None:
        """Wait for the answer; return an interrupt that came meanwhile."""
        try:
            slot.woken.acquire()
        except BaseException as interrupt:
            if not slot.answer:
                self._send(["back", ticket])
                slot.woken.acquire()
            return interrupt
        return None

    @contextmanager
    def _in_turn(self, turn: int) -> Iterator[None]:
        """Make the launches of several threads in the order in which they may be made.

        It is the same in all processes, and so is the order on their devices then.
        """
        thread = threading.get_ident()
        nested = self._turn_owner == thread
        if not nested:
            with self._turns:
                while self._turn != turn:
                    self._turns.wait()
                self._turn_owner = thread
        try:
            yield
        finally:
            with self._turns:
                self._turn += 1
                if not nested:
                    self._turn_owner = None
                self._turns.notify_all()

    def _others_run(self) -> bool:
        """Return whether a thread that does not wait here runs the learner's code."""
        frames = sys._current_frames()
        quiet = {slot.thread for slot in list(self._slots.values())}
        quiet.add(threading.get_ident())
        others = frames.keys() - self._not_learners - quiet
        return any(self._runs(frames[thread], quiet) for thread in others)

    def _runs(self, frame: FrameType | None, quiet: set[int]) -> bool:
        """Return whether a thread runs code of the learner's, rather than waits for a quiet one."""
        if _joined_thread(frame) in quiet:
            return False
        while frame is not None:
            if self._is_learners(frame):
                return True
            frame = frame.f_back
        return False

    def _listen(self) -> None:
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        try:
            while True:
                waits = bool(self._slots) and not self._told_alone[0]
                looks = waits or self._busy
                if not self._early and not poller.poll(LOOK_S * 1000 if looks else None):
                    self._look()
                    continue
                messages, self._early = self._early, []
                if not messages:
                    data = self._socket.recv(MOST_BYTES)
                    if not data:
                        break
                    messages = self._inbox.feed(data)
                for message in messages:
                    self._hear(message)
        except OSError:
            pass
        self._let_all_pass()
        self._socket.close()

    def _look(self) -> None:
        """Tell the referee if no thread is left that may announce something."""
        released = self._released
        if not self._others_run():
            self._busy = False
            self._told_alone = (True, released)
            self._send(["quiet", released])

    def _hear(self, message: Message) -> None:
        if message[0] == "abort":
            self._abort(message[1])
            return
        kind, ticket = message[0], message[1]
        slot = self._slots.get(ticket)
        if kind == "explain":
            self._send(["detail", ticket, asdict(self._explain(ticket, slot))])
            return
        if slot is None or slot.answer:
            return
        if kind == "go":
            slot.turn = self._released
            self._released += 1
        slot.answer = message
        slot.woken.release()

    def _explain(self, ticket: int, slot: _Slot | None) -> Detail:
        place = self._passed.get(ticket) if slot is None else slot.place
        frame = None if slot is None else sys._current_frames().get(slot.thread)
        try:
            return Detail() if place is None else self._detail(place, frame)
        except Exception:  # whatever it is: the verdict is known without it
            return Detail()

    def _let_all_pass(self) -> None:
        """Hold nobody back when there is no referee any more."""
        self._closed = True
        for ticket, slot in list(self._slots.items()):
            if not slot.answer:
                self._hear(["go", ticket])


def _joined_thread(frame: FrameType | None) -> int | None:
    """Return the thread for which a thread waits without a limit of time, if it does."""
    while frame is not None and frame.f_globals.get("__name__") == "threading":
        if frame.f_code.co_name == "join" and frame.f_locals.get("timeout") is None:
            joined = frame.f_locals.get("self")
            return joined.ident if isinstance(joined, threading.Thread) else None
        frame = frame.f_back
    return None
