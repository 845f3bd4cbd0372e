"""What the lanes, lines, tables and sentences of a cell's timeline are made of."""

from __future__ import annotations

import pytest

from mcnb.lockstep.model import Launch
from mcnb.lockstep.trace import Sample, Span, Trace
from mcnb.pictures.scene import Bar, Join, Lanes, Table
from mcnb.pictures.scenes.time import order_scene, time_scene
from mcnb.pictures.timeline import Kind, Meeting, Stretch, Timeline, timeline
from tests.support.results import F, G, made

H = Launch("jit(h)", "3", (0, 1, 2))
ALONE = Launch("jit(alone)", "4", (1,))


def drawn(lane: tuple[Stretch, ...]) -> list[tuple[Kind, float, float, int | None]]:
    return [(s.kind, s.begin, s.end, s.line) for s in lane]


def test_who_waits_in_vain_gives_up_when_it_does_something_else() -> None:
    """At its next launch, or when it compiles, or at the end of the cell."""
    trace = Trace(0.0, 10.0, (Span(1.0, 2.0, 1), Span(6.0, 7.0, 3)))
    records = [made(0, launch, line, 2.0 * line, None) for launch, line in ((F, 1), (G, 2), (H, 4))]
    time = timeline({0: trace}, records)
    assert drawn(time.lanes[0]) == [
        ("python", 0.0, 1.0, None),
        ("compiles", 1.0, 2.0, 1),
        ("waits", 2.0, 4.0, 1),
        ("waits", 4.0, 6.0, 2),
        ("compiles", 6.0, 7.0, 3),
        ("python", 7.0, 8.0, None),
        ("waits", 8.0, 10.0, 4),
    ]
    assert [m.at for m in time.meetings] == [4.0, 6.0, 10.0]


def test_what_began_before_the_cell_or_ends_after_it_is_cut_off() -> None:
    """But the cell lasts from the first to the last that any process tells of."""
    trace = Trace(2.0, 5.0, (Span(1.0, 3.0, 1),), (Sample(6.0, True, 2),))
    records = [made(1, F, 9, 1.0, None), made(0, F, 3, 4.0, 7.0), made(1, G, 9, 6.0, None)]
    time = timeline({0: trace, 1: None}, records)
    assert time.length == 5.0
    assert time.lanes[1] == ()
    assert drawn(time.lanes[0]) == [
        ("compiles", 1.0, 2.0, 1),
        ("computes", 2.0, 3.0, 2),
        ("waits", 3.0, 4.0, 3),
    ]


def test_launches_of_one_process_are_no_meetings() -> None:
    time = timeline({1: Trace(1.0, 2.0)}, [made(1, ALONE, 1, 0.0, 9.0)])
    assert time.meetings == ()
    assert time.length == 1.0
    assert drawn(time.lanes[1]) == [("python", 0.0, 1.0, None)]


def test_who_is_missing_where_some_went_ahead() -> None:
    records = [made(0, F, 1, 1.0, 3.0), made(1, F, 2, 2.0, 4.0), made(2, F, 3, 2.5, None)]
    [meeting] = timeline({k: Trace(0.5, 6.5) for k in range(3)}, records).meetings
    assert meeting == Meeting(
        F, {0: 1, 1: 2, 2: 3}, {0: 0.5, 1: 1.5, 2: 2.0}, {0: 2.5, 1: 3.5}, 3.5, (2,)
    )
    assert (meeting.launched, meeting.met, meeting.present) == (True, False, (0, 1))
    assert [meeting.waited(k) for k in range(3)] == [2.0, 2.0, 1.5]


def test_a_launch_that_nobody_made_was_not_met() -> None:
    """It ends when the first gives up, and the meetings are in the order of their ends."""
    records = [
        *[made(k, F, 1, 1.0, None) for k in range(3)],
        *[made(k, G, 2, 2.0 + k, 2.5 + k) for k in range(3)],
    ]
    traces = {k: Trace(0.0, 9.0) for k in range(3)}
    meetings = timeline(traces, records).meetings
    assert [(m.launch, m.at, m.met, m.launched) for m in meetings] == [
        (F, 2.0, False, False),
        (G, 4.5, True, True),
    ]
    late = [made(0, F, 1, 1.0, 6.0), made(0, G, 2, 2.0, 3.0)]
    assert [m.launch for m in timeline(traces, late).meetings] == [G, F]


