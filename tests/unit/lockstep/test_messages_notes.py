"""What looks odd about launches is noted, and nobody is accused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mcnb.lockstep.independent import SAME_PROGRAM
from mcnb.lockstep.messages import (
    caught_before,
    in_two_orders,
    other_lines,
    other_places,
    unequal_inputs,
    without_communication,
)
from mcnb.lockstep.model import (
    Doing,
    Launch,
    LaunchRecord,
    Meeting,
    ProcessState,
    Race,
    SharedValue,
    UnequalInput,
    Verdict,
)

ALL = (0, 1, 2, 3)
F = Launch("jit(f)", "f", ALL, ("f32[8]",), ("P('a',)",))
SAME = (
    "The lines launch the same computation, so no process hung. If they are different steps of "
    "the program, the results are wrong"
)


def made(process: int, line: int | None, launch: Launch = F, at: float = 0.0) -> LaunchRecord:
    return LaunchRecord(process, launch, line, at, at)


def test_one_line_is_not_odd() -> None:
    assert other_lines([made(k, 3, at=at) for at in (0, 1) for k in ALL], 4) == ""
    assert other_lines([], 4) == ""


def test_other_lines_are_noted_once() -> None:
    records = [made(k, 3 if k == 0 else 6, at=0.0) for k in ALL]
    records += [made(k, 6 if k == 0 else 3, at=1.0) for k in ALL]
    assert other_lines(records, 4) == (
        f"process 0 launched jit(f) at line 3, and processes 1-3 at line 6. {SAME}"
    )


def test_what_needs_nobody_may_be_launched_anywhere() -> None:
    own = [made(k, k, Launch("jit(f)", "f", (k,))) for k in ALL]
    assert other_lines(own, 4) == ""


def test_lines_that_are_not_known_say_nothing() -> None:
    assert other_lines([made(0, None), *(made(k, 3) for k in (1, 2, 3))], 4) == ""


def test_who_launched_it_without_communication_is_named() -> None:
    alone = Launch("jit(f)", "other", (2,), ("f32[8]",), ("P()",))
    states = {0: ProcessState("waits", F, 3), 2: ProcessState("finished")}
    records = [made(2, 3, alone), made(3, 3, alone)]
    assert without_communication(Verdict("missing", states), records, 4) == (
        "processes 2,3 also launched jit(f) at line 3, sharded as P() instead of P('a',), but "
        "without communication, so it does not match"
    )
    assert without_communication(Verdict("missing", states), [made(2, 4, alone)], 4) == ""
    assert without_communication(Verdict("missing", states), [made(2, 3)], 4) == ""


SAVED = Launch.barrier("saved", ALL)
G = Launch("jit(g)", "g", ALL)


def test_a_launch_that_nobody_made_is_not_noted() -> None:
    waited = LaunchRecord(0, F, 3, 0.0, None)  # then it was interrupted
    assert other_lines([waited, *(made(k, 6, at=1.0) for k in ALL)], 4) == ""


def test_barriers_may_be_reached_from_anywhere() -> None:
    assert other_lines([made(k, k, SAVED) for k in ALL], 4) == ""
    lines = {k: f"train.py:{k}" for k in ALL}
    assert other_places([Meeting(SAVED, 1, lines, lines)], 4) == ""


def test_one_program_on_other_processes_is_another_launch() -> None:
    halves = [replace(F, participants=pair) for pair in ((0, 1), (2, 3))]
    records = [
        made(k, line, half)
        for half, line in zip(halves, (3, 6), strict=True)
        for k in half.participants
    ]
    assert other_lines(records, 4) == ""


def test_the_first_of_several_launches_is_noted() -> None:
    records = [made(k, 1) for k in ALL]
    records += [made(k, 4 if k else 5, G, at=1.0) for k in ALL]
    records += [made(k, 7 if k else 8, F, at=2.0) for k in ALL]
    assert other_lines(records, 4) == (
        f"process 0 launched jit(g) at line 5, and processes 1-3 at line 4. {SAME}"
    )


def test_places_of_scripts_are_noted_if_the_launchs_own_lines_differ() -> None:
    callers, own = {0: "train.py:3", 1: "train.py:6"}, {0: "model.py:2", 1: "model.py:2"}
    through = Meeting(F, 1, callers, own)
    assert other_places([through], 2) == ""
    meetings = [
        through,
        Meeting(G, 1, callers, {1: "b.py:7", 0: "a.py:2"}),
        Meeting(F, 2, own, callers),
    ]
    assert other_places(meetings, 2) == (
        f"process 0 launched jit(g) at a.py:2, and process 1 at b.py:7. {SAME}"
    )


def test_two_orders_without_lines() -> None:
    assert in_two_orders([], 2) == ""
    assert in_two_orders([Race(1, (0,), ("max", "sum"), ("", "train.py:5"))], 2) == (
        "process 1 launched max in one thread before sum (train.py:5) in another, and process 0 "
        "the other way around. mcnb had all processes run them in one order, so the program went "
        "on. Without mcnb, the devices may run them in different orders, and hang or compute wrong "
        "results: make all launches that communicate from one thread, in an order that is the same "
        "on all processes"
    )


def test_the_first_verdict_that_was_caught_is_told() -> None:
    verdicts = [
        Verdict("missing", {0: ProcessState("waits", F, line), 1: ProcessState("finished")})
        for line in (3, 4, 5)
    ]
    assert caught_before(verdicts, 2) == (
        "before that, the program caught a LockstepError and went on: missing: process 0 is "
        "waiting in jit(f), line 3; process 1 finished the cell without reaching it"
    )


def alone(*arguments: str, spec: str = "P('a',)") -> Launch:
    return Launch("jit(f)", "other", (2,), arguments, (spec,))


@pytest.mark.parametrize(
    ("other", "how"),
    [
        (alone("f32[4]", spec="P()"), ", with f32[4] instead of f32[8]"),
        (alone("f32[8]", spec="P()"), ", sharded as P() instead of P('a',)"),
        (alone("f32[8]"), ""),
    ],
)
def test_how_a_launch_without_communication_differs(other: Launch, how: str) -> None:
    states = {0: ProcessState("finished"), 1: ProcessState("waits", F, 3)}
    assert without_communication(Verdict("missing", states), [made(2, 3, other)], 4) == (
        f"process 2 also launched jit(f) at line 3{how}, but without communication, so it does "
        f"not match{'' if how else f'. {SAME_PROGRAM}'}"
    )


@pytest.mark.parametrize("doing", ["hangs", "died"])
def test_only_who_waits_may_have_expected_a_launch(doing: Doing) -> None:
    verdict = Verdict("died", {0: ProcessState(doing, F, 3), 1: ProcessState("finished")})
    assert without_communication(verdict, [made(2, 3, alone("f32[8]"))], 4) == ""


def test_a_launch_without_communication_that_was_not_made_is_not_noted() -> None:
    verdict = Verdict("missing", {0: ProcessState("waits", F, 3)})
    record = replace(made(2, 3, alone("f32[8]")), began=None)
    assert without_communication(verdict, [record], 4) == ""


def unequal(*texts: str, name: str = "key", index: tuple[int, ...] = ()) -> UnequalInput:
    values = {k: SharedValue(0, index, text) for k, text in enumerate(texts)}
    return UnequalInput(Launch("jit(init)", "1", (0,)), name, "train.py:3", values)


def test_unequal_inputs() -> None:
    assert unequal_inputs([], 4) == ""
    taken = (
        "JAX takes the value as equal on all processes, and this launch does not communicate, so "
        "each process made its part of the result from its own value. Use the value of one "
        "process: multihost_utils.broadcast_one_to_all"
    )
    assert unequal_inputs([unequal("[0 0]", "[0 0]", "[0 1]", "[0 0]")], 4) == (
        f"processes 0,1,3 passed key = [0 0] to jit(init), train.py:3, and process 2 passed [0 1]. "
        f"{taken}(key)"
    )
    key = unequal("[0 0]", "[0 1]")
    key = replace(key, launch=replace(key.launch, arguments=("key<fry>[]",)))
    assert unequal_inputs([key], 2).endswith(
        " from its own value. Make the key from the same seed on every process"
    )
    nested = unequal("1.0", "2.0", "3.0", name="params['w']", index=(0, 2))
    assert unequal_inputs([nested, nested], 3) == (
        "process 0 passed params['w'][0, 2] = 1.0 to jit(init), train.py:3, process 1 passed 2.0, "
        f"and process 2 passed 3.0. {taken}. The same holds for 1 other launch"
    )
    assert unequal_inputs([unequal("1", "2", name="0")], 2).startswith(
        "process 0 passed argument 0 = 1 to jit(init), train.py:3, and process 1 passed 2. "
    )
    nowhere = replace(unequal("1", "2"), where="")
    assert unequal_inputs([nowhere], 2).startswith("process 0 passed key = 1 to jit(init), and ")
