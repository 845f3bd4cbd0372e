"""Putting new objects where old ones are referred to, wherever that is.

Lists, dicts, sets, attributes, slots, closures, defaults and partial applications are changed in
place; tuples and frozen sets can't be, so new ones are put where the old ones are referred to in
turn. What can't be changed at all, such as the local variables of a suspended generator, is
reported.
"""

from __future__ import annotations

import collections
import functools
import gc
import sys
import types
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import numpy as np

_LEAVES = (str, bytes, int, float, complex, type(None), types.ModuleType, types.CodeType)
MOST_ROUNDS = 20


def replace_references(
    replacements: Mapping[int, tuple[Any, Any]],
    roots: Iterable[MutableMapping[str, Any]],
    ignored: Iterable[Any] = (),
) -> list[tuple[Any, Any]]:
    """Put new objects where old ones are referred to.

    Args:
        replacements: Old and new object, by the id of the old one.
        roots: Namespaces to look through, besides everything that the garbage collector knows.
        ignored: Objects whose references are left alone.

    Returns:
        What could not be changed: each holder, with the old object that it still refers to.

    Example:
        >>> old, new = object(), object()
        >>> names = {"x": old, "pair": (1, [old])}
        >>> replace_references({id(old): (old, new)}, [names])
        []
        >>> names["x"] is new, names["pair"][1][0] is new
        (True, True)
    """
    known = dict(replacements)
    roots = list(roots)
    skip = {id(one) for one in ignored} | {id(known), id(replacements), id(roots)}
    for pair in known.values():
        skip |= {id(pair), *map(id, pair), id(getattr(pair[0], "__dict__", None))}
    left: list[tuple[Any, Any]] = []
    for array in _object_arrays(roots):
        for index, value in np.ndenumerate(array):
            if id(value) in known:
                array[index] = known[id(value)][1]
    fresh = dict(known)
    for _ in range(MOST_ROUNDS):
        if not fresh:
            break
        made: dict[int, tuple[Any, Any]] = {}
        for holder in _holders(fresh, roots, skip):
            if isinstance(holder, (tuple, frozenset)):
                if id(holder) not in known:
                    rebuilt = _rebuilt(holder, known)
                    if rebuilt is None:
                        left.append((holder, _held(holder, known)))
                    else:
                        made[id(holder)] = (holder, rebuilt)
            elif not _change(holder, known):
                left.append((holder, _held(holder, known)))
        known.update(made)
        skip |= {id(pair) for pair in made.values()} | {id(made), id(left)}
        fresh = made
    return left


def _object_arrays(roots: list[MutableMapping[str, Any]]) -> list[np.ndarray]:
    """Return NumPy arrays of objects, such as devices: the garbage collector does not see them."""
    found = []
    level: list[Any] = [value for root in roots for value in root.values()]
    for _ in range(3):
        found += [v for v in level if isinstance(v, np.ndarray) and v.dtype.hasobject]
        level = [item for value in level for _, item in _children("", value)]
    return [array for array in found if array.flags.writeable]


def _holders(
    wanted: Mapping[int, Any], roots: list[MutableMapping[str, Any]], skip: set[int]
) -> list[Any]:
    """Return everything that refers to one of the wanted objects."""
    ids = wanted.keys()
    frame: types.FrameType | None = sys._getframe()
    frames = set()
    while frame is not None:
        frames.add(id(frame))
        frame = frame.f_back
    found: dict[int, Any] = {}
    for candidate in (*roots, *gc.get_objects()):
        if isinstance(candidate, _LEAVES) or id(candidate) in skip or id(candidate) in frames:
            continue
        if not ids.isdisjoint(map(id, gc.get_referents(candidate))):
            found[id(candidate)] = candidate
    for own in (wanted, roots, found):
        found.pop(id(own), None)
    return list(found.values())


def _held(holder: Any, known: Mapping[int, tuple[Any, Any]]) -> Any:
    return next((r for r in gc.get_referents(holder) if id(r) in known), None)


def _rebuilt(holder: Any, known: Mapping[int, tuple[Any, Any]]) -> Any:
    parts = [known[id(part)][1] if id(part) in known else part for part in holder]
    try:
        if hasattr(holder, "_make"):
            return holder._make(parts)
        return type(holder)(parts)
    except Exception:  # a class of its own, with a constructor of its own
        return None


def _change(holder: Any, known: Mapping[int, tuple[Any, Any]]) -> bool:
    """Change an object in place; return whether it could be."""

    def new(value: Any) -> Any:
        return known[id(value)][1] if id(value) in known else value

    try:
        for kind, change in _CHANGES.items():
            if isinstance(holder, kind):
                return change(holder, new)
        return _change_attributes(holder, new)
    except Exception:  # a learner's class may refuse in any way
        return False


