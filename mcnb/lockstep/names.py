"""What a learner calls objects: how they are reached from the learner's variables."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# What leads to no object of the learner's.
LEAVES = (str, bytes, int, float, complex, type(None), types.ModuleType, types.CodeType)
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
            if id(value) in seen or issubclass(type(value), LEAVES):
                continue
            seen.add(id(value))
            deeper += _children(name, value)
        if len(found) == len(wanted):
            break
        level = deeper
    return found


def _children(name: str, value: Any) -> list[tuple[str, Any]]:
    kind = type(value)  # isinstance would ask the object, which may raise
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
        return [
            (f"{free} in {name}", item)
            for free, item in (value.gi_frame.f_locals.items() if value.gi_frame else ())
        ]
    if kind.__module__.partition(".")[0] in _NOT_ENTERED:
        return []
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except Exception:  # it has none, or a learner's class refuses in some way
        return []
    return [(f"{name}.{field}", item) for field, item in attributes.items()]


def _closed_over(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield free, cell.cell_contents
        except ValueError:  # it is empty
            continue
