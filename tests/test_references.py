"""New objects where old ones were referred to, and what objects are called."""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnb.lockstep.names import names_of
from mcnb.lockstep.references import MOST_ROUNDS, replace_references


class Thing:
    """What is replaced: equal to nothing but itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def method(self) -> Thing:
        return self

    def __call__(self) -> int:
        return 1


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """Hide what was there before from the search, which otherwise goes through all of it."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def replace(namespace: dict[str, Any], *pairs: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    return replace_references({id(pair[0]): pair for pair in pairs}, [namespace])


class Plain:
    def __init__(self, held: Any) -> None:
        self.before = 1
        self.held = held


class Slots:
    __slots__ = ("__private", "_hidden", "empty", "held")

    def __init__(self, held: Any) -> None:
        self.held = self._hidden = self.__private = held

    def all(self) -> list[Any]:
        return [self.held, self._hidden, self.__private]


class OneSlot:
    __slots__ = "held"

    def __init__(self, held: Any) -> None:
        self.held = held


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


@dataclass(frozen=True)
class Frozen:
    held: Any


@dataclass(slots=True)
class Slotted:
    held: Any
    other: int = 0


@dataclass(frozen=True, slots=True)
class FrozenSlotted:
    held: Any
    other: int = 0


class Pair(NamedTuple):
    left: Any
    right: Any


Point = collections.namedtuple("Point", "x y")


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


