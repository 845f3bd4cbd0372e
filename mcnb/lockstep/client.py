"""Announce each launch that communicates to the referee, and wait until it may go ahead.

The client knows nothing of notebooks or JAX: its caller gives it a `Launch`, and the place in the
program at which the process makes the launch.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import select
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from types import FrameType
from typing import Any, TypeVar

from mcnb.errors import LockstepError, McnbError, refusal
from mcnb.lockstep.caught import CaughtExceptions
from mcnb.lockstep.model import MOST_RECORDS, Detail, Launch, LaunchRecord
from mcnb.lockstep.numbering import Numbering
from mcnb.lockstep.ordering import Ordering, Passage, Slot, called_within, is_called_by
from mcnb.lockstep.source import Place
from mcnb.lockstep.threads import Threads, current_frames, interrupt_main
from mcnb.lockstep.values import NO_ANSWER, Replicas
from mcnb.lockstep.wire import Address, Channel, DisconnectedError, Message

T = TypeVar("T")
# How often to check, while a thread waits, whether other threads of the process still run.
LOOK_S = 0.05
# After so many checks without a thread that waits, a message wakes the thread that checks.
IDLE_LOOKS = 20
# A barrier whose time limit is no longer, in seconds, gets no verdict: a program may count on the
# error that ends it.
BRIEF_S = 10.0
# The longest time for which poll(2) can wait, about.
LONGEST_S = 2e6
# Of launches without communication, the inputs of so many are compared by default, and then of the
# launches whose number is a power of two.
MANY_INPUTS = 16

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forked() -> None:
    for client in list(_clients):
        client.forked()


os.register_at_fork(after_in_child=_forked)


def _answer(slot: Slot | None, name: str, blocks: list[int] | None) -> Message:
    """Return the answer to "compare", which is empty if the thread no longer waits."""
    with contextlib.suppress(Exception):  # of any kind: the digests are enough for a verdict
        if slot is not None and slot.replicas is not None:
            return slot.replicas.answer(name, blocks)
    return list(NO_ANSWER)


class Client:
    """The referee's client in a process, which holds each launch until it may go ahead.

    Args:
        address: The referee's address.
        process: The process's index.
        is_learners: Returns whether a frame runs the learner's code.
        lines: Returns the names of the lines on the stack of a place, from the outermost.
        detail: Returns the details of a launch, from its place, the innermost frame of the thread
            that waits at it, the exception that the thread handles, and the place of an earlier
            launch that may be its cause.
        abort: Aborts what hangs in this process, given the ports at which communicators listen.
        gone: Called when the referee is gone before this client has closed the connection.
        interrupt: Called with the number of the cell to interrupt, and the number of its
            interrupts so far.
        values: Whether to compare the values of replicated arguments at each launch, or never;
            None for the first launch of a computation, and for a sample of the others.
        reroute: Called to have each launch made from Python, if given True, or only the next launch
            of each computation. Native code does not know the arguments.
        caught: The exceptions that the learner's code catches.
        command: Called with a command for the process's debugger, and the number of its halt.
        ask: Called with the number of a question where the process is.

    Raises:
        OSError: The referee can't be reached.
        PermissionError: One end of the connection does not know the key.

    Attributes:
        values, caught: See above.
        alone: The error of a launch that communicates, by thread: a debugger refuses them.
        main: The thread that runs the cell, or the script, even if its frames are a library's.
        records: The launches since the last call of `take_records`.
        error, error_of_thread: The first verdict, and the last of another than the main thread.
    """

    def __init__(
        self,
        address: Address,
        process: int,
        is_learners: Callable[[FrameType], bool],
        lines: Callable[[Place], tuple[str, ...]] = lambda _: (),
        detail: Callable[[Place, FrameType | None, BaseException | None, Place], Detail] = (
            lambda *_: Detail()
        ),
        abort: Callable[[list[int]], None] = lambda _: None,
        gone: Callable[[], None] = lambda: None,
        interrupt: Callable[[int, int], None] = lambda *_: interrupt_main(),
        values: bool | None = None,
        reroute: Callable[[bool], None] = lambda _: None,
        caught: CaughtExceptions | None = None,
        command: Callable[[int, str], None] = lambda *_: None,
        ask: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.process = process
        self.values = values
        self._reroute = reroute
        self.caught = caught or CaughtExceptions()
        self._sampled: set[Launch] = set()  # computations whose next launch compares values
        self.records: list[LaunchRecord] = []
        self.error: LockstepError | None = None
        self.error_of_thread: LockstepError | None = None
        self._detail = detail
        self._gone = gone
        self._orders = dict[str, Any](abort=abort, interrupt=interrupt, command=command, ask=ask)
        self._channel = Channel(address, process, "launches")
        self._control = Channel(address, process, "control")
        self._bell, self._rung = socket.socketpair()
        # Reads for all waiting threads. A signal handler may launch in the thread that reads.
        self._leading = threading.RLock()
        self._hearing = threading.RLock()
        self._numbering = Numbering(lines)
        self._slots: dict[int, Slot] = {}
        # The launches of Python code that wait or may be made, until they were made, by ticket; of
        # native code, the last that may be made, by thread.
        self._unmade: dict[int, Slot] = {}
        self._native: dict[int, tuple[Passage, Launch]] = {}
        self._going: set[int] = set()  # threads whose launches go ahead, but have not begun
        self._passed: dict[int, Place] = {}
        self._tickets = itertools.count()
        self._told_alone = self._busy = False
        self._awake = False  # whether `_listen` looks within LOOK_S without the bell
        self._cell = self._turn = 0
        self._stopped: set[int] = set()  # threads with a verdict; the main one until it goes on
        self.main: int | None = None
        self._over, self._holding = False, True  # whether the cell is over; a script has no cells
        self._suspended: set[int] = set()
        self.alone: dict[int, LockstepError] = {}
        self._unheard = False  # whether inputs were sent since the last synchronisation
        # How often the inputs of a launch from a stack could be sent in this cell.
        self._inputs: Counter[tuple[Launch, int]] = Counter()
        self._turns = Ordering()
        self._closed = self._left = False
        _clients.add(self)
        threading.Thread(target=self._listen, name="mcnb check", daemon=True).start()
        # After that thread, which is none of the learner's.
        self._is_learners = is_learners
        self._threads = Threads(is_learners)

    def make(
        self,
        launch: Launch,
        place: Place,
        make: Callable[[], T],
        replicas: Replicas | None = None,
        until: float | None = None,
        names: Callable[[], Sequence[str]] = tuple,
    ) -> T:
        """Wait until a launch may be made, make it, and return its result.

        Args:
            launch: The launch.
            place: The place of the launch.
            make: Makes the launch.
            replicas: The launch's arguments, whose values may be compared.
            until: When to make the launch in any case, on the monotonic clock; None for never.
            names: Returns the names of the arguments, as far as known.

        Raises:
            LockstepError: The launch may never be made, because the processes diverged.
        """
        if replicas is not None and not launch.communicates:
            self._tell_inputs(launch, place, replicas, names)
        slot = self._arrive(launch, place, make=make, replicas=replicas, until=until)
        if slot is None or slot.passage is None:
            return make()
        try:
            slot.begun = True  # no signal handler is called between this line and the next one
            if slot.outcome is None:
                try:
                    result = make()
                finally:
                    self._turns.end(slot.passage)
        finally:
            self._unmade.pop(slot.ticket, None)
        if slot.passage.interrupt is not None:
            # The other participants went ahead: without this launch, they would wait for ever.
            raise slot.passage.interrupt
        if slot.outcome is not None:
            result, error = slot.outcome
            if error is not None:
                raise error
        return result

    def _made(self, passage: Passage, make: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        try:
            return make(), None
        except BaseException as error:
            return None, error
        finally:
            self._turns.end(passage)

    def arrive(self, launch: Launch, place: Place, caller: FrameType) -> Passage | None:
        """Wait until a launch may be made that native code makes next.

        Args:
            launch: The launch.
            place: The place of the launch.
            caller: The frame from which native code makes the launch, until that frame continues.

        Returns:
            The launch; None if it is made without waiting.

        Raises:
            LockstepError: The launch may never be made, because the processes diverged.
            McnbError: A signal handler launches in the middle of another launch.
        """
        slot = self._arrive(launch, place, caller)
        return None if slot is None else slot.passage

    def _arrive(
        self,
        launch: Launch,
        place: Place,
        caller: FrameType | None = None,
        make: Callable[[], Any] | None = None,
        replicas: Replicas | None = None,
        until: float | None = None,
    ) -> Slot | None:
        """Wait until a launch may be made; None if it is made without waiting.

        For the arguments and errors, see `make` and `arrive`. A signal handler may have made the
        launch meanwhile, if its own launch has to come after it.
        """
        thread = threading.get_ident()
        if thread in self._suspended:
            return None
        announced = time.monotonic()
        if not launch.communicates or self._closed:
            self._record(launch, place, announced, announced)
            return None
        if thread in self.alone:
            raise self.alone[thread]
        # Not the thread's identifier: a finalizer may launch a computation while its thread waits.
        ticket = next(self._tickets)
        if not self._holding and launch.is_barrier:
            return None  # devices execute launches in order, but threads may overtake a barrier
        if not self._holding:
            self._passed[ticket] = place
            self._announce(ticket, Slot(place, thread, launch), held=False)
            self._record(launch, place, announced, announced)
            return None
        digests = self._digests(launch, replicas)
        outer = self._make_outer(thread, launch, caller)
        slot = Slot(place, thread, launch, ticket=ticket, make=make, until=until)
        slot.brief = until is not None and until - announced <= BRIEF_S
        slot.handled = sys.exception()
        if digests:
            slot.replicas, slot.digests = replicas, digests
        self._slots[ticket] = self._unmade[ticket] = slot
        try:
            interrupt = self._wait(ticket, slot)
            if slot.answer[0] == "stop":
                error = refusal(*slot.answer[2:])
                self.error = self.error or error
                self.caught.forget()  # the verdict has them
                if thread != threading.main_thread().ident:
                    self.error_of_thread = error
                raise error
            if slot.answer[0] == "backed" and interrupt is not None:
                raise interrupt
        except BaseException:
            self._record(launch, place, announced, None)
            self._unmade.pop(ticket, None)
            raise
        finally:
            del self._slots[ticket]
            if outer:
                self._rouse(outer)
        if slot.answer[0] == "backed":
            self._record(launch, place, announced, None)
            self._unmade.pop(ticket, None)
            return None
        self.caught.launched()
        if len(slot.answer) > 2 and self.values is None:
            self._sampled.add(launch)
            self._reroute(False)
        by = (id(caller), caller.f_code, caller.f_lasti) if caller else (0, None, 0)
        passage = slot.passage = Passage(launch, thread, slot.turn, interrupt, *by)
        self._take_turn(passage, slot)
        self._record(launch, place, announced, time.monotonic())
        if caller is not None:
            self._native[thread] = passage, launch
            self._unmade.pop(ticket, None)
        return slot

    def _digests(self, launch: Launch, replicas: Replicas | None) -> dict[str, str]:
        """Return the digests with which a launch is announced."""
        if replicas is None or self.values is False:
            return {}
        sampled = launch in self._sampled
        self._sampled.discard(launch)
        if not (self.values or sampled or replicas.before == 0):
            return {}
        return replicas.digests(whole=self.values is True)

    def _tell_inputs(
        self, launch: Launch, place: Place, replicas: Replicas, names: Callable[[], Sequence[str]]
    ) -> None:
        """Tell the referee which values a launch takes that does not communicate."""
        passes = self._closed or not self._holding or threading.get_ident() in self._suspended
        if passes or self.values is False:
            return
        first = replicas.before == 0
        exact = self.values is True
        # Native code makes the later launches of arrays that several processes hold.
        common = (first or exact) and replicas.has_common
        if not (common or replicas.has_own):
            return
        numbered = self._numbering.of(launch, place)
        before = self._inputs[launch, numbered.stack]
        self._inputs[launch, numbered.stack] += 1
        # The same launches on all processes, without a word between them.
        counts = before < MANY_INPUTS or before & (before - 1) == 0
        if not (exact or first or (counts and replicas.followed)):
            return
        if values := replicas.inputs(common=common, whole=exact):
            told = [numbered.number, numbered.stack, before, [*names()], values, exact]
            with contextlib.suppress(DisconnectedError):  # `_listen` lets launches pass
                self._channel.send(*numbered.messages, ["inputs", *told])
                self._numbering.keep(launch, numbered)
                self._unheard = True

    def _take_turn(self, passage: Passage, slot: Slot) -> None:
        """Wait for the turn of a launch that the other participants make, whatever happens here."""
        if slot.launch is not None and slot.launch.is_barrier:
            self._turns.skip(passage)  # the turns are those of devices
            return
        self._going.add(passage.thread)
        try:
            while slot.outcome is None:  # otherwise, a signal handler has taken it
                try:
                    self._turns.take(passage)
                    return
                except BaseException as error:
                    if passage.interrupt is not None:
                        self._turns.skip(passage)
                        raise
                    passage.interrupt = error
        finally:
            self._going.discard(passage.thread)

    def _make_outer(self, thread: int, launch: Launch, caller: FrameType | None) -> list[Slot]:
        """Make the launches of this thread below a signal handler or a finalizer, before its own.

        They come first: the other participants may have made them, and wait for their results. The
        thread can't make them by itself before the handler returns.

        Raises:
            McnbError: One of them is made by native code, or has begun.
        """
        outer = [slot for slot in list(self._unmade.values()) if slot.thread == thread]
        # A handler that came before the announcement also comes before the launch.
        waiting = [slot for slot in outer if slot.announced and slot.outcome is None]
        for slot in waiting:
            while not slot.answer:
                self._hear_or_sleep(slot)
            goes = slot.answer[0] in ("go", "went") and thread not in self._going
            if goes and slot.make is not None and not slot.begun:
                own = slot.launch or launch
                passage = slot.passage or Passage(own, thread, slot.turn, None, 0, None, 0)
                if not self._turns.is_at(passage):
                    self._take_turn(passage, slot)
                slot.outcome = self._made(passage, slot.make)
                if slot.passage is None and passage.interrupt is not None:
                    raise passage.interrupt
        unmade = [s for s in waiting if s.answer[0] in ("go", "went") and s.outcome is None]
        begun = bool(unmade) and all(slot.begun for slot in unmade)
        if begun and not called_within(Client.make.__code__, self._is_learners):
            return outer  # JAX makes a launch in order to make another one
        names = [slot.launch.name for slot in unmade if slot.launch]
        if last := self._native.get(thread):
            passage, native = last
            if passage.caller != id(caller) and is_called_by(passage):
                names.append(native.name)
        if names or thread in self._going:
            self._rouse(outer)
            other = f" of {names[0]}" if names else ""
            # No verdict: the cause, which the result shows before what follows from it.
            raise McnbError(
                f"a signal handler or a finalizer launched {launch.name} in the middle of the "
                f"launch{other}, which has to come first. Set a flag in the handler, and launch at "
                "the end of a step"
            )
        return outer

    def _rouse(self, outer: list[Slot]) -> None:
        """Let waiting threads see that another thread, or a signal handler, heard their answers."""
        for slot in outer:
            slot.wake()
        with contextlib.suppress(DisconnectedError):
            self._channel.send(["sync", -1])  # they may be reading

    def _record(self, launch: Launch, place: Place, at: float, began: float | None) -> None:
        if len(self.records) < MOST_RECORDS:
            self.records += [LaunchRecord(self.process, launch, place.line, at, began, place.name)]

    def take_records(self) -> tuple[LaunchRecord, ...]:
        """Return the launches since the last call, and forget them."""
        taken, self.records = tuple(self.records), []
        return taken

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Let the launches of this thread pass without announcing them."""
        self._suspended.add(threading.get_ident())
        try:
            yield
        finally:
            self._suspended.discard(threading.get_ident())

    def begin(self, cell: int, *, holding: bool = True, values: bool | None = None) -> None:
        """Begin a cell in this thread.

        The server gave the cell its number. Launches wait if `holding`, or are only announced.
        Values are compared as the client's argument `values` says.
        """
        thread = threading.get_ident()
        # An interrupt may have come before they were made.
        for ticket in [t for t, slot in list(self._unmade.items()) if slot.thread == thread]:
            self._unmade.pop(ticket, None)
        self._passed.clear()
        self.caught.forget()
        self._numbering.begin()
        self._inputs.clear()
        if values != self.values:
            self.values = values
            self._reroute(values is True)
        with self._hearing:
            self._cell, self.main, self._over, self._holding = cell, thread, False, holding
            self._stopped.clear()

    def finish(self) -> bool:
        """End the cell; return whether threads may still run the learner's code.

        The client notifies the referee when none does. One that waits may soon have its answer.
        """
        if not self._holding or self._slots or self._unheard:
            self._sync()  # the cell's reply uses another channel, and may be faster
            self._unheard = False
        with self._hearing:
            self.main, self._over = None, True
            self._busy = bool(waiting := self._waiting()) or self._others_run(waiting)
        if self._busy:
            self._bell.send(b".")
        return self._busy

    def _sync(self) -> None:
        """Wait until the referee knows all launches that went ahead.

        Otherwise the referee might receive them in the next cell.
        """
        if self._closed:
            return
        ticket = next(self._tickets)
        slot = self._slots[ticket] = Slot(Place(), threading.get_ident())
        try:
            self._channel.send(["sync", ticket])
            self._wait(ticket, slot)
        except DisconnectedError:
            self._let_all_pass()
        finally:
            del self._slots[ticket]

    def close(self, error: str = "") -> None:
        """Notify the referee that the process ends, and of its error; further launches pass."""
        self._closed = self._left = True
        with contextlib.suppress(DisconnectedError):
            caught = [asdict(one) for one in self.caught.recent]
            self._channel.send(["failed", error] if error else ["left", caught])
        self._channel.close()
        self._control.close()

    def forked(self) -> None:
        """Let all launches pass in a child of the client's process.

        It has copies of the sockets, and none of the threads, which may have held the locks.
        """
        self._closed = self._left = True
        for end in (self._control.socket, self._channel.socket, self._bell, self._rung):
            end.close()

    def _announce(self, ticket: int, slot: Slot, *, held: bool = True) -> None:
        assert slot.launch is not None
        numbered = self._numbering.of(slot.launch, slot.place)
        with self._hearing:
            waiting = self._waiting()
            # What other threads do is looked at only if the launch waits: it takes milliseconds.
            alone = self._told_alone = not (slot.brief or self._threads.exist(waiting.values()))
            rings = slot.until is not None or not (alone or self._awake)
        at = ["at", ticket, numbered.number, numbered.stack, alone, list(waiting), held]
        if slot.replicas is not None:
            at.append([slot.digests, self.values is True, slot.replicas.seconds])
        try:
            self._channel.send(*numbered.messages, at)
            slot.announced = True  # at once: a signal handler may launch from here on
        except DisconnectedError:
            self._let_all_pass()
        self._numbering.keep(slot.launch, numbered)
        if rings:
            self._bell.send(b".")

    def _wait(self, ticket: int, slot: Slot) -> BaseException | None:
        """Announce a launch and wait for the answer; return an interrupt that arrived meanwhile.

        One of the waiting threads reads for all. A thread that only reads would cost another
        switch of threads for each launch, and such switches are most of a launch's cost here.
        """
        interrupt: BaseException | None = None
        while not slot.answer:
            try:
                if interrupt is not None:
                    slot.woken.acquire()
                elif slot.launch is not None and not slot.announced:
                    self._announce(ticket, slot)
                else:
                    self._hear_or_sleep(slot)
            except BaseException as error:
                if interrupt is not None:
                    raise
                interrupt = error
                with contextlib.suppress(DisconnectedError):  # `_listen` lets it pass
                    self._channel.send(["back", ticket])
        return interrupt

    def _hear_or_sleep(self, slot: Slot) -> None:
        """Read for all threads, or wait until another thread has heard an answer for this one."""
        if self._leading.acquire(blocking=False):
            self._lead(slot)
        else:
            slot.woken.acquire()

    def _lead(self, slot: Slot) -> None:
        """Read until this thread has an answer; then let another thread read."""
        try:
            while not slot.answer:
                if not self._channel.hear(self._hear):
                    self._let_all_pass()
        except DisconnectedError:
            self._let_all_pass()
        finally:
            self._leading.release()
            for other in list(self._slots.values()):
                if not other.answer and other is not slot:
                    other.wake()
                    break

    def _waiting(self) -> dict[int, int]:
        """Return the waiting threads, by their tickets."""
        slots = list(self._slots.items())
        return {t: slot.thread for t, slot in slots if slot.announced and not slot.answer}

    def _others_run(self, waiting: dict[int, int]) -> bool:
        """Return whether a thread may still launch something before the waiting threads go on."""
        if any(slot and slot.brief for slot in map(self._slots.get, waiting)):
            return True
        return self._threads.others_run(waiting.values(), self.main, stopped=bool(self._stopped))

    def _listen(self) -> None:
        poller = select.poll()
        for end in (self._control.socket, self._rung):
            poller.register(end, select.POLLIN)
        try:
            idle = 0
            while True:
                with self._hearing:
                    looks = self._busy or (bool(self._slots) and not self._told_alone)
                    idle = 0 if looks else idle + 1
                    self._awake = idle < IDLE_LOOKS
                    waiting = self._waiting()
                limits = [slot.left_s() for slot in list(self._slots.values())]
                wait_s = min(limits + [LOOK_S] * self._awake, default=math.inf)
                ready = poller.poll(wait_s * 1000 if wait_s < LONGEST_S else None)
                if not ready:
                    if looks:
                        self._look(waiting)
                    self._give_up()
                elif ready[0][0] == self._rung.fileno():
                    self._rung.recv(64)
                else:
                    messages = self._control.receive()
                    if not messages:
                        break
                    for message in messages:
                        self._hear(message)
        except (DisconnectedError, OSError):
            pass
        self._let_all_pass()
        for end in (self._control.socket, self._channel.socket, self._bell, self._rung):
            end.close()
        if not self._left:
            self._gone()

    def _give_up(self) -> None:
        """Withdraw the announcements of threads whose time is over."""
        for ticket, slot in list(self._slots.items()):
            if not slot.left_s():
                slot.until = None
                self._channel.send(["late", ticket])

    def _look(self, waited: dict[int, int]) -> None:
        """Notify the referee if no thread but those that have waited may announce a launch."""
        with self._hearing:
            waiting = self._waiting()
            # A thread that waits no more goes on, even if its frames are not the learner's by now.
            goes_on = not waiting or waiting != waited
            if (goes_on and not self._busy) or self._others_run(waiting):
                return
            self._busy, self._told_alone = False, True
            quiet = ["quiet", self._cell, self._over, list(waiting)]
        self._channel.send(quiet)

    def _hear(self, message: Message) -> None:
        kind, ticket = message[0], message[1]
        if kind in self._orders:
            self._orders[kind](*message[1:])
            return
        slot = self._slots.get(ticket)
        if kind == "explain":
            self._channel.send(["detail", ticket, asdict(self._explain(ticket, slot, message[2]))])
            return
        if kind == "compare":
            self._channel.send(["values", ticket, _answer(slot, *message[2:])])
            return
        with self._hearing:
            if slot is None or slot.answer:
                return
            # In one statement without a call, in which no signal handler is called: it may hear the
            # same message.
            slot.turn, self._turn, slot.answer = (
                (slot.turn, self._turn, slot.answer)
                if slot.answer
                else (self._turn, self._turn + (kind in ("go", "went")), message)
            )
            given_up = kind in ("backed", "went")
            others_wait = len(self._slots) > 1
            if others_wait:
                self._told_alone = False  # the thread continues, and may end without a launch
            if kind == "stop":
                self._stopped.add(slot.thread)
            elif slot.thread == self.main and self._stopped and kind != "backed":
                self._stopped.discard(slot.thread)
                self._busy = bool(self._stopped)
            # Its cell may go on, or wait for the thread for ever; after the cell, only the threads
            # go on, and the referee hears when they end.
            if kind == "stop" or self._over:
                self._busy = others_wait = True
        slot.wake()
        if given_up:
            self._rouse([slot])  # this answer came by the other connection
        if others_wait:
            self._bell.send(b".")

    def _explain(self, ticket: int, slot: Slot | None, stack: int | None) -> Detail:
        place = self._passed.get(ticket) if slot is None else slot.place
        with current_frames() as frames:  # the thread waits, so its frame does not change
            frame = None if slot is None else frames.get(slot.thread)
        try:
            handled = None if slot is None else slot.handled
            before = self._numbering.place_of(stack)
            detail = Detail() if place is None else self._detail(place, frame, handled, before)
            return detail if slot is None else replace(detail, caught=self.caught.recent)
        except Exception:  # of any kind: the verdict does not depend on it
            return Detail()

    def _let_all_pass(self) -> None:
        """Let all waiting threads pass when there is no referee any more."""
        self._closed = True
        for ticket, slot in list(self._slots.items()):
            if not slot.answer:
                self._hear(["go", ticket])
