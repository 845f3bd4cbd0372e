"""How verdicts name launches: by the arguments that tell them apart, and by how often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mcnb.lockstep.differences import told_apart
from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import Detail, Kind, Launch, ProcessState, Verdict
from tests.support.verdicts import at, sentence, states

LEAVES = tuple(
    (f"params['layer{n}']['{name}']", text)
    for n in range(500)
    for name, text in (("b", "f32[16]"), ("w", "f32[16,16]"))
)
NAMES = (*(name for name, _ in LEAVES), "x")
EQUAL = tuple(text for _, text in LEAVES)
STEP = Launch("jit(step)", "1", (0, 1, 2), (*EQUAL, "f32[33,16]"))
LINE = Detail("loss = step(params, batch(rows))", names=NAMES)


def other(**changed: str) -> Launch:
    """Return another launch of `step`, some of whose arguments, by position, are others."""
    arguments = list(STEP.arguments)
    for position, text in changed.items():
        arguments[int(position[1:])] = text
    return replace(STEP, program="2", arguments=tuple(arguments))


def named(*launches: Launch, names: Sequence[str] = NAMES) -> list[str]:
    """Return the names of launches at which processes wait."""
    each = states(*(ProcessState("waits", one, 4) for one in launches))
    return told_apart(Verdict("mismatch", each, details={0: Detail(names=tuple(names))}), launches)


def lines(kind: Kind, *each: ProcessState, **more: Any) -> Sequence[str]:
    return explain(Verdict(kind, states(*each), **more), len(each)).lines


@pytest.mark.parametrize(
    ("launches", "expected"),
    [
        (
            [STEP, other(_1000="f32[30,16]")],
            [f"jit(step) with x f32[{n},16] and 1000 arguments that match" for n in (33, 30)],
        ),
        (
            [STEP, other(_3="bf16[16,16]", _1000="f32[30,16]"), other(_3="f32[8,8]")],
            [
                "jit(step) with params['layer1']['w'] "
                f"{w}, x f32[{n},16] and 999 arguments that match"
                for w, n in (("f32[16,16]", 33), ("bf16[16,16]", 30), ("f32[8,8]", 33))
            ],
        ),
        (
            [STEP, replace(STEP, program="2", arguments=("bf16[16]",) * 1000 + ("f32[33,16]",))],
            [
                f"jit(step) with params['layer0']['b'] {b}, params['layer0']['w'] {w}, "
                f"params['layer1']['b'] {b}, 997 others and 1 argument that matches"
                for b, w in (("f32[16]", "f32[16,16]"), ("bf16[16]", "bf16[16]"))
            ],
        ),
        ([STEP, replace(STEP, program="2")], ["jit(step) with 1001 arguments"] * 2),
        (
            [STEP, replace(STEP, name="jit(evaluate)"), Launch("sum", "3", (0, 1), ("f32[8]",))],
            [
                *(f"jit({name}){' f32[16] f32[16,16]' * 3} +995" for name in ("step", "evaluate")),
                "sum f32[8]",
            ],
        ),
        (
            [STEP, replace(STEP, arguments=STEP.arguments[1:])],
            [
                f"jit(step){' f32[16] f32[16,16]' * 3} +995",
                f"jit(step){' f32[16,16] f32[16]' * 3} +994",
            ],
        ),
        (
            [Launch("f", n, (0, 1), ("f32[8]",) * 8 + (f"f32[{n}]",)) for n in ("8", "9")],
            [f"f with x f32[{n}] and 8 arguments that match" for n in (8, 9)],
        ),
        (
            [Launch("f", n, (0, 1), ("f32[8]",) * 7 + (f"f32[{n}]",)) for n in ("8", "9")],
            [f"f{' f32[8]' * 7} f32[{n}]" for n in (8, 9)],
        ),
        ([Launch("f", "1", (0, 1)), Launch("g", "2", (0, 1))], ["f", "g"]),
    ],
)
def test_names(launches: list[Launch], expected: list[str]) -> None:
    number = len(launches[0].arguments)
    assert named(*launches, names=(*NAMES[: number - 1], "x")) == expected


def test_an_argument_without_a_name_has_its_position() -> None:
    launches = STEP, other(_1000="f32[30,16]")
    for names in ((), NAMES[:1000]):
        assert named(*launches, names=names) == [
            f"jit(step) with argument 1000 f32[{n},16] and 1000 arguments that match"
            for n in (33, 30)
        ]


def test_a_verdict_on_a_thousand_leaves() -> None:
    waits = ProcessState("waits", STEP, 4, launches=3, visits=3, times=3)
    late = replace(waits, launch=other(_1000="f32[30,16]"))
    details = dict.fromkeys(range(3), LINE)
    assert lines("mismatch", waits, waits, late, details=details) == (
        "Processes diverged: their launches do not match",
        "",
        "[0,1] are waiting in jit(step) with x f32[33,16] and 1000 arguments that match, line 4, "
        "for the 4th time",
        "[2]   is waiting in jit(step) with x f32[30,16] and 1000 arguments that match, line 4, "
        "for the 4th time",
        "      ----> 4 loss = step(params, batch(rows))",
        "",
        "What differs: the shape of argument x: f32[33,16] on processes 0,1; f32[30,16] on process "
        "2",
        "Hint: all processes must pass the same global shape. Pad to a common length and mask the "
        "padding, or give every process the same number of full batches",
    )


def test_where_nothing_is_to_tell_apart_no_argument_is_named() -> None:
    waits = ProcessState("waits", STEP, 4)
    assert lines("missing", waits, waits, ProcessState("finished"))[2:] == (
        "[0,1] are waiting in jit(step), line 4",
        "[2]   finished the cell without reaching it",
    )


def test_a_line_that_all_are_at_is_quoted_once() -> None:
    one, two = Detail("f(x)"), Detail("g(x)")
    each = [at(), at(what=replace(STEP, name="f")), at(5), ProcessState("finished")]
    found = lines("mismatch", *each, details={0: one, 1: one, 2: two})
    assert [line for line in found if "---->" in line] == [
        "    ----> 4 f(x)",
        "    ----> 5 g(x)",
    ]


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (
            [replace(at(), times=1), replace(ProcessState("finished"), times=1)],
            "missing: process 0 is waiting in sum, line 4, for the 2nd time; process 1 finished "
            "the cell without reaching it a 2nd time",
        ),
        (
            [replace(at(), times=3), replace(ProcessState("finished"), times=2)],
            "missing: process 0 is waiting in sum, line 4, for the 4th time; process 1 finished "
            "the cell without reaching it a 3rd time",
        ),
        (
            [replace(at(), times=1), replace(ProcessState("raised", error="E: no"), times=1)],
            "missing: process 1 raised E: no; process 0 is waiting in sum, line 4, for the 2nd "
            "time",
        ),
        (
            [replace(at(), times=7), replace(ProcessState("left"), times=7)],
            "missing: process 0 is waiting in sum, line 4, for the 8th time; process 1 exited "
            "without reaching it an 8th time",
        ),
        (
            [replace(at(), times=2), replace(ProcessState("finished"), times=3)],
            "missing: process 0 is waiting in sum, line 4, for the 3rd time; process 1 finished "
            "the cell after reaching that line 3 times",
        ),
        (
            [
                replace(at(), times=2, launches=6),
                replace(ProcessState("left"), times=3, launches=6),
            ],
            "missing: process 0 is waiting in sum, line 4, for the 3rd time; process 1 exited "
            "after 6 launches, as many as process 0 has made",
        ),
        (
            [at(), replace(ProcessState("left"), times=1)],
            "missing: process 0 is waiting in sum, line 4; process 1 exited after reaching that "
            "line once",
        ),
        (
            [replace(at(), times=1), ProcessState("finished")],
            "missing: process 0 is waiting in sum, line 4, for the 2nd time; process 1 finished "
            "the cell without reaching it",
        ),
        (
            [replace(at(None), times=1), ProcessState("finished")],
            "missing: process 0 is waiting in sum; process 1 finished the cell without reaching it",
        ),
    ],
)
def test_how_often_a_line_was_reached(each: list[ProcessState], expected: str) -> None:
    assert sentence("missing", *each).startswith(expected)


def test_how_often_is_told_of_each_line() -> None:
    each = [at(), replace(at(7), times=1), replace(at(9), times=2)]
    assert lines("mismatch", *each)[2:5] == (
        "[0] is waiting in sum, line 4",
        "[1] is waiting in sum, line 7, for the 2nd time",
        "[2] is waiting in sum, line 9, for the 3rd time",
    )


def test_a_launch_without_communication_is_told_apart_by_what_differs() -> None:
    alone = replace(other(_1000="f32[30,16]"), participants=(2,))
    waits = ProcessState("waits", STEP, 4)
    verdict = Verdict("missing", states(waits, waits, ProcessState("finished")))
    shown = " f32[16] f32[16,16]" * 3
    assert explain(verdict, 3, alone={2: alone}).lines[5] == (
        f"What differs: process 2 launched jit(step) at line 4, too, with{shown} +994 f32[30,16] "
        f"instead of{shown} +994 f32[33,16], but without communication, so this launch does not "
        "match"
    )
