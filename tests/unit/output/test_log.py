"""The log: one row for each launch that several processes made together."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb._text import size
from mcnb.lockstep.model import Collective, Launch, LaunchRecord
from mcnb.output.log import log_text
from tests.support.timing import known_work_s

HEADER = ("process", "line", "launch", "communicates")
F = Launch("jit(f)", "1", (0, 1), ("f32[8]",))
G = Launch("jit(g)", "2", (0, 1))
OTHER_F = replace(F, program="3")

# A launch at a line, and whether it was made.
Made = tuple[Launch, int | None, bool]


def records(*each: Sequence[Made]) -> list[LaunchRecord]:
    """Return the processes' launches, as if all were at their first, then at their second."""
    return [
        LaunchRecord(k, launch, line, float(time), time + 0.5 if made else None)
        for k, own in enumerate(each)
        for time, (launch, line, made) in enumerate(own)
    ]


def rows(text: str) -> list[tuple[str, ...]]:
    """Return the cells of a table below its header."""
    header, *lines = text.split("\n")
    starts = [header.index(name) for name in HEADER]
    ends = [*starts[1:], max(map(len, text.split("\n")))]
    return [
        tuple(line[start:end].strip() for start, end in zip(starts, ends, strict=True))
        for line in lines
    ]


def shown(*each: Sequence[Made]) -> list[tuple[str, str, str]]:
    return [
        (who, line, what)
        for who, line, what, _ in rows(log_text(records(*each), len(each), full=True))
    ]


def at(line: int | None = 2, launch: Launch = F, made: bool = True) -> Made:
    return launch, line, made


def test_no_launches() -> None:
    assert log_text([], 4) == "process  line  launch  communicates"


def test_a_table() -> None:
    both = Collective("all-reduce", 1_500_000, ((0, 1, 2), (3,)))
    big = replace(F, name="jit(a_long_name)", collectives=(both,))
    text = log_text(records(*[[at(12, big), at(3, G)]] * 3, [at(3, G, made=False)]), 4)
    assert text == (
        "process  line  launch                   communicates\n"
        "[0-2]    12    jit(a_long_name) f32[8]  all-reduce of 1.5 MB among 0-2\n"
        "[0-2]    3     jit(g)                   nothing\n"
        "[3]      3     jit(g)                   nothing · not launched"
    )


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        ([[at()]], [("[0]", "2", "jit(f) f32[8]")]),
        ([[at()], [at()]], [("[all 2]", "2", "jit(f) f32[8]")]),
        ([[at(None)], [at(None)]], [("[all 2]", "", "jit(f) f32[8]")]),
        ([[at()], [at()], []], [("[0,1]", "2", "jit(f) f32[8]")]),
        ([[], [at()], [at()], [at()]], [("[1-3]", "2", "jit(f) f32[8]")]),
        ([[at()]] * 12, [("[all 12]", "2", "jit(f) f32[8]")]),
        ([[at()]] * 5 + [[]] + [[at()]] * 6, [("[0-4,6-11]", "2", "jit(f) f32[8]")]),
        ([[at(2)], [at(3)]], [("[0]", "2", "jit(f) f32[8]"), ("[1]", "3", "jit(f) f32[8]")]),
        ([[at(2)], [at(None)]], [("[0]", "2", "jit(f) f32[8]"), ("[1]", "", "jit(f) f32[8]")]),
        (
            [[at()], [at(2, OTHER_F)], [at()]],
            [("[0,2]", "2", "jit(f) f32[8]"), ("[1]", "2", "jit(f) f32[8]")],
        ),
        (
            [[at()], [at(2, replace(F, name="jit(h)"))]],
            [("[0]", "2", "jit(f) f32[8]"), ("[1]", "2", "jit(h) f32[8]")],
        ),
        (
            [[at()], [at(2, replace(F, arguments=("f32[4]",)))]],
            [("[0]", "2", "jit(f) f32[8]"), ("[1]", "2", "jit(f) f32[4]")],
        ),
        (
            [[at()], [at(made=False)], [at(made=False)]],
            [("[0]", "2", "jit(f) f32[8]"), ("[1,2]", "2", "jit(f) f32[8]")],
        ),
    ],
)
def test_rows(each: list[list[Made]], expected: list[tuple[str, str, str]]) -> None:
    assert shown(*each) == expected


def test_each_turn_of_a_loop_has_a_row() -> None:
    turn = [at(2), at(3, G)]
    assert (
        shown(turn * 3, turn * 3)
        == [
            ("[all 2]", "2", "jit(f) f32[8]"),
            ("[all 2]", "3", "jit(g)"),
        ]
        * 3
    )


