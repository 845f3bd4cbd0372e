"""How long something takes, on a machine that may do other things too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

TRIES = 3


def since(began: float) -> float:
    """Return the seconds since a moment on the monotonic clock."""
    return time.monotonic() - began


def shortest(limit_s: float, attempt: Callable[[], float]) -> float:
    """Return how long the quickest of a few attempts took, in seconds.

    Other work of the machine makes an attempt slower, never quicker: one that is in time shows
    that it can be done.

    Args:
        limit_s: Attempts end with the first that took less.
        attempt: Makes one, checks what came of it, and returns how long it took.
    """
    took = math.inf
    for _ in range(TRIES):
        took = min(took, attempt())
        if took < limit_s:
            break
    return took
