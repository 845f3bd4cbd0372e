"""What looks odd about launches is noted, and nobody is accused."""

from __future__ import annotations

from dataclasses import replace

from mcnb.lockstep.messages import (
    caught_before,
    in_two_orders,
    other_lines,
    other_places,
)
from mcnb.lockstep.model import (
    Launch,
    LaunchRecord,
    Meeting,
    ProcessState,
    Race,
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
        "process 0 launched sum (train.py:5) in one thread before max in another, and process 1 "
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
