"""Hints on arrays that some processes have for themselves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.cluster.outcome import Outcome
from mcnb.cluster.result import Result
from mcnb.lockstep.model import Kind, ProcessState, Verdict
from mcnb.messages import ProcessError, Reply
from mcnb.notebook.arrays import hint_on_array, spans, with_hint
from tests.support.verdicts import FINISHED, MAX, at, states

REFUSED = ProcessError("LockstepError", "missing", 4, "")
CELL = "step = jit(f)\nw = 2\ny = step(w, x) + step(w, x)\njnp.max(z)"
HINT = (
    "Hint: `x` is a process-local array on {1}, where a computation with it involves no other "
    "process; on {0}, it spans processes. Create `x` in the same way on all processes"
)


def result(kind: Kind, *each: ProcessState, intact: bool = True) -> Result:
    replies = {
        k: Reply(error=REFUSED if state.doing == "waits" else None) for k, state in enumerate(each)
    }
    outcome = Outcome(verdict=Verdict(kind, states(*each)), intact=intact)
    return Result(replies, len(each), outcome)


@pytest.mark.parametrize(
    ("kind", "each", "spans", "hint"),
    [
        ("missing", [at(), FINISHED, at()], [True, False, True], HINT.format(
            "processes 0,2", "process 1")),
        ("mismatch", [at(), at(5, MAX), at()], [True, False, True], HINT.format(
            "processes 0,2", "process 1")),
        ("mismatch", [at(5, MAX), at(), at()], [False, True, True], HINT.format(
            "processes 1,2", "process 0")),
        ("missing", [at(), FINISHED, FINISHED], [True, False, True], HINT.format(
            "process 0", "process 1")),
        ("missing", [at(), FINISHED, at()], [True, None, True], ""),
        ("missing", [at(), FINISHED, at()], [True, True, True], ""),
        ("missing", [at(), FINISHED, at()], [False, False, True], ""),
        ("missing", [at(3), FINISHED, at(3)], [True, False, True], ""),
        ("missing", [at(place="a.py:4"), FINISHED], [True, False], ""),
        ("stalled", [at(), FINISHED, at()], [True, False, True], ""),
        ("mismatch", [at(), at(4, MAX), at()], [True, False, True], ""),
    ],
)  # fmt: skip
def test_an_array_of_ones_own(
    kind: Kind, each: list[ProcessState], spans: list[bool | None], hint: str
) -> None:
    asked: list[str] = []

    def tell(name: str) -> dict[int, bool | None]:
        asked.append(name)
        return dict(enumerate(spans)) if name == "x" else {}

    assert hint_on_array(result(kind, *each), CELL, 2, tell) == hint
    if hint:
        assert asked[-3:] == ["step", "w", "x"]


def test_where_no_hint_can_be_given() -> None:
    def tell(name: str) -> dict[int, bool | None]:
        raise AssertionError(name)

    lost = result("missing", at(), FINISHED, intact=False)
    assert hint_on_array(lost, CELL, 2, tell) == ""
    assert hint_on_array(Result({}, 2), CELL, 2, tell) == ""
    waits = result("missing", at(), FINISHED)
    assert hint_on_array(waits, "%time\n\ny = step(x)", 2, tell) == ""
    assert hint_on_array(waits, "def f():\n\n  return step(x)\nf()", 2, tell) == ""
    elsewhere = result("missing", at(), replace(FINISHED, place="train.py:4"))
    assert hint_on_array(elsewhere, CELL, 2, tell) == ""


@pytest.mark.parametrize(
    ("cell", "asked"),
    [
        ("v = x\nif late:\n    y = f(v, w)\nv = 3", ["f", "w"]),
        ("for v in parts:\n    w = 1\n    y = f(v, w, z)", ["f", "z"]),
        ("a = 1\nb = 2\ny = [f(v) for v in parts]", ["f", "parts"]),
        ("a = 1\ny = f(\n    w,\n    z,\n)", ["f", "w", "z"]),
        ("with mesh:\n    try:\n        f(v)\n    finally:\n        g()", ["f", "v"]),
        ("a = 1\nb = 2\nf(lambda: v)", ["f"]),
        ("a = 1\nb = 2", []),
    ],
)
def test_which_names_are_asked_for(cell: str, asked: list[str]) -> None:
    found: list[str] = []

    def tell(name: str) -> dict[int, bool | None]:
        found.append(name)
        return {}

    assert hint_on_array(result("missing", at(), FINISHED), cell, 2, tell) == ""
    assert sorted(found) == sorted(asked)


def test_a_hint_that_leaves_the_cause_open_is_replaced() -> None:
    error = result("mismatch", at(), at(5, MAX), at()).error()
    assert error is not None
    assert sum(line.startswith("Hint: ") for line in error.lines) == 1
    lines = with_hint(error.lines, "Hint: x")
    assert [line for line in lines if line.startswith("Hint: ")] == ["Hint: x"]
    assert len(lines) == len(error.lines)


def test_a_hint_comes_before_what_was_done_to_the_cluster() -> None:
    stopped = replace(result("missing", at(), FINISHED, at()).outcome, stopped={0: 1, 2: 1})
    found = replace(result("missing", at(), FINISHED, at()), outcome=stopped)
    error = found.error()
    assert error is not None
    assert found.aftermath
    assert error.lines[-1].endswith(found.aftermath)
    lines = with_hint(error.lines, "Hint: x", found.aftermath)
    assert lines == [*error.lines[:-1], "Hint: x", error.lines[-1]]


def test_which_processes_say_whether_an_array_spans_processes() -> None:
    answers = {0: True, 1: None, 2: REFUSED, 3: False}
    cluster: Any = SimpleNamespace(
        options=SimpleNamespace(processes=5), ask_idle=lambda *_, processes, within_s: answers
    )
    assert spans(cluster, "x") == {0: True, 1: None, 3: False}