def test_the_same_program_in_two_groups_of_processes_is_two_meetings() -> None:
    groups = [Launch("jit(f)", "1", members) for members in ((0, 1), (2, 3))]
    records = [made(k, groups[k // 2], 1, 1.0, 2.0) for k in range(4)]
    meetings = timeline({k: Trace(0.0, 3.0) for k in range(4)}, records).meetings
    assert [(m.present, m.missing) for m in meetings] == [((0, 1), ()), ((2, 3), ())]


def met(launch: Launch, line: int, at: float, **came: float) -> Meeting:
    """Return a meeting of the processes that came, as `p0=1.0`, each before `at`."""
    arrived = {int(name[1:]): time for name, time in came.items()}
    return Meeting(launch, dict.fromkeys(arrived, line), arrived, dict.fromkeys(arrived, at), at)


def vain(launch: Launch, line: int, at: float, missing: tuple[int, ...], **came: float) -> Meeting:
    """Return a meeting at which some waited for others in vain."""
    arrived = {int(name[1:]): time for name, time in came.items()}
    return Meeting(launch, dict.fromkeys(arrived, line), arrived, {}, at, missing)


def time_of(*meetings: Meeting, length: float = 10.0, count: int = 3) -> Timeline:
    lane = (Stretch("python", 0.0, length),)
    return Timeline(length, dict.fromkeys(range(count), lane), meetings)


def joins_of(time: Timeline) -> tuple[Join, ...]:
    lanes = time_scene(time, {}).parts[0]
    assert isinstance(lanes, Lanes)
    return lanes.joins


def launches_of(time: Timeline) -> tuple[tuple[str, ...], ...]:
    table = time_scene(time, {}).parts[2]
    assert isinstance(table, Table)
    return table.rows


def test_lines_that_cannot_be_told_apart_are_drawn_once() -> None:
    pair, all_three = {"p0": 1.0, "p1": 1.0}, {"p0": 1.0, "p1": 1.0, "p2": 1.0}
    found = joins_of(
        time_of(
            met(F, 1, 2.001, **all_three),
            met(G, 2, 2.002, **all_three),
            met(H, 3, 2.003, **pair),
            met(F, 4, 2.5, **all_three),
        )
    )
    assert [(j.at, j.present, j.label) for j in found] == [
        (0.2001, (0, 1, 2), "line 1"),
        (0.2003, (0, 1), "line 3"),
        (0.25, (0, 1, 2), "line 4"),
    ]


def test_marks_of_who_waited_stand_where_each_came() -> None:
    found = joins_of(
        time_of(
            vain(F, 4, 8.0, (1, 2), p0=1.0),
            vain(G, 6, 9.0, (0, 2), p1=2.0),
            Meeting(H, {2: 7}, {2: 3.0}, {2: 4.0}, 4.0, (0, 1)),
        )
    )
    parted = "line 4 ≠ line 6"
    assert found == (
        Join(0.8, (0,), (2,), parted, False, (0.1,)),
        Join(0.8, (1,), (2,), parted, False, (0.2,)),
        Join(0.4, (2,), (0, 1), "line 7", False, (0.3,)),
    )


def test_the_order_tells_what_was_met_from_what_was_not() -> None:
    f, g = Launch("jit(f)", "1", (0, 1)), Launch("jit(g)", "2", (1, 2))
    time = time_of(met(f, 1, 2.0, p0=1.0, p1=1.0), vain(g, 2, 3.0, (1,), p2=1.0))
    scene = order_scene(time, {})
    lanes, table = scene.parts
    assert isinstance(lanes, Lanes)
    assert isinstance(table, Table)
    assert lanes.joins == (
        Join(0.5, (0, 1), (), "line 1 ≠ line 2"),
        Join(0.5, (2,), (1,), "line 1 ≠ line 2", False),
    )
    assert table.rows == (("1", "jit(f)", "1", "P0-1", ""), ("2", "jit(g)", "1", "P2", "P1"))
    assert {lane.bars for lane in lanes.lanes} == {(Bar("python", 0.0, 1.0),)}


def test_only_equal_launches_share_a_row() -> None:
    every = {"p0": 1.0, "p1": 1.0, "p2": 1.0}
    rows = launches_of(
        time_of(
            met(F, 1, 1.5, p0=1.0, p1=1.1, p2=1.4),
            met(F, 1, 2.5, p0=2.4, p1=1.0, p2=1.2),
            met(F, 2, 2.0, **every),
            met(G, 1, 2.0, **every),
            met(F, 1, 2.0, p0=1.5, p1=1.0),
            vain(F, 1, 4.0, (2,), p0=1.0, p1=3.0),
            Meeting(F, {0: 1, 1: 3}, {0: 1.0, 1: 1.5}, {0: 9.0, 1: 9.0}, 9.0, (2,)),
        )
    )
    assert rows == (
        ("1", "jit(f) f32[8]", "2", "P1, 1.50 s", "P0"),
        ("2", "jit(f) f32[8]", "1", "P0, 1.00 s", "P0"),
        ("1", "jit(g)", "1", "P0, 1.00 s", "P0"),
        ("1", "jit(f) f32[8]", "1", "P1, 1.00 s", "P0"),
        ("1", "jit(f) f32[8]", "1", "P0, 3.00 s", "P2 never"),
        ("1, 3", "jit(f) f32[8]", "1", "", "P2 never"),
    )


@pytest.mark.parametrize("count", [12, 14])
def test_of_very_many_launches_the_first_are_listed(count: int) -> None:
    launches = [Launch(f"jit(f{i})", str(i), (0, 1, 2)) for i in range(count)]
    time = time_of(*(vain(f, i, 5.0, (2,), p0=1.0, p1=1.0) for i, f in enumerate(launches)))
    assert [row[0] for row in launches_of(time)] == [str(i) for i in range(12)]
    in_vain = [f"P0-1 waited at line {i} in vain for P2." for i in range(12)]
    more = [f"12 of {count} launches are in the table."] if count > 12 else []
    assert time_scene(time, {}).notes == (*in_vain, *more)


@pytest.mark.parametrize("count", [64, 66])
def test_of_very_many_processes_the_first_are_drawn(count: int) -> None:
    time = time_of(count=count)
    lanes, table = time_scene(time, {}).parts
    ordered, *_ = order_scene(time, {}).parts
    assert isinstance(lanes, Lanes)
    assert isinstance(table, Table)
    assert isinstance(ordered, Lanes)
    assert [lane.process for lane in lanes.lanes] == list(range(64))
    assert [row[0] for row in table.rows] == [f"P{k}" for k in range(64)]
    assert [lane.process for lane in ordered.lanes] == list(range(64))
    note = [f"64 of {count} lanes are drawn."] if count > 64 else []
    assert time_scene(time, {}).notes == ("Nothing was launched that spans processes.", *note)


@pytest.mark.parametrize(
    ("length", "ticks"),
    [
        (0.3, [f"{n} ms" if n else "0" for n in range(0, 301, 50)]),
        (
            0.8,
            ["0", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms", "600 ms", "700 ms", "800 ms"],
        ),
        (0.9, ["0", "200 ms", "400 ms", "600 ms", "800 ms"]),
        (3.0, ["0", "500 ms", "1.00 s", "1.50 s", "2.00 s", "2.50 s", "3.00 s"]),
        (10.0, ["0", "2.00 s", "4.00 s", "6.00 s", "8.00 s", "10 s"]),
    ],
)
def test_the_ticks_are_round_times(length: float, ticks: list[str]) -> None:
    lanes = time_scene(time_of(length=length), {}).parts[0]
    assert isinstance(lanes, Lanes)
    assert [text for _, text in lanes.ticks] == ticks
    assert [at for at, _ in lanes.ticks] == sorted(at for at, _ in lanes.ticks)


def notes(lane: tuple[Stretch, ...], *meetings: Meeting, length: float = 10.0) -> tuple[str, ...]:
    """Return the sentences on a cell in which P2 did what the lane tells."""
    return time_scene(Timeline(length, {0: (), 1: (), 2: lane}, meetings), {}).notes


def test_who_came_late_is_named_if_it_was_much_of_the_cell() -> None:
    working = (Stretch("python", 0.0, 10.0, 1),)
    late = met(F, 2, 6.0, p0=1.0, p1=2.0, p2=5.0)
    said = "At line 2, others waited up to 5.00 s for P2, which was in Python at line 1."
    assert notes(working, late) == (said,)
    assert notes(working, late, vain(G, 3, 9.0, (2,), p0=1.0, p1=9.0))[0] == said
    assert notes(working, late, length=39.0) == (said,)
    assert notes(working, late, length=41.0) == ()
    unknown = Meeting(F, {0: None, 2: None}, {0: 1.0, 2: 5.0}, {0: 5.0, 2: 5.0}, 5.0)
    assert notes((), unknown) == ("Others waited up to 4.00 s for P2.",)


def test_what_the_last_one_did_meanwhile_is_told_if_it_took_long() -> None:
    lane = (
        Stretch("compiles", 0.0, 2.0, 1),
        Stretch("python", 2.0, 3.0, 3),
        Stretch("computes", 3.0, 4.0, None),
        Stretch("python", 4.0, 5.0, 3),
        Stretch("python", 5.0, 10.0, 4),
    )
    late = met(F, 2, 6.0, p0=1.0, p1=2.0, p2=6.0)
    assert notes(lane, late) == (
        "At line 2, others waited up to 5.00 s for P2, which was compiling at line 1, then in "
        "Python at line 3, then computing, then in Python at line 4.",
        "Computing: Python waits for a result. Computations are not shown while Python goes on.",
    )
    later = met(F, 2, 9.0, p0=1.5, p2=9.0)
    assert notes(lane, later)[0] == (
        "At line 2, others waited up to 7.50 s for P2, which was in Python at line 3, then in "
        "Python at line 4."
    )


def test_who_gave_up_though_nobody_was_missing() -> None:
    gave_up = vain(F, 2, 5.0, (), p0=1.0, p1=1.0, p2=1.0)
    assert notes((), gave_up) == ("P0-2 gave up at line 2.",)
    lines = Meeting(F, {0: 2, 1: 3}, {0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0}, 1.0, (2,))
    assert notes((), lines) == ("P0-1 went ahead at lines 2, 3 without P2.",)


@pytest.mark.parametrize(
    ("programs", "steps"),
    [
        ("aaaa", ["a4"]),
        ("abab", ["a2", "b2"]),
        ("aaab", ["a3", "b1"]),
        ("aabaab", ["a2", "a2", "b2"]),
        ("aaabab", ["a3", "b1", "a1", "b1"]),
        ("abcdefghijklabcdefghijkl", [f"{name}2" for name in "abcdefghijkl"]),
        ("abcdefghijklmabcdefghijklm", None),
    ],
)
def test_patterns_of_launches_are_drawn_once(programs: str, steps: list[str] | None) -> None:
    time = time_of(
        *(
            met(Launch(name, name, (0, 1)), 1, i + 0.5, p0=float(i), p1=float(i))
            for i, name in enumerate(programs)
        )
    )
    table = order_scene(time, {}).parts[1]
    assert isinstance(table, Table)
    rows = [f"{row[1] or row[0]}{row[2]}" for row in table.rows]
    if steps is None:  # longer than any pattern that is looked for: the first and the last steps
        steps = [*(f"{name}1" for name in programs[:18]), "…", *(f"{n}1" for n in programs[-6:])]
    assert rows == steps


@pytest.mark.parametrize(
    "other",
    [
        met(Launch("f", "other", (0, 1)), 1, 4.0, p0=3.0, p1=3.0),
        met(Launch("f", "f", (0, 1)), 2, 4.0, p0=3.0, p1=3.0),
        vain(Launch("f", "f", (0, 1)), 1, 4.0, (), p0=3.0, p1=3.0),
    ],
    ids=["program", "line", "met"],
)
def test_only_equal_launches_are_a_pattern(other: Meeting) -> None:
    one = met(Launch("f", "f", (0, 1)), 1, 2.0, p0=1.0, p1=1.0)
    table = order_scene(time_of(one, other), {}).parts[1]
    assert isinstance(table, Table)
    assert [row[2] for row in table.rows] == ["1", "1"]


def test_in_a_circle_of_waits_the_lowest_process_is_drawn_first() -> None:
    """P0 is at f and then g, P1 at g and then f: each waits for the other."""
    f, g = (Launch(name, name, (0, 1)) for name in "fg")
    circle = [
        Meeting(f, {0: 1, 1: 4}, {0: 1.0, 1: 2.0}, {}, 3.0),
        Meeting(g, {0: 2, 1: 3}, {0: 2.0, 1: 1.0}, {}, 3.0),
    ]
    for meetings in (circle, circle[::-1]):
        lanes, table = order_scene(time_of(*meetings), {}).parts
        assert isinstance(lanes, Lanes)
        assert isinstance(table, Table)
        assert [row[1] for row in table.rows] == ["f", "g"]
        assert [join.at for join in lanes.joins] == [1 / 3, 2 / 3]


def test_a_quiet_cell_and_a_process_without_an_answer() -> None:
    time = Timeline(1.0, {0: (Stretch("waits", 0.0, 1.0),), 1: ()}, ())
    scene = order_scene(time, {1: "gave no answer"})
    assert scene.title == "The cell's launches on 2 processes, in order"
    [lanes] = scene.parts
    assert isinstance(lanes, Lanes)
    assert [(lane.bars, lane.note) for lane in lanes.lanes] == [
        ((Bar("python", 0.0, 1.0),), ""),
        ((), "gave no answer"),
    ]
    table = time_scene(time, {1: "gave no answer"}).parts[1]
    assert isinstance(table, Table)
    assert table.rows == (("P0", "0 ms", "0 ms", "0 ms", "1.00 s"), ("P1", "", "", "", ""))
