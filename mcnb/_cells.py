"""Tell where the cells of a notebook run: on the processes, or in the notebook kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

ON, OFF = "on", "off"  # what `%mcjax auto` is given
_MAGIC = "%%mcjax\n"
# Comments and blank lines, and then a line with the cell magic.
_COMMENTED = re.compile(r"((?:[ \t]*(?:#.*)?\n)+)([ \t]*%%mcjax\b.*(?:\n|\Z))")
# Comments and blank lines.
_ABOVE = r"(?:[ \t]*(?:#.*)?\n)*[ \t]*"
_HERE = re.compile(rf"({_ABOVE})%%here\b[ \t]*(?:#.*)?(?:\n|\Z)")
# How a cell begins that has a magic of its own, or that is about the processes.
_KERNELS = re.compile(rf"{_ABOVE}(%%|%mcjax\b|%debug\s*\Z|%(re|un)?load_ext[ \t]+mcnb\b)")
# A cell for the processes that does nothing but look around after the error of another one.
_DEBUG = re.compile(r"%%mcjax\b.*\n\s*(%debug)\s*")
# Lines above the first one with a magic of mcnb's that output nothing: the extension is announced
# only where it is loaded already.
_SILENT = r"(?:[ \t]*(?:#.*|import[ \t]+mcnb[ \t]*{})?\n)*[ \t]*%%?mcjax\b"
_BEGINS = re.compile(_SILENT.format(""))
_LOADS = re.compile(_SILENT.format(r"|%(?:re)?load_ext[ \t]+mcnb[ \t]*"))
_AUTO = re.compile(rf"^[ \t]*%mcjax[ \t]+auto[ \t]+({ON}|{OFF})[ \t]*$", re.MULTILINE)


def magic_first(cell: str) -> str:
    r"""Return a cell whose `%%mcjax` is below comments with the magic at the top.

    The lines below the magic keep their numbers.

    Example:
        >>> magic_first("# Train.\n%%mcjax -p 0\nx = 1")
        '%%mcjax -p 0\n# Train.\nx = 1'
        >>> magic_first("# Train.\nx = 1")
        '# Train.\nx = 1'
    """
    found = _COMMENTED.match(cell)
    if found is None or not found[1].strip():
        return cell
    magic = found[2].lstrip(" \t")
    return f"{magic}{'' if magic.endswith(chr(10)) else chr(10)}{found[1]}{cell[found.end() :]}"


def is_implied(cell: str) -> bool:
    r"""Return whether `%mcjax auto on` has a cell run on the processes, which else would not.

    Example:
        >>> [is_implied(cell) for cell in ("x = 1", "# Train.\n%%mcjax\nx = 1", "%mcjax status")]
        [True, False, False]
    """
    return bool(cell.strip()) and _KERNELS.match(cell) is None


def begins_with_mcjax(cell: str, *, loaded: bool) -> bool:
    r"""Return whether a cell outputs nothing before its first line of `%mcjax` or `%%mcjax`.

    Args:
        cell: The cell's code.
        loaded: Whether mcnb's extension was loaded before the cell.

    Example:
        >>> begins_with_mcjax("# Begin.\nimport mcnb\n%mcjax start", loaded=True)
        True
        >>> begins_with_mcjax("print(1)\n%mcjax start", loaded=True)
        False
        >>> load = "%load_ext mcnb\n%mcjax start"
        >>> begins_with_mcjax(load, loaded=False), begins_with_mcjax(load, loaded=True)
        (True, False)
    """
    return (_BEGINS if loaded else _LOADS).match(cell) is not None


def with_magic(cell: str, *, auto: bool) -> str:
    r"""Return a cell as it would be written without `%mcjax auto` and `%%here`.

    Args:
        cell: The cell's code.
        auto: Whether `%mcjax auto on` is in effect.

    Example:
        >>> with_magic("# Train.\nx = 1", auto=True)
        '%%mcjax\n# Train.\nx = 1'
        >>> with_magic("%%here\nx = 1", auto=True)  # the lines keep their numbers
        '\nx = 1'
        >>> with_magic("%%mcjax\n%debug", auto=False)
        '%debug'
    """
    if here := _HERE.match(cell):
        below = cell[here.end() :]
        return below if below.lstrip().startswith("%%") else f"{here[1]}\n{below}"
    first = magic_first(cell)
    if debug := _DEBUG.fullmatch(first):
        return debug[1]
    return _MAGIC + cell if auto and is_implied(cell) else first


def with_magics(cells: Iterable[str]) -> Iterator[str]:
    r"""Yield the cells of a notebook as they would be written without `%mcjax auto` and `%%here`.

    Args:
        cells: The code of each cell, in order.

    Example:
        >>> list(with_magics(["x = 1", "%mcjax auto on", "x = 2", "%mcjax auto off", "x = 3"]))
        ['x = 1', '%mcjax auto on', '%%mcjax\nx = 2', '%mcjax auto off', 'x = 3']
    """
    auto = False
    for cell in cells:
        yield with_magic(cell, auto=auto)
        if _KERNELS.match(cell):
            for found in _AUTO.finditer(cell):
                auto = found[1] == ON
