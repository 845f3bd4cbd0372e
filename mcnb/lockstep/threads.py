"""Find the threads that run the learner's code, and order the launches of a process's threads."""

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
# Guards `gc.disable()`: the first of two threads to finish would enable the collector for both.
_one = threading.RLock()


@contextmanager
def current_frames() -> Iterator[dict[int, FrameType]]:
    """Provide the frames of all threads, by thread identifier; walk them in the block only.

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
    """Return the current line of a frame."""
    return frame.f_lineno or line_at(frame.f_code, frame.f_lasti)


def line_at(code: CodeType, instruction: int) -> int:
    r"""Return the line of an instruction, or of the last instruction before it that has a line.

    An interrupt may arrive at an instruction that CPython has added and that belongs to no line.
    The instruction is an offset in the code object, such as `frame.f_lasti`.

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


# The interval between checks whether native code has made the launch before another thread's.
OVER_S = 0.0005


@dataclass(slots=True)
class Passage:
    """A launch that has gone ahead and that a thread is making.

    Attributes:
        thread: The thread that makes the launch.
        turn: The launch's position in the order of the process's launches.
        interrupt: An interrupt that arrived while the thread waited.
        caller: The id of the frame from which native code makes the launch; 0 if none does. The
            frame itself would keep the learner's variables alive.
        instruction: The offset of that frame's instruction.
        done: Whether the launch was reported as made.
    """

    thread: int
    turn: int
    interrupt: BaseException | None
    caller: int
    instruction: int
    done: bool = False

    def over(self) -> bool:
        """Return whether the launch was made."""
        if not self.caller:
            return self.done
        # Native code does not report that it is done, but its caller's frame goes on then.
        with current_frames() as frames:
            frame = frames.get(self.thread)
            if frame is None or self.thread == threading.get_ident():
                return True
            return id(frame) != self.caller or frame.f_lasti != self.instruction


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
            try:
                while True:
                    current = self._current
                    under_way = current is not None and not current.over()
                    if under_way and current is not None and current.thread == passage.thread:
                        self._skipped.add(passage.turn)  # by a finalizer, in the middle of a launch
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
        """Record that a launch was made."""
        with self._changed:
            passage.done = True
            self._changed.notify_all()


class Threads:
    """Distinguishes threads that run the learner's code from threads that wait.

    Create it before the learner's code starts a thread.

    Args:
        is_learners: Returns whether a frame runs the learner's code.
    """

    def __init__(self, is_learners: Callable[[FrameType], bool]) -> None:
        self._is_learners = is_learners
        # These threads never run the learner's code. Their identifiers can't be reused by other
        # threads, because they do not end before the process.
        with current_frames() as frames:
            self._others = frames.keys() - {threading.main_thread().ident}

    def others_run(self, waiting: Iterable[int], main: int | None = None) -> bool:
        """Return whether a thread other than this one and those waiting runs the learner's code.

        A thread that joins a waiting thread also waits.

        Args:
            waiting: The threads that wait.
            main: A thread that runs the learner's code even if no frame shows it.
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
        # A thread that has just started, or a timer, has not reached the learner's code yet.
        only_threading = True
        while frame is not None:
            if self._is_learners(frame):
                return True
            only_threading &= frame.f_globals.get("__name__") == "threading"
            frame = frame.f_back
        return only_threading


def _joined_thread(frame: FrameType | None) -> int | None:
    """Return the thread that a thread joins without a timeout, or None."""
    while frame is not None and frame.f_globals.get("__name__") == "threading":
        if frame.f_code.co_name == "join" and frame.f_locals.get("timeout") is None:
            joined = frame.f_locals.get("self")
            return joined.ident if isinstance(joined, threading.Thread) else None
        frame = frame.f_back
    return None


def interrupt_main() -> None:
    """Send SIGINT to the main thread, even if the thread is blocked in a system call."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)