def test_a_turn_too_many_has_a_row_of_its_own() -> None:
    assert shown([at()] * 3, [at()] * 2, [at()] * 3) == [
        ("[all 3]", "2", "jit(f) f32[8]"),
        ("[all 3]", "2", "jit(f) f32[8]"),
        ("[0,2]", "2", "jit(f) f32[8]"),
    ]


def test_who_leaves_out_a_launch_meets_the_others_again() -> None:
    assert shown([at(2), at(3, G), at(4)], [at(2), at(4)]) == [
        ("[all 2]", "2", "jit(f) f32[8]"),
        ("[0]", "3", "jit(g)"),
        ("[all 2]", "4", "jit(f) f32[8]"),
    ]


def test_a_launch_in_common_waits_for_one_that_a_later_process_makes_alone() -> None:
    assert shown([at(2), at(4)], [at(2), at(3, G), at(4)]) == [
        ("[all 2]", "2", "jit(f) f32[8]"),
        ("[1]", "3", "jit(g)"),
        ("[all 2]", "4", "jit(f) f32[8]"),
    ]


def test_orders_that_differ_are_kept() -> None:
    assert shown([at(), at(2, G)], [at(2, G), at()]) == [
        ("[0]", "2", "jit(f) f32[8]"),
        ("[all 2]", "2", "jit(g)"),
        ("[1]", "2", "jit(f) f32[8]"),
    ]


def test_two_launches_at_one_time_are_in_the_order_of_the_processes() -> None:
    one, two = records([at(2)], [at(3, G)])
    assert log_text([two, one], 2) == log_text([one, two], 2)
    assert [row[0] for row in rows(log_text([two, one], 2))] == ["[0]", "[1]"]


REDUCE = Collective("all-reduce", 4, ((0, 1), (2, 3)))


@pytest.mark.parametrize(
    ("collectives", "expected"),
    [
        ((), "nothing"),
        ((replace(REDUCE, groups=((0,), (1,))),), "nothing"),
        ((replace(REDUCE, groups=()),), "nothing"),
        ((REDUCE,), "all-reduce of 4 B among 0,1 2,3"),
        ((replace(REDUCE, groups=((0, 1, 2, 3),)),), "all-reduce of 4 B among 0-3"),
        ((replace(REDUCE, groups=((0, 2), (1,))),), "all-reduce of 4 B among 0,2"),
        ((REDUCE,) * 3, "3 x all-reduce of 4 B among 0,1 2,3"),
        (
            (REDUCE, replace(REDUCE, kind="all-gather", bytes=2048), REDUCE),
            "2 x all-reduce of 4 B among 0,1 2,3, all-gather of 2.05 KB among 0,1 2,3",
        ),
        (
            (REDUCE, replace(REDUCE, bytes=8)),
            "all-reduce of 4 B among 0,1 2,3, all-reduce of 8 B among 0,1 2,3",
        ),
    ],
)
def test_communication(collectives: tuple[Collective, ...], expected: str) -> None:
    launch = replace(F, collectives=collectives)
    text = log_text(records([at(2, launch)], [at(3, launch, made=False)]), 2)
    assert [row[3] for row in rows(text)] == [expected, f"{expected} · not launched"]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (4, "4 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1024, "1.02 KB"),
        (8192, "8.19 KB"),
        (65_536, "65.5 KB"),
        (999_000, "999 KB"),
        (1_000_000, "1 MB"),
        (2_500_000_000, "2.5 GB"),
        (3_000_000_000_000, "3 TB"),
        (120_000_000_000_000, "120 TB"),
    ],
)
def test_sizes(count: int, expected: str) -> None:
    assert size(count) == expected


@given(st.integers(0, 10**15))
def test_a_size_is_right_to_one_percent(count: int) -> None:
    amount, unit = size(count).split(" ")
    bytes_each = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}[unit]
    assert float(amount) * bytes_each == pytest.approx(count, rel=0.01)
    assert float(amount) >= 1 or count == 0


@given(st.integers(0, 10**15), st.integers(0, 10**15))
def test_what_has_a_larger_unit_is_larger(one: int, other: int) -> None:
    units = ("B", "KB", "MB", "GB", "TB")
    first, second = (units.index(size(n).split(" ")[1]) for n in (one, other))
    assert first == second or (first < second) == (one < other)


