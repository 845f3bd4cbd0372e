"""Of several assignments to a name, those that can reach a use of it."""

from __future__ import annotations

import ast
import itertools
import linecache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep.dependence import Scope, Search

MOST_STATEMENTS = 6


def found(source: str, *, name: str = "train.py", varying: bool = True) -> int | None:
    """Return the line at which the last expression of a program begins to differ."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    last = ast.parse(source).body[-1]
    assert isinstance(last, ast.Expr)
    asked = Search(varying=varying).expression(last.value, Scope(name, (), {}))
    return asked and asked.line


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = f(process_index())\nx = g(process_index())\nx", 2),
        ("x = f(process_index())\nx = 0\nx", None),
        ("x: int = f(process_index())\nx: int = 0\nx", None),
        ("x = f(process_index())\nx = g(x)\nx", 1),
        ("x = f(process_index())\nx = g(x)\nx = 0\nx = g(x)\nx", None),
        ("x = f(process_index())\nx += 1\nx", 1),
        ("x = f(process_index())\ny = x\nx = 0\ny", 1),
        ("x = f(process_index())\ny = x\nx = 0\nx", None),
        ("x = f(process_index())\nx, y = 0, 1\nx", None),
        ("x = f(process_index())\nif a:\n    x = 0\nx", 1),
        ("x = f(process_index())\nif a:\n    x = 0\nelse:\n    y = x\ny", 1),
        ("x = f(process_index())\ntry:\n    x = 0\nexcept E:\n    y = x\ny", 1),
        ("x = f(process_index())\nwith a:\n    x = 0\nx", 1),
        ("x = f(process_index())\nmatch a:\n    case 1:\n        x = 0\n        y = x\ny", None),
        ("x = 0\nfor i in a:\n    y = x\n    x = f(process_index())\ny", 4),
        ("x = 0\nfor i in a:\n    x = 0\n    y = x\n    x = f(process_index())\ny", None),
        ("x = 0\ny = x\nx = f(process_index())\ny", None),
        ("x = 0\nfor i in a:\n    y = x\nx = f(process_index())\ny", None),
        ("x = 0\nwhile a:\n    for i in b:\n        y = x\n    x = f(process_index())\ny", 5),
        ("if process_index() == 0:\n    x = 1\nx", 1),
        ("if process_index() == 0:\n    x = 1\nx = 2\nx", None),
        ("x = a\nx[0] = process_index()\nx", 2),
        ("x = a\nx[0] = process_index()\nx = 2\nx", None),
        # A function may be called before the name is assigned again, or after it.
        ("x = f(process_index())\ndef g():\n    return x\nx = 0\ng()", 1),
        ("def g():\n    global x\n    x = f(process_index())\nx = 0\ng()\nx", 3),
        ("def g():\n    x = f(process_index())\n    x = 0\n    return x\ng()", None),
        ("def g():\n    x = f(process_index())\n    x = h(process_index())\n    return x\ng()", 3),
    ],
)
def test_what_is_assigned_again_does_not_count(source: str, line: int | None) -> None:
    assert found(source) == line


def test_a_condition_has_the_value_that_was_assigned_last() -> None:
    assert found("x = process_index() == 0\nx = True\nx", varying=False) is None
    assert found("x = True\nx = process_index() == 0\nx", varying=False) == 2


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


SIMPLE = st.sampled_from(
    [
        ["x = k()"],
        ["y = k()"],
        ["x = 0"],
        ["y = 0"],
        ["x = y"],
        ["y = x"],
        ["x += 1"],
        ["y = y + x"],
    ]
)
BLOCKS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: [*itertools.chain(*parts)]),
        st.tuples(st.sampled_from(["if 0:", "if 1:"]), inner, inner).map(
            lambda one: [one[0], *_indented(one[1]), "else:", *_indented(one[2])]
        ),
        st.tuples(st.sampled_from(["for _ in '':", "for _ in 'ab':"]), inner).map(
            lambda one: [one[0], *_indented(one[1])]
        ),
        st.tuples(inner, inner).map(
            lambda one: (
                ["try:", *_indented(one[0]), "    z", "except NameError:", *_indented(one[1])]
            )
        ),
    ),
    max_leaves=MOST_STATEMENTS,
)


@given(BLOCKS)
def test_what_differs_is_found(lines: list[str]) -> None:
    """What differs in two runs of a program that differ in the process index has an origin."""
    source = "\n".join(["x = y = 0", *lines, "x"])
    values = []
    for index in (1, 2):
        names = {"k": lambda index=index: index}
        exec("\n".join(["x = y = 0", *lines]), names)
        values.append(names["x"])
    origin = found(source.replace("k()", "process_index()"))
    assert values[0] == values[1] or origin is not None
