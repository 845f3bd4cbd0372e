"""What the names on a line refer to, as far as processes can be compared by it."""

from __future__ import annotations

import enum
import functools
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from mcnb.lockstep.around import Spot
from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import Detail, Launch, Origin, ProcessState, Variable, Verdict
from mcnb.lockstep.variables import described, variables_at


class Log:
    """Has an attribute, and a property that must not be called."""

    def __init__(self) -> None:
        self.writer = 3

    @property
    def path(self) -> str:
        raise AssertionError("called")


class Mode(enum.Enum):
    TRAIN = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (0.5, "0.5"),
        ("x" * 100, ""),
        (Mode.TRAIN, "Mode.TRAIN"),
        (Log(), "a Log"),
        (OSError("full"), "an OSError"),
        (Log, "the class Log"),
        (described, "the function described"),
        (Log().__init__, "the function Log.__init__"),
        (functools.partial(described, 1), "the function described"),
        (jax.jit(described), "the function described"),
        (np.zeros(3), ""),
        (np.float32(1), ""),
        (np, ""),
        ({"a": 1}, "a dict"),
    ],
)
def test_values_in_words(value: Any, text: str) -> None:
    assert described(value) == text


def seen(folder: Path, source: str, names: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is found on the line of a program that calls `here`."""
    path = folder / "train.py"
    path.write_text(source)
    found: list[tuple[str, str]] = []

    def here(*_: Any, **__: Any) -> bool:
        frame = sys._getframe(1)
        spot = Spot(str(path), frame.f_lineno, frame)
        variables = variables_at([spot], lambda _, line: f"train.py:{line}")
        assert {one.place for one in variables} <= {f"train.py:{frame.f_lineno}"}
        found.extend((one.name, one.value) for one in variables if one.name != "here")
        return True

    exec(compile(source, str(path), "exec"), {**names, "here": here})
    return found


NAMES = {"a": 1, "b": "two", "log": Log(), "x": np.zeros(2), "np": np}
LINES = {
    "a call": ("here(a, b, c=x)", [("a", "1"), ("b", "'two'")]),
    "an attribute": ("here(log.writer)", [("log.writer", "3"), ("log", "a Log")]),
    "a property is not called": ("here(log and 1 or log.path)", [("log", "a Log")]),
    "another line": ("y = a\nhere(b)\nz = a", [("b", "'two'")]),
    "several lines": ("here(\n    a,\n    b)", [("a", "1"), ("b", "'two'")]),
    "a condition": ("if here(a):\n    b", [("a", "1")]),
    "in a branch": ("if a:\n    here(b)", [("b", "'two'")]),
    "a loop": ("for i in [here(a)]:\n    b", [("a", "1")]),
    "a local variable": ("def f(a):\n    here(a, b)\nf(3)", [("a", "3"), ("b", "'two'")]),
    "a lambda's own": ("here(lambda a: a)", []),
    "a name that is gone": ("here() and [gone for gone in (1,)]", []),
    "a default": ("def f(v=here(a)):\n    b", []),
    "what a call returns": (
        "here(np.zeros(a).sum)",
        [("np.zeros", "the function zeros"), ("a", "1")],
    ),
}


@pytest.mark.parametrize("what", LINES)
def test_the_names_on_a_line(tmp_path: Path, what: str) -> None:
    source, expected = LINES[what]
    assert seen(tmp_path, source, NAMES) == expected


def test_a_line_without_a_frame_has_none() -> None:
    assert variables_at([Spot(__file__, 1)], lambda *_: "") == ()


SUM, MAX = (Launch(name, name, (0, 1, 2)) for name in ("sum", "max"))


def told(*values: dict[str, str], kind: str = "mismatch", max_at: int = 3) -> str:
    """Return what a verdict on processes with these variables says of them."""
    launches = [(SUM, 3), (SUM, 3), (MAX, max_at)]
    states = {
        k: ProcessState("waits", launch, line=line, place=f"a.py:{line}")
        for k, (launch, line) in enumerate(launches)
    }
    details = {
        k: Detail("f()", variables=tuple(Variable("a.py:9", *one) for one in each.items()))
        for k, each in enumerate(values)
    }
    verdict = Verdict("mismatch", states, details=details)
    if kind == "missing":
        finished = ProcessState("finished")
        verdict = replace(verdict, kind="missing", states={**states, 2: finished})
    sentence = explain(verdict, 3).sentence
    _, _, rest = sentence.partition(". Likely cause: ")
    return rest.partition(". Hint: ")[0]


def test_a_variable_that_differs_is_told() -> None:
    reader, writer = {"log": "a Reader", "v": "1"}, {"log": "a Writer", "v": "2"}
    expected = "`log` (a.py:9) is a Reader on processes 0,1; a Writer on process 2"
    assert told(reader, reader, writer) == expected
    assert told(reader, reader, writer, max_at=5) == expected


def test_a_value_that_happens_to_be_an_index_is_told() -> None:
    values = ({"v": "0"}, {"v": "0"}, {"v": "5"})
    assert told(*values) == "`v` (a.py:9) is 0 on processes 0,1; 5 on process 2"


def test_processes_are_told_in_their_order_whichever_answers_first() -> None:
    values = {2: "c", 0: "a", 1: "a"}
    details = {k: Detail(variables=(Variable("a.py:9", "v", v),)) for k, v in values.items()}
    states = {k: ProcessState("waits", MAX if k else SUM, line=3) for k in range(3)}
    assert (
        ". Likely cause: `v` (a.py:9) is a on processes 0,1; c on process 2. Hint: "
    ) in explain(Verdict("mismatch", states, details=details), 3).sentence


@pytest.mark.parametrize(
    ("loops", "hint"),
    [
        (
            (),
            "make this value the same on all processes. If it is meant to differ, move every ",
        ),
        (("for f in both:",), "the order of launches must not depend on the process. If it comes"),
    ],
)
def test_advice_speaks_of_an_order_only_if_there_is_a_loop(
    loops: tuple[str, ...], hint: str
) -> None:
    details = {
        k: Detail("f(x)", variables=(Variable("a.py:9", "f", f),), loops=loops)
        for k, f in enumerate(("the function max", "the function sum"))
    }
    states = {k: ProcessState("waits", MAX if k else SUM, line=3) for k in range(2)}
    said = explain(Verdict("mismatch", states, details=details), 2).sentence
    assert f"the function sum on process 1. Hint: {hint}" in said


BECAUSE = (
    ", because `order` depends on a value that differs between processes: "
    "`order = [max, sum] if k else [sum, max]` (line 1)."
)


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        (
            "for f in order:",
            f"{BECAUSE} Hint: the order of launches must not depend on the process",
        ),
        ("for i, f in enumerate(order):", f"{BECAUSE} Hint: the order of launches must not depend"),
        ("for g in order:", ". Hint: the order of launches must not depend on the process. "),
        ("while order:", ". Hint: the order of launches must not depend on the process. "),
    ],
)
def test_a_loop_takes_a_name_from_what_depends_on_the_process(loop: str, why: str) -> None:
    origin = Origin("order", "line 1", "order = [max, sum] if k else [sum, max]")
    details = {
        k: Detail(
            "f(x)",
            variables=(Variable("line 3", "f", f),),
            loops=(loop,),
            loops_from=(origin,),
        )
        for k, f in enumerate(("the function max", "the function sum"))
    }
    states = {k: ProcessState("waits", MAX if k else SUM, line=3) for k in range(2)}
    said = explain(Verdict("mismatch", states, details=details), 2).sentence
    assert f"the function max on process 0; the function sum on process 1{why}" in said


def test_what_led_there_is_not_told_where_the_cause_is_known() -> None:
    launches = [replace(SUM, program=size, arguments=(f"f32[{size}]",)) for size in ("8", "9")]
    details = {k: Detail(variables=(Variable("a.py:9", "v", f"v{k}"),)) for k in range(2)}
    states = {k: ProcessState("waits", one, line=3) for k, one in enumerate(launches)}
    said = explain(Verdict("mismatch", states, details=details), 3).sentence
    assert ". What differs: the shape of argument 0: f32[8] on process 0; f32[9] on " in said
    assert "Likely cause" not in said


@pytest.mark.parametrize(
    "values",
    [
        [{"v": "1"}, {"v": "2"}, {"w": "2"}],
        [{"v": "1"}, {"v": "1"}, {"v": "1"}],
        [{"k": "0"}, {"k": "1"}, {"k": "2"}],  # the index itself explains nothing
        [{"v": "1"}, {"v": "1"}, {"w": "2"}],
        [{"v": "1"}],
        [],
    ],
)
def test_what_does_not_tell_processes_apart_is_not_told(values: list[dict[str, str]]) -> None:
    assert told(*values) == ""


def test_a_process_that_has_ended_has_no_variables() -> None:
    assert told({"v": "1"}, {"v": "2"}, kind="missing") == ""
