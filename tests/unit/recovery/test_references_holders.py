"""New objects where old ones were referred to: every kind of holder."""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.support.holders import (
    Frozen,
    LoudDict,
    OneSlot,
    Pair,
    Plain,
    Point,
    Thing,
    array,
    class_attribute,
    closure,
    generator,
    replace,
    started,
    two_closures,
    with_default,
    with_keyword_default,
)

pytestmark = pytest.mark.usefixtures("small_heap")


class Slots:
    __slots__ = ("__private", "_hidden", "empty", "held")

    def __init__(self, held: Any) -> None:
        self.held = self._hidden = self.__private = held

    def all(self) -> list[Any]:
        return [self.held, self._hidden, self.__private]


class SlotsAndMore(OneSlot):
    def __init__(self, held: Any) -> None:
        super().__init__(held)
        self.more = held


class Closed(Plain):
    """Its attributes can't be set the usual way, and every name seems to be there."""

    def __init__(self, held: Any) -> None:
        self.__dict__["held"] = held

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("closed")

    def __getattr__(self, name: str) -> str:
        return name


class ClosedSlots(OneSlot):
    __slots__ = ()

    def __init__(self, held: Any) -> None:
        object.__setattr__(self, "held", held)

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("closed")


@dataclass
class Data:
    held: Any
    several: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    held: Any
    other: int = 0


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    held: Any
    other: int = 0


class MyList(list[Any]):
    pass


class MyDict(dict[Any, Any]):
    pass


class MySet(set[Any]):
    pass


class MyTuple(tuple[Any, ...]):
    pass


class MyFrozenSet(frozenset[Any]):
    pass


class SlottedList(list[Any]):
    __slots__ = ("held",)


class SlottedDict(dict[Any, Any]):
    __slots__ = ("held",)


class _Underscored:
    __slots__ = ("__private",)

    def __init__(self, held: Any) -> None:
        self.__private = held

    def read(self) -> Any:
        return self.__private


class LoudList(list[Any]):
    """Its own ways of being read and written are not used."""

    def __getitem__(self, index: Any) -> Any:
        raise LookupError

    def __setitem__(self, index: Any, value: Any) -> None:
        raise LookupError


def with_attribute(holder: Any, value: Any) -> Any:
    holder.held = value
    return holder


def with_defaults(held: Any) -> Callable[..., Any]:
    def function(one: Any = held, *, two: Any = held) -> list[Any]:
        return [one, two, held]

    return function


def module(held: Any) -> types.ModuleType:
    made = types.ModuleType("learners")
    made.held = held  # type: ignore[attr-defined]
    return made


def cached(held: Any) -> Callable[[int], Any]:
    function = functools.cache(lambda number: holder.pop())
    holder = [held]
    function(1)
    return function


HOLDERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], list[Any]]]] = {
    "the namespace itself": (lambda x: x, lambda h: [h]),
    "a dict's value": (lambda x: {"a": 1, "b": x}, lambda h: [h["b"]]),
    "a dict's key": (lambda x: {"a": 1, x: 2}, lambda h: [one for one in h if h[one] == 2]),
    "a dict's key and value": (lambda x: {x: x}, lambda h: [*h, *h.values()]),
    "a dict's key in a tuple": (lambda x: {(x, 1): 2}, lambda h: [next(iter(h))[0]]),
    "a list": (lambda x: [1, x, x], lambda h: h[1:]),
    "lists in lists": (lambda x: [[[x], 1]], lambda h: [h[0][0][0]]),
    "a tuple": (lambda x: (1, x), lambda h: [h[1]]),
    "tuples in tuples": (lambda x: (1, (2, (3, x)), x), lambda h: [h[1][1][1], h[2]]),
    "a tuple in a list": (lambda x: [(x,)], lambda h: [h[0][0]]),
    "a list in a tuple": (lambda x: ([x],), lambda h: [h[0][0]]),
    "a tuple in an attribute": (lambda x: Plain((x,)), lambda h: [h.held[0]]),
    "a tuple in a slot": (lambda x: OneSlot((x,)), lambda h: [h.held[0]]),
    "a tuple in a closure": (lambda x: closure((x,)), lambda h: [h()[0]]),
    "a tuple as a default": (lambda x: with_default((x,)), lambda h: [h()[1][0]]),
    "a set": (lambda x: {x, 1}, lambda h: [one for one in h if one != 1]),
    "a frozen set": (lambda x: frozenset({x}), list),
    "a tuple in a set": (lambda x: {(x,)}, lambda h: [next(iter(h))[0]]),
    "a frozen set in a set": (lambda x: {frozenset({x})}, lambda h: [*next(iter(h))]),
    "a frozen set as a key": (lambda x: {frozenset({x}): 1}, lambda h: [*next(iter(h))]),
    "a deque": (lambda x: collections.deque([1, x, 2], 3), lambda h: [h[1]]),
    "a deque's tuple": (lambda x: collections.deque([(x,)]), lambda h: [h[0][0]]),
    "a defaultdict": (lambda x: collections.defaultdict(list, a=[x]), lambda h: h["a"]),
    "a defaultdict's key": (lambda x: collections.defaultdict(list, {x: 1}), list),
    "an OrderedDict": (lambda x: collections.OrderedDict(a=1, b=x), lambda h: [h["b"]]),
    "a Counter": (lambda x: collections.Counter([x, x]), list),
    "a ChainMap": (lambda x: collections.ChainMap({}, {"a": x}), lambda h: [h["a"]]),
    "a UserDict": (lambda x: collections.UserDict(a=x), lambda h: [h["a"]]),
    "a UserList": (lambda x: collections.UserList([x]), list),
    "a read-only view": (lambda x: types.MappingProxyType({"a": x}), lambda h: [h["a"]]),
    "an object": (Plain, lambda h: [h.held]),
    "a simple namespace": (lambda x: types.SimpleNamespace(held=x), lambda h: [h.held]),
    "slots": (Slots, lambda h: h.all()),
    "a single slot": (OneSlot, lambda h: [h.held]),
    "slots and a dict": (SlotsAndMore, lambda h: [h.held, h.more]),
    "an object that refuses": (Closed, lambda h: [h.held]),
    "slots that refuse": (ClosedSlots, lambda h: [h.held]),
    "a dataclass": (lambda x: Data(x, [x]), lambda h: [h.held, *h.several]),
    "a frozen dataclass": (Frozen, lambda h: [h.held]),
    "a dataclass with slots": (Slotted, lambda h: [h.held]),
    "a frozen dataclass with slots": (FrozenSlotted, lambda h: [h.held]),
    "a frozen dataclass as a key": (lambda x: {Frozen(1): FrozenSlotted(x)}, lambda h: [
        one.held for one in h.values()
    ]),
    "a named tuple": (lambda x: Point(1, x), lambda h: [h.y]),
    "a typed named tuple": (lambda x: Pair([x], x), lambda h: [h.left[0], h.right]),
    "a list of one's own": (lambda x: MyList([x]), list),
    "its attribute": (lambda x: with_attribute(MyList(), x), lambda h: [h.held]),
    "both": (lambda x: with_attribute(MyList([x]), x), lambda h: [*h, h.held]),
    "a dict of one's own": (lambda x: MyDict(a=x), lambda h: [h["a"]]),
    "its key and attribute": (lambda x: with_attribute(MyDict({x: 1}), x), lambda h: [*h, h.held]),
    "a list's slot": (lambda x: with_attribute(SlottedList(), x), lambda h: [h.held]),
    "a dict's slot": (lambda x: with_attribute(SlottedDict(), x), lambda h: [h.held]),
    "a private slot": (_Underscored, lambda h: [h.read()]),
    "a set of one's own": (lambda x: MySet([x]), list),
    "a tuple of one's own": (lambda x: MyTuple([x]), list),
    "a frozen set of one's own": (lambda x: MyFrozenSet([x]), list),
    "a list with its own access": (lambda x: LoudList([x]), list),
    "a dict with its own access": (lambda x: LoudDict({"a": x}), lambda h: list(h.values())),
    "a closure": (closure, lambda h: [h()]),
    "two closures": (two_closures, lambda h: [h[0]()]),
    "a default": (with_default, lambda h: [h()[1]]),
    "a keyword's default": (with_keyword_default, lambda h: [h()[1]]),
    "all that a function has": (with_defaults, lambda h: h()),
    "a function's attribute": (lambda x: with_attribute(closure(1), x), lambda h: [h.held]),
    "a partial's function": (lambda x: functools.partial(x), lambda h: [h.func]),
    "a partial's arguments": (lambda x: functools.partial(print, 1, x), lambda h: [h.args[1]]),
    "a partial's keywords": (lambda x: functools.partial(print, a=x), lambda h: [h.keywords["a"]]),
    "a partial's attribute": (
        lambda x: with_attribute(functools.partial(print, (x,)), x),
        lambda h: [h.args[0][0], h.held],
    ),
    "a partial in a partial": (
        lambda x: functools.partial(functools.partial(print, x), 1),
        lambda h: [h.args[0]],
    ),
    "a method's object's attribute": (lambda x: Thing(x).method, lambda h: [h().name]),
    "a module": (module, lambda h: [h.held]),
    "a class": (class_attribute, lambda h: [h.__dict__["held"]]),
    "a cache": (cached, lambda h: [h(1)]),
    "an exception's attribute": (lambda x: with_attribute(ValueError(1), x), lambda h: [h.held]),
    "an array": (lambda x: array(1, x), lambda h: [h[1]]),
    "an array of two dimensions": (lambda x: array(1, x, x, 2).reshape(2, 2), lambda h: [
        h[0, 1], h[1, 0]
    ]),
    "an array without dimensions": (lambda x: np.array(x, dtype=object), lambda h: [h.item()]),
    "a list in an array": (lambda x: array([x]), lambda h: h[0]),
    "an array in a list": (lambda x: [array(x)], lambda h: [*h[0]]),
    "an array in an object in a dict": (lambda x: {"a": Plain(array(x))}, lambda h: [*h["a"].held]),
}  # fmt: skip


