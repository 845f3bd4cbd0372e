"""Fold long lists: what follows itself, and what follows each other in turn, as in a loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
# The most things that are looked at as one round of a loop, those that follow themselves once.
LONGEST_TURN = 30


@dataclass(frozen=True, slots=True)
class Fold(Generic[T]):
    """A thing of a list, and where in the list it is.

    Attributes:
        thing: The first of the things that are alike.
        at: The position of the first.
        number: How many follow each other directly.
        rounds: How often these come in turn with others.
        step: The number of things in one round.
    """

    thing: T
    at: int
    number: int = 1
    rounds: int = 1
    step: int = 0


def folded(things: Sequence[T], key: Callable[[T], Hashable]) -> list[Fold[T]]:
    """Return each thing that differs from those before it, with the places of those like it.

    A thing may repeat, or several things in turn, as the rounds of a loop do.

    Args:
        things: The list.
        key: What is equal for things that are alike.

    Example:
        >>> for fold in folded("aabaabc", str): print(fold)
        Fold(thing='a', at=0, number=2, rounds=2, step=3)
        Fold(thing='b', at=2, number=1, rounds=2, step=3)
        Fold(thing='c', at=6, number=1, rounds=1, step=1)
    """
    runs: list[tuple[T, int]] = []
    ids: dict[object, int] = {}
    turns: list[int] = []  # which runs are alike
    for alike, same in itertools.groupby(things, key):
        first, *others = same
        runs.append((first, 1 + len(others)))
        turns.append(ids.setdefault((alike, len(others)), len(ids)))
    found: list[Fold[T]] = []
    run = at = 0
    while run < len(runs):
        length, rounds = max(
            ((length, _rounds(turns, run, length)) for length in range(1, LONGEST_TURN + 1)),
            key=lambda turn: (turn[0] * (turn[1] - 1), -turn[0]),
        )
        own = runs[run : run + length]
        step = sum(number for _, number in own)
        begin = at
        for thing, number in own:
            found.append(Fold(thing, begin, number, rounds, step))
            begin += number
        run += length * rounds
        at += step * rounds
    return found


def _rounds(turns: Sequence[int], at: int, length: int) -> int:
    """Return how often the next few of a list follow each other; at least once."""
    turn = turns[at : at + length]
    rounds = 1
    while turns[at + rounds * length : at + (rounds + 1) * length] == turn:
        rounds += 1
    return rounds