MADE = st.tuples(st.sampled_from([F, G, OTHER_F]), st.sampled_from([None, 2, 3]), st.booleans())
GAPS = st.lists(st.integers(1, 9), min_size=6, max_size=6)


def timed(each: Sequence[Sequence[Made]], gaps: Sequence[Sequence[int]]) -> list[LaunchRecord]:
    """Return the processes' launches, each process at its own pace, in the order of processes."""
    return [
        LaunchRecord(k, launch, line, float(time), time + 0.5 if made else None)
        for k, (own, own_gaps) in enumerate(zip(each, gaps, strict=True))
        for (launch, line, made), time in zip(own, itertools.accumulate(own_gaps), strict=False)
    ]


def members(label: str, count: int) -> list[int]:
    """Return the processes of a label."""
    text = label.strip("[]")
    if text == f"all {count}":
        return list(range(count))
    ends = [part.split("-") for part in text.split(",")]
    return [k for end in ends for k in range(int(end[0]), int(end[-1]) + 1)]


@given(st.lists(st.tuples(st.lists(MADE, max_size=6), GAPS), min_size=1, max_size=5), st.randoms())
def test_each_process_finds_its_launches_in_its_order(
    each: list[tuple[list[Made], list[int]]], order: random.Random
) -> None:
    made = timed([own for own, _ in each], [gaps for _, gaps in each])
    order.shuffle(made)
    table = rows(log_text(made, len(each), full=True))
    for k, (own, _) in enumerate(each):
        told = [row[1:] for row in table if k in members(row[0], len(each))]
        assert told == [
            (
                "" if line is None else str(line),
                str(launch),
                "nothing" if made else "nothing · not launched",
            )
            for launch, line, made in own
        ]
    assert sum(len(members(row[0], len(each))) for row in table) == len(made)


@given(st.lists(MADE, max_size=6), st.lists(GAPS, min_size=2, max_size=5))
def test_who_launches_the_same_shares_all_rows_at_any_pace(
    own: list[Made], gaps: list[list[int]]
) -> None:
    count = len(gaps)
    text = log_text(timed([own] * count, gaps), count, full=True)
    assert text == log_text(records(*[own] * count), count, full=True)
    assert [row[0] for row in rows(text)] == [f"[all {count}]"] * len(own)


@pytest.mark.parametrize("late", [0.5, 1.5, 2.5])
def test_times_decide_nothing(late: float) -> None:
    """Processes 2 and 3 come to what all launch together before, between or after the others."""
    g = Launch("jit(g)", "g", (0, 1))
    f = Launch("jit(f)", "f", (0, 1, 2, 3))
    records = [LaunchRecord(k, g, 2, 1.0, 1.0) for k in (0, 1)]
    records += [LaunchRecord(k, f, 3, 2.0 if k < 2 else late, 3.0) for k in range(4)]
    assert [line.split()[:4] for line in log_text(records, 4).splitlines()[1:]] == [
        ["[0,1]", "2", "jit(g)", "nothing"],
        ["[all", "4]", "3", "jit(f)"],
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (999, "999 B"),
        (999_499, "999 KB"),
        (999_500, "1 MB"),
        (999_999_999, "1 GB"),
        (10**15, "1000 TB"),
    ],
)
def test_sizes_are_rounded_to_the_unit_above(count: int, text: str) -> None:
    assert size(count) == text


H = replace(F, name="jit(h)", program="4", arguments=())


def folded(*each: Sequence[Made]) -> list[tuple[str, str, str]]:
    """Return process, line and repetitions of each row."""
    header, *lines = log_text(records(*each), len(each)).split("\n")
    ends = [header.index(name) for name in ("line", "launch", "times", "communicates")]
    return [
        (line[: ends[0]].strip(), line[ends[0] : ends[1]].strip(), line[ends[2] : ends[3]].strip())
        for line in lines
    ]


def test_rounds_of_a_loop_share_their_rows() -> None:
    turn = [at(2), at(3, G)]
    both = [at(1, H), *turn * 3, at(4, H)]
    assert log_text(records(both, [*both, at(2)]), 2) == (
        "process  line  launch         times      communicates\n"
        "[all 2]  1     jit(h)                    nothing\n"
        "[all 2]  2     jit(f) f32[8]  3 in turn  nothing\n"
        "[all 2]  3     jit(g)         3 in turn  nothing\n"
        "[all 2]  4     jit(h)                    nothing\n"
        "[1]      2     jit(f) f32[8]             nothing"
    )


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([at(2)] * 40, [("2", "40")]),
        ([at(2)] * 2 + [at(3)] * 3 + [at(2)], [("2", "2"), ("3", "3"), ("2", "")]),
        ([*[at(2)] * 5, at(3)] * 3, [("2", "3 x 5 in turn"), ("3", "3 in turn")]),
        ([at(n) for n in range(1, 10)] * 4, [(str(n), "4 in turn") for n in range(1, 10)]),
        ([at(2), at(3)] * 4 + [at(2)], [("2", "4 in turn"), ("3", "4 in turn"), ("2", "")]),
        ([at(2), at(2, made=False)] * 2, [("2", "2 in turn")] * 2),
    ],
)
def test_repetitions(own: list[Made], expected: list[tuple[str, str]]) -> None:
    assert folded(own, own) == [("[all 2]", line, times) for line, times in expected]


