"""The launches of a process: what each thread waits for, and in which order they are made."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from mcnb.lockstep.model import Launch
from mcnb.lockstep.source import Place
from mcnb.lockstep.threads import current_frames, module_of, stack_of
from mcnb.lockstep.values import Replicas
from mcnb.lockstep.wire import Message

# The interval between checks whether native code has made the launch before another thread's.
OVER_S = 0.0005
# How long native code may seem to make a launch before another call of the function goes ahead: one
# of the same program, whose order does not matter, and one of another.
HELD_BACK_S, ANOTHER_S = 0.1, 5.0


@dataclass(slots=True)
class Passage:
    """A launch that has gone ahead and that a thread is making.

    Attributes:
        launch: The launch.
        thread: The thread that makes the launch.
        turn: The launch's position in the order of the process's launches.
        interrupt: An interrupt that arrived while the thread waited.
        caller: The id of the frame from which native code makes the launch; 0 if none does. The
            frame itself would keep the learner's variables alive.
        code: The code that frame runs. Once it is gone, another frame may have its id.
        instruction: The offset of that frame's instruction.
        done: Whether the launch was reported as made.
        taken: When it took its turn, on the monotonic clock.
    """

    launch: Launch
    thread: int
    turn: int
    interrupt: BaseException | None
    caller: int
    code: CodeType | None
    instruction: int
    done: bool = False
    taken: float = math.inf

    def is_made_from(self, frame: FrameType) -> bool:
        """Return whether native code makes the launch from a frame, at its present instruction."""
        at = id(frame), frame.f_code, frame.f_lasti
        return at == (self.caller, self.code, self.instruction)

    def over(self) -> bool:
        """Return whether the launch was made."""
        if not self.caller:
            return self.done
        # Native code does not report that it is done, but its caller's frame goes on then.
        with current_frames() as frames:
            frame = frames.get(self.thread)
            if frame is None or self.thread == threading.get_ident():
                return True
            return not self.is_made_from(frame)

    def held_back_by(self, other: Passage) -> bool:
        """Return whether a launch of native code was made, and the thread waits for another one.

        In a loop, the thread's next call comes from the same instruction. JAX holds it back in
        native code while the first call of another thread compiles and launches the function.
        """
        if not self.caller or other.caller or self.launch.name != other.launch.name:
            return False
        same = self.launch.program == other.launch.program
        return time.monotonic() - self.taken > (HELD_BACK_S if same else ANOTHER_S)


@dataclass(slots=True)
class Slot:
    """A waiting thread.

    Attributes:
        place: The place of its launch.
        thread: The thread's identifier.
        launch: The launch; None if the thread only waits for an answer.
        ticket: The number under which the launch is announced.
        woken: A lock, held until there is an answer.
        answer: The referee's answer.
        turn: The launch's position among the launches of the process, once it may go ahead.
        announced: Whether the referee knows that the thread waits.
        make: Makes the launch; None if native code does.
        outcome: What `make` returned or raised, if a signal handler's launch had to wait for it.
        passage: The launch, once it may be made; None before.
        begun: Whether the thread is making the launch itself.
        replicas: The arguments whose values are compared; None if they are not.
        digests: The digests of these values.
        until: When the thread gives up, on the monotonic clock; None if it never does.
        brief: Whether the thread gives up soon, and so goes on in any case.
        handled: The exception that the thread handles, in an `except` or a `finally` clause.
    """

    place: Place
    thread: int
    launch: Launch | None = None
    ticket: int = -1
    woken: threading.Lock = field(default_factory=threading.Lock)
    answer: Message = field(default_factory=list)
    turn: int = 0
    announced: bool = False
    make: Callable[[], Any] | None = None
    outcome: tuple[Any, BaseException | None] | None = None
    passage: Passage | None = None
    begun: bool = False
    replicas: Replicas | None = None
    digests: dict[str, str] = field(default_factory=dict)
    until: float | None = None
    brief: bool = False
    handled: BaseException | None = None

    def __post_init__(self) -> None:
        self.woken.acquire()

    def wake(self) -> None:
        """Wake the thread to check for an answer, or to read for all threads."""
        with contextlib.suppress(RuntimeError):  # the thread is awake
            self.woken.release()

    def left_s(self) -> float:
        """Return in how many seconds the thread gives up, once its launch is announced."""
        if self.until is None or not self.announced:
            return math.inf
        return max(self.until - time.monotonic(), 0.0)


class Ordering:
    """Orders the launches of a process's threads.

    The order is the same in all processes, and therefore on all devices.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._next = 0
        self._skipped: set[int] = set()
        self._current: Passage | None = None

    def take(self, passage: Passage) -> None:
        """Wait for a launch's turn, and take the turn."""
        with self._changed:
            while True:
                current = self._current
                under_way = current is not None and not current.over()
                if under_way and current is not None and current.thread == passage.thread:
                    self.skip(passage)  # by a finalizer, in the middle of a launch
                    return
                if current is not None and current.held_back_by(passage):
                    under_way = False
                if not under_way and self._next == passage.turn:
                    self._current = passage
                    passage.taken = time.monotonic()
                    self._next += 1
                    break
                native = current is not None and current.caller
                self._changed.wait(OVER_S if native else None)
            self._go_on()

    def is_at(self, passage: Passage) -> bool:
        """Return whether a launch has taken its turn, and none has done so after it."""
        return self._current is passage

    def skip(self, passage: Passage) -> None:
        """Give up a launch's turn, or make the launch without waiting for it."""
        with self._changed:
            self._skipped.add(passage.turn)
            self._go_on()

    def _go_on(self) -> None:
        while self._next in self._skipped:
            self._skipped.discard(self._next)
            self._next += 1
        self._changed.notify_all()

    def end(self, passage: Passage) -> None:
        """Record that a launch was made."""
        with self._changed:
            passage.done = True
            self._changed.notify_all()


def is_called_by(passage: Passage) -> bool:
    """Return whether a launch of native code of this thread is about to be made.

    Its frame has then called mcnb, which has not returned to native code yet.
    """
    frame = sys._getframe()
    while (outer := frame.f_back) is not None:
        if passage.is_made_from(outer):
            return module_of(frame).startswith("mcnb.")
        frame = outer
    return False


def called_within(code: CodeType, is_learners: Callable[[FrameType], bool]) -> bool:
    """Return whether a function has called, further out, the learner's code that runs now."""
    learners = False
    for frame in stack_of(sys._getframe(1)):
        if learners and frame.f_code is code:
            return True
        learners = learners or is_learners(frame)
    return False
