"""A thread of a process that waits for its launch."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field

from mcnb.lockstep.places import Place
from mcnb.lockstep.wire import Message


@dataclass(slots=True)
class Slot:
    """A thread that waits.

    Attributes:
        place: Where it stands.
        thread: Its identifier.
        woken: Held until there is an answer.
        answer: The answer.
        turn: Which of the process's launches it is to make, once it may.
        announced: Whether the referee was told that it waits.
    """

    place: Place
    thread: int
    woken: threading.Lock
    answer: Message = field(default_factory=list)
    turn: int = 0
    announced: bool = False

    def wake(self) -> None:
        """Have the thread look whether there is an answer, or read for all."""
        with contextlib.suppress(RuntimeError):  # it is awake
            self.woken.release()
