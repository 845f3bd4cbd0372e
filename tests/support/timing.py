"""How long something takes, on a machine that may do other things too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

TRIES = 3
KNOWN_WORK = 300_000
# The seconds that the known work took on the idle machine on which the tests' limits were chosen.
USUAL_S = 0.025


def since(began: float) -> float:
    """Return the seconds since a moment on the monotonic clock."""
    return time.monotonic() - began


def running_clock_by(monotonic: Callable[[], float]) -> Callable[..., Callable[[], float]]:
    """Return a stand-in for `RunningClock` whose clocks go by a test's own clock, in leaps, too."""

    def clock(most_s: float = 0.0) -> Callable[[], float]:
        del most_s
        began = monotonic()
        return lambda: monotonic() - began

    return clock


def slowdown() -> float:
    """Return how many times longer some known work takes now than usual, at least 1.

    It takes longer while others use the cores, and on slower cores.
    """
    began = time.monotonic()
    known_work_s()
    return max(since(began) / USUAL_S, 1.0)


def known_work_s() -> float:
    """Return the processor time that some known work takes now.

    Processor time is no measure by itself: the same work takes more of it on a slower core, on one
    that shares its caches with busy ones, and on one that a virtual machine does not get.
    """
    began = time.thread_time()
    sums: dict[int, int] = {}
    for number in range(KNOWN_WORK):
        sums[number % 1000] = sums.get(number % 1000, 0) + number
    return time.thread_time() - began


def as_if_alone(seconds: float, slowed: float = 1.0) -> float:
    """Return about how long something would have taken on the usual machine, doing nothing else.

    Args:
        seconds: How long it took, until now.
        slowed: The slowdown before it began, if known.
    """
    return seconds / max(slowed, slowdown())


def shortest(limit_s: float, attempt: Callable[[], float]) -> float:
    """Return how long the quickest of a few attempts took, in seconds, as if alone.

    Other work of the machine makes an attempt slower, never quicker: one that is in time shows
    that it can be done.

    Args:
        limit_s: Attempts end with the first that took less.
        attempt: Makes one, checks what came of it, and returns how long it took.
    """
    took = math.inf
    for _ in range(TRIES):
        slowed = slowdown()
        took = min(took, as_if_alone(attempt(), slowed))
        if took < limit_s:
            break
    return took
