"""Define cells, and record the history from which a session is replayed."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcnb._text import plural
from mcnb.errors import OptionError

# The comment in a cell that no replay is to run again.
NO_REPLAY = re.compile(r"^[ \t]*#[ \t]*mcnb:[ \t]*no-replay\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell to run.

    Attributes:
        source: The cell's code.
        targets: The processes that run the cell.
        label: The cell's label in the notebook's prompt.
        first_line: The line number, in the notebook's cell, of the first line of `source`.
        checked: Whether each launch waits until all its participants have reached it.
        timeout: The time limit in seconds; None if there is none.
        values: Whether to compare the values of replicated arguments at each launch, or never; None
            for the first launch of a computation, and for a sample of the others.
        id: The notebook's id of the cell, which stays when the cell is changed; empty if it is not
            known.
    """

    source: str
    targets: tuple[int, ...]
    label: str
    first_line: int = 1
    checked: bool = True
    timeout: float | None = None
    values: bool | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class Push:
    """Variables that were set on processes.

    Attributes:
        values: The values by variable name.
        targets: The processes on which the variables were set.
    """

    values: Mapping[str, Any]
    targets: tuple[int, ...]


Step: TypeAlias = Cell | Push


def _older(one: Cell, other: Cell) -> bool:
    """Return whether one cell is another one before its last change."""
    return bool(one.id) and one.id == other.id and one.source != other.source


def listed(labels: Sequence[str]) -> str:
    """Return a colon and the cells' labels; empty if there are no cells."""
    return f": {named(labels)}" if labels else ""


def named(labels: Sequence[str]) -> str:
    """Return the labels of cells as prompts have them.

    Example:
        >>> named(["1", "3"])
        'In[1], In[3]'
    """
    return ", ".join(f"In[{label}]" for label in labels)


def number(label: str) -> tuple[int, ...]:
    """Return a cell's number, for sorting."""
    return tuple(int(part) for part in label.split(".") if part.isdecimal())


def is_named(label: str, ranges: Sequence[tuple[int, int]]) -> bool:
    """Return whether a cell's number is in one of some ranges.

    Args:
        label: The cell's label. `7.2` is the second cell of a notebook that In[7] has run.
        ranges: The first and the last number of each range; every cell is named if there is none.

    Example:
        >>> [is_named(label, [(1, 5), (7, 7)]) for label in ("5", "6", "7.2", "")]
        [True, False, True, False]
    """
    number = label.partition(".")[0]
    if not ranges:
        return True
    return number.isdecimal() and any(first <= int(number) <= last for first, last in ranges)


