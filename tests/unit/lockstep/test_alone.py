"""A launch that some processes make without communication is told apart from the one expected."""

from __future__ import annotations

import pytest

from mcnb.lockstep.differences import launched_alone
from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import (
    Detail,
    Doing,
    Launch,
    LaunchRecord,
    Origin,
    ProcessState,
    Verdict,
)

F = Launch("jit(f)", "f", (0, 1, 2), ("f32[8]",), ("P('a',)",))
WAITS, FINISHED = ProcessState("waits", F, 3), ProcessState("finished")
MISSING = Verdict("missing", {0: FINISHED, 1: WAITS, 2: FINISHED})
PROGRAM = (
    "what the function uses besides its arguments must be equal on all processes: constants, "
    "closed-over values, options such as out_shardings, and the conditions of Python branches. "
    "Data that is meant to differ belongs in a sharded array: "
    "jax.make_array_from_process_local_data"
)
SHAPE = (
    "all processes must pass the same global shape. Pad to a common length and mask the padding, "
    "or give every process the same number of full batches"
)
SHARDING = (
    "all processes must use the same sharding. Create the sharding once, from one PartitionSpec"
)


def other(*arguments: str, spec: str = "P('a',)") -> Launch:
    return Launch("jit(f)", "other", (2,), arguments, (spec,))


def made(process: int, line: int, launch: Launch, began: float | None = 1.0) -> LaunchRecord:
    return LaunchRecord(process, launch, line, 0.5, began)


@pytest.mark.parametrize(
    ("launch", "how", "hint"),
    [
        (other("f32[4]", spec="P()"), ", with f32[4] instead of f32[8]", SHAPE),
        (
            other("f32[8]", spec="P()"),
            ", with argument 0 sharded as P() instead of P('a',)",
            SHARDING,
        ),
        (other("f32[8]"), "", PROGRAM),
        (other("f32[8]", "i32[]"), ", with f32[8] i32[] instead of f32[8]", SHAPE),
    ],
)
def test_how_a_launch_without_communication_differs(launch: Launch, how: str, hint: str) -> None:
    alone = launched_alone(MISSING, [made(2, 3, launch), made(2, 3, other("i32[1]"))])
    assert alone == {2: launch}
    assert explain(MISSING, 3, "The cluster is intact", ["Also odd"], alone).lines == (
        "Processes diverged: their launches do not match",
        "",
        "[1] is waiting in jit(f), line 3",
        "[0] finished the cell without reaching it",
        "[2] finished the cell after launching it without communication",
        "",
        f"What differs: process 2 launched jit(f) at line 3, too{how}, but without communication, "
        "so this launch does not match",
        f"Hint: {hint}",
        "Note: Also odd",
        "The cluster is intact",
    )


def test_the_likely_cause_is_where_the_option_or_the_argument_begins_to_differ() -> None:
    cause = Origin("spec", "line 1", "spec = P('a') if k else P()")
    said = "`spec` depends on a value that differs between processes: "
    said += "`spec = P('a') if k else P()` (line 1)"
    program = Verdict("missing", MISSING.states, details={1: Detail("f(x)", inside=cause)})
    alone = {0: other("f32[8]"), 2: other("f32[8]")}
    assert f"\nLikely cause: {said}\nHint: {PROGRAM}" in explain(program, 3, alone=alone).block
    detail = Detail("f(x)", names=("x",), origins={"x": cause})
    shape = Verdict("missing", MISSING.states, details={1: detail})
    block = explain(shape, 3, alone={2: other("f32[4]")}).block
    assert f"\nLikely cause: {said}\nHint: {SHAPE}" in block


@pytest.mark.parametrize(
    "records",
    [
        [],
        [made(2, 4, other("f32[8]"))],
        [made(2, 3, F)],
        [made(2, 3, other("f32[8]"), began=None)],
        [made(2, 3, Launch("jit(g)", "g", (2,)))],
    ],
)
def test_other_launches_stand_in_for_none(records: list[LaunchRecord]) -> None:
    assert launched_alone(MISSING, records) == {}
    assert explain(MISSING, 3, alone={}) == explain(MISSING, 3)


@pytest.mark.parametrize("doing", ["hangs", "died"])
def test_only_who_waits_may_have_expected_a_launch(doing: Doing) -> None:
    verdict = Verdict("died", {0: ProcessState(doing, F, 3), 1: FINISHED})
    assert launched_alone(verdict, [made(2, 3, other("f32[8]"))]) == {}
