"""Record when the main thread of a process compiles, computes and runs Python in a cell."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

from mcnb.lockstep.source import Places

# Shorter spans are invisible in a picture.
LEAST_S = 50e-6
# The most spans, and the most samples, kept of one cell.
MOST_SPANS = 20_000
# The prefix of JAX's event names for tracing, lowering and compiling.
_COMPILING = "/jax/core/compile/"


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time in which a process traced, lowered or compiled a function.

    Attributes:
        begin: The start, on the monotonic clock of the machine, in seconds.
        end: The end, on the same clock.
        line: The line of the cell, or None.
    """

    begin: float
    end: float
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The activity of a process at a time, and since the previous sample.

    Attributes:
        at: The time, on the monotonic clock of the machine, in seconds.
        computes: Whether Python waited for a result of JAX.
        line: The line of the cell, or None if unknown.
    """

    at: float
    computes: bool
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """The activity of a process in a cell.

    Attributes:
        begin: The start of the cell, on the monotonic clock of the machine, in seconds.
        end: The end of the cell, on the same clock.
        compiled: The compilations, in order of time, without overlap.
        samples: The samples, in order of time; the last of each run of equal samples.
    """

    begin: float
    end: float
    compiled: tuple[Span, ...] = ()
    samples: tuple[Sample, ...] = ()


class Tracer:
    """Records the activity of the thread that runs a cell.

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
        """Begin recording a cell, in this thread."""
        self._compiled, self._samples = [], []
        self._thread, self._begin = threading.get_ident(), time.monotonic()

    def end(self) -> Trace:
        """End the cell and return its trace."""
        self._thread = None
        return Trace(self._begin, time.monotonic(), tuple(self._compiled), tuple(self._samples))

    def compiled(self, event: str, duration: float, **_: Any) -> None:
        """Record an event that JAX reports at its end, with its seconds; see `jax.monitoring`."""
        ours = threading.get_ident() == self._thread
        if not ours or duration < LEAST_S or not event.startswith(_COMPILING):
            return
        end = time.monotonic()
        begin = end - duration
        # JAX reports nested events first, such as tracing the functions that this one calls.
        while self._compiled and self._compiled[-1].end > begin:
            begin = min(begin, self._compiled.pop().begin)
        if len(self._compiled) < MOST_SPANS:
            place, _called = self._places.find(sys._getframe(1))
            self._compiled.append(Span(begin, end, place.line))

    def sample(self, sample: Sample) -> None:
        """Record a sample, from another thread."""
        if self._thread is None:
            return
        if self._samples:
            last = self._samples[-1]
            lines = {last.line, sample.line} - {None}  # an unknown line equals any line
            if last.computes == sample.computes and len(lines) <= 1:
                self._samples[-1] = replace(sample, line=next(iter(lines), None))
                return
        if len(self._samples) < MOST_SPANS:
            self._samples.append(sample)
