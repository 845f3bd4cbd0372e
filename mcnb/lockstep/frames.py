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
from types import CodeType, FrameType

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


def line_of(frame: FrameType) -> int:
    """Return the line that a frame is at."""
    return frame.f_lineno or line_at(frame.f_code, frame.f_lasti)


def line_at(code: CodeType, instruction: int) -> int:
    r"""Return the line of an instruction; of the one before it, where it has none.

    An interrupt may come in an instruction that CPython has added and that belongs to no line.

    Args:
        code: The code.
        instruction: The instruction's offset in it, such as `frame.f_lasti`.

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
