"""Processes that nobody watches: that one is gone is seen where its connection ends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

LOOK_S = 0.05
UNKNOWN = "ended without a word"
FOLLOWED = "was ended with it"


class Losses:
    """Tells of processes that are gone, in their order, and how they ended.

    The first that is gone is the cause, as a rule; mpirun, for one, ends the others then.

    Args:
        ending: Returns how a process ended, in words; empty if that is not known yet.
        tell: Called with a process and how it ended; from another thread.
        told_s: How long to wait, in seconds, until it is known how the first one ended.
    """

    def __init__(
        self, ending: Callable[[int], str], tell: Callable[[int, str], None], told_s: float
    ) -> None:
        self._ending = ending
        self._tell = tell
        self._told_s = told_s
        self._lost: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcnb losses", daemon=True)
        self._thread.start()

    def add(self, k: int) -> None:
        """Take note that a process is gone."""
        self._lost.put(k)

    def close(self) -> None:
        """Tell of nothing more."""
        self._closed.set()
        self._lost.put(None)
        self._thread.join()

    def _run(self) -> None:
        first = self._lost.get()
        if first is None:
            return
        deadline = time.monotonic() + self._told_s
        while not (how := self._ending(first)) and time.monotonic() < deadline:
            if self._closed.wait(LOOK_S):
                return
        self._tell(first, how or UNKNOWN)
        while (k := self._lost.get()) is not None and not self._closed.is_set():
            self._tell(k, self._ending(k) or FOLLOWED)
