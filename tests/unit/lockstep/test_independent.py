"""Launches without communication for which processes compiled different programs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mcnb.lockstep.independent import Tally, different_programs, tallies_of
from mcnb.lockstep.model import Launch, LaunchRecord
from mcnb.lockstep.runner import Ending

WAITED = (
    ". The launch does not communicate, so no process waited, but each made its part of the result "
    "by its own program, and the result may be wrong. "
)
SAME_PROGRAM = (
    f"{WAITED}What a program is made of must be equal on all processes: static arguments, "
    "constants, closed-over values, options such as out_shardings, and the conditions of Python "
    "branches"
)
SAME_LAUNCHES = (
    f"{WAITED}All processes must launch the same computations, on arrays of the same shapes"
)
EVERYWHERE = (0, 1, 2)


def at(
    program: str,
    where: str = "line 3",
    text: str = "jit(f) f32[8]",
    times: int = 1,
    lowered: str = "",
    processes: tuple[int, ...] = EVERYWHERE,
    cause: str = "",
) -> Tally:
    return Tally(where, processes, text, program, lowered, times, cause)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ([[at("a")], [at("a")], [at("a")]], ""),
        (
            [[at("a")], [at("b")], [at("a")]],
            "processes 0,2 and process 1 launched different programs of jit(f) f32[8] at line 3"
            + SAME_PROGRAM,
        ),
        (
            [[at("a")], [at("b", cause="`n` depends")], [at("a", cause="`m` depends")]],
            "processes 0,2 and process 1 launched different programs of jit(f) f32[8] at line 3"
            + SAME_PROGRAM.replace("What a", "Likely cause: `m` depends. What a"),
        ),
        (
            [[at(program, "train.py:7", times=9)] for program in "abc"],
            "all 3 processes launched 3 different programs of jit(f) f32[8] at train.py:7"
            + SAME_PROGRAM,
        ),
        (
            [[at("a")], [at("b", text="jit(f) f32[16]")], [at("a")]],
            "at line 3, processes 0,2 launched jit(f) f32[8], and process 1 launched jit(f) f32[16]"
            + SAME_LAUNCHES,
        ),
        (
            [[at("a", "line 2")], [at("b", "line 2")], [at("c", "line 2", "sin f32[8]")]],
            "at line 2, process 0 launched jit(f) f32[8], process 1 launched jit(f) f32[8], and "
            "process 2 launched sin f32[8]" + SAME_LAUNCHES,
        ),
        (  # the first line, and how many others there are
            [[at("a"), at(program, "line 1"), at(program, "line 9")] for program in "xxy"],
            "processes 0,1 and process 2 launched different programs of jit(f) f32[8] at line 1"
            f"{SAME_PROGRAM}. The same holds for 1 other line",
        ),
        # A loop, in which one process is an iteration ahead, or which takes another order.
        ([[at("a"), at("b")], [at("b"), at("a")], [at("a"), at("b")]], ""),
        (
            [[at("a", times=2)], [at("a"), at("b")], [at("b"), at("a")]],
            "process 0 and processes 1,2 launched different programs of jit(f) f32[8] at line 3"
            + SAME_PROGRAM,
        ),
        # What only some of them launch, or more often, may be meant so.
        ([[at("a")], [at("b")], []], ""),
        ([[at("a", times=2)], [at("b")], [at("a", times=2)]], ""),
        ([[at("a")], [at("b", "line 4")], [at("a")]], ""),
        # A launch on the devices of two of three.
        ([[at("a", processes=(0, 1))], [at("a", processes=(0, 1))], []], ""),
        (
            [[at("a", processes=(0, 1))], [at("b", processes=(0, 1))], []],
            "process 0 and process 1 launched different programs of jit(f) f32[8] at line 3"
            + SAME_PROGRAM,
        ),
        # XLA compiled one program in two ways.
        ([[at(program, lowered="l")] for program in "aab"], ""),
        (
            [[at(program, lowered=program)] for program in "aab"],
            "processes 0,1 and process 2 launched different programs of jit(f) f32[8] at line 3"
            + SAME_PROGRAM,
        ),
    ],
)
def test_what_processes_launched(made: Sequence[Sequence[Tally]], said: str) -> None:
    assert different_programs(dict(enumerate(made)), 3) == said


def test_which_launches_are_counted() -> None:
    f = Launch("jit(f)", "1", (0,), ("f32[8]",), devices="P0.0 P1.0", lowered="2")
    own = Launch("jit(g)", "3", (0,), devices="P0.0 P0.1")
    together = Launch("sum", "4", (0, 1), devices="P0.0 P1.0")
    barrier = Launch.barrier("saved", [0])
    records = [
        LaunchRecord(0, f, 3, 1.0, 1.0),
        LaunchRecord(0, f, None, 1.5, 1.5),  # from no line that is known
        LaunchRecord(0, own, 3, 2.0, 2.0),
        LaunchRecord(0, together, 3, 3.0, 3.0),
        LaunchRecord(0, barrier, 3, 4.0, 4.0),
        LaunchRecord(0, f, 3, 5.0, None),
        LaunchRecord(0, f, 9, 6.0, 6.0, "train.py:2"),
        LaunchRecord(0, f, 3, 7.0, 7.0),
    ]
    assert tallies_of(records) == [
        Tally("line 3", (0, 1), "jit(f) f32[8]", "1", "2", 2),
        Tally("train.py:2", (0, 1), "jit(f) f32[8]", "1", "2", 1),
    ]


def test_a_process_reports_them() -> None:
    ending = Ending(tallies=(at("a"), at("b", times=7)))
    assert Ending.from_json(ending.to_json()) == ending
    assert Ending.from_json(Ending("exit", code=3).to_json()) == Ending("exit", code=3)
