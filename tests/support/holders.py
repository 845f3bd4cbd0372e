"""What can refer to an object, each in a way of its own."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mcnb.recovery.references import replace_references


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


def replace(namespace: dict[str, Any], *pairs: tuple[Any, Any]) -> list[tuple[Any, Any]]:
    return replace_references({id(pair[0]): pair for pair in pairs}, [namespace])


class Plain:
    def __init__(self, held: Any) -> None:
        self.before = 1
        self.held = held


class OneSlot:
    __slots__ = "held"

    def __init__(self, held: Any) -> None:
        self.held = held


@dataclass(frozen=True)
class Frozen:
    held: Any


class Pair(NamedTuple):
    left: Any
    right: Any


Point = collections.namedtuple("Point", "x y")


class LoudDict(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        raise LookupError

    def items(self) -> Any:
        raise LookupError


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


def class_attribute(held: Any) -> type:
    class Holder:
        pass

    Holder.held = held  # type: ignore[attr-defined]
    return Holder


def array(*values: Any) -> np.ndarray:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def generator(held: Any) -> Iterator[Any]:
    yield 1
    yield held


def started(held: Any) -> Iterator[Any]:
    made = generator(held)
    next(made)
    return made
