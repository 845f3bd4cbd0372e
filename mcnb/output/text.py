r"""Format blocks as text, with the labels of their processes in a column on the left.

[all 4] 8 devices
[0]     my part is [0 1]
[1-3]   my part is [[2 3]
         [4 5]]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mcnb._text import label
from mcnb.output.bars import is_bar
from mcnb.output.fold import Block, Item, Line
from mcnb.output.terminal import overwritten, unfinished_colour

_RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Entry:
    """Labelled text to show.

    Attributes:
        kind: `"stdout"`, `"stderr"`, `"value"`, or `"rich"` for an item that is more than text.
        text: Labelled lines, each with its line end; for `"rich"`, only the label.
        item: Item to show beneath the label, for `"rich"`.
    """

    kind: str
    text: str
    item: Item | None = None


def label_width(blocks: Iterable[Block], count: int) -> int:
    """Return the width of the widest label, in characters."""
    return max((len(label(block.processes, count)) for block in blocks), default=0)


def entries(blocks: Sequence[Block], count: int, width: int | None = None) -> list[Entry]:
    """Return the entries to show for blocks, in order.

    Args:
        blocks: Blocks from `fold`.
        count: Number of processes in the cluster.
        width: Width of the label column, in characters; by default, that of the widest label.
    """
    width = label_width(blocks, count) if width is None else width
    result: list[Entry] = []
    for block in blocks:
        name = label(block.processes, count)
        before = ""  # the label is written at the start of a block and after a change of kind
        for item in block.items:
            kind = _kind(item)
            if kind == "rich":
                result.append(Entry(kind, f"{name}\n", item))
            else:
                shown = gutter(text_of(item), "" if kind == before else name, width)
                result.append(Entry(kind, shown))
            before = kind
    joined: list[Entry] = []
    for kind, group in itertools.groupby(result, key=lambda entry: entry.kind):
        same = list(group)
        joined += same if kind == "rich" else [Entry(kind, "".join(e.text for e in same))]
    return joined


def _kind(item: Item) -> str:
    if isinstance(item, Line):
        # A progress bar is no error, though it is written to stderr.
        return "stdout" if item.stream == "stderr" and is_bar(item.text) else item.stream
    return "value" if set(item.data) == {"text/plain"} else "rich"


def text_of(item: Item) -> str:
    """Return the text of an item with its line end; empty for an item that is more than text."""
    if isinstance(item, Line):
        return item.text
    return f"{item.data['text/plain']}\n" if _kind(item) == "value" else ""


def gutter(text: str, name: str, width: int) -> str:
    r"""Prefix the first line with a label, and indent the other lines to match.

    Example:
        >>> gutter("[[0]\n [1]]\n", "[0-2]", 7)
        '[0-2]   [[0]\n         [1]]\n'
    """
    lines = [overwritten(line) for line in text.removesuffix("\n").split("\n")]
    shown = "".join(
        f"{name if number == 0 else '':<{width}} {line}".rstrip() + "\n"
        for number, line in enumerate(lines)
    )
    # A colour that is not reset would extend into the next label.
    if unfinished_colour(shown):
        shown = shown.removesuffix("\n") + _RESET + "\n"
    return shown
