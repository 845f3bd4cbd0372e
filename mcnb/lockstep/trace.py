"""What a process's main thread did in a cell, and when: noted as it happens, read afterwards."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from mcnb.lockstep.source import Places

# What is shorter can't be seen in a picture.
LEAST_S = 50e-6
# More of one cell are not kept.
MOST_SPANS = 20_000
# JAX's names for tracing, lowering and compiling begin with this.
_COMPILING = "/jax/core/compile/"


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which a process traced, lowered or compiled a function.

    Attributes:
        begin: When it began, on the monotonic clock of the machine, in seconds.
        end: When it ended.
        line: The line of the cell, or None.
    """

    begin: float
    end: float
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What a process was seen doing at a time, and since the sample before.

    Attributes:
        at: The time, on the monotonic clock of the machine, in seconds.
        computes: Whether Python waited for a result of JAX's.
        line: The line of the cell, or None where it is not known.
    """

    at: float
    computes: bool
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """What a process did in a cell.

    Attributes:
        begin: When it began the cell, on the monotonic clock of the machine, in seconds.
        end: When it ended it.
        compiled: When it compiled, in the order of time; no two overlap.
        samples: What it was seen doing meanwhile, in the order of time; of samples in a row that
            say the same, the last one.
    """

    begin: float
    end: float
    compiled: tuple[Span, ...] = ()
    samples: tuple[Sample, ...] = ()


class Tracer:
    """Notes what the thread that runs a cell does.

    Args:
        places: Finds the learner's lines.

    Example:
        >>> tracer = Tracer(Places(lambda name: False))
        >>> tracer.begin()
        >>> tracer.compiled("/jax/core/compile/backend_compile_duration", 0.2)
        >>> tracer.compiled("/jax/checkpoint/write_duration", 0.2)
        >>> [round(span.end - span.begin, 3) for span in tracer.end().compiled]
        [0.2]
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._thread: int | None = None
        self._begin = 0.0
        self._compiled: list[Span] = []
        self._samples: list[Sample] = []

    def begin(self) -> None:
        """Begin a cell, in this thread."""
        self._compiled, self._samples = [], []
        self._thread, self._begin = threading.get_ident(), time.monotonic()

    def end(self) -> Trace:
        """End the cell and return what was noted."""
        self._thread = None
        return Trace(self._begin, time.monotonic(), tuple(self._compiled), tuple(self._samples))

    def compiled(self, event: str, duration: float, **_: Any) -> None:
        """Take note of a duration that JAX reports when it is over; see `jax.monitoring`.

        Args:
            event: JAX's name for it.
            duration: How long it took, in seconds.
        """
        ours = threading.get_ident() == self._thread
        if not ours or duration < LEAST_S or not event.startswith(_COMPILING):
            return
        end = time.monotonic()
        begin = end - duration
        # What it did on the way, such as tracing the functions that this one calls, comes first.
        while self._compiled and self._compiled[-1].end > begin:
            begin = min(begin, self._compiled.pop().begin)
        if len(self._compiled) < MOST_SPANS:
            place, _called = self._places.find(sys._getframe(1))
            self._compiled.append(Span(begin, end, place.line))

    def sample(self, sample: Sample) -> None:
        """Take note of what the process was seen doing; from another thread."""
        if self._thread is None:
            return
        last = self._samples[-1] if self._samples else None
        if last is not None and _alike(last, sample):
            line = last.line if sample.line is None else sample.line
            self._samples[-1] = replace(sample, line=line)
        elif len(self._samples) < MOST_SPANS:
            self._samples.append(sample)


def _alike(one: Sample, other: Sample) -> bool:
    """Return whether two samples say the same, as far as they say something."""
    lines = {one.line, other.line} - {None}
    return one.computes == other.computes and len(lines) <= 1
