"""What objects are called, by the variables that lead to them."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.recovery import references
from mcnb.recovery.references import names_of
from tests.support.holders import Frozen, LoudDict, Pair, Point, Thing, closure, generator

pytestmark = pytest.mark.usefixtures("small_heap")


class Model:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


THING = Thing("thing")


def generator_with(held: Any) -> Iterator[Any]:
    inside = held
    yield 1
    yield inside


NAMES: list[tuple[dict[str, Any], str | None]] = [
    ({"x": THING}, "x"),
    ({"_x": THING}, None),
    ({"__": [THING], "x": 1}, None),
    ({"_": THING, "x": THING}, "x"),
    ({"x": [1, THING]}, "x[1]"),
    ({"x": (THING,)}, "x[0]"),
    ({"x": {"a": THING}}, "x['a']"),
    ({"x": {1: THING}}, "x[1]"),
    ({"x": {("a", 1): THING}}, "x[('a', 1)]"),
    ({"x": LoudDict({"a": THING})}, "x['a']"),
    ({"x": Model(w=THING)}, "x.w"),
    ({"x": Model(_w=THING)}, "x._w"),
    ({"x": Frozen(THING)}, "x.held"),
    ({"x": types.SimpleNamespace(w=[THING])}, "x.w[0]"),
    ({"x": Pair(1, THING)}, "x.right"),
    ({"x": [Point(THING, 1)]}, "x[0].x"),
    ({"x": closure(THING)}, "held in x"),
    ({"x": [closure([THING])]}, "held in x[0][0]"),
    ({"x": generator(THING)}, "held in x"),
    ({"model": {"w": (0, THING)}}, "model['w'][1]"),
    ({"long": [[THING]], "x": [THING]}, "x[0]"),
    ({"x": [[THING]], "y": THING}, "y"),
    ({"first": [THING], "second": [THING]}, "first[0]"),
    ({"x": {THING}}, None),
    ({"x": "text", "y": 3, "z": None}, None),
    ({"x": Thing}, None),
    ({"x": types}, None),
]


@pytest.mark.parametrize(("namespace", "expected"), NAMES)
def test_names(namespace: dict[str, Any], expected: str | None) -> None:
    assert names_of([THING], namespace) == ({} if expected is None else {id(THING): expected})


def test_a_generator_that_has_ended_holds_nothing() -> None:
    ended = generator(THING)
    list(ended)
    assert names_of([THING], {"x": ended}) == {}


def test_the_local_variables_of_a_generator_have_names() -> None:
    it = generator_with(THING)
    next(it)
    assert names_of([THING], {"x": {"it": it}}) == {id(THING): "held in x['it']"}


def test_names_of_several() -> None:
    one, two, three = [1], [2], [3]
    namespace = {"a": one, "b": {"two": two, "one": one}}
    assert names_of(iter([one, two, three]), namespace) == {id(one): "a", id(two): "b['two']"}
    assert names_of([], namespace) == {}


@pytest.mark.parametrize(("depth", "found"), [(0, False), (3, False), (4, True), (5, True)])
def test_how_deep_names_are_looked_for(depth: int, found: bool) -> None:
    names = names_of([THING], {"x": [[[THING]]]}, depth)
    assert names == ({id(THING): "x[0][0][0]"} if found else {})


def test_names_in_cycles() -> None:
    items: list[Any] = []
    model = Model(items=items)
    items += [items, model, [THING]]
    assert names_of([THING, model], {"x": items, "y": items}, depth=50) == {
        id(THING): "x[2][0]",
        id(model): "x[1]",
    }


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Any:
    if not depth or draw(st.booleans()):
        return draw(st.sampled_from([0, "mark", "text"]))
    kind = draw(st.sampled_from(["list", "tuple", "dict", "model"]))
    inner = draw(st.lists(trees(depth=depth - 1), max_size=3))
    return (kind, inner)


def grown(tree: Any, marks: list[Any]) -> Any:
    if not isinstance(tree, tuple):
        if tree == "mark":
            marks.append(Thing("mark"))
        return marks[-1] if tree == "mark" else tree
    kind, inner = tree
    parts = [grown(one, marks) for one in inner]
    if kind == "dict":
        return {f"k{i}": one for i, one in enumerate(parts)}
    if kind == "model":
        return Model(**{f"k{i}": one for i, one in enumerate(parts)})
    return parts if kind == "list" else tuple(parts)


@given(trees())
def test_a_name_evaluates_to_what_it_names(tree: Any) -> None:
    marks: list[Any] = []
    namespace = {"x": grown(tree, marks)}
    names = names_of(marks, namespace)
    assert set(names) == set(map(id, marks))
    for mark in marks:
        assert eval(names[id(mark)], namespace) is mark


def test_an_object_that_many_lead_to_is_entered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []
    children = references._children

    def enter(name: str, value: Any) -> list[tuple[str, Any]]:
        entered.append(id(value))
        return children(name, value)

    monkeypatch.setattr(references, "_children", enter)
    level: list[Any] = [THING]
    levels = [level]
    for _ in range(4):
        level = [level] * 10
        levels.append(level)
    assert names_of([THING], {"x": level}) == {id(THING): "x[0][0][0][0][0]"}
    assert sorted(entered) == sorted(map(id, [THING, *levels]))
