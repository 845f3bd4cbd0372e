"""Launches of several threads, made in the order in which they may be made."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from mcnb.lockstep.frames import current_frames

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


class Turns:
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
