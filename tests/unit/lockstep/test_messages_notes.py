"""What looks odd about launches is noted, and nobody is accused."""

from __future__ import annotations

from mcnb.lockstep.messages import other_lines, without_communication
from mcnb.lockstep.model import Launch, LaunchRecord, ProcessState, Verdict

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
