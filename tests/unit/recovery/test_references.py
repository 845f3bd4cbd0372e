"""Replacing references: what stays as it was, and what can't be changed."""

from __future__ import annotations

import collections
import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mcnb.recovery.references import MOST_ROUNDS, names_of, replace_references
from tests.support.holders import (
    OneSlot,
    Plain,
    Thing,
    array,
    class_attribute,
    replace,
    started,
    two_closures,
    with_default,
    with_keyword_default,
)

pytestmark = pytest.mark.usefixtures("small_heap")


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


def test_an_array_that_is_read_only_stays_read_only() -> None:
    old, new = Thing("old"), Thing("new")
    it = read_only(old)
    assert replace({"it": it}, (old, new)) == []
    assert (it[0], it.flags.writeable) == (new, False)


def test_a_view_that_can_not_be_written_to_is_reported() -> None:
    old, new = Thing("old"), Thing("new")
    base = read_only(old)
    view = base[:]
    del base
    [(holder, still)] = replace({"it": view}, (old, new))
    assert (holder is view, still is old) == (True, True)
