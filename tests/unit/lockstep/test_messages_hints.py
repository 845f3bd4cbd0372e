"""What a verdict advises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mcnb.lockstep.model import Detail, Happened, Kind, ProcessState
from tests.support.verdicts import (
    ASKS_FOR_ZERO,
    FINISHED,
    IF_ZERO,
    MAX,
    NOT_INVITED,
    ORDER,
    WAS_KILLED,
    at,
    sentence,
)


def at_line(line: int, hint: str) -> str:
    return hint.replace("this line", f"line {line}")


LOOP = (
    "the loop `for batch in batches:` ran a different number of times on different processes. "
    "Agree on the number of steps before the loop, for example the minimum over all processes, or "
    "drop the last, incomplete batch"
)


BRANCH = (
    "the processes took different branches, or one of them has an extra or a missing launch. "
    "Every participant must run the same launches in the same order"
)


HANDLING = (
    "an exception led to another launch than on the other processes. Mend what raised it, and "
    "launch nothing in an `except` or a `finally` clause that other processes may not reach"
)
FULL = Detail("jnp.sum(x)", handling="OSError: disk full (line 2)")


IN_LOOP = Detail("step(batch)", loop="for batch in batches:")


@pytest.mark.parametrize(
    ("kind", "each", "details", "hint"),
    [
        ("missing", [at(), FINISHED], {0: ASKS_FOR_ZERO}, IF_ZERO),
        ("missing", [at(), FINISHED], {0: replace(ASKS_FOR_ZERO, loop="for i in x:")}, IF_ZERO),
        ("missing", [at(), FINISHED], {0: IN_LOOP}, LOOP),
        ("missing", [at(), FINISHED], {0: Detail("jnp.sum(x)")}, ""),
        ("missing", [at(), at(5), FINISHED], {0: ASKS_FOR_ZERO, 1: ASKS_FOR_ZERO}, IF_ZERO),
        ("missing", [at(), at(5), FINISHED], {0: ASKS_FOR_ZERO, 1: Detail()}, ""),
        ("missing", [at(), at(5), FINISHED], {0: ASKS_FOR_ZERO, 1: IN_LOOP}, ""),
        (
            "missing",
            [at(), at(5), FINISHED],
            {0: ASKS_FOR_ZERO, 1: Detail(condition="k == 1")},
            "",
        ),
        (
            "missing",
            [at(), at(5), FINISHED],
            {0: replace(IN_LOOP, condition="k == 0"), 1: IN_LOOP},
            LOOP,
        ),
        ("missing", [at(), at(5), FINISHED], {0: IN_LOOP, 1: Detail(loop="while True:")}, ""),
        ("missing", [at(), ProcessState("raised", error="KeyError")], {0: ASKS_FOR_ZERO}, ""),
        ("died", [at(), ProcessState("died", exit=WAS_KILLED)], {0: ASKS_FOR_ZERO}, ""),
        ("not invited", [at(), ProcessState("not invited")], {0: ASKS_FOR_ZERO}, NOT_INVITED),
        ("stalled", [at(), ProcessState("runs")], {0: ASKS_FOR_ZERO}, IF_ZERO),
        ("stalled", [at(), ProcessState("runs")], {0: IN_LOOP}, ""),
        ("mismatch", [at(4), at(4, MAX)], {}, ORDER),
        ("mismatch", [at(4), at(4, MAX)], {0: IN_LOOP}, ORDER),
        ("mismatch", [at(4), at(5, MAX)], {}, BRANCH),
        ("mismatch", [at(4, place="a.py:4"), at(4, MAX, "b.py:4")], {}, BRANCH),
        ("mismatch", [at(4), at(5, MAX)], {1: ASKS_FOR_ZERO}, at_line(5, IF_ZERO)),
        ("mismatch", [at(4), at(4, MAX)], {1: ASKS_FOR_ZERO}, IF_ZERO),
        ("mismatch", [at(4), at(5, MAX)], {0: ASKS_FOR_ZERO, 1: Detail()}, at_line(4, IF_ZERO)),
        (
            "mismatch",
            [at(4), at(5, MAX)],
            {0: Detail(condition="not (k == 0)"), 1: ASKS_FOR_ZERO},
            BRANCH,
        ),
        ("mismatch", [at(4), at(4, MAX), ProcessState("raised", error="KeyError")], {}, ""),
        ("mismatch", [at(4), at(4, MAX), FINISHED], {}, ORDER),
        ("mismatch", [at(4), at(5, MAX)], {0: FULL, 1: Detail()}, HANDLING),
        ("mismatch", [at(4), at(5, MAX)], {0: FULL}, BRANCH),
        ("mismatch", [at(4), at(5, MAX)], {0: FULL, 1: FULL}, BRANCH),
        ("missing", [at(), FINISHED], {0: FULL}, HANDLING),
        ("missing", [at(), FINISHED], {0: replace(ASKS_FOR_ZERO, handling="OSError")}, IF_ZERO),
        ("missing", [at(), ProcessState("raised", error="KeyError")], {0: FULL}, ""),
    ],
)
def test_hints(
    kind: Kind, each: Sequence[ProcessState], details: dict[int, Detail], hint: str
) -> None:
    said = sentence(kind, *each, details=details)
    assert said.partition(". Hint: ")[2] == hint
    assert said.count("Hint") == bool(hint)


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        ("", ""),
        (
            "hung",
            ". What happened: the processes hung until mcnb aborted the computations",
        ),
        ("crashed", ". What happened: the processes crashed"),
        ("failed", ". What happened: a computation failed with an error"),
        (
            "returned",
            ". What happened: the launches do not match, but they ran and exchanged data. Their "
            "results may be wrong",
        ),
    ],
)
def test_what_happened(happened: Happened, expected: str) -> None:
    assert sentence("mismatch", at(4), at(4, MAX), happened=happened) == (
        "mismatch: process 0 is waiting in sum, line 4; process 1 is waiting in max, line 4"
        f"{expected}. What differs: the computation: sum on process 0; max on process 1. "
        f"Hint: {ORDER}"
    )
