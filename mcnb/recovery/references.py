"""Find the learner's names for objects, and replace references to old objects with new ones.

Lists, dicts, sets, attributes, slots, closures, defaults and partial applications are changed in
place. Tuples and frozensets are immutable, so they are rebuilt, and references to them replaced in
turn. Each change is verified, and references that can't be changed at all are reported, such as
those from the local variables of a suspended generator.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

import numpy as np

# Types whose instances lead to no object of the learner's.
LEAVES = (str, bytes, int, float, complex, type(None), types.ModuleType, types.CodeType)
# IPython's `exit` leads to its shell, which keeps the results of cells.
_NOT_ENTERED = ("jax", "jaxlib", "numpy", "IPython")


def names_of(
    objects: Iterable[Any], namespace: Mapping[str, Any], depth: int = 6
) -> dict[int, str]:
    """Return the expressions that reach objects from the learner's variables.

    Args:
        objects: The objects.
        namespace: The learner's variables.
        depth: The largest number of steps from a variable to an object.

    Returns:
        The shortest expression for each object, by id; unreachable objects are left out.

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
            if id(value) in seen or issubclass(type(value), LEAVES):
                continue
            seen.add(id(value))
            deeper += _children(name, value)
        if len(found) == len(wanted):
            break
        level = deeper
    return found


def _children(name: str, value: Any) -> list[tuple[str, Any]]:
    kind = type(value)  # isinstance would run code of the object, which may raise
    if issubclass(kind, dict):
        return [(f"{name}[{key!r}]", item) for key, item in dict.items(value)]
    if issubclass(kind, (list, tuple)):
        fields = getattr(kind, "_fields", None)
        if fields:
            return [(f"{name}.{field}", getattr(value, field)) for field in fields]
        return [(f"{name}[{i}]", item) for i, item in enumerate(value)]
    if kind is types.FunctionType:
        return [(f"{free} in {name}", item) for free, item in _closed_over(value)]
    if kind is types.GeneratorType:
        inside = inspect.getgeneratorlocals(value)
        return [(f"{free} in {name}", item) for free, item in inside.items()]
    if kind.__module__.partition(".")[0] in _NOT_ENTERED:
        return []
    return [(f"{name}.{field}", item) for field, item in (_dict_of(value) or {}).items()]


