"""Where something is shown that changes: a place in a notebook's output, or a terminal's end."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from IPython.display import DisplayHandle, clear_output, display

from mcnb.output.terminal import without_escapes

# Cursor up by some lines, and erase all from there on (ECMA-48: CUU and ED).
_ERASE = "\x1b[{}A\r\x1b[J"


@dataclass(frozen=True)
class View:
    """What is shown of a running cell.

    Attributes:
        lines: Its newest output, folded, below a title if there is one.
        progress: Since when its processes run, and where each one is.
        rows: What each process did, by process, as `mcnb.notebook.strips.Strips` has it.
        period_s: How long each letter of a row lasts, in seconds.
        late_s: For how many seconds others have waited for a process, by process.
        native: The processes that wait in native code, if none waits for others before a launch.
    """

    lines: tuple[str, ...]
    progress: tuple[str, ...]
    rows: Mapping[int, str] = field(default_factory=dict)
    period_s: float = 0.0
    late_s: Mapping[int, float] = field(default_factory=dict)
    native: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The view as text, without the rows."""
        return "\n".join([*self.lines, *self.progress])


class Place(Protocol):
    """Where a text, or a view, is shown that the next one replaces."""

    def draw(self, view: View) -> None:
        """Show a view in place of what was shown last."""

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""

    def leave(self, text: str) -> None:
        """Leave a text in place of the last one; the next one comes below."""

    def remove(self) -> None:
        """Remove the shown text."""

    def simpler(self) -> Place | None:
        """Return the place to use instead if this one fails; None if there is none."""


class InNotebook:
    """A place in the output of a notebook's cell.

    Args:
        below: Whether the cell may have other output above the place.
    """

    def __init__(self, *, below: bool = False) -> None:
        self._handle: DisplayHandle | None = None  # of what is shown
        # Whether other output may stand above, which must stay: a front end can take one output
        # away only by taking away all of them. An empty output stays then.
        self._keeps = below

    def draw(self, view: View) -> None:
        """Show a view in place of what was shown last."""
        self.show(view.text)

    def show(self, text: str) -> None:
        """Show a text in place of the last one."""
        self._put({"text/plain": text})

    def _put(
        self, data: Mapping[str, object], metadata: Mapping[str, object] | None = None
    ) -> None:
        # Not by clearing the output first: a front end that hears of that late, after a request for
        # input, which comes by another channel, would remove the prompt.
        if self._handle is None:
            self._handle = display(data, raw=True, metadata=metadata, display_id=True)
        else:
            self._handle.update(data, raw=True, metadata=metadata)

    def leave(self, text: str) -> None:
        """Leave a text in place of the last one; the next one comes below."""
        if self._handle is None:
            print(text, end="", flush=True)
        else:
            self._handle.update({"text/plain": text.rstrip("\n")}, raw=True)
        self._handle, self._keeps = None, True

    def remove(self) -> None:
        """Remove the shown text."""
        if self._handle is None:
            return
        if self._keeps:
            self._handle.update({"text/plain": ""}, raw=True)
        else:
            clear_output()
        self._handle = None

    def simpler(self) -> Place | None:
        """Return no place: where text can't be shown, nothing can."""
        return None

    def _moved_to(self, place: InNotebook) -> InNotebook:
        """Return another place, which now has what this one shows."""
        place._handle, place._keeps = self._handle, self._keeps
        return place


class InTerminal:
    """The last lines of a terminal."""

    def __init__(self) -> None:
        self._rows = 0  # that are shown

    def draw(self, view: View) -> None:
        """Show a view in place of what was shown last."""
        self.show(view.text)

    def show(self, text: str) -> None:
        """Show a text in place of the last one: its end, if the terminal has too few rows."""
        size = shutil.get_terminal_size()
        shown: list[str] = []
        rows = 0
        for line in reversed(text.splitlines()):
            needed = _rows(line, size.columns)
            if rows + needed >= size.lines:  # what has left the screen can't be erased
                break
            shown.insert(0, line)
            rows += needed
        self._write("".join(f"{line}\n" for line in shown))
        self._rows = rows

    def leave(self, text: str) -> None:
        """Leave a text in place of the last one; the next one comes below."""
        self._write(text)

    def remove(self) -> None:
        """Remove the shown text."""
        self._write("")

    def simpler(self) -> None:
        """Return no place: where text can't be shown, nothing can."""

    def _write(self, text: str) -> None:
        print((_ERASE.format(self._rows) if self._rows else "") + text, end="", flush=True)
        self._rows = 0


def can_move() -> bool:
    """Return whether the terminal can move its cursor, by the name that it gives of itself."""
    return os.environ.get("TERM", "dumb") != "dumb"


def _rows(line: str, columns: int) -> int:
    """Return how many rows a line takes in a terminal."""
    rows, column = 1, 0
    for width in map(_columns, without_escapes(line)):
        if column + width > columns:  # a wide character is not split
            rows, column = rows + 1, 0
        column += width
    return rows


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("F", "W") else 1
