"""Which threads of a process run the learner's code, and may launch something."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType

from mcnb.lockstep.frames import current_frames


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