def _closed_over(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield free, cell.cell_contents
        except ValueError:  # the cell is empty
            continue


# The largest depth of nested tuples.
MOST_ROUNDS = 100
_Pairs: TypeAlias = dict[int, tuple[Any, Any]]
_New: TypeAlias = Callable[[Any], Any]


def replace_references(
    replacements: Mapping[int, tuple[Any, Any]],
    roots: Iterable[MutableMapping[str, Any]],
    ignored: Iterable[Any] = (),
) -> list[tuple[Any, Any]]:
    """Replace references to old objects with references to new ones.

    Args:
        replacements: Old and new object, by the id of the old one.
        roots: Namespaces to search, besides all objects that the garbage collector tracks.
        ignored: Objects whose references are not changed.

    Returns:
        Each holder that could not be changed, with the old object that it still refers to.

    Example:
        >>> old, new = object(), object()
        >>> names = {"x": old, "pair": (1, [old])}
        >>> replace_references({id(old): (old, new)}, [names])
        []
        >>> names["x"] is new, names["pair"][1][0] is new
        (True, True)
    """
    return _Replacing(replacements, list(roots), ignored).run()


class _Replacing:
    """Replaces references in the whole heap, in rounds.

    Attributes:
        given: The given old and new objects, by the id of the old one.
        made: The rebuilt tuples and frozensets, old and new, by the id of the old one.
        first: Whether this is the first round, which replaces the given objects.
        skip: The ids of objects that are not changed.
    """

    def __init__(
        self,
        replacements: Mapping[int, tuple[Any, Any]],
        roots: list[MutableMapping[str, Any]],
        ignored: Iterable[Any],
    ) -> None:
        self.given: _Pairs = dict(replacements)
        self.made: _Pairs = {}
        self.first = True
        self.replacing = {id(new) for _, new in self.given.values()}
        self.roots = roots
        self.skip = {id(one) for one in ignored}
        self.skip |= {id(self), id(self.__dict__), id(replacements), id(roots)}
        self.skip |= {id(self.given), id(self.made)}
        for pair in self.given.values():
            self.skip |= {id(pair), *map(id, pair), id(_dict_of(pair[0]))}
        self.classes: dict[int, type] = {}
        self.left: dict[int, Any] = {}
        self.skip.add(id(self.left))

    def run(self) -> list[tuple[Any, Any]]:
        """Replace all references; return the holders that still refer to old objects."""
        arrays = self._object_arrays()
        fresh: _Pairs = self.given
        for _ in range(MOST_ROUNDS):
            if not fresh:
                break
            fresh = self._round(fresh, arrays)
            self.first = False
        self.left.update((id(holder), holder) for holder in self._holders(fresh))
        still_held = ((holder, self._held(holder)) for holder in self.left.values())
        return [(holder, old) for holder, old in still_held if old is not None]

    def new(self, value: Any) -> Any:
        """Return the replacement of a value, or the value itself if it has none."""
        if self.first and id(value) in self.given:
            value = self.given[id(value)][1]
        while id(value) in self.made:
            value = self.made[id(value)][1]
        return value

    def _round(self, fresh: _Pairs, arrays: list[np.ndarray]) -> _Pairs:
        made: _Pairs = {}
        self.skip.add(id(made))
        for array in arrays:
            for index, value in np.ndenumerate(array):
                if self.new(value) is not value:
                    self._put(array, index, self.new(value))
        for holder in self._holders(fresh):
            if issubclass(type(holder), (tuple, frozenset)):
                if id(holder) not in self.made:
                    rebuilt = _rebuilt(holder, self.new)
                    if rebuilt is None:
                        self.left[id(holder)] = holder
                    else:
                        made[id(holder)] = (holder, rebuilt)
            else:
                self._change(holder)
        self.made.update(made)
        for pair in made.values():
            self.skip |= {id(pair), id(pair[0])}
        return made

    def _put(self, array: np.ndarray, index: tuple[int, ...], value: Any) -> None:
        writeable = array.flags.writeable
        try:
            array.flags.writeable = True
            array[index] = value
            array.flags.writeable = writeable
        except ValueError:  # the array does not own its memory
            self.left[id(array)] = array

    def _change(self, holder: Any) -> None:
        """Change an object in place, and verify the change."""
        with contextlib.suppress(Exception):  # a learner's class may raise anything
            if id(holder) in self.classes:
                _change_class(self.classes[id(holder)], self.new)
            else:
                for kind in type(holder).__mro__:
                    if kind in _CHANGES:
                        _CHANGES[kind](holder, self.new)
                        break
                _change_attributes(holder, self.new)
        if self._held(holder) is not None:
            self.left[id(holder)] = holder

    def _held(self, holder: Any) -> Any:
        """Return an old object to which a holder refers, or None."""
        inside = list(holder.flat) if type(holder) is np.ndarray else gc.get_referents(holder)
        old = (r for r in inside if id(r) in self.given or id(r) in self.made)
        return next((r for r in old if id(r) not in self.replacing), None)

    def _holders(self, wanted: _Pairs) -> list[Any]:
        """Return all objects that refer to a wanted object."""
        if not wanted:
            return []
        ids = wanted.keys()
        frame: types.FrameType | None = sys._getframe()
        skip = set(self.skip)
        while frame is not None:
            skip.add(id(frame))
            frame = frame.f_back
        found: dict[int, Any] = {}
        candidates = gc.get_objects()  # not the new list itself
        candidates += self.roots
        for candidate in candidates:
            if id(candidate) in skip or issubclass(type(candidate), LEAVES):
                continue
            if not ids.isdisjoint(map(id, gc.get_referents(candidate))):
                found[id(candidate)] = candidate
        found.pop(id(wanted), None)
        self._find_classes(found)
        return list(found.values())

    def _find_classes(self, found: dict[int, Any]) -> None:
        """Find the dicts that are the `__dict__` of a class.

        Python caches look-ups in a class, so such a dict must be changed through its class.
        """
        if not any(type(one) is dict for one in found.values()):
            return
        for one in gc.get_objects():
            if issubclass(type(one), type):
                for part in gc.get_referents(one):
                    if type(part) is dict and id(part) in found:
                        self.classes[id(part)] = one

    def _object_arrays(self) -> list[np.ndarray]:
        """Return NumPy arrays of objects such as devices, which the collector does not track."""
        found: list[np.ndarray] = []
        modules = {id(_dict_of(module)) for module in list(sys.modules.values())}
        seen = modules - {id(root) for root in self.roots}  # a root is usually that of __main__
        level: list[Any] = list(self.roots)
        while level:
            deeper: list[Any] = []
            for value in level:
                if id(value) in seen or issubclass(type(value), (*LEAVES, type)):
                    continue
                seen.add(id(value))
                if type(value) is np.ndarray:
                    if value.dtype.hasobject:
                        found.append(value)
                        deeper += value.flat
                else:
                    deeper += gc.get_referents(value)
            level = deeper
        return found


def _dict_of(value: Any) -> Any:
    try:
        return object.__getattribute__(value, "__dict__")
    except Exception:  # there is none, or a learner's class raises
        return None


def _rebuilt(holder: Any, new: _New) -> Any:
    parts = [new(part) for part in holder]
    try:
        made = holder._make(parts) if hasattr(holder, "_make") else type(holder)(parts)
        attributes = _dict_of(holder)
        if attributes:
            vars(made).update({name: new(value) for name, value in attributes.items()})
    except Exception:  # a subclass with its own constructor
        return None
    return made


def _change_class(changed: type, new: _New) -> None:
    for name, value in list(vars(changed).items()):
        if new(value) is not value:
            type.__setattr__(changed, name, new(value))


def _change_dict(holder: Any, new: _New) -> None:
    # An OrderedDict stores its order separately from its dict.
    ordered = issubclass(type(holder), collections.OrderedDict)
    kind: Any = collections.OrderedDict if ordered else dict
    items = [(key, value) for key, value in kind.items(holder)]
    if any(new(key) is not key for key, _ in items):
        kind.clear(holder)
        for key, value in items:
            kind.__setitem__(holder, new(key), new(value))
    else:
        for key, value in items:
            if new(value) is not value:
                kind.__setitem__(holder, key, new(value))
    if issubclass(type(holder), collections.defaultdict):
        holder.default_factory = new(holder.default_factory)


def _change_items(holder: Any, new: _New) -> None:
    kind: Any = list if issubclass(type(holder), list) else collections.deque
    for i, value in enumerate([*kind.__iter__(holder)]):
        if new(value) is not value:
            kind.__setitem__(holder, i, new(value))


def _change_set(holder: Any, new: _New) -> None:
    values = [new(value) for value in set.__iter__(holder)]
    set.clear(holder)
    set.update(holder, values)


def _change_cell(holder: Any, new: _New) -> None:
    holder.cell_contents = new(holder.cell_contents)


def _change_function(holder: Any, new: _New) -> None:
    if holder.__defaults__:
        holder.__defaults__ = new(tuple(new(value) for value in new(holder.__defaults__)))
    for name, value in (holder.__kwdefaults__ or {}).items():
        holder.__kwdefaults__[name] = new(value)


def _change_partial(holder: Any, new: _New) -> None:
    function, args, keywords, attributes = holder.__reduce__()[2]
    args = tuple(new(value) for value in new(args))
    keywords = {name: new(value) for name, value in (keywords or {}).items()}
    holder.__setstate__((new(function), args, keywords, attributes))


def _change_attributes(holder: Any, new: _New) -> None:
    names = set(_dict_of(holder) or ())
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


def _mangled(base: type, name: str) -> str:
    if name.startswith("__") and not name.endswith("__"):
        return f"_{base.__name__.lstrip('_')}{name}"
    return name


_CHANGES: dict[type, Callable[[Any, _New], None]] = {
    dict: _change_dict,
    list: _change_items,
    set: _change_set,
    collections.deque: _change_items,
    types.CellType: _change_cell,
    types.FunctionType: _change_function,
    functools.partial: _change_partial,
}
