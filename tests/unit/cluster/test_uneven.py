"""Variables that processes have assigned a different number of times are named."""

from __future__ import annotations

import pytest

from mcnb.cluster import uneven
from mcnb.cluster.uneven import uneven_assignments
from mcnb.lockstep.model import Launch, LaunchRecord

ADD, MUL = Launch("add", "1", (0,)), Launch("multiply", "2", (0,))
LOOP = "for batch in batches:\n    x = x + batch\n    total = f(x)"


def made(line: int | None, times: int, launch: Launch = ADD, **more: str) -> list[LaunchRecord]:
    return [LaunchRecord(0, launch, line, 0.0, 0.5, **more) for _ in range(times)]


@pytest.mark.parametrize(
    ("source", "launches", "said"),
    [
        (
            LOOP,
            {0: made(2, 4), 1: made(2, 3), 2: made(2, 4)},
            "`x` may not be in the same step on all processes: line 2 ran 4 times on processes 0,2;"
            " 3 times on process 1. Assign `x` anew before use",
        ),
        (
            LOOP,
            {0: made(2, 2) + made(3, 2), 1: made(2, 1) + made(3, 1), 2: []},
            "`x` may not be in the same step on all processes: line 2 ran 2 times on process 0; "
            "once on process 1; never on process 2. Assign `x` anew before use",
        ),
        (
            "x, y.w[0] = f(x, y)\nz: int = x.sum()",
            {0: made(1, 1) + made(2, 2), 1: made(2, 1)},
            "`x`, `y` and `z` may not be in the same step on all processes: line 1 ran once on "
            "process 0; never on process 1. Assign them anew before use",
        ),
        (
            "x = x + 1",
            {k: made(1, k + 1) for k in range(4)},
            "`x` may not be in the same step on all processes: line 1 ran 1 to 4 times, depending "
            "on the process. Assign `x` anew before use",
        ),
        ("x += 1", {0: made(1, 1), 1: []}, "`x` may not be in the same step on all processes: "),
        # What only some processes have may be meant so.
        ("if k == 0:\n    y = x + 1", {0: made(2, 1), 1: []}, ""),
        ("print(x + 1)", {0: made(1, 2), 1: made(1, 1)}, ""),
        ("def f(x):\n    x = x + 1\n    return x", {0: made(2, 2), 1: made(2, 1)}, ""),
        ("x = x + 1", {0: made(1, 2), 1: made(1, 2)}, ""),
        ("x = x + 1", {0: made(None, 2), 1: []}, ""),
        ("x = x + 1", {0: made(1, 2, place="a.py:1"), 1: []}, ""),
        ("%time x = x + 1", {0: made(1, 1), 1: []}, ""),
        ("x = x + 1", {}, ""),
    ],
)
def test_what_is_said(source: str, launches: dict[int, list[LaunchRecord]], said: str) -> None:
    found = uneven_assignments(source, 1, launches, max(launches, default=0) + 1)
    assert found == said or (said.endswith(": ") and found.startswith(said))


def test_a_launch_that_did_not_begin_assigns_nothing() -> None:
    waits = [LaunchRecord(0, ADD, 1, 0.0, None)]
    assert uneven_assignments("x = x + 1", 1, {0: waits, 1: []}, 2) == ""


def test_a_statement_has_run_as_often_as_its_last_launch() -> None:
    twice, once = made(5, 1) + made(5, 1, MUL), made(5, 1)
    source = "\nx = 2 * x + 1"
    launches = {0: twice + twice, 1: twice + once + [LaunchRecord(1, MUL, 5, 0.0, None)]}
    assert uneven_assignments(source, 4, launches, 2).startswith(
        "`x` may not be in the same step on all processes: line 5 ran 2 times on process 0; once on"
    )
    assert uneven_assignments(source, 4, {**launches, 0: twice}, 2) == ""


def test_records_that_are_not_complete_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uneven, "MOST_RECORDS", 2)
    assert uneven_assignments("x = x + 1", 1, {0: made(1, 2), 1: made(1, 1)}, 2) == ""
