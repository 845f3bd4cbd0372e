"""A call to several processes that is under way."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable
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
        stage: What is being done to end the call, in words; empty if nothing is.
        replaceable: Whether the user, who has pressed stop, can have the processes replaced at once
            by pressing it again.

    Args:
        results: ipyparallel's results, by process.
        inbox: Gets something when all have answered, or something else has happened.
        lost: Called with a process whose engine ipyparallel finds gone; it goes on waiting then,
            until how that process ended is known. By default, that is an error.
    """

    def __init__(
        self,
        results: dict[int, Any],
        inbox: queue.SimpleQueue[None],
        lost: Callable[[int], None] | None = None,
    ) -> None:
        self._results = results
        self._lost = lost
        self._gone: set[int] = set()
        self._inbox = inbox
        self.waiting = set(results)
        self.answers: dict[int, Any] = {}
        self.started = time.monotonic()
        self.waits: dict[int, Waits] = {}
        self.stage = ""
        self.replaceable = False
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
        for k in [k for k in self.waiting - self._gone if self._results[k].done()]:
            try:
                self.answers[k] = self._results[k].get()
                self.waiting.remove(k)
            except Exception as error:
                if self._lost is not None and _says_it_is_gone(error):
                    self._gone.add(k)
                    self._lost(k)
                    continue
                self.waiting.remove(k)
                raise ClusterError(f"process {k} could not be reached: {error}") from None
        return happened

    def progress(self, k: int) -> Progress:
        """Return where a process stood when it last reported."""
        data = self._results[k].data or {}
        progress: Progress = data.get("progress", Progress())
        return progress


def _says_it_is_gone(error: Exception) -> bool:
    from ipyparallel.error import EngineError  # it takes its time, and is there by now

    return isinstance(error, EngineError)