class LoudDict(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise LookupError

    def items(self) -> Any:
        raise LookupError


def with_attribute(holder: Any, value: Any) -> Any:
    holder.held = value
    return holder


def closure(held: Any) -> Callable[[], Any]:
    def inner() -> Any:
        return held

    return inner


def two_closures(held: Any) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def read() -> Any:
        return held

    def write(value: Any) -> None:
        nonlocal held
        held = value

    return read, write


def with_default(held: Any) -> Callable[..., Any]:
    def function(first: int = 1, second: Any = held) -> tuple[int, Any]:
        return first, second

    return function


def with_keyword_default(held: Any) -> Callable[..., Any]:
    def function(*, first: int = 1, second: Any = held) -> tuple[int, Any]:
        return first, second

    return function


def with_defaults(held: Any) -> Callable[..., Any]:
    def function(one: Any = held, *, two: Any = held) -> list[Any]:
        return [one, two, held]

    return function


def module(held: Any) -> types.ModuleType:
    made = types.ModuleType("learners")
    made.held = held  # type: ignore[attr-defined]
    return made


def class_attribute(held: Any) -> type:
    class Holder:
        pass

    Holder.held = held  # type: ignore[attr-defined]
    return Holder


def cached(held: Any) -> Callable[[int], Any]:
    function = functools.cache(lambda number: holder.pop())
    holder = [held]
    function(1)
    return function


def array(*values: Any) -> np.ndarray:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


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


def generator(held: Any) -> Iterator[Any]:
    yield 1
    yield held


def started(held: Any) -> Iterator[Any]:
    made = generator(held)
    next(made)
    return made


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


def test_one_that_refuses_does_not_keep_the_others() -> None:
    old, new = Thing("old"), Thing("new")
    names = {f"bad{i}": started(old) for i in range(3)} | {f"good{i}": [old] for i in range(3)}
    left = replace(names, (old, new))
    assert {id(who) for who, _ in left} == {id(names[f"bad{i}"]) for i in range(3)}
    assert len(left) == 3
    assert all(names[f"good{i}"] == [new] for i in range(3))


def test_several_at_once() -> None:
    pairs = [(Thing(f"old{i}"), Thing(f"new{i}")) for i in range(3)]
    (a, x), (b, y), (c, z) = pairs
    names = {"all": [a, b, c, (a, b), {a: b}], "c": c, "back": {"a": (c, (b, (a,)))}}
    assert replace(names, *pairs) == []
    assert names == {"all": [x, y, z, (x, y), {x: y}], "c": z, "back": {"a": (z, (y, (x,)))}}


def test_two_may_change_places() -> None:
    one, two = Thing("one"), Thing("two")
    names = {"pair": [one, two], "keys": {one: 1, two: 2}, "tuple": (one, (two,))}
    pairs = {id(one): (one, two), id(two): (two, one)}
    assert replace_references(pairs, [names]) == []
    assert names["pair"] == [two, one]
    assert list(names["keys"].items()) == [(two, 1), (one, 2)]


def test_what_is_equal_is_not_what_is_replaced() -> None:
    old, same, new = [1], [1], [2]
    names = {"x": old, "y": same, "z": [old, same]}
    assert replace(names, (old, new)) == []
    assert names["x"] is new
    assert names["y"] is same
    assert names["z"][0] is new
    assert names["z"][1] is same


def test_the_order_of_a_dict_is_kept() -> None:
    old, new = Thing("old"), Thing("new")
    keys: dict[Any, int] = {"a": 1, old: 2, "b": 3, (old, 1): 4, "c": 5}
    values = {"c": old, "a": 1, "b": (old,)}
    assert replace({"keys": keys, "values": values}, (old, new)) == []
    assert list(keys.items()) == [("a", 1), (new, 2), ("b", 3), ((new, 1), 4), ("c", 5)]
    assert list(values.items()) == [("c", new), ("a", 1), ("b", (new,))]


def test_an_ordered_dict_keeps_its_order() -> None:
    old, new = Thing("old"), Thing("new")
    names = {"it": collections.OrderedDict(c=1, a=old, b=2)}
    names["it"].move_to_end("c")
    assert replace(names, (old, new)) == []
    assert list(names["it"].items()) == [("a", new), ("b", 2), ("c", 1)]


def test_a_deque_keeps_its_length() -> None:
    old, new = Thing("old"), Thing("new")
    it = collections.deque([1, old, 2], maxlen=3)
    assert replace({"it": it}, (old, new)) == []
    assert list(it) == [1, new, 2]
    assert it.maxlen == 3


def test_defaults_that_are_no_default_stay() -> None:
    old, new = Thing("old"), Thing("new")
    position, keyword = with_default(old), with_keyword_default(old)
    assert replace({"a": position, "b": keyword}, (old, new)) == []
    assert position() == keyword() == (1, new)
    assert position(5) == (5, new)


def test_a_partial_still_works() -> None:
    old, new = Thing("old"), Thing("new")
    it = functools.partial(lambda *args, **kwargs: (args, kwargs), 1, old, a=old, b=2)
    assert replace({"it": it}, (old, new)) == []
    assert it(3, c=4) == ((1, new, 3), {"a": new, "b": 2, "c": 4})


def test_closures_share_their_variable() -> None:
    old, new = Thing("old"), Thing("new")
    read, write = two_closures(old)
    assert replace({"read": read, "write": write}, (old, new)) == []
    assert read() is new
    write(5)
    assert read() == 5


def test_what_is_shared_stays_shared() -> None:
    old, new = Thing("old"), Thing("new")
    pair, items, group = (old, 1), [old], frozenset({old})
    names = {
        "first": [pair, items, group],
        "second": {"pair": pair, "items": items, "group": group},
        "third": (pair, (items, pair), group),
    }
    assert replace(names, (old, new)) == []
    first, second, third = names["first"], names["second"], names["third"]
    assert first[0] is second["pair"] is third[0] is third[1][1]
    assert first[1] is second["items"] is third[1][0] is items
    assert first[2] is second["group"] is third[2]
    assert first[0] == (new, 1)
    assert first[2] == frozenset({new})


def test_cycles() -> None:
    old, new = Thing("old"), Thing("new")
    items: list[Any] = [old]
    items.append(items)
    names: dict[str, Any] = {"items": items, "old": old}
    names["names"] = names
    through: list[Any] = []
    through.append((old, through))
    names["through"] = through
    box = Plain(old)
    box.before = box  # type: ignore[assignment]
    names["box"] = box
    assert replace(names, (old, new)) == []
    assert items[0] is new
    assert items[1] is items
    assert names["names"] is names
    assert names["old"] is new
    assert through[0][0] is new
    assert through[0][1] is through
    assert box.before is box
    assert box.held is new


def test_tuples_that_are_deep() -> None:
    old, new = Thing("old"), Thing("new")
    deep: Any = old
    for level in range(MOST_ROUNDS - 2):
        deep = (level, deep, old)
    names = {"deep": deep}
    assert replace(names, (old, new)) == []
    found = names["deep"]
    for level in reversed(range(MOST_ROUNDS - 2)):
        assert found[0] == level
        assert found[2] is new
        found = found[1]
    assert found is new


def test_what_no_name_reaches_is_found() -> None:
    old, new = Thing("old"), Thing("new")
    hidden = [old]
    assert replace({}, (old, new)) == []
    assert hidden == [new]


def test_several_namespaces() -> None:
    old, new = Thing("old"), Thing("new")
    one, other = {"a": array(old)}, {"b": array(old), "c": old}
    assert replace_references({id(old): (old, new)}, iter([one, other])) == []
    assert (one["a"][0], other["b"][0], other["c"]) == (new, new, new)


def test_what_is_ignored_is_left_alone() -> None:
    old, new = Thing("old"), Thing("new")
    kept, slot = [old], OneSlot(old)
    names = {"other": [old]}
    assert replace_references({id(old): (old, new)}, [names], ignored=iter([kept, slot])) == []
    assert kept == [old]
    assert slot.held is old
    assert names["other"] == [new]


def test_the_replacements_are_left_alone() -> None:
    old, new = Thing("old"), Thing("new")
    friend, better = Thing("friend"), Thing("better")
    old.name, friend.name = friend, old  # type: ignore[assignment]
    replacements = {id(old): (old, new), id(friend): (friend, better)}
    names: dict[str, Any] = {"it": [old, friend]}
    assert replace_references(replacements, [names]) == []
    assert replacements == {id(old): (old, new), id(friend): (friend, better)}
    assert old.name is friend
    assert friend.name is old
    assert names["it"] == [new, better]


def test_nothing_to_replace() -> None:
    old = Thing("old")
    names = {"it": [old, (old,)]}
    assert replace_references({}, [names]) == []
    assert names == {"it": [old, (old,)]}


def test_weak_references_keep_nothing_alive() -> None:
    old, new = Thing("old"), Thing("new")
    gone: list[str] = []
    names = {"ref": weakref.ref(old, lambda _: gone.append("ref")), "held": [old]}
    mapping = weakref.WeakValueDictionary({"a": old})
    assert replace(names, (old, new)) == []
    assert names["held"] == [new]
    del old
    gc.collect()
    assert gone == ["ref"]
    assert dict(mapping) == {}


def test_classes_have_the_new_one_for_their_objects() -> None:
    old, new = Thing("old"), Thing("new")
    kind = class_attribute(old)
    assert replace({"kind": kind}, (old, new)) == []
    assert kind().held is new


def test_the_whole_heap_is_searched() -> None:
    old, new = Thing("old"), Thing("new")
    hidden = [Plain((old, {old: [old]}))]
    gc.collect()
    gc.unfreeze()
    try:
        assert replace({}, (old, new)) == []
    finally:
        gc.freeze()
    assert hidden[0].held == (new, {new: [new]})


def test_a_replacement_may_be_replaced_later() -> None:
    things = [Thing(str(i)) for i in range(4)]
    names = {"it": [(things[0], [things[0]])]}
    for i in range(3):
        assert replace(names, (things[i], Thing("x") if i == 2 else things[i + 1])) == []
    assert names["it"][0][0].name == "x"
    assert names["it"][0][1][0] is names["it"][0][0]


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


def test_what_a_class_has_looked_up_is_forgotten() -> None:
    old, new = Thing("old"), Thing("new")
    kind = class_attribute(old)
    for _ in range(1000):
        assert kind.held is old
    assert replace({"kind": kind}, (old, new)) == []
    assert kind.held is new


def test_proxies_and_liars_are_passed_by() -> None:
    class Liar:
        @property
        def __class__(self) -> type:
            raise RuntimeError

        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            raise RuntimeError

    gone = Thing("gone")
    old, new = Thing("old"), Thing("new")
    names = {"proxy": weakref.proxy(gone), "liar": Liar(), "it": [old]}
    del gone
    assert replace(names, (old, new)) == []
    assert names["it"] == [new]
    assert names_of([new], names) == {id(new): "it[0]"}


@pytest.mark.parametrize("hold", [lambda t: functools.partial(print, t), with_default])
def test_tuples_in_tuples_in_arguments(hold: Callable[[Any], Any]) -> None:
    old, new = Thing("old"), Thing("new")
    names = {"it": hold(((old,), old, ((old,), 1)))}
    assert replace(names, (old, new)) == []
    held = names["it"].args if hasattr(names["it"], "args") else names["it"].__defaults__
    assert held[-1] == ((new,), new, ((new,), 1))


def test_an_ordered_dict_can_have_another_key() -> None:
    old, new = Thing("old"), Thing("new")
    names = {"it": collections.OrderedDict([(1, 1), (old, 2), (3, old)])}
    assert replace(names, (old, new)) == []
    assert list(names["it"].items()) == [(1, 1), (new, 2), (3, new)]
    names["it"].move_to_end(1)
    assert list(names["it"]) == [new, 3, 1]


def test_a_variable_without_a_value_holds_nothing() -> None:
    def function() -> Any:
        return missing

    if replace is None:
        missing = 1
    old, new = Thing("old"), Thing("new")
    names = {"function": function, "it": old}
    assert replace(names, (old, new)) == []
    assert names_of([new], names) == {id(new): "it"}


def test_tuples_that_are_too_deep_are_reported() -> None:
    old, new = Thing("old"), Thing("new")
    deep: Any = old
    for _ in range(MOST_ROUNDS + 5):
        deep = (deep,)
    assert replace({"deep": deep}, (old, new)) != []


@pytest.mark.parametrize("make", [functools.lru_cache(maxsize=2), lambda old: map(old, [1])])
def test_what_only_seems_to_be_changed_is_reported(make: Callable[[Any], Any]) -> None:
    old, new = Thing("old"), Thing("new")
    held = make(old)
    [(holder, still)] = replace({"held": held}, (old, new))
    assert holder is held
    assert still is old


def test_a_factory_of_defaults_is_replaced() -> None:
    old, new = Thing("old"), Thing("new")
    names = {"it": collections.defaultdict(old)}
    assert replace(names, (old, new)) == []
    assert names["it"].default_factory is new


class SlottedSet(set[Any]):
    __slots__ = ("held",)


class SlottedDeque(collections.deque[Any]):
    __slots__ = ("held",)


@pytest.mark.parametrize("kind", [SlottedSet, SlottedDeque])
def test_attributes_of_collections_are_replaced(kind: type[Any]) -> None:
    old, new = Thing("old"), Thing("new")
    it = kind([1, old])
    it.held = old
    assert replace({"it": it}, (old, new)) == []
    assert set(it) == {1, new}
    assert it.held is new


class TupleOfOnesOwn(tuple[Any, ...]):
    name: str
    held: Any


def test_attributes_of_what_is_made_anew_are_kept() -> None:
    old, new = Thing("old"), Thing("new")
    it = TupleOfOnesOwn([old])
    it.name, it.held = "mine", old
    names = {"it": it}
    assert replace(names, (old, new)) == []
    assert (names["it"], names["it"].name, names["it"].held) == ((new,), "mine", new)


def read_only(old: Any) -> Any:
    array = np.array([old, 1], dtype=object)
    array.flags.writeable = False
    return array


def of_tuples(old: Any) -> Any:
    array = np.empty(1, dtype=object)
    array[0] = (old, (old,))
    return array


@pytest.mark.parametrize(
    ("make", "take"),
    [
        (read_only, lambda it: it[0]),
        (of_tuples, lambda it: it[0][0]),
        (of_tuples, lambda it: it[0][1][0]),
        (lambda old: [[[[[[read_only(old)]]]]]], lambda it: it[0][0][0][0][0][0][0]),
        (lambda old: OneSlot(read_only(old)), lambda it: it.held[0]),
        (lambda old: {"a": Plain([of_tuples(old)])}, lambda it: it["a"].held[0][0][0]),
    ],
)
def test_arrays_of_objects(make: Callable[[Any], Any], take: Callable[[Any], Any]) -> None:
    old, new = Thing("old"), Thing("new")
    names = {"it": make(old)}
    assert replace(names, (old, new)) == []
    assert take(names["it"]) is new