@pytest.mark.parametrize("name", HOLDERS)
def test_what_is_replaced(name: str) -> None:
    make, look = HOLDERS[name]
    old, new = Thing("old"), Thing("new")
    namespace = {"it": make(old)}
    assert set(look(namespace["it"])) == {old}
    assert replace(namespace, (old, new)) == []
    assert set(look(namespace["it"])) == {new}
    ghost = weakref.ref(old)
    del old
    gc.collect()
    assert ghost() is None, "something still refers to it"


CHANGED_IN_PLACE = [
    name
    for name, (make, _) in HOLDERS.items()
    if not isinstance(make(Thing("any")), (Thing, tuple, frozenset, types.MethodType))
]


@pytest.mark.parametrize("name", CHANGED_IN_PLACE)
def test_what_can_be_changed_stays_the_same_object(name: str) -> None:
    old = Thing("old")
    holder = HOLDERS[name][0](old)
    namespace = {"it": holder}
    kind = type(holder)
    replace(namespace, (old, Thing("new")))
    assert namespace["it"] is holder
    assert type(holder) is kind


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (1, x, "a"),
        lambda x: Point(x, 2),
        lambda x: Pair(x, 2),
        lambda x: MyTuple([x, 3]),
        lambda x: frozenset({x, 3}),
        lambda x: MyFrozenSet({x, 3}),
    ],
)
def test_what_is_made_anew_is_of_the_same_kind(make: Callable[[Any], Any]) -> None:
    old, new = Thing("old"), Thing("new")
    namespace = {"it": make(old)}
    assert replace(namespace, (old, new)) == []
    assert type(namespace["it"]) is type(make(new))
    assert namespace["it"] == make(new)


async def coroutine(held: Any) -> Any:
    return held


class Sealed(tuple[Any, ...]):
    """A tuple with a constructor of its own."""

    def __new__(cls, left: Any, right: Any) -> Sealed:
        return super().__new__(cls, (left, right))


@pytest.mark.parametrize(
    "make",
    [
        generator,
        started,
        lambda x: x.method,
        property,
        staticmethod,
        slice,
        itertools.repeat,
        lambda x: map(x, ()),
        lambda x: Sealed(1, x),
    ],
)
def test_what_cannot_be_changed_is_reported(make: Callable[[Any], Any]) -> None:
    old, new = Thing("old"), Thing("new")
    holder = make(old)
    namespace = {"it": holder, "other": [old]}
    [(who, what)] = replace(namespace, (old, new))
    assert who is holder
    assert what is old
    assert namespace["it"] is holder
    assert namespace["other"] == [new]


def test_a_coroutine_is_reported() -> None:
    old = Thing("old")
    holder = coroutine(old)
    [(who, what)] = replace({"it": holder}, (old, Thing("new")))
    assert who is holder
    assert what is old
    holder.close()


@pytest.mark.parametrize("make", [iter, property, slice, itertools.repeat])
def test_who_holds_a_tuple_and_cannot_be_changed_is_reported(make: Callable[[Any], Any]) -> None:
    old = Thing("old")
    inner = (old, 1)
    holder = make(inner)
    [(who, what)] = replace({"it": holder}, (old, Thing("new")))
    assert who is holder
    assert what is inner
