"""Fold the rows of a table, so that a large model has a short one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcnb._text import index_ranges

# The most lines of a picture's text, unless all are asked for, and the fewest rows that it keeps.
MOST_LINES = 25
FEWEST_ROWS = 4
LONGEST_SPAN = 16  # characters


def without_numbers(path: str) -> str:
    """Return a PyTree path with the same text for each number.

    Example:
        >>> without_numbers("['layer12'][0]")
        "['layer#'][#]"
    """
    return re.sub(r"\d+", "#", path)


def merged(paths: Sequence[str]) -> str:
    """Merge paths that differ only in numbers into one.

    Example:
        >>> merged(["w[0].a", "w[1].a", "w[2].a"]), merged(["w[0][0]", "w[0][1]", "w[1][1]"])
        ('w[0-2].a', 'w[0-1][0-1] (3)')
        >>> merged(["[0][1]", "[2][1]"]), merged(["w_08", "w_09", "w_10"])
        ('[0,2][1]', 'w_08-10')
    """
    if len(paths) == 1:
        return paths[0]
    columns = list(zip(*(re.findall(r"\d+", path) for path in paths), strict=True))
    spans = [_span(column) for column in columns]
    varying = [span for span, column in zip(spans, columns, strict=True) if len(set(column)) > 1]
    if len(varying) > 1 or any(len(span) > LONGEST_SPAN for span in spans):
        spans = [_span((min(c, key=int), max(c, key=int))) for c in columns]
        spans = [span.replace(",", "-") for span in spans]
    remaining = iter(spans)
    text = re.sub(r"\d+", lambda _: next(remaining), paths[0])
    whole = len(varying) == 1 and len(varying[0]) <= LONGEST_SPAN
    return text if whole else f"{text} ({len(paths)})"


def _span(numbers: Sequence[str]) -> str:
    """Return numbers as ranges, with leading zeros if they have some."""
    text = index_ranges(sorted({*map(int, numbers)}))
    widths = {*map(len, numbers)}
    return re.sub(r"\d+", lambda one: one[0].zfill(*widths), text) if len(widths) == 1 else text


def times(count: int, text: str) -> str:
    """Return what stands for several things of one text.

    Example:
        >>> times(3, "float32[2]"), times(1, "float32[2]")
        ('3 x float32[2]', 'float32[2]')
    """
    return text if count == 1 else f"{count} x {text}"


def room(lines: int, *tables: int) -> list[int]:
    """Return how many rows of each table fit into a picture's text, besides other lines of it.

    The shortest tables are whole; the others share what is left.

    Args:
        lines: The number of the other lines.
        tables: The number of rows of each table.

    Example:
        >>> room(5, 30), room(5, 2, 30), room(5, 30, 30), room(60, 30)
        ([20], [2, 18], [10, 10], [4])
    """
    left = MOST_LINES - lines
    kept = dict.fromkeys(range(len(tables)), 0)
    for still, i in enumerate(sorted(kept, key=lambda i: tables[i])):
        kept[i] = min(tables[i], max(left // (len(tables) - still), FEWEST_ROWS))
        left -= kept[i]
    return [*kept.values()]
