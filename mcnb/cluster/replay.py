"""Run the cells of a history again, and sum up what became of them."""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcnb._text import plural
from mcnb.cluster.history import Cell, History, Push, listed, named, number

# The results of cells are defined where a fork server has preloaded what they need.
if TYPE_CHECKING:
    from mcnb.cluster.result import Result


@dataclass(frozen=True, slots=True)
class Replay:
    """Summary of a replay.

    Attributes:
        ran: The labels of the cells that ran again.
        pushed: The names of the variables that were set again.
        failed: The labels of the cells that failed: of the one that ended the replay, or of all.
        not_run: The number of cells after the one that ended the replay.
        left_out: The labels of cells that were left out because they had failed before.
        endless: The labels of cells that were left out because their computations did not end.
        marked: The labels of cells that were left out because a comment in them says so.
        replaced: The labels of cells that were left out because they ran again after a change.
        unnamed: The labels of cells that were left out because others were named.
    """

    ran: tuple[str, ...]
    pushed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    not_run: int = 0
    left_out: tuple[str, ...] = ()
    endless: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the summary in words.

        Example:
            >>> print(Replay(("1",), ("n",), ("4",), 2, ("2", "3")))
            1 cell ran again: In[1]. Restored variables: n. In[4] failed, and 2 cells after it did \
not run. Left out, because they had failed before: In[2], In[3]. To run all, name them: %mcjax \
restart --keep-going --replay In[1-4]
        """
        said = [f"{plural(len(self.ran), 'cell', 'cells')} ran again{listed(self.ran)}"]
        if self.pushed:
            said.append(f"Restored variables: {', '.join(self.pushed)}")
        if self.failed:
            rest = f", and {plural(self.not_run, 'cell', 'cells')} after it did not run"
            said.append(f"{named(self.failed)} failed{rest if self.not_run else ''}")
        if self.left_out:
            they = "it" if len(self.left_out) == 1 else "they"
            left_out = f"Left out, because {they} had failed before{listed(self.left_out)}"
            if self.failed:
                numbers = sorted(map(number, (*self.ran, *self.failed, *self.left_out)))
                cells = f"In[{numbers[0][0]}-{numbers[-1][0]}]" if all(numbers) else "In[...]"
                left_out += f". To run all, name them: %mcjax restart --keep-going --replay {cells}"
            said.append(left_out)
        if self.endless:
            its = "its computation" if len(self.endless) == 1 else "their computations"
            said.append(f"Left out, because {its} had to be ended{listed(self.endless)}")
        if self.marked:
            said.append(f"Left out, as marked{listed(self.marked)}")
        if self.replaced:
            said.append(f"Left out, as a newer version ran{listed(self.replaced)}")
        if self.unnamed:
            said.append(f"Left out, as not named{listed(self.unnamed)}")
        return ". ".join(said)


def replayed(
    history: History,
    ranges: Sequence[tuple[int, int]],
    run: Callable[[Cell], Result],
    push: Callable[[Push], object],
    *,
    keep_going: bool,
    tell: Callable[[str], object],
) -> tuple[Replay, Result | None]:
    """Run the cells of a history again, in order.

    Also if a cell raises an error here, the history keeps all cells that another replay can run.

    Args:
        history: The history, which then holds the cells that ran again.
        ranges: The cells to run, as for `mcnb.cluster.history.is_named`.
        run: Runs a cell.
        push: Sets variables.
        keep_going: Whether to go on after a cell that fails.
        tell: Called with a sentence before each cell.

    Returns:
        The summary, and the result of the first cell that failed; None if there is none.
    """
    left_out = tuple(history.left_out(ranges))
    endless, marked, replaced = map(tuple, (history.endless, history.marked, history.replaced))
    unnamed = tuple(history.unnamed(ranges))
    failed_before = tuple(history.failed)
    ran: list[str] = []
    failing: list[str] = []
    pushed: dict[str, None] = {}  # ordered and unique
    first: Result | None = None
    steps = collections.deque(history.replayed(ranges))
    count = sum(isinstance(step, Cell) for step in steps)
    try:
        while steps:
            step = steps[0]
            if isinstance(step, Push):
                push(step)
                pushed |= dict.fromkeys(step.values)
                steps.popleft()
                continue
            tell(f"Replaying {len(ran) + len(failing) + 1} of {count}: In[{step.label}]")
            result = run(step)
            steps.popleft()
            if result.ok:
                history.add(step)
                ran.append(step.label)
                continue
            if step in failed_before:
                history.leave_out(step)
            else:  # another replay may have more luck
                history.keep(step)
            first = first or result
            failing.append(step.label)
            if not keep_going or not result.outcome.intact:
                break
    finally:
        history.keep(*steps)
    not_run = sum(isinstance(step, Cell) for step in steps)
    summary = Replay(
        tuple(ran),
        tuple(pushed),
        tuple(failing),
        not_run,
        left_out,
        endless,
        marked,
        replaced,
        unnamed,
    )
    return summary, first
