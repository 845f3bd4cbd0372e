"""A result as a notebook's outputs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

from IPython.display import display

from mcnb.options import plural
from mcnb.report.fold import Block, Item, Line
from mcnb.report.text import Entry, entries, label_width
from mcnb.result import Result

# More text than this makes a notebook slow to scroll and to save; the result keeps all of it.
MOST_LINES = 1000
MOST_CHARACTERS = 200_000


def show(result: Result) -> None:
    """Show what the processes wrote and displayed, in order; not their errors."""
    head, omitted, tail = shortened(result.blocks)
    width = label_width([*head, *tail], result.count)
    for entry in entries(head, result.count, width):
        _show(entry)
    if omitted:
        where = "mcnb.current_cluster().last.text()"
        print(f"… {plural(omitted, 'line', 'lines')} more here; all of it: {where} …")
    for entry in entries(tail, result.count, width):
        _show(entry)


def _show(entry: Entry) -> None:
    if entry.kind == "stderr":
        sys.stderr.write(entry.text)
        sys.stderr.flush()
    elif entry.kind == "value":
        display({"text/plain": entry.text.removesuffix("\n")}, raw=True)
    else:
        sys.stdout.write(entry.text)
        # Written out before what follows, which takes another way to the notebook.
        sys.stdout.flush()
    if entry.item is not None and not isinstance(entry.item, Line):
        display(dict(entry.item.data), metadata=dict(entry.item.metadata), raw=True)


def shortened(blocks: Sequence[Block]) -> tuple[list[Block], int, list[Block]]:
    """Return what of long output is shown.

    Returns:
        The blocks at its beginning, how many lines are left out after them, and the blocks at its
        end.
    """
    items = [(block.processes, _clipped(item)) for block in blocks for item in block.items]
    head = _fitting(items)
    tail = _fitting(items[: head - 1 : -1]) if head < len(items) else 0
    omitted = sum(_lines(item) for _, item in items[head : len(items) - tail])
    return _blocks(items[:head]), omitted, _blocks(items[len(items) - tail :])


def _blocks(items: Sequence[tuple[tuple[int, ...], Item]]) -> list[Block]:
    return [
        Block(processes, tuple(item for _, item in group))
        for processes, group in itertools.groupby(items, key=lambda pair: pair[0])
    ]


def _clipped(item: Item) -> Item:
    if not isinstance(item, Line) or len(item.text) <= MOST_CHARACTERS // 8:
        return item
    shown = item.text[: MOST_CHARACTERS // 16]
    return Line(item.stream, f"{shown} … {len(item.text) - len(shown)} characters more\n")


def _fitting(items: Sequence[tuple[tuple[int, ...], Item]]) -> int:
    """Return how many items make half of what is shown."""
    lines = characters = 0
    for number, (_, item) in enumerate(items):
        lines += _lines(item)
        characters += len(item.text) if isinstance(item, Line) else 0
        if lines > MOST_LINES // 2 or characters > MOST_CHARACTERS // 2:
            return number
    return len(items)


def _lines(item: Item) -> int:
    return max(item.text.count("\n"), 1) if isinstance(item, Line) else 1
