"""Number the launches and the stacks of a process, to describe each to the referee once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict
from typing import NamedTuple

from mcnb.lockstep.model import Launch
from mcnb.lockstep.source import Place
from mcnb.lockstep.wire import Message

# The most stacks that are described to the referee once and for all.
MOST_STACKS = 10_000


class Numbered(NamedTuple):
    """A launch and its place.

    Attributes:
        number: The number of the launch.
        stack: The number of the stack.
        messages: The messages that describe those that the referee does not know.
        key: What tells the stack from others.
        place: The place.
    """

    number: int
    stack: int
    messages: list[Message]
    key: tuple[object, ...]
    place: Place


class Numbering:
    """Numbers launches and stacks.

    Args:
        lines: Returns the names of the lines on the stack of a place, from the outermost.

    Example:
        >>> numbering, launch = Numbering(lambda place: ("line 3",)), Launch("jit(f)", "1", (0, 1))
        >>> first = numbering.of(launch, Place(3))
        >>> [message[:2] for message in first.messages]
        [['launch', 0], ['stack', 0]]
        >>> numbering.keep(launch, first)
        >>> numbering.of(launch, Place(3)).messages
        []
    """

    def __init__(self, lines: Callable[[Place], tuple[str, ...]]) -> None:
        self._lines = lines
        self._numbers: dict[Launch, int] = {}
        self._number = itertools.count()
        # The number of each stack that the referee knows, and its place, which keeps the code
        # objects: their hashes would take too long to compute, and ids of lost ones are used again.
        self._stacks: dict[tuple[object, ...], tuple[int, Place]] = {}
        self._stack = itertools.count()

    def of(self, launch: Launch, place: Place) -> Numbered:
        """Return the numbers of a launch and of its stack."""
        number = self._numbers.get(launch)
        messages: list[Message] = []
        if number is None:
            number = next(self._number)
            messages = [["launch", number, asdict(launch)]]
        key = (place.line, place.name, *((id(code), at) for code, at in place.stack))
        stack, known = self._stacks.get(key, (-1, place))
        if stack < 0:
            # A program that makes functions without end is not remembered without end.
            stack = next(self._stack) if len(self._stacks) < MOST_STACKS else MOST_STACKS
            messages.append(["stack", stack, place.line, place.name, self._lines(place)])
        return Numbered(number, stack, messages, key, known)

    def keep(self, launch: Launch, numbered: Numbered) -> None:
        """Keep the numbers of a launch, which the referee knows now."""
        # Each barrier has a name of its own, often, and is known only once.
        if not (launch.is_barrier or launch.label):
            self._numbers[launch] = numbered.number
        if numbered.stack < MOST_STACKS:
            self._stacks[numbered.key] = numbered.stack, numbered.place

    def begin(self) -> None:
        """Forget the stacks: lines of an earlier cell have other names in a new one."""
        self._stacks.clear()

    def place_of(self, stack: int | None) -> Place:
        """Return the place of a stack, by its number; an unknown place if there is none."""
        stacks = list(self._stacks.values())  # a thread that waits may be adding its own
        return next((place for number, place in stacks if number == stack), Place())
