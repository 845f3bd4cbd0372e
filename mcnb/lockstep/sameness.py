"""Decide which launches are the same computation.

Two launches are the same if XLA compiled the same program for both: different Python may end in one
program. They are also the same if JAX lowered both to the same program, and XLA compiled both to
the same collectives: XLA may choose differently what happens between them, for example because it
measured other times on another GPU (see openxla/xla, issue 7716). What is the same as a third
launch is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from mcnb.lockstep.model import Collective, Launch, LaunchRecord

# A compiled program, or a lowered one with its collectives and devices.
_Token: TypeAlias = str | tuple[str, tuple[Collective, ...], str]


class Sameness:
    """Sorts launches into classes of the same computation.

    Example:
        >>> same = Sameness()
        >>> for program in ("1", "2"):
        ...     launch = Launch("jit(f)", program, (0, 1), lowered="a")
        ...     assert not same.add(launch)
        >>> same.program(launch)
        '1'
    """

    def __init__(self) -> None:
        self._parents: dict[_Token, _Token] = {}
        self._known: set[tuple[str, str]] = set()

    def add(self, launch: Launch) -> bool:
        """Add a launch; return whether classes that were different until now are one thereby."""
        known = launch.program, launch.lowered
        if known in self._known or launch.is_barrier:
            return False
        self._known.add(known)
        parents, program = self._parents, launch.program
        lowered = launch.lowered, launch.collectives, launch.devices
        if not launch.lowered:
            parents.setdefault(program, program)
        elif lowered not in parents:
            parents.setdefault(program, program)
            parents[lowered] = self._root(program)
        elif program not in parents:
            parents[program] = self._root(lowered)
        else:
            one, other = self._root(program), self._root(lowered)
            parents[other] = one
            return one != other
        return False

    def program(self, launch: Launch) -> str:
        """Return the program of a launch's class, which is the same until `add` returns True."""
        return self._root(launch.program)

    def common(self, launch: Launch) -> Launch:
        """Return a launch with the program of its class."""
        program = self.program(launch)
        return launch if program == launch.program else replace(launch, program=program)

    def _root(self, one: _Token) -> str:
        while (parent := self._parents.get(one, one)) != one:
            one = parent
        assert isinstance(one, str)  # a lowered program is never the first of its class
        return one


def with_common_programs(records: Iterable[LaunchRecord]) -> tuple[LaunchRecord, ...]:
    """Return records in which launches of the same computation have the same `program`."""
    records = tuple(records)
    same = Sameness()
    launches = {id(record.launch): record.launch for record in records}
    for launch in launches.values():
        same.add(launch)
    common = {number: same.common(launch) for number, launch in launches.items()}
    if all(common[number] is launch for number, launch in launches.items()):
        return records
    return tuple(replace(record, launch=common[id(record.launch)]) for record in records)
