"""The strips of a running cell: bounded, and as long as the cell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep.model import Launch, ProcessState
from mcnb.lockstep.server import Waits
from mcnb.messages import Progress
from mcnb.notebook.strips import (
    FIRST_PERIOD_S,
    LONGEST,
    WORDS,
    Strips,
    doing_in,
    late_in,
    native_in,
)

SUM = Launch("sum", "1", (0, 1, 3))


def pending(
    progress: dict[int, Progress], waits: tuple[int, ...] = (), done: tuple[int, ...] = ()
) -> Any:
    waiting = {k: Waits(ProcessState("waits", SUM), 0.0) for k in waits}
    return SimpleNamespace(
        waiting=set(progress),
        answers=dict.fromkeys(done),
        waits=waiting,
        progress=progress.__getitem__,
    )


def test_what_each_process_does() -> None:
    cell = pending(
        {
            0: Progress(),
            1: Progress(doing="compiles"),
            2: Progress(doing="computes"),
            3: Progress(doing="computes", waits_s=0.5),
            4: Progress(doing="computes"),
        },
        waits=(4,),
        done=(5,),
    )
    assert doing_in(cell) == {0: "p", 1: "x", 2: "j", 3: "n", 4: "w", 5: "f"}
    assert set(doing_in(cell).values()) == set(WORDS)


def test_who_is_late() -> None:
    cell = pending({k: Progress() for k in range(4)}, waits=(0,))
    assert late_in(cell) == (1, 3)  # process 2 takes no part, and 0 is there
    assert late_in(pending({0: Progress()})) == ()


def test_who_waits_in_native_code_is_not_said_to_wait_for_others() -> None:
    """Such as in a callback, in a file that is read, and in a cluster of one process."""
    cell = pending({0: Progress(waits_s=0.5, inside_jax=True), 1: Progress(waits_s=2.0)})
    assert doing_in(cell) == {0: "n", 1: "n"}
    assert native_in(doing_in(cell)) == (0, 1)
    assert late_in(cell) == ()
    waiting = pending({0: Progress(waits_s=0.5), 1: Progress(waits_s=0.5)}, waits=(0,))
    assert doing_in(waiting) == {0: "w", 1: "n"}
    assert native_in(doing_in(waiting)) == ()


def test_a_part_has_what_was_seen_most() -> None:
    strips = Strips()
    for at, letter in ((0.0, "p"), (0.05, "j"), (0.1, "j"), (0.25, "w"), (0.5, "w")):
        strips.add(at, {0: letter}, ())  # type: ignore[dict-item]
    assert strips.rows == {0: "jw"}


def most_by_definition(letters: str) -> str:
    """Return the most frequent letter, the latest of several, from all looks."""
    return max(reversed(letters), key=letters.count)


@given(st.text(sorted(WORDS), min_size=1, max_size=40))
def test_a_part_is_the_latest_of_the_most_frequent(letters: str) -> None:
    strips = Strips()
    for number, letter in enumerate(letters):
        strips.add(number * FIRST_PERIOD_S / 64, {0: letter}, ())  # type: ignore[dict-item]
    strips.add(FIRST_PERIOD_S, {0: "f"}, ())
    assert strips.rows == {0: most_by_definition(letters)}


def test_a_part_of_many_looks_is_counted_not_kept() -> None:
    """In a cell of days, a part lasts for minutes, and there are up to 50 looks a second."""
    strips = Strips()
    for number in range(100_000):
        strips.add(number * FIRST_PERIOD_S / 200_000, {0: "pj"[number % 2]}, ())  # type: ignore[dict-item]
    assert strips._current == {0: {"p": 50_000, "j": 50_000}}
    strips.add(FIRST_PERIOD_S, {0: "f"}, ())
    assert strips.rows == {0: "j"}


def test_a_pause_between_looks_is_filled() -> None:
    strips = Strips()
    strips.add(0.0, {0: "j"}, ())
    strips.add(1.0, {0: "p"}, ())
    assert strips.rows == {0: "jjjj"}


def test_for_how_long_others_have_waited() -> None:
    strips = Strips()
    for at, late in ((0.0, (2,)), (0.5, (2,)), (0.75, (1, 2)), (1.0, ())):
        strips.add(at, {0: "w"}, late)
    assert strips.late_s == pytest.approx({2: 0.75, 1: 0.25})


@given(
    looks=st.lists(
        st.tuples(st.floats(0.001, 40.0), st.sampled_from(sorted(WORDS))), min_size=2, max_size=60
    )
)
def test_strips_are_bounded_and_as_long_as_the_cell(looks: list[tuple[float, Any]]) -> None:
    strips = Strips()
    now = 0.0
    for pause, letter in looks:
        now += pause
        strips.add(now, {0: letter, 1: "p"}, ())
    began = looks[0][0]
    assert {len(row) for row in strips.rows.values()} <= {len(strips.rows.get(0, ""))}
    assert len(strips.rows.get(0, "")) <= LONGEST
    lasted = len(strips.rows.get(0, "")) * strips.period_s
    assert now - began - strips.period_s * 2 < lasted <= now - began + strips.period_s
    assert (strips.period_s / FIRST_PERIOD_S).is_integer()
