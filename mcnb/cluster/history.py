"""Cells as they are asked for, and the history from which a session is replayed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcnb._text import plural


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


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a replay.

    Attributes:
        ran: The labels of the cells that ran again.
        pushed: The names of variables that were set again.
        stopped_at: The label of the cell that failed; empty if none did.
        not_run: How many more there were behind it.
        left_out: The labels of cells that were left out, because they had failed before.
        endless: The labels of cells that were left out, because what they launched did not end.
    """

    ran: tuple[str, ...]
    pushed: tuple[str, ...] = ()
    stopped_at: str = ""
    not_run: int = 0
    left_out: tuple[str, ...] = ()
    endless: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it in words.

        Example:
            >>> print(Replay(("1",), ("n",), "4", 2, ("2", "3")))
            1 cell ran again: In[1]. Set again: n. In[4] failed, and 2 cells after it did not run. \
Left out, because they had failed before: In[2], In[3]
        """
        said = [f"{plural(len(self.ran), 'cell', 'cells')} ran again{_listed(self.ran)}"]
        if self.pushed:
            said.append(f"Set again: {', '.join(self.pushed)}")
        if self.stopped_at:
            rest = f", and {plural(self.not_run, 'cell', 'cells')} after it did not run"
            said.append(f"In[{self.stopped_at}] failed{rest if self.not_run else ''}")
        if self.left_out:
            they = "it" if len(self.left_out) == 1 else "they"
            said.append(f"Left out, because {they} had failed before{_listed(self.left_out)}")
        if self.endless:
            its = "its computation" if len(self.endless) == 1 else "their computations"
            said.append(f"Left out, because {its} had to be ended{_listed(self.endless)}")
        return ". ".join(said)


def _listed(labels: Sequence[str]) -> str:
    """Return cells after a colon, by their labels; nothing if there are none."""
    return ": " + ", ".join(f"In[{label}]" for label in labels) if labels else ""


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
        self.left_out: list[str] = []
        self.endless: list[str] = []
        self._old = False

    def add(self, step: Step) -> None:
        """Add a step that succeeded."""
        self._forget_old()
        self.steps.append(step)

    def leave_out(self, cell: Cell) -> None:
        """Take note of a cell that failed."""
        self._forget_old()
        self.left_out.append(cell.label)

    def exclude(self, labels: Collection[str]) -> None:
        """Leave out cells that succeeded, but launched what did not end and had to be aborted.

        Args:
            labels: Their labels.
        """
        found = [one for one in self.steps if isinstance(one, Cell) and one.label in labels]
        self.steps = [one for one in self.steps if one not in found]
        self.endless += [one.label for one in found]

    def _forget_old(self) -> None:
        if self._old:
            self.steps, self.left_out, self.endless, self._old = [], [], [], False

    @property
    def ahead(self) -> str:
        """What a replay will run again, in words."""
        cells = tuple(step.label for step in self.steps if isinstance(step, Cell))
        return f"{plural(len(cells), 'cell', 'cells')}{_listed(cells)}"

    def replayed(self) -> list[Step]:
        """Return the steps, to be added again as they succeed."""
        steps, self.steps, self._old = self.steps, [], False
        return steps

    def ended(self) -> None:
        """Take note that the user ended the processes, with their variables."""
        self._old = True
