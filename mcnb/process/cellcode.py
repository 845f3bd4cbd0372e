"""Cells as source code: their names and line numbers."""

from __future__ import annotations

import ast
import linecache
import re
from pathlib import Path
from types import FrameType

from IPython.core.compilerop import CachingCompiler

from mcnb.lockstep.frames import line_of

_CELL_NAME = re.compile(r"<In\[(.*?)\]>")
# What ipykernel calls the cells of the notebook's own Python.
_NOTEBOOKS_OWN = re.compile(r".*/ipykernel_\d+/\d+\.py")


def cell_name(label: str) -> str:
    """Return the file name of a cell's code.

    Example:
        >>> cell_name("3")
        '<In[3]>'
    """
    return f"<In[{label}]>"


def cell_label(filename: str) -> str | None:
    """Return the label of the cell of that file name, None if it is no cell's.

    What mcnb runs for itself has an empty label.
    """
    match = _CELL_NAME.fullmatch(filename)
    return match and match[1]


def place_name(filename: str, line: int) -> str:
    """Return what a line of a cell, or of another file, is called.

    Example:
        >>> place_name("<In[3]>", 2), place_name("/home/me/train.py", 8)
        ('In[3], line 2', 'train.py:8')
        >>> place_name("/tmp/ipykernel_71/2376093919.py", 3)
        'a cell, line 3'
    """
    label = cell_label(filename)
    if _NOTEBOOKS_OWN.fullmatch(filename):
        return f"a cell, line {line}"
    return f"{Path(filename).name}:{line}" if label is None else f"In[{label}], line {line}"


def leading_blank_lines(source: str) -> int:
    r"""Return how many lines IPython takes off the top of a cell before it counts lines.

    Example:
        >>> leading_blank_lines("\n  \nx = 1\n")
        2
    """
    lines = source.splitlines()
    return next((number for number, line in enumerate(lines) if line.strip()), 0)


class CellCompiler(CachingCompiler):
    """Compiles cells so that their name and lines are those that the notebook shows.

    IPython's own name for a cell holds the process id, which would make every process's traceback
    another, and the programs that JAX compiles from it as well.

    Attributes:
        label: What stands in the notebook's prompt for the cell that is to be compiled: `"3"`.
        first_line: Which line of the notebook's cell the first line of the code is.
    """

    label = ""
    first_line = 1
    _replaced = 0

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """Return the name under which the cell's code is known."""
        del raw_code, transformed_code, number
        return cell_name(self.label)

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        """Return how a traceback calls a cell."""
        label = cell_label(name)
        return super().format_code_name(name) if label is None else ("Cell", f"In[{label}]")

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Keep the cell's source for tracebacks, with the lines that the notebook has above it."""
        before = linecache.cache.get(cell_name(self.label))
        if before is not None:
            # Whoever runs a notebook without a history gives all cells one number.
            self._replaced += 1
            linecache.cache[f"{cell_name(self.label)} replaced {self._replaced}"] = before
        return str(super().cache("\n" * (self.first_line - 1) + transformed_code, number, raw_code))

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> ast.AST:
        """Parse source; a cell's lines are counted as the notebook counts them."""
        tree: ast.AST = super().ast_parse(source, filename, symbol)
        if cell_label(filename) is not None and self.first_line > 1:
            ast.increment_lineno(tree, self.first_line - 1)
        return tree


def frame_line(frame: FrameType | None, label: str) -> int | None:
    """Return the innermost line of the cell of that label in a running frame's stack."""
    name = cell_name(label)
    while frame is not None:
        if frame.f_code.co_filename == name:
            return line_of(frame)
        frame = frame.f_back
    return None