def test_other_processes_programs_and_arguments_are_not_alike() -> None:
    assert folded([at()] * 3, [at()] * 2) == [("[all 2]", "2", "2"), ("[0]", "2", "")]
    other = replace(F, program="5")
    assert folded([at(), at(2, other), at(), at()]) == [
        ("[0]", "2", ""),
        ("[0]", "2", ""),
        ("[0]", "2", "2"),
    ]


LEAVES = ("f32[16,16]", "f32[16]") * 500


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([("f32[8]",) * 7], ["jit(f)" + " f32[8]" * 7]),
        ([("f32[8]",) * 9], ["jit(f)" + " f32[8]" * 8 + " +1"]),
        ([LEAVES], [f"jit(f){' f32[16,16] f32[16]' * 3} +994"]),
        (
            [(*LEAVES, "f32[30,16]"), (*LEAVES, "f32[33,16]")],
            [f"jit(f){' f32[16,16] f32[16]' * 3} +994 f32[{n},16]" for n in (30, 33)],
        ),
        (
            [LEAVES, (*LEAVES[:700], "bf16[16,16]", *LEAVES[701:])],
            [f"jit(f){' f32[16,16] f32[16]' * 3} +694 {d}[16,16] +299" for d in ("f32", "bf16")],
        ),
        ([LEAVES, ("f32[8]",)], [f"jit(f){' f32[16,16] f32[16]' * 3} +994", "jit(f) f32[8]"]),
    ],
)
def test_long_lists_of_arguments(arguments: list[tuple[str, ...]], expected: list[str]) -> None:
    own = [at(2, replace(F, arguments=one)) for one in arguments]
    header, *lines = log_text(records(own, own), 2).split("\n")
    begin, end = header.index("launch"), header.index("communicates")
    assert [line[begin:end].strip() for line in lines] == expected
    whole = log_text(records(own, own), 2, full=True)
    assert [" ".join(("jit(f)", *one)) in whole for one in arguments] == [True] * len(arguments)


def test_the_log_of_a_model_with_a_thousand_leaves() -> None:
    step = replace(F, name="jit(step)", arguments=(*LEAVES, "f32[32,16]"))
    evaluate = replace(step, name="jit(evaluate)", program="2", arguments=LEAVES)
    own = [*[at(4, step)] * 9, at(6, evaluate)] * 20
    assert log_text(records(own, own), 2) == (
        "process  line  launch                                                                     "
        "  times           communicates\n"
        "[all 2]  4     jit(step) f32[16,16] f32[16] f32[16,16] f32[16] f32[16,16] f32[16] +995    "
        "  20 x 9 in turn  nothing\n"
        "[all 2]  6     jit(evaluate) f32[16,16] f32[16] f32[16,16] f32[16] f32[16,16] f32[16] +994"
        "  20 in turn      nothing"
    )


@given(st.lists(MADE, max_size=12), st.integers(1, 4))
def test_repetitions_add_up_to_the_launches(own: list[Made], rounds: int) -> None:
    number = 0
    text = log_text(records(own * rounds), 1)
    header, *lines = text.split("\n")
    if "times" not in header:
        assert text == log_text(records(own * rounds), 1, full=True)
        return
    begin, end = header.index("times"), header.index("communicates")
    for line in lines:
        times = line[begin:end].removesuffix("in turn ").strip().removesuffix("in turn").strip()
        number += math.prod(map(int, times.split(" x "))) if times else 1
    assert number == len(own) * rounds


def test_a_long_log_is_folded_at_once() -> None:
    turn = [at(n, replace(F, program=str(n))) for n in range(25)]
    made = records([turn[n * n % 25] for n in range(20_000)])
    began = time.process_time()
    log_text(made, 1)
    assert time.process_time() - began < 60 * known_work_s()
