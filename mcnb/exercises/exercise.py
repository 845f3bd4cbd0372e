"""What an exercise is: a variable to set, how it is looked at, what it should be, and hints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

UNSET = "not set yet"
Hint: TypeAlias = Callable[[object, object, int, int], str]


@dataclass(frozen=True)
class Exercise:
    """An exercise.

    A value, right or wrong, is described by plain data that can leave its process, compare equal,
    and be printed in a line: a number, a string, or one of the dataclasses in `looks`.

    Attributes:
        variable: The variable that the learner sets: a value, or a function.
        look: Describes the variable's value on one process; runs there. A function is called here,
            on all processes at once: what it launches is checked like a cell's launches.
        expected: Returns the right description, from the process index, the number of processes
            and the number of devices per process.
        hint: Returns what to think about, from a wrong description, the right one and the numbers
            of processes and devices per process. It never gives the answer.
    """

    variable: str
    look: Callable[[Any], object]
    expected: Callable[[int, int, int], object]
    hint: Hint


def of_function(hint: Hint) -> Hint:
    """Return a hint that knows, too, that a function is wanted.

    Args:
        hint: What to think about where it is one.
    """

    def hinted(seen: object, expected: object, processes: int, devices: int) -> str:
        if isinstance(seen, str) and seen.endswith("no function"):
            return "define a function, with def."
        return hint(seen, expected, processes, devices)

    return hinted
