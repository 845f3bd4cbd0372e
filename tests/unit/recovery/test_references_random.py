"""New objects where old ones were referred to, in random containers."""

from __future__ import annotations

import collections
import gc
import types
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnb.recovery.references import replace_references
from tests.support.holders import OneSlot, Pair, Plain, Thing, closure

pytestmark = pytest.mark.usefixtures("small_heap")

MUTABLE = ("list", "dict", "deque", "set", "object", "slot", "closure")


HASHABLE = ("tuple", "named", "frozenset")


Reference = tuple[str, int]


@dataclass
class Node:
    """A container: what it holds, and whether it can be part of a set."""

    kind: str
    parts: list[Reference]
    hashable: bool


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    """Containers that hold marks, numbers and each other."""
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from([*MUTABLE, *HASHABLE]))
        earlier: list[Reference] = [("node", k) for k in range(len(nodes))]
        atoms: list[Reference] = [("mark", i) for i in range(3)] + [("number", 7)]
        safe = atoms + [one for one in earlier if nodes[one[1]].hashable]
        only_safe = kind in ("set", "frozenset", "dict")
        parts = draw(st.lists(st.sampled_from(safe if only_safe else atoms + earlier), max_size=4))
        pure = all(part in safe for part in parts)
        nodes.append(Node(kind, parts, kind in HASHABLE and pure))
    return nodes


Edge = tuple[int, int]


def build(nodes: list[Node], edges: list[Edge], marks: list[Any]) -> list[Any]:
    """Return the containers; each edge adds a later one to a list or to a dict's values."""
    built: list[Any] = []

    def part(reference: Reference) -> Any:
        where = {"mark": marks, "node": built}
        return where[reference[0]][reference[1]] if reference[0] in where else reference[1]

    for node in nodes:
        parts = [part(one) for one in node.parts]
        built.append(
            parts
            if node.kind == "list"
            else {one: i for i, one in enumerate(parts)}
            if node.kind == "dict"
            else {
                "deque": collections.deque,
                "set": set,
                "object": Plain,
                "slot": OneSlot,
                "closure": closure,
                "tuple": tuple,
                "named": lambda parts: Pair(tuple(parts), parts[0] if parts else None),
                "frozenset": frozenset,
            }[node.kind](parts)
        )
    for source, target in edges:
        if isinstance(built[source], list):
            built[source].append(built[target])
        elif type(built[source]) is dict:
            built[source]["edge"] = built[target]
    return built


def parts_of(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple, collections.deque)):
        return list(value)
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, (Plain, OneSlot)):
        return [value.held]
    return [value()] if isinstance(value, types.FunctionType) else []


def assert_alike(found: Any, expected: Any) -> None:
    """Compare two graphs: the same parts in the same order, and the same ones shared."""
    twins: dict[int, int] = {}
    back: dict[int, int] = {}
    seen = []
    todo = [(found, expected)]
    while todo:
        one, other = todo.pop()
        seen.append((one, other))
        assert type(one) is type(other)
        if isinstance(one, (Thing, int, str, type(None))):
            assert one is other or one == other
            continue
        if twins.setdefault(id(one), id(other)) != id(other) or back.setdefault(
            id(other), id(one)
        ) != id(one):
            raise AssertionError(f"{one} is shared otherwise")
        if sum(other is before for _, before in seen) > 1:
            continue
        if isinstance(one, (set, frozenset)):
            assert one == other
        mine, others = parts_of(one), parts_of(other)
        assert len(mine) == len(others)
        todo += zip(mine, others, strict=True)


@settings(max_examples=120, deadline=None)
@given(graphs(), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=3))
def test_random_containers(nodes: list[Node], edges: list[Edge]) -> None:
    edges = [edge for edge in edges if max(edge) < len(nodes)]
    olds, news = ([Thing(f"{age}{i}") for i in range(3)] for age in ("old", "new"))
    names = {"built": build(nodes, edges, olds)}
    before = [id(one) for one in names["built"]]
    expected = build(nodes, edges, news)
    pairs = {id(old): (old, new) for old, new in zip(olds, news, strict=True)}
    ghosts = [weakref.ref(old) for old in olds]
    assert replace_references(pairs, [names], ignored=[olds, pairs]) == []
    assert_alike(names["built"], expected)
    for node, one, was in zip(nodes, names["built"], before, strict=True):
        assert id(one) == was or node.kind in HASHABLE
    pairs.clear()
    olds.clear()
    gc.collect()
    assert [ghost() for ghost in ghosts] == [None] * 3
