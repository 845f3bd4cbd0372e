"""Cells as they are asked for, and the history from which a session is replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell to be run.

    Attributes:
        source: Its code.
        targets: The processes that run it.
        label: What stands in the notebook's prompt for it.
        first_line: Which line of the notebook's cell the first line of the code is.
        checked: Whether launches wait until all participants stand at them.
        timeout: After how many seconds it is ended; None if never.
    """

    source: str
    targets: tuple[int, ...]
    label: str
    first_line: int = 1
    checked: bool = True
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Push:
    """Values that were set.

    Attributes:
        values: The values by the variables' names.
        targets: The processes on which they were set.
    """

    values: Mapping[str, Any]
    targets: tuple[int, ...]


Step: TypeAlias = Cell | Push


class History:
    """What made the variables that the processes have: steps that succeeded, in their order.

    That the user ended the processes does not forget them at once, so that they can still be
    replayed; the first step after it does. Processes that died on their own were not meant to.

    Example:
        >>> history = History()
        >>> history.add(Push({"n": 3}, (0,)))
        >>> history.ended()
        >>> len(history.steps)
        1
        >>> history.add(Push({"m": 4}, (0,)))
        >>> history.steps
        [Push(values={'m': 4}, targets=(0,))]
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._old = False

    def add(self, step: Step) -> None:
        """Add a step that succeeded."""
        if self._old:
            self.steps, self._old = [], False
        self.steps.append(step)

    def replayed(self) -> list[Step]:
        """Return the steps, to be added again as they succeed."""
        steps, self.steps, self._old = self.steps, [], False
        return steps

    def ended(self) -> None:
        """Take note that the user ended the processes, with their variables."""
        self._old = True
