"""Cells as source code: their names and line numbers."""

from __future__ import annotations

import ast
import linecache
from types import FrameType

from IPython.core.compilerop import CachingCompiler

from mcnb._text import cell_label, cell_name
from mcnb.lockstep.threads import line_of
from mcnb.messages import ProcessError


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


def syntax_error(source: str, label: str, first_line: int) -> ProcessError | None:
    r"""Return the cell's syntax error, if it has one.

    Args:
        source: The cell's code.
        label: What stands in the notebook's prompt for it.
        first_line: Which line of the notebook's cell the first line of the code is.

    Example:
        >>> error = syntax_error("x = 1\ny = (", label="3", first_line=2)
        >>> error.summary() if error else None
        "SyntaxError: '(' was never closed (line 3)"
    """
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        code = TransformerManager().transform_cell(source)
        compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        blank = leading_blank_lines(source)
        number = (error.lineno or 1) + blank
        line = number + first_line - 1
        lines = source.splitlines()
        shown = lines[number - 1] if number <= len(lines) else ""
        caret = " " * max((error.offset or 1) - 1, 0) + "^"
        return ProcessError(
            name=type(error).__name__,
            message=error.msg,
            line=line,
            traceback=f"Cell In[{label}], line {line}\n    {shown}\n    {caret}\n"
            f"{type(error).__name__}: {error.msg}\nNo process ran the cell.",
        )
    except (ValueError, OverflowError) as error:  # null bytes, for one
        return ProcessError("SyntaxError", str(error), None, f"{error}\nNo process ran the cell.")
    return None