def _change_dict(holder: Any, new: Callable[[Any], Any]) -> bool:
    items = [(key, value) for key, value in dict.items(holder)]
    if any(new(key) is not key for key, _ in items):
        dict.clear(holder)
        for key, value in items:
            dict.__setitem__(holder, new(key), new(value))
    else:
        for key, value in items:
            if new(value) is not value:
                dict.__setitem__(holder, key, new(value))
    return type(holder) is dict or _change_attributes(holder, new, may_have_none=True)


def _change_list(holder: Any, new: Callable[[Any], Any]) -> bool:
    for i, value in enumerate(list.copy(holder)):
        if new(value) is not value:
            list.__setitem__(holder, i, new(value))
    return type(holder) is list or _change_attributes(holder, new, may_have_none=True)


def _change_set(holder: Any, new: Callable[[Any], Any]) -> bool:
    values = [new(value) for value in holder]
    set.clear(holder)
    set.update(holder, values)
    return True


def _change_deque(holder: Any, new: Callable[[Any], Any]) -> bool:
    for i, value in enumerate(list(holder)):
        holder[i] = new(value)
    return True


def _change_cell(holder: Any, new: Callable[[Any], Any]) -> bool:
    holder.cell_contents = new(holder.cell_contents)
    return True


def _change_function(holder: Any, new: Callable[[Any], Any]) -> bool:
    if holder.__defaults__:
        holder.__defaults__ = new(tuple(new(value) for value in holder.__defaults__))
    for name, value in (holder.__kwdefaults__ or {}).items():
        holder.__kwdefaults__[name] = new(value)
    return True


def _change_partial(holder: Any, new: Callable[[Any], Any]) -> bool:
    function, args, keywords, attributes = holder.__reduce__()[2]
    args = tuple(new(value) for value in args)
    keywords = {name: new(value) for name, value in (keywords or {}).items()}
    holder.__setstate__((new(function), args, keywords, attributes))
    return True


def _change_attributes(holder: Any, new: Callable[[Any], Any], may_have_none: bool = False) -> bool:
    changed = may_have_none
    names = set(getattr(holder, "__dict__", ()))
    for base in type(holder).__mro__:
        slots = base.__dict__.get("__slots__", ())
        slots = (slots,) if isinstance(slots, str) else slots
        names |= {_mangled(base, name) for name in slots}
    for name in names:
        try:
            value = object.__getattribute__(holder, name)
        except AttributeError:
            continue
        if new(value) is not value:
            object.__setattr__(holder, name, new(value))
            changed = True
    return changed


def _mangled(base: type, name: str) -> str:
    if name.startswith("__") and not name.endswith("__"):
        return f"_{base.__name__.lstrip('_')}{name}"
    return name


_CHANGES: dict[type, Callable[[Any, Callable[[Any], Any]], bool]] = {
    dict: _change_dict,
    list: _change_list,
    set: _change_set,
    collections.deque: _change_deque,
    types.CellType: _change_cell,
    types.FunctionType: _change_function,
    functools.partial: _change_partial,
}


# IPython's `exit` leads to its shell, which keeps what cells returned.
_NOT_ENTERED = ("jax", "jaxlib", "numpy", "IPython")


def names_of(
    objects: Iterable[Any], namespace: Mapping[str, Any], depth: int = 6
) -> dict[int, str]:
    """Return what a learner calls objects: how they are reached from a namespace.

    Args:
        objects: The objects.
        namespace: Where the learner's variables are.
        depth: How many steps are taken.

    Returns:
        The shortest expression for each, by id; those that are not reached are left out.

    Example:
        >>> x = [1]
        >>> names_of([x], {"model": {"w": (0, x)}})[id(x)]
        "model['w'][1]"
    """
    wanted = {id(one) for one in objects}
    found: dict[int, str] = {}
    seen: set[int] = set()
    level = [(name, value) for name, value in namespace.items() if not name.startswith("_")]
    for _ in range(depth):
        deeper: list[tuple[str, Any]] = []
        for name, value in level:
            if id(value) in wanted and id(value) not in found:
                found[id(value)] = name
            if id(value) in seen or isinstance(value, _LEAVES):
                continue
            seen.add(id(value))
            deeper += _children(name, value)
        if len(found) == len(wanted):
            break
        level = deeper
    return found


def _children(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"{name}[{key!r}]", item) for key, item in dict.items(value)]
    if isinstance(value, (list, tuple)):
        fields = getattr(value, "_fields", None)
        if fields:
            return [(f"{name}.{field}", getattr(value, field)) for field in fields]
        return [(f"{name}[{i}]", item) for i, item in enumerate(value)]
    if isinstance(value, types.FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
        return [(f"{free} in {name}", cell.cell_contents) for free, cell in cells]
    if isinstance(value, types.GeneratorType):
        return [
            (f"{free} in {name}", item)
            for free, item in (value.gi_frame.f_locals.items() if value.gi_frame else ())
        ]
    attributes = getattr(value, "__dict__", None)
    module = type(value).__module__.partition(".")[0]
    if isinstance(attributes, dict) and module not in _NOT_ENTERED:
        return [(f"{name}.{field}", item) for field, item in attributes.items()]
    return []
