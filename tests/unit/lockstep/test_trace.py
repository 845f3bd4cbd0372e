"""What is kept of a cell: when it compiled, and what it did at each look."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from mcnb.lockstep import trace
from mcnb.lockstep.source import Places
from mcnb.lockstep.trace import Sample, Span, Tracer

COMPILE = "/jax/core/compile/backend_compile_duration"


class Clock:
    """Tells the time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trace, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def tracer(clock: Clock) -> Tracer:
    tracer = Tracer(Places(lambda name: False))
    tracer.begin()
    return tracer


def compiled(
    tracer: Tracer, clock: Clock, *spans: tuple[float, float]
) -> list[tuple[float, float]]:
    """Report spans in the order of their ends, and return what is kept of them."""
    for begin, end in spans:
        clock.now = end
        tracer.compiled(COMPILE, end - begin, fun_name="f")
    return [(span.begin, span.end) for span in tracer.end().compiled]


def test_what_is_compiled_inside_is_part_of_what_is_around_it(tracer: Tracer, clock: Clock) -> None:
    inside = [(2.0, 3.0), (4.0, 5.0), (5.0, 5.5)]
    assert compiled(tracer, clock, (0.0, 1.0), *inside, (1.0, 6.0), (7.0, 8.0)) == [
        (0.0, 1.0),
        (1.0, 6.0),
        (7.0, 8.0),
    ]


def test_spans_that_overlap_are_one(tracer: Tracer, clock: Clock) -> None:
    assert compiled(tracer, clock, (1.0, 3.0), (2.0, 4.0)) == [(1.0, 4.0)]


def test_only_what_the_cells_thread_compiles_and_a_picture_shows_is_kept(
    tracer: Tracer, clock: Clock
) -> None:
    clock.now = 9.0
    tracer.compiled("/jax/checkpoint/write_duration", 1.0)
    tracer.compiled(COMPILE, 1e-5)
    other = threading.Thread(target=tracer.compiled, args=(COMPILE, 1.0))
    other.start()
    other.join()
    assert tracer.end().compiled == ()
    tracer.compiled(COMPILE, 1.0)  # after the cell
    assert tracer.end().compiled == ()


def test_a_span_has_the_line_that_compiles(clock: Clock) -> None:
    tracer = Tracer(Places(lambda name: name == __file__))
    tracer.begin()
    clock.now = 2.0
    tracer.compiled(COMPILE, 1.0)
    line = sys._getframe().f_lineno - 1
    assert tracer.end().compiled == (Span(1.0, 2.0, line),)


def test_a_new_cell_begins_with_nothing(tracer: Tracer, clock: Clock) -> None:
    clock.now = 2.0
    tracer.compiled(COMPILE, 1.0)
    tracer.sample(Sample(2.0, True, 3))
    tracer.end()
    tracer.sample(Sample(2.5, True, 4))  # between two cells
    clock.now = 3.0
    tracer.begin()
    clock.now = 4.0
    assert tracer.end() == trace.Trace(3.0, 4.0, (), ())


def test_no_more_is_kept_than_a_picture_shows(
    tracer: Tracer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MOST_SPANS", 2)
    for line in range(4):
        tracer.sample(Sample(float(line), True, line))
    assert compiled(tracer, clock, (0.0, 1.0), (1.0, 2.0), (2.0, 3.0)) == [(0.0, 1.0), (1.0, 2.0)]
    assert [one.line for one in tracer.end().samples] == [0, 1]


@pytest.mark.parametrize(
    ("samples", "kept"),
    [
        ([(1.0, True, 3), (2.0, True, 3)], [(2.0, True, 3)]),
        ([(1.0, True, 3), (2.0, True, 4)], [(1.0, True, 3), (2.0, True, 4)]),
        ([(1.0, True, 3), (2.0, False, 3)], [(1.0, True, 3), (2.0, False, 3)]),
        # A line that is not known may be any line.
        ([(1.0, True, 3), (2.0, True, None)], [(2.0, True, 3)]),
        ([(1.0, True, None), (2.0, True, 4)], [(2.0, True, 4)]),
        ([(1.0, True, None), (2.0, True, None)], [(2.0, True, None)]),
    ],
)
def test_samples_of_one_line_are_one(
    tracer: Tracer,
    samples: list[tuple[float, bool, int | None]],
    kept: list[tuple[float, bool, int | None]],
) -> None:
    for one in samples:
        tracer.sample(Sample(*one))
    assert tracer.end().samples == tuple(Sample(*one) for one in kept)
