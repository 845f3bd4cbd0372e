"""Define exercises: a variable to set, how to describe it, what is expected, and hints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

UNSET = "not set yet"
Hint: TypeAlias = Callable[[object, object, int, int], str]


@dataclass(frozen=True)
class Exercise:
    """Exercise that is checked on every process.

    A value, right or wrong, is described by plain data that can be sent from its process, compared
    and printed on one line: a number, a string, or one of the dataclasses in `looks`.

    Attributes:
        variable: Name of the variable that the learner sets, to a value or a function.
        look: Describes the variable's value, on its process. A learner's function is called here,
            on all processes at once, and its launches are checked like those of a cell.
        expected: Returns the right description, given the process index, the number of processes
            and the number of devices per process.
        hint: Returns a hint, given a wrong description, the right one, the number of processes
            and the number of devices per process. The hint never contains the answer.
    """

    variable: str
    look: Callable[[Any], object]
    expected: Callable[[int, int, int], object]
    hint: Hint


def of_function(hint: Hint) -> Hint:
    """Extend a hint to ask for a function if the learner's value is not one.

    Args:
        hint: Hint for a value that is a function.
    """

    def hinted(seen: object, expected: object, processes: int, devices: int) -> str:
        if isinstance(seen, str) and seen.endswith("no function"):
            return "define a function, with def."
        return hint(seen, expected, processes, devices)

    return hinted
