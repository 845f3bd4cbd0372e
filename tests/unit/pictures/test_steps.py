"""The steps of a loop: found in a timeline, cut out of it, and drawn when there are many."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcnb
from mcnb.lockstep.model import Launch, LaunchRecord
from mcnb.lockstep.trace import Sample, Span, Trace
from mcnb.pictures.scene import Chart
from mcnb.pictures.scenes.loop import MOST_MARKED, loop_scene
from mcnb.pictures.steps import between, cut, steps_of
from mcnb.pictures.svg import words_of
from mcnb.pictures.timeline import Timeline, timeline
from tests.support.results import F, G, made, result

OTHER = Launch("jit(loss)", "3", (0, 1, 2))


def training(count: int, slow: int = 0, *, compiled: float = 2.0) -> mcnb.Result:
    """Return a cell that compiles, and then makes `count` steps of 100 ms at line 4.

    P0 and P1 come 10 ms before the launch and P2 at it; in step `slow`, P2 is in Python at line 3
    for a second more. All processes make another launch after each 20th step.
    """
    records: list[LaunchRecord] = []
    at = compiled
    for step in range(1, count + 1):
        came = at
        at += 1.0 if step == slow else 0.0
        records += [made(k, F, 4, came if k < 2 else at + 0.01, at + 0.01) for k in range(3)]
        if step % 20 == 0:
            records += [made(k, OTHER, 5, at + 0.05, at + 0.05) for k in range(3)]
        at += 0.1
    traces = {
        k: Trace(0.0, at, (Span(0.1, compiled - 0.1, 4),), (Sample(at, False, 3),))
        for k in range(3)
    }
    return result(dict.fromkeys(range(3)) | traces, *records)


def time_of(cell: mcnb.Result) -> Timeline:
    return timeline({k: reply.trace for k, reply in cell.replies.items()}, cell.launches)


def test_the_launch_that_is_made_most_often_ends_a_step() -> None:
    steps = steps_of(time_of(training(40, slow=7)))
    assert [step.number for step in steps] == list(range(1, 41))
    assert {step.meeting.launch for step in steps} == {F}
    assert [(s.begin, s.end) for s in steps[1:]] == [
        (a.end, b.end) for a, b in itertools.pairwise(steps)
    ]
    took = {step.number: round(step.seconds, 3) for step in steps}
    assert took == dict.fromkeys(range(1, 41), 0.1) | {1: 2.01, 7: 1.1}
    assert {step.last for step in steps} == {2}
    assert [round(step.late, 3) for step in steps] == [0.01] * 6 + [1.01] + [0.01] * 33


def test_the_first_step_begins_after_the_launch_before_it() -> None:
    early = [made(k, G, 1, 0.5, 0.6) for k in range(3)]
    loop = [made(k, F, 4, float(i), float(i)) for i in (1, 2, 3) for k in range(3)]
    steps = steps_of(time_of(result({k: Trace(0.0, 4.0) for k in range(3)}, *early, *loop)))
    assert [(step.begin, step.end) for step in steps] == [(0.6, 1.0), (1.0, 2.0), (2.0, 3.0)]


@pytest.mark.parametrize(
    "records",
    [
        [],
        [made(k, F, 4, 1.0, 1.0) for k in range(3)],
        # A launch that some never made ends no step.
        [made(0, F, 4, float(i), None) for i in (1, 2)],
    ],
)
def test_cells_without_steps(records: list[LaunchRecord]) -> None:
    cell = result({k: Trace(0.0, 4.0) for k in range(3)}, *records)
    assert steps_of(time_of(cell)) == ()
    with pytest.raises(mcnb.PictureError) as raised:
        cell.timeline(steps=1)
    assert str(raised.value) == (
        "The cell has no steps: no launch that spans processes was made more than once"
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (41, "no step 41"),
        (0, "no step 0"),
        ((5, 41), "no steps 5 to 41"),
        ((9, 3), "no steps 9 to 3"),
        ((None, 99), "no steps 1 to 99"),
        ((44, None), "no steps 44 to 40"),
    ],
)
def test_steps_that_do_not_exist(asked: int | tuple[int | None, int | None], said: str) -> None:
    with pytest.raises(mcnb.PictureError) as raised:
        training(40).timeline(steps=asked)
    assert str(raised.value) == (
        f"The cell has {said}: its steps are 1 to 40, each with jit(f) f32[8]"
    )


def test_many_steps_are_a_chart_and_the_slowest_are_named() -> None:
    text = training(40, slow=21).timeline().text()
    assert "●" not in text
    lines = text.splitlines()
    assert lines[0] == "The cell took 7.00 s on 3 processes"
    at = next(i for i, line in enumerate(lines) if line.startswith("The time of each step"))
    assert lines[at : at + 4] == [
        "The time of each step, up to 200 ms; a step ends with jit(f) f32[8], line 4",
        "time    █▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄█▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄",
        "P2 late ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁█▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁",
        "        1   5    10   15   20   25   30   35   40",
    ]
    slowest = next(i for i, line in enumerate(lines) if line.startswith("slowest"))
    assert lines[slowest : slowest + 3] == [
        "slowest    time  last to come  late by  meanwhile",
        "      1  2.01 s  P2              10 ms  compiling at line 4",
        "     21  1.10 s  P2             1.01 s  in Python at line 3",
    ]
    assert lines[-1] == (
        "One step, with its launches: %mcjax timeline --step 21; several: --from 19 --to 23."
    )


def test_who_is_late_is_measured_without_the_step_that_compiles() -> None:
    """A minute of compiling would hide a tenth of each step, and be taken for lateness."""
    assert "P2 late ▁▁▁" in training(40, compiled=60.0).timeline().text()
    time = time_of(training(40, slow=1))
    first, *others = steps_of(time)
    assert round(first.late, 2) == 1.01
    together = [
        replace(one, meeting=replace(one.meeting, came=dict.fromkeys(range(3), one.end)))
        for one in others
    ]
    for steps, rows in (([first, *others], 2), ([first, *together], 1)):
        charts = [part for part in loop_scene(time, {}, steps).parts if isinstance(part, Chart)]
        assert [len(chart.profiles) for chart in charts] == [rows]


def test_a_chart_is_told_in_words() -> None:
    picture = training(40, slow=21).timeline()
    [at] = [i for i, word in enumerate(words_of(picture.scene)) if word.startswith("The time of ")]
    assert words_of(picture.scene)[at : at + 3] == [
        "The time of each step, up to 200 ms; a step ends with jit(f) f32[8], line 4.",
        "time: highest at step 1: 2.01 s.",
        "P2 late: highest at step 21: P2 came 1.01 s after the first.",
    ]


def test_few_steps_are_drawn_one_by_one() -> None:
    few, many = training(MOST_MARKED), training(MOST_MARKED + 1)
    assert "The time of each step" not in few.timeline().text()
    assert "The time of each step" in many.timeline().text()
    # The order has no times, and folds what repeats.
    assert "The time of each step" not in many.timeline(order=True).text()


def test_many_launches_that_are_no_loop_are_drawn_as_before() -> None:
    different = [Launch(f"jit(f{i})", str(i), (0, 1, 2)) for i in range(40)]
    launches = [*different, different[0]]
    records = [made(k, p, 2, float(i), float(i)) for i, p in enumerate(launches) for k in range(3)]
    cell = result({k: Trace(0.0, 42.0) for k in range(3)}, *records)
    assert len(steps_of(time_of(cell))) == 2
    assert "The time of each step" not in cell.timeline().text()


def test_one_step_is_drawn_with_its_launches() -> None:
    text = training(40, slow=21).timeline(steps=21).text()
    assert text.splitlines()[0] == "Step 21 of 40 took 1.10 s"
    assert "At line 4, others waited up to 1.01 s for P2, which was in Python at line 3." in text
    rows = [line for line in text.splitlines() if re.match(r"P\d [─·]", line)]
    assert [row.count("●") for row in rows] == [2, 2, 2]  # that of the loss, and its own
    assert re.search(r"4 +jit\(f\) f32\[8\] +1 +P0, 1.01 s +P2", text)


def test_several_steps() -> None:
    cell = training(40)
    assert cell.timeline(steps=(9, 12)).text().splitlines()[0] == "Steps 9 to 12 of 40 took 400 ms"
    assert cell.timeline(steps=(None, 2)).text().splitlines()[0] == "Steps 1 to 2 of 40 took 2.11 s"
    last = cell.timeline(steps=(40, None)).text().splitlines()[0]
    assert last == "Step 40 of 40 took 100 ms"
    order = cell.timeline(order=True, steps=(20, 21)).text()
    assert order.splitlines()[0] == "Steps 20 to 21 of 40: the launches, in order"
    assert re.findall(r"^(\d) +(jit\(\w+\))", order, re.MULTILINE) == [
        ("4", "jit(f)"),
        ("5", "jit(loss)"),
        ("4", "jit(f)"),
    ]


@given(st.integers(1, 60), st.data())
def test_steps_divide_the_time_of_the_loop(count: int, data: st.DataObject) -> None:
    """Whatever steps one asks for: their lengths add up, and each launch is in one of them."""
    time = time_of(training(count + 1))
    steps = steps_of(time)
    first = data.draw(st.integers(1, count + 1))
    last = data.draw(st.integers(first, count + 1))
    part = between(time, first, last)
    assert part.length == pytest.approx(sum(s.seconds for s in steps[first - 1 : last]))
    assert [m.launch for m in part.meetings].count(F) == last - first + 1
    for lane in part.lanes.values():
        assert all(0 <= s.begin < s.end <= part.length + 1e-9 for s in lane)
        assert sum(s.end - s.begin for s in lane) == pytest.approx(part.length)


def test_who_came_before_the_cut_came_with_it() -> None:
    time = time_of(result({0: Trace(0.0, 9.0), 1: Trace(0.0, 9.0)}, made(0, F, 4, 1.0, 5.0)))
    [meeting] = cut(time, 2.0, 8.0).meetings
    assert (meeting.came, meeting.went, meeting.at) == ({0: 0.0}, {0: 3.0}, 3.0)
