"""A terminal, as far as what mcnb writes to one needs it."""

from __future__ import annotations

import re

# A character of two columns, and one that is put on the character before.
WIDE, ACCENT = "過", "\u0301"
_PIECE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]|\x1b\][^\a]*\a|.", re.DOTALL)


class Terminal:
    """A terminal that keeps what has left its screen at the top.

    Args:
        columns: Its width.
        lines: Its height.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self._columns, self._lines = columns, lines
        self._rows: list[list[str]] = [[]]  # of cells
        self._row = 0
        self._at_the_beginning = True

    def feed(self, text: str) -> None:
        """Show a text, in which a movement up is followed by one to the left and an erasure."""
        for piece in _PIECE.findall(text):
            cells = self._rows[self._row]
            if piece == "\n":
                self._rows[self._row + 1 :] = [[]]
                self._row += 1
            elif piece == "\r":
                self._at_the_beginning = True
            elif piece.endswith("A") and len(piece) > 1:
                self._row = max(self._row - int(piece[2:-1]), len(self._rows) - self._lines, 0)
            elif piece.endswith("J") and len(piece) > 1:
                assert self._at_the_beginning
                self._rows[self._row :] = [[]]
            elif piece == ACCENT:
                cells[-1] += piece
            elif len(piece) == 1:
                self._at_the_beginning = False
                new = [piece, ""] if piece == WIDE else [piece]
                if len(cells) + len(new) > self._columns:
                    self.feed("\n")
                self._rows[self._row] += new

    @property
    def text(self) -> str:
        """What is on the screen, below what has left it."""
        return "\n".join("".join(cells) for cells in self._rows)
