"""The frames of a process's threads, as one of them sees them.

Before Python 3.12, the garbage collector may run wherever an object is made: also where CPython
makes these frames, while it holds the lock of its list of threads. A destructor that gives up the
interpreter there has another thread wait for that lock for ever, or leaves a frame that is gone
(https://github.com/python/cpython/issues/106883). So the collector rests meanwhile.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
