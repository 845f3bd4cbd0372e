"""What a terminal shows of text that moves its cursor, as progress bars do."""

from __future__ import annotations

import itertools
import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_COLOUR_ENDS = re.compile(r"\x1b\[(?:0*|39|49|39;49)m")
_CONTROL = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)")
_UP = re.compile(r"\x1b\[(\d*)A")
# Moves the cursor up, hides it, or shows it again.
_CURSOR = re.compile(r"\x1b\[(?:\d*A|\?25[hl])")
# Keras goes to the beginning of the line twice.
_BACK = re.compile(r"\x08+\r")
_RESET = "\x1b[0m"
# How far up a text can write: as many lines as a large terminal has.
_SCREEN = 500
# A character, with the colour sequences before it.
_Cell = tuple[str, str]


def moves_up(text: str) -> bool:
    r"""Return whether a text writes to lines above, as nested progress bars do.

    Example:
        >>> moves_up("epochs\nsteps\x1b[A"), moves_up("steps 10%\rsteps 20%")
        (True, False)
    """
    return "\x1b[" in text and _UP.search(text) is not None


def moves_cursor(text: str) -> bool:
    r"""Return whether a text writes to lines above, or hides the cursor, as rich's bars do.

    Example:
        >>> moves_cursor("\x1b[?25lWorking"), moves_cursor("\x1b[31mred\x1b[0m")
        (True, False)
    """
    return "\x1b[" in text and _CURSOR.search(text) is not None


def after_move(text: str, start: int) -> int:
    r"""Return the first position from `start` on before which the cursor moves up; else `start`.

    Example:
        >>> after_move("epochs\nsteps\x1b[A\repochs", 8)
        15
    """
    found = _UP.search(text, start)
    return start if found is None else found.end()


def lines_ended(text: str) -> int:
    r"""Return by how many lines a text moves the cursor down.

    Example:
        >>> lines_ended("a\nb\n"), lines_ended("epochs\nsteps\x1b[A")
        (2, 0)
    """
    ups = (int(found[1] or 1) for found in _UP.finditer(text)) if "\x1b[" in text else ()
    return text.count("\n") - sum(ups)


def overwritten(text: str) -> str:
    r"""Return a text as a terminal shows it: what is overwritten is left out.

    That is what carriage returns, "erase" and "cursor up" of ECMA-48 do; other movements of the
    cursor are left out. Colours are kept.

    Example:
        >>> overwritten("10%\r50%\r100%\r"), overwritten("abcdef\rAB")
        ('100%', 'ABcdef')
        >>> overwritten("epoch 1\n\rstep 1\x1b[A\n\rstep 2\x1b[A\repoch 2\n")
        'epoch 2\nstep 2'
    """
    if "\x1b[?25" in text:
        text = text.replace("\x1b[?25l", "").replace("\x1b[?25h", "")
    if "\b" in text:
        text = _BACK.sub("\r", text)
    if not moves_up(text):
        return _each_line(text)
    start, end = _reached(text)
    return _each_line(text[:start]) + _screen(text[start:end]) + _each_line(text[end:])


def _reached(text: str) -> tuple[int, int]:
    """Return where the lines begin that a text may write to again, and where they end."""
    ups = [found.end() for found in _UP.finditer(text)]
    start, end = ups[0], ups[-1]
    for _ in range(_SCREEN):
        start = text.rfind("\n", 0, start) if start >= 0 else start
    for _ in range(2 * _SCREEN):
        end = text.find("\n", end) + 1 or len(text)
    return start + 1, end


def _each_line(text: str) -> str:
    """Return lines of which none writes to another one."""
    if "\r" not in text:
        return text
    return "\n".join(_line(line.rstrip("\r")) for line in text.split("\n"))


def _line(line: str) -> str:
    if "\r" not in line:
        return line
    if "\x1b" in line:
        return _screen(line)
    shown = ""  # a bar may have overwritten megabytes
    for part in reversed(line.split("\r")):
        shown += part[len(shown) :]
    return shown


def _screen(text: str) -> str:
    """Return what a terminal shows of a text, character by character."""
    above: list[str] = []
    rows: list[list[_Cell]] = [[]]
    row, column, colour = 0, 0, ""
    for number, piece in enumerate(_CONTROL.split(text)):
        cells = rows[row]
        if number % 2 == 0:
            cells += [("", " ")] * (column - len(cells))
            cells[column : column + len(piece)] = [(colour, character) for character in piece]
            column += len(piece)
        elif piece == "\r":
            column = 0
        elif piece == "\n":
            row, column = row + 1, 0
            if row == len(rows):
                rows.append([])
            if len(rows) > 2 * _SCREEN:
                above += map(_shown, rows[:_SCREEN])
                del rows[:_SCREEN]
                row -= _SCREEN
        elif piece.endswith("m"):
            colour = "" if _COLOUR_ENDS.fullmatch(piece) else colour + piece
        elif piece.endswith("A"):
            row = max(row - int(piece[2:-1] or 1), 0)
        elif piece.endswith("K"):  # erases to the end of the line; "2": all of it
            cells[column:] = []
            if "2" in piece:
                cells[:] = [("", " ")] * column
    # A colour that is not reset goes on after the text.
    return "\n".join([*above, *map(_shown, rows[:-1]), _shown(rows[-1], colour)])


def _shown(cells: list[_Cell], goes_on: str = "") -> str:
    """Return the text of a line, with a colour that goes on after it."""
    shown, before = "", ""
    for new, group in itertools.groupby([*cells, (goes_on, "")], key=lambda cell: cell[0]):
        end = _RESET if before and new != before else ""
        shown += end + new + "".join(character for _, character in group)
        before = new
    return shown


def unfinished_colour(text: str) -> bool:
    r"""Return whether a text ends in a colour that is not reset.

    Example:
        >>> unfinished_colour("\x1b[31mred"), unfinished_colour("\x1b[31mred\x1b[0m")
        (True, False)
    """
    colours = _COLOUR.findall(text)
    return bool(colours) and not _COLOUR_ENDS.fullmatch(colours[-1])


def without_escapes(text: str) -> str:
    r"""Remove the escape sequences that colour a text.

    Example:
        >>> without_escapes("\x1b[31mred\x1b[0m")
        'red'
    """
    return _COLOUR.sub("", text)