class History:
    """History of the steps that succeeded, and so made the processes' variables, in order.

    After the user ends the processes, the steps can still be replayed until the first new step,
    which clears the history. A process that dies by itself does not clear the history.

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
        self.failed: list[Cell] = []
        self.endless: list[str] = []
        self.marked: list[str] = []
        self.replaced: list[str] = []
        # Cells that a replay of others has left out.
        self.unchosen: list[Cell] = []
        self._old = False

    def add(self, step: Step) -> None:
        """Add a step that succeeded.

        A cell that was changed takes the place of its earlier versions, because the cells between
        them may need the names that it defines. A cell that runs again unchanged is another step.
        """
        self._forget_old()
        place = len(self.steps)
        if isinstance(step, Cell):
            gone = [one for one in self.unchosen if _older(one, step)]
            self.unchosen = [one for one in self.unchosen if one not in gone]
            self.replaced += [one.label for one in gone]
            older = [one for one in self.steps if isinstance(one, Cell) and _older(one, step)]
            if older:
                self.replaced += [one.label for one in older]
                place = self.steps.index(older[0])
                self.steps = [one for one in self.steps if one not in older]
            if NO_REPLAY.search(step.source):
                self.marked.append(step.label)
                return
        self.steps.insert(place, step)

    def keep(self, *steps: Step) -> None:
        """Keep steps that succeeded before, and that a replay has not run, or not to the end."""
        self.steps += steps

    def leave_out(self, cell: Cell) -> None:
        """Record a cell that failed."""
        self._forget_old()
        self.failed.append(cell)

    def exclude(self, labels: Collection[str]) -> None:
        """Exclude cells that succeeded, but whose computations did not end and were aborted."""
        found = [one for one in self.steps if isinstance(one, Cell) and one.label in labels]
        self.steps = [one for one in self.steps if one not in found]
        self.endless += [one.label for one in found]

    def _forget_old(self) -> None:
        if self._old:
            self.steps, self._old = [], False
            self.failed, self.endless, self.marked, self.replaced = [], [], [], []
            self.unchosen = []

    def ahead(self, ranges: Sequence[tuple[int, int]] = ()) -> str:
        """Return the cells that a replay will run again, in words; `ranges` as for `is_named`."""
        cells = [step.label for step in self._chosen(ranges) if isinstance(step, Cell)]
        return f"{plural(len(cells), 'cell', 'cells')}{listed(cells)}"

    def left_out(self, ranges: Sequence[tuple[int, int]] = ()) -> list[str]:
        """Return the cells that had failed, and that a replay of these ranges leaves out."""
        return [one.label for one in self.failed if not (ranges and is_named(one.label, ranges))]

    def unnamed(self, ranges: Sequence[tuple[int, int]]) -> list[str]:
        """Return the cells that a replay of these ranges leaves out, or an earlier one has."""
        cells = [step.label for step in self.steps if isinstance(step, Cell)]
        before = [one.label for one in self.unchosen]
        left = [*(label for label in cells if not is_named(label, ranges))]
        left += [label for label in before if not (ranges and is_named(label, ranges))]
        return sorted(dict.fromkeys(left), key=number)

    def refuse(self, given: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Refuse numbers of cells that have not run.

        Args:
            given: The ranges as they were typed.
            ranges: The ranges, as for `is_named`.

        Raises:
            OptionError: In one of the ranges, no cell has run.
        """
        known = (*self.steps, *self.failed, *self.unchosen)
        cells = [one.label for one in known if isinstance(one, Cell)]
        cells += [*self.endless, *self.marked, *self.replaced]
        for first, last in ranges:
            if not any(is_named(label, [(first, last)]) for label in cells):
                which = f"In[{first}]" if first == last else f"In[{first}-{last}]"
                have = named(sorted(dict.fromkeys(cells), key=number)) or "none"
                raise OptionError(
                    f"--replay {given}: {which} has not run on these processes. Cells that have: "
                    f"{have}"
                )

    def replayed(self, ranges: Sequence[tuple[int, int]] = ()) -> list[Step]:
        """Clear the history, and return its steps, to be added again as they succeed.

        Args:
            ranges: The cells to return, as for `is_named`; variables that were set always are. A
                cell that failed, or that an earlier replay has left out, is returned only if it is
                named.
        """
        steps = self._chosen(ranges)
        cells = [one for one in (*self.unchosen, *self.steps) if isinstance(one, Cell)]
        self.unchosen = [one for one in cells if one not in steps]
        self.failed = [one for one in self.failed if one not in steps]
        self.steps, self._old = [], False
        return steps

    def _chosen(self, ranges: Sequence[tuple[int, int]]) -> list[Step]:
        steps = [one for one in self.steps if isinstance(one, Push) or is_named(one.label, ranges)]
        for cell in (*self.unchosen, *self.failed) if ranges else ():
            if is_named(cell.label, ranges):
                after = (
                    i
                    for i, one in enumerate(steps)
                    if isinstance(one, Cell) and number(one.label) > number(cell.label)
                )
                steps.insert(next(after, len(steps)), cell)
        return steps

    def ended(self) -> None:
        """Record that the user ended the processes, and so deleted their variables."""
        self._old = True
