"""Show a result as the outputs of a notebook cell."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeAlias

from IPython.display import display

from mcnb._text import plural
from mcnb.cluster.result import Result
from mcnb.messages import LEFT_OUT, Display
from mcnb.output.fold import Block, Item, Line
from mcnb.output.text import Entry, entries, label_width, text_of
from mcnb.pictures.pages import for_notebook, is_opened

# A notebook with more text is slow to scroll and to save; the result keeps all of it.
MOST_LINES = 1000
MOST_CHARACTERS = 200_000
_FULL_TEXT = "full text: mcnb.current_cluster().last.text()"
# An item with the processes that wrote it.
_Said: TypeAlias = tuple[tuple[int, ...], Item]


def show(result: Result) -> None:
    """Show the output and displays of the processes in order, without their errors."""
    head, omitted, tail = shortened(result.blocks)
    width = label_width([*head, *tail], result.count)
    for entry in entries(head, result.count, width):
        _show(entry)
    if omitted:
        print(f"… {plural(omitted, 'more line', 'more lines')}; {_FULL_TEXT} …")
    for entry in entries(tail, result.count, width):
        _show(entry)
    if result.ok:
        for note in result.notes:
            print(f"Note: {note}")


def with_full_text_hint(lines: Iterable[str]) -> list[str]:
    """Return the lines of an error; one with a shortened text says how to see all of it.

    Example:
        >>> with_full_text_hint([f"… 9000 {LEFT_OUT} …"])
        ['… 9000 characters are left out here; full text: mcnb.current_cluster().last.errors …']
    """
    way = f"{LEFT_OUT}; full text: mcnb.current_cluster().last.errors …"
    return [line.replace(f"{LEFT_OUT} …", way) for line in lines]


def _show(entry: Entry) -> None:
    if entry.kind == "stderr":
        print(entry.text, end="", file=sys.stderr, flush=True)
    elif entry.kind == "value":
        display({"text/plain": entry.text.removesuffix("\n")}, raw=True)
    else:
        # Flushed before later displays, which reach the notebook on another channel.
        print(entry.text, end="", flush=True)
    if entry.item is not None and not isinstance(entry.item, Line):
        data = for_notebook(entry.item.data)
        display(data, metadata=dict(entry.item.metadata), raw=True)


# As text is in the outputs of JupyterLab's cells.
_STYLE = "margin:0 0 8px;font-size:var(--jp-code-font-size,13px);line-height:1.3"


def preformatted(text: str) -> str:
    """Return a text as HTML whose lines a narrow page scrolls rather than breaks.

    Example:
        >>> preformatted("a < b")[-14:]
        'a &lt; b</pre>'
    """
    return f'<pre style="{_STYLE};white-space:pre;overflow-x:auto">{escape(text)}</pre>'


def show_table(text: str) -> None:
    """Show a table as text, in a notebook that somebody has open so that it scrolls sideways."""
    if is_opened():
        display({"text/html": preformatted(text), "text/plain": text}, raw=True)
    else:
        print(text)


def shortened(blocks: Sequence[Block]) -> tuple[list[Block], int, list[Block]]:
    """Shorten long output to its beginning and its end.

    Returns:
        The blocks at the beginning, the number of lines left out, and the blocks at the end.
    """
    items = [(block.processes, item) for block in blocks for item in block.items]
    whole = _fitting(items, 1)
    if len(whole) == len(items):
        return _blocks(whole), 0, []
    head = _fitting(items, 2)
    tail = _fitting(reversed(items[len(head) :]), 2)[::-1]
    omitted = sum(_lines(item) for _, item in items[len(head) : len(items) - len(tail)])
    return _blocks(head), omitted, _blocks(tail)


def _blocks(items: Iterable[_Said]) -> list[Block]:
    return [
        Block(processes, tuple(item for _, item in group))
        for processes, group in itertools.groupby(items, key=lambda pair: pair[0])
    ]


def _fitting(items: Iterable[_Said], share: int) -> list[_Said]:
    """Return the first items that fit one share of the shown output; long items are clipped."""
    fitting: list[_Said] = []
    lines = characters = 0
    for processes, long in items:
        item = _clipped(long, MOST_LINES // share)
        lines += _lines(item)
        characters += len(text_of(item))
        if lines > MOST_LINES // share or characters > MOST_CHARACTERS // share:
            break
        fitting.append((processes, item))
    return fitting


def _clipped(item: Item, most_lines: int) -> Item:
    text = shown = text_of(item)
    more = ""
    lines = text.count("\n")
    if lines > most_lines:
        kept = text.split("\n", most_lines // 2)[:-1]
        shown = "".join(f"{line}\n" for line in kept)
        more = f"… {lines - len(kept)} more lines; {_FULL_TEXT}\n"
    if len(shown) > MOST_CHARACTERS // 8:
        shown = text[: MOST_CHARACTERS // 16]
        more = f" … {len(text) - len(shown)} more characters; {_FULL_TEXT}\n"
    if not more:
        return item
    if isinstance(item, Line):
        return Line(item.stream, shown + more)
    return Display({"text/plain": (shown + more).removesuffix("\n")}, item.metadata, item.is_value)


def _lines(item: Item) -> int:
    return max(text_of(item).count("\n"), 1)
