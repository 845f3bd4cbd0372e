"""Tables and sentences on the variables of processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mcnb.cluster.variables import difference, table
from mcnb.lockstep.comparison import Question
from mcnb.lockstep.values import digest
from mcnb.lockstep.wire import Message
from mcnb.messages import LEAKED_TRACER, Leaf, Variable


def one(text: str = "", kind: str = "int", **leaf: Any) -> Variable:
    return Variable("v", kind, (Leaf("", kind, text, **leaf),))


def array(value: Any, part: str = "0", size: int = 12) -> Variable:
    elements = np.asarray(value, np.int32)
    digests = {part: digest(elements)} if part else {}
    return Variable("v", "Array", (Leaf("", "int32[3]", shared=True, digests=digests),), size)


def tree(
    *leaves: Leaf,
    type: str = "dict",  # noqa: A002  (as the field)
    truncated: bool = False,
) -> Variable:
    return Variable("v", type, leaves, truncated=truncated)


SPLIT = Leaf("['w']", "float32[8]", shared=True)
MIXED = tree(
    Leaf("['a']", "int", "3"),
    SPLIT,
    array([1]).leaves[0],
    *(Leaf(f"['{name}']", "Mine") for name in "xyz"),
)


def pair(number: int, element: int) -> Variable:
    """Return a PyTree of an array and a number."""
    w = array([element]).leaves[0]
    return tree(replace(w, path="['w']"), Leaf("['s']", "int", str(number)))


LARGE = replace(array([1, 2, 3]), sampled=True)
LEAKED = one(kind=LEAKED_TRACER)
# A PyTree of which not all leaves have been described.
CUT = tree(Leaf("['a']", "int", "3"), Leaf("['b']", "int", "4"), truncated=True)


def nobody(_: Question) -> Mapping[int, Message]:
    raise AssertionError("nothing is to be asked")


def agreement(*found: Variable | None) -> str:
    """Return what the table says of a variable on some processes."""
    by_process = {k: [variable] if variable else [] for k, variable in enumerate(found)}
    (_, line) = table(by_process, len(found)).splitlines()
    return re.split(" {2,}", line)[1]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((one("1"), one("1")), "same on both"),
        ((one("1"), one("1"), one("1")), "same on all 3"),
        ((one("1"), one("1"), one("2"), one("3")), "differs on 2,3"),
        ((one("1"), one("2")), "different on each"),
        ((one("1"), one("2"), one("2"), one("1")), "differs: 0,3 | 1,2"),
        ((one("1"), one("1", kind="bool"), one("1")), "differs on 1"),
        # By a number on two of them, and by an array on one of these.
        ((pair(5, 1), pair(5, 1), pair(6, 2), pair(6, 1)), "differs on 2,3"),
        ((pair(5, 1), pair(5, 2), pair(6, 2), pair(6, 1)), "different on each"),
        ((one("1"), None, one("1")), "only on 0,2"),
        ((array([1, 2, 3]), array([1, 2, 4]), array([1, 2, 3])), "differs on 1"),
        ((array([1]), array([2]), array([3])), "different on each"),
        ((array([1]), array([1])), "same on both"),
        ((array([1], "0 0:1"), array([1], "0 0:1"), array([2], "0 1:2")), "same on all 3"),
        ((array([1], ""), array([2], "")), "parts of one array"),
        ((one(kind="Mine"), one(kind="Mine")), "not compared"),
        ((tree(), tree()), "same on both"),
        ((MIXED, MIXED, MIXED), "same on all 3 (compared: 2 of 6 leaves)"),
        ((LARGE, LARGE), "same on both (compared: part of the elements)"),
        ((LARGE, array([1, 2, 4])), "different on each"),
        (
            (replace(MIXED, sampled=True), MIXED),
            "same on both (compared: 2 of 6 leaves, part of the elements)",
        ),
        ((CUT, CUT), "same on both (compared: the first 2 leaves)"),
        ((replace(MIXED, truncated=True),) * 2, "same on both (compared: 2 of the first 6 leaves)"),
        ((CUT, replace(CUT, truncated=False), CUT), "differs on 1"),
        ((LEAKED, LEAKED), "not compared"),
        ((one(kind="list of 10001 items"),) * 2, "not compared"),
        ((one(kind="list of 10001 items"), one(kind="list of 10002 items")), "different on each"),
    ],
)
def test_whether_a_variable_is_the_same(found: tuple[Variable | None, ...], said: str) -> None:
    assert agreement(*found) == said


def test_a_table() -> None:
    layers = tree(Leaf("['w']", "float32[8]"), Leaf("['b']", "int", "3"))
    variables = {
        "x": array([1, 2, 3], size=1_200_000),
        "params": layers,
        "steps": one("3"),
        "mesh": one("Mesh('a': 4)", kind="Mesh"),
        "nothing": tree(type="NoneType"),
        "empty": tree(type="list"),
        "long": one("x" * 80, kind="str"),
        "leaked": LEAKED,
        "many": CUT,
        "odd": one(kind="can't be described: ValueError: mine"),
        "saved": tree(Leaf("[0]", LEAKED_TRACER), Leaf("[1]", "int", "3"), type="list"),
        "traced": tree(*(Leaf(f"[{i}]", LEAKED_TRACER) for i in range(2)), type="list"),
    }
    found = [replace(v, name=name) for name, v in variables.items()]
    lines = table({0: found, 1: found}, 4).splitlines()
    assert [re.split(" {2,}", line) for line in lines] == [
        ["name", "on the processes", "bytes per device", "what it is"],
        ["empty", "same on these 2", "list, empty"],
        ["leaked", "not compared", "tracer without values, leaked from a traced function"],
        ["long", "same on these 2", f"str {'x' * 55}…"],
        ["many", "same on these 2 (compared: the first 2 leaves)", "dict of more than 2 leaves"],
        ["mesh", "same on these 2", "Mesh('a': 4)"],
        ["nothing", "same on these 2", "None"],
        ["odd", "not compared", "can't be described: ValueError: mine"],
        ["params", "same on these 2 (compared: 1 of 2 leaves)", "dict of 2 leaves"],
        [
            "saved",
            "same on these 2 (compared: 1 of 2 leaves)",
            "list of 2 leaves, with 1 leaked tracer",
        ],
        ["steps", "same on these 2", "int 3"],
        ["traced", "not compared", "list of 2 leaves, with 2 leaked tracers"],
        ["x", "same on these 2", "1,200,000", "int32[3]"],
    ]
    assert {line[9:].split()[0] for line in lines} == {"on", "same", "not"}
    sizes = lines[0].index("bytes per device")
    assert lines[-1].index("1,200,000") == sizes + len("bytes per device") - 9
    assert lines[-1].index("int32[3]") == lines[0].index("what it is")
    assert table({0: [], 1: []}, 2) == "The processes have no variables that hold data"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((one("1"), one("1")), "v is the same on both processes"),
        ((one("1"), one("1"), one("2")), "v differs: 1 on processes 0,1 and 2 on process 2"),
        (
            (one("1"), one("'a'", kind="str"), None),
            "v is not defined on process 2",
        ),
        (
            (one("1"), one("'a'", kind="str")),
            "v differs: int 1 on process 0 and str 'a' on process 1",
        ),
        (
            (tree(Leaf("['a']", "int", "1")), tree(Leaf("['b']", "int", "1"))),
            "v differs: ['a'] next on process 0 and ['b'] next on process 1",
        ),
        (
            (tree(Leaf("['a']", "int", "1")), tree()),
            "v differs: ['a'] next on process 0 and no more on process 1",
        ),
        (
            (tree(Leaf("['a']", "int32[3]")), tree(Leaf("['a']", "int32[4]"))),
            "v['a'] differs: int32[3] on process 0 and int32[4] on process 1",
        ),
        (
            (array([1], ""), array([2], "")),
            "v is one array, of which no two processes have a part in common",
        ),
        (
            (one(kind="Mine"), one(kind="Mine")),
            "v is Mine on both processes; no more of it can be compared",
        ),
        ((None, None), "v is not defined on any process"),
        ((None, None, one("1")), "v is not defined on processes 0,1"),
        (
            (tree(Leaf("['a']", "int", "3"), SPLIT),) * 2,
            "v is the same on both processes, but not all of it can be compared: ['w'], one array, "
            "of which no two processes have a part in common",
        ),
        (
            (tree(SPLIT),) * 2,
            "v has the same structure on both processes; no more of it can be compared: ['w'], one "
            "array, of which no two processes have a part in common",
        ),
        (
            (CUT, CUT),
            "v is the same on both processes, but not all of it can be compared: leaves after the "
            "first 2",
        ),
        (
            (replace(tree(SPLIT), truncated=True),) * 2,
            "v has the same structure on both processes; no more of it can be compared: ['w'], one "
            "array, of which no two processes have a part in common; leaves after the first 1",
        ),
        (
            (LEAKED, LEAKED),
            "v is tracer without values, leaked from a traced function on both processes; no more "
            "of it can be compared",
        ),
        (
            (MIXED, MIXED),
            "v is the same on both processes, but not all of it can be compared: ['w'], one array, "
            "of which no two processes have a part in common; ['x'], Mine; ['y'], Mine; and 1 more",
        ),
    ],
)
def test_where_a_variable_differs(found: tuple[Variable | None, ...], said: str) -> None:
    assert difference("v", dict(enumerate(found)), len(found), nobody) == said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            [[1, 2, 3], [1, 5, 3], [1, 2, 3]],
            "v at [1] differs: 2 on processes 0,2 and 5 on process 1",
        ),
        ([[1, 2, 3], [1, 2, 3]], "v is the same on both processes"),
    ],
)
def test_the_first_element_that_differs(values: list[list[int]], said: str) -> None:
    held = {k: np.array(value, np.int32) for k, value in enumerate(values)}

    def ask(question: Question) -> dict[int, Message]:
        assert question.name == "0"
        each = {k: held[k] for k in question.processes}
        if question.blocks is None:
            return {k: ["int32", [3], [digest(value)]] for k, value in each.items()}
        return {k: ["int32", [3], [value.tobytes().hex()]] for k, value in each.items()}

    found = {k: array(value) for k, value in held.items()}
    assert difference("v", found, len(values), ask) == said


def test_all_differences_are_told() -> None:
    pairs = {k: (5 + (k > 1), 1 + (k == 2)) for k in range(4)}

    def ask(question: Question) -> dict[int, Message]:
        assert question.name == "0"
        each = {k: np.array([pairs[k][1]], np.int32) for k in question.processes}
        if question.blocks is None:
            return {k: ["int32", [1], [digest(value)]] for k, value in each.items()}
        return {k: ["int32", [1], [value.tobytes().hex()]] for k, value in each.items()}

    assert difference("v", {k: pair(*both) for k, both in pairs.items()}, 4, ask) == (
        "v['w'] at [0] differs: 1 on processes 0,1,3 and 2 on process 2. v['s'] differs, too"
    )


def test_of_many_differences_some_are_named() -> None:
    def numbers(count: int, value: int) -> Variable:
        return tree(*(Leaf(f"[{i}]", "int", str(value)) for i in range(count)), type="list")

    first = "v[0] differs: 1 on process 0 and 2 on process 1"
    assert difference("v", {0: numbers(3, 1), 1: numbers(3, 2)}, 2, nobody) == (
        f"{first}. v[1] and v[2] differ, too"
    )
    assert difference("v", {0: numbers(9, 1), 1: numbers(9, 2)}, 2, nobody) == (
        f"{first}. v[1], v[2], v[3] and 5 more differ, too"
    )
