"""Follow an output that grows: its newest lines, and what several processes say alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from mcnb._text import grouped, label, plural
from mcnb.messages import Event, Recent, Text
from mcnb.output.bars import merged, settled, without_pace
from mcnb.output.terminal import after_move, lines_ended, moves_up, overwritten, without_escapes
from mcnb.output.text import gutter

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
        if "\x1b[" in text or "\n" in self._rest:
            self._feed_what_moves(text)
            return
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

    def _feed_what_moves(self, text: str) -> None:
        """Add text that may write to lines above: no line has ended that can still change."""
        text = self._rest + text
        self._rest = ""
        if not moves_up(text):
            *lines, self._rest = text.split("\n")
            self._lines.extend(lines)
            self._ended += len(lines)
            text = self._rest
        # Cut where the cursor is on the line of the outermost bar.
        cut = len(text) - _LONGEST_REST
        cut = after_move(text, cut) if cut > 0 else 0
        self._rest = text[cut:]
        self._ended += lines_ended(text[:cut])

    def end_line(self) -> None:
        """End the line, if one has begun."""
        if self._rest:
            self.feed("\n")

    def recent(self) -> Recent:
        """Return the newest lines; one that has begun counts, unless it is blank."""
        begun = [row.removeprefix("\r") for row in settled(self._rest).split("\n")]
        while begun and not begun[-1].strip():
            begun.pop()
        ended = (overwritten(line[-_LONGEST_REST:]) for line in self._lines)
        plain = [without_escapes(line).rstrip()[:WIDEST] for line in (*ended, *begun)]
        return Recent(self._ended + len(begun), tuple(plain[-MOST_LINES - 1 :]))


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
        for _, ks in grouped({k: without_pace(line) for k, line in at.items()}):
            text = merged([at[k] for k in ks])
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
