"""Follow an output that grows: its newest lines, and what several processes say alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from mcnb._text import grouped, label, plural
from mcnb.messages import Event, Recent, Text
from mcnb.output.text import gutter, overwritten, without_escapes

# How many lines are kept of an output, and how many characters of each.
MOST_LINES, WIDEST = 10, 100
# The most rows that are shown of the outputs of all processes.
MOST_ROWS = 20
# The most that is kept of a line that has not ended, as a progress bar's, which may be overwritten.
_LONGEST_REST = 4000


class Tail:
    r"""The newest lines of an output.

    Example:
        >>> tail = Tail()
        >>> tail.feed("a\nb\n10%\r20%")
        >>> tail.recent()
        Recent(count=3, lines=('a', 'b', '20%'))
    """

    def __init__(self) -> None:
        self._ended = 0
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._rest = ""

    def feed(self, text: str) -> None:
        """Add text."""
        ended = text.count("\n")
        if ended:
            head, *lines = (self._rest + text).rsplit("\n", MOST_LINES)
            lines = [head.rpartition("\n")[2], *lines]
            self._rest = lines.pop()
            self._lines.extend(lines)
            self._ended += ended
        else:
            self._rest += text
        self._rest = self._rest[-_LONGEST_REST:]

    def end_line(self) -> None:
        """End the line, if one has begun."""
        if self._rest:
            self.feed("\n")

    def recent(self) -> Recent:
        """Return the newest lines; one that has begun counts, unless it is blank."""
        lines = [*self._lines, self._rest] if self._rest.strip() else [*self._lines]
        plain = (without_escapes(overwritten(line[-_LONGEST_REST:])) for line in lines)
        shown = tuple(line.rstrip()[:WIDEST] for line in plain)
        return Recent(self._ended + len(lines) - len(self._lines), shown)


def recent_of(events: Iterable[Event]) -> Recent:
    """Return the newest lines of an output that is complete."""
    tail = Tail()
    stream = ""
    for event in events:
        if isinstance(event, Text):
            if event.stream != stream:
                tail.end_line()
            stream = event.stream
            tail.feed(event.text)
    return tail.recent()


def newest(said: Mapping[int, Recent], count: int) -> list[str]:
    """Return the newest lines of several processes, with each line that they share shown once.

    Lines are compared by their number in the output. A line that others have not written yet shows
    who has.

    Args:
        said: The newest lines of each process.
        count: The number of processes of the cluster.

    Example:
        >>> newest({0: Recent(2, ("a", "b")), 1: Recent(1, ("a",))}, 2)
        ['[all 2] a', '[0]     b']
    """
    end = max((one.count for one in said.values()), default=0)
    rows: list[tuple[list[int], list[str]]] = []
    first = max(end - MOST_LINES, 0)
    for number in range(first, end):
        at = {k: line for k, one in said.items() if (line := _line(one, number)) is not None}
        for text, ks in grouped(at):
            if rows and rows[-1][0] == ks:
                rows[-1][1].append(text)
            else:
                rows.append((ks, [text]))
    width = max((len(label(ks, count)) for ks, _ in rows), default=0)
    shown = "".join(gutter("\n".join(lines), label(ks, count), width) for ks, lines in rows)
    above = [f"… {plural(first, 'line', 'lines')} above"] if first else []
    return above + shown.splitlines()[-MOST_ROWS:]


def _line(said: Recent, number: int) -> str | None:
    """Return a line by its number; None if it is not kept, or not written yet."""
    at: Sequence[str] = said.lines
    position = number - (said.count - len(at))
    return at[position] if 0 <= position < len(at) else None
