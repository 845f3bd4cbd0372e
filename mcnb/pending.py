"""A call to several processes that is under way."""

from __future__ import annotations

import itertools
import queue
import time
from typing import Any

from mcnb.errors import ClusterError
from mcnb.lockstep.server import Waits
from mcnb.messages import Progress


class Pending:
    """A call to several processes that have not all answered yet.

    Attributes:
        waiting: The processes that have not answered.
        answers: What the others returned.
        started: When the call was made, on the monotonic clock, in seconds.
        waits: Which processes wait for others before a launch.
    """

    def __init__(self, results: dict[int, Any], inbox: queue.SimpleQueue[None]) -> None:
        self._results = results
        self._inbox = inbox
        self.waiting = set(results)
        self.answers: dict[int, Any] = {}
        self.started = time.monotonic()
        self.waits: dict[int, Waits] = {}
        # Woken once, by the last answer: to be woken by each would have this thread and
        # ipyparallel's, which reads the others, wait for each other.
        left = itertools.count(1)
        for result in results.values():
            result.add_done_callback(
                lambda _: inbox.put(None) if next(left) == len(results) else None
            )

    def wait(self, timeout: float) -> bool:
        """Wait until all have answered, or something else happens.

        Args:
            timeout: For how many seconds at most.

        Returns:
            Whether it did happen in that time.

        Raises:
            ClusterError: An answer is no answer: the engine is gone, or not ours.
        """
        try:
            self._inbox.get(timeout=max(timeout, 0))
            happened = True
        except queue.Empty:
            happened = False
        for k in [k for k in self.waiting if self._results[k].done()]:
            self.waiting.remove(k)
            try:
                self.answers[k] = self._results[k].get()
            except Exception as error:
                raise ClusterError(f"process {k} could not be reached: {error}") from None
        return happened

    def progress(self, k: int) -> Progress:
        """Return where a process stood when it last reported."""
        data = self._results[k].data or {}
        progress: Progress = data.get("progress", Progress())
        return progress
