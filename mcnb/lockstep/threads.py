"""Which threads of a process run the learner's code, and may launch something."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType

_COLLECTS_ANYWHERE = sys.version_info < (3, 12)
# One thread at a time, or the first to be done would have the collector go on under the other.
_one = threading.RLock()


@contextmanager
def current_frames() -> Iterator[dict[int, FrameType]]:
    """Look at the frames of all threads, by the threads' identifiers; walk them inside only.

    Example:
        >>> with current_frames() as frames:
        ...     threading.get_ident() in frames
        True
    """
    with _one:
        off = _COLLECTS_ANYWHERE and gc.isenabled()
        if off:
            gc.disable()
        try:
            yield sys._current_frames()
        finally:
            if off:
                gc.enable()


def line_of(frame: FrameType) -> int:
    """Return the line that a frame is at."""
    return frame.f_lineno or line_at(frame.f_code, frame.f_lasti)


def line_at(code: CodeType, instruction: int) -> int:
    r"""Return the line of an instruction; of the one before it, where it has none.

    An interrupt may come in an instruction that CPython has added and that belongs to no line.

    Args:
        code: The code.
        instruction: The instruction's offset in it, such as `frame.f_lasti`.

    Example:
        >>> line_at(compile("a = 1\nb = 2", "", "exec"), 0)
        1
    """
    line = code.co_firstlineno
    for start, _, number in code.co_lines():
        if start > instruction:
            break
        line = number or line
    return line


# How often it is looked whether native code has made a launch that another thread's has to follow.
OVER_S = 0.0005


@dataclass(slots=True)
class Passage:
    """A launch that may be made, and is being made.

    Attributes:
        thread: The thread that makes it.
        turn: Which of the process's launches it is.
        interrupt: An interrupt that came while the thread waited.
        caller: The identity of the frame from which native code makes it; 0 if none does. Not the
            frame, which would keep the learner's variables alive.
        instruction: The instruction of that frame.
        done: Whether it was made, as far as was said.
        nested: Whether it is made in the middle of another one of the same thread.
    """

    thread: int
    turn: int
    interrupt: BaseException | None
    caller: int
    instruction: int
    done: bool = False
    nested: bool = False

    def over(self) -> bool:
        """Return whether it was made."""
        if not self.caller:
            return self.done
        # Nobody says when native code is done; but its caller's frame goes on then.
        with current_frames() as frames:
            frame = frames.get(self.thread)
            if frame is None or self.thread == threading.get_ident():
                return True
            return id(frame) != self.caller or frame.f_lasti != self.instruction


class Ordering:
    """Has the threads of a process make their launches in one order.

    It is the same in all processes, and so is the order on their devices then.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._next = 0
        self._skipped: set[int] = set()
        self._current: Passage | None = None

    def take(self, passage: Passage) -> None:
        """Wait until it is a launch's turn; then it has it."""
        with self._changed:
            try:
                while True:
                    current = self._current
                    under_way = current is not None and not current.over()
                    if under_way and current is not None and current.thread == passage.thread:
                        passage.nested = True  # a finalizer launches in the middle of a launch
                        self._skipped.add(passage.turn)
                        break
                    if not under_way and self._next == passage.turn:
                        self._current = passage
                        self._next += 1
                        break
                    native = current is not None and current.caller
                    self._changed.wait(OVER_S if native else None)
            except BaseException:
                self._skipped.add(passage.turn)
                raise
            finally:
                while self._next in self._skipped:
                    self._skipped.discard(self._next)
                    self._next += 1
                self._changed.notify_all()

    def end(self, passage: Passage) -> None:
        """Take note that a launch was made."""
        if passage.nested:
            return
        with self._changed:
            passage.done = True
            self._changed.notify_all()


class Threads:
    """Tells threads that run the learner's code from those that wait.

    Make it before any code of the learner's has started a thread.

    Args:
        is_learners: Whether a frame runs code of the learner's.
    """

    def __init__(self, is_learners: Callable[[FrameType], bool]) -> None:
        self._is_learners = is_learners
        # They never run it. Another thread may get the identifier of one that ends; none of these
        # does before the process.
        with current_frames() as frames:
            self._others: set[int | None] = {*frames.keys() - {threading.main_thread().ident}}

    def leave_out(self, thread: int | None) -> None:
        """Take note of a thread that never runs the learner's code."""
        self._others.add(thread)

    def others_run(self, waiting: Iterable[int], main: int | None = None) -> bool:
        """Return whether a thread, but for this one and those that wait, runs the learner's code.

        One that joins a thread that waits, waits too.

        Args:
            waiting: The threads that wait.
            main: A thread that runs the learner's code even where no frame tells so.
        """
        quiet = {*waiting, threading.get_ident()}
        with current_frames() as frames:
            others = frames.keys() - self._others - quiet
            return any(self._runs(frames[thread], quiet, thread == main) for thread in others)

    def _runs(self, frame: FrameType | None, quiet: set[int], is_main: bool) -> bool:
        if _joined_thread(frame) in quiet:
            return False
        if is_main:
            return True
        # One that has just been started, or a timer, has not come to the learner's code yet.
        only_threading = True
        while frame is not None:
            if self._is_learners(frame):
                return True
            only_threading &= frame.f_globals.get("__name__") == "threading"
            frame = frame.f_back
        return only_threading


def _joined_thread(frame: FrameType | None) -> int | None:
    """Return the thread for which a thread waits without a limit of time, if it does."""
    while frame is not None and frame.f_globals.get("__name__") == "threading":
        if frame.f_code.co_name == "join" and frame.f_locals.get("timeout") is None:
            joined = frame.f_locals.get("self")
            return joined.ident if isinstance(joined, threading.Thread) else None
        frame = frame.f_back
    return None


def interrupt_main() -> None:
    """Send the main thread SIGINT, also where it waits in a call of the system's."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)
