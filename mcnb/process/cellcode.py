"""Cells as source code: their names and line numbers, and errors told in them."""

from __future__ import annotations

import ast
import re
import traceback
from types import TracebackType
from typing import Any

from IPython.core.compilerop import CachingCompiler

from mcnb.messages import ProcessError

_CELL_NAME = re.compile(r"<In\[(.*?)\]>")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# A library's path up to the part that is the same on every machine.
_LIBRARY_PATH = re.compile(r"[^\s\"']*/(?:site-packages|dist-packages|lib/python3\.\d+)/")


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

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """Return the name under which the cell's code is known."""
        del raw_code, transformed_code, number
        return f"<In[{self.label}]>"

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        """Return how a traceback calls a cell."""
        match = _CELL_NAME.fullmatch(name)
        return ("Cell", f"In[{match[1]}]") if match else super().format_code_name(name)

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Keep the cell's source for tracebacks, with the lines that the notebook has above it."""
        return str(super().cache("\n" * (self.first_line - 1) + transformed_code, number, raw_code))

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> ast.AST:
        """Parse source; a cell's lines are counted as the notebook counts them."""
        tree: ast.AST = super().ast_parse(source, filename, symbol)
        if _CELL_NAME.fullmatch(filename) and self.first_line > 1:
            ast.increment_lineno(tree, self.first_line - 1)
        return tree


def learner_traceback(error: BaseException) -> TracebackType | None:
    """Return the error's traceback from the first line of a cell on, without mcnb's own frames.

    Returns:
        The traceback, or None where no cell is in it.
    """
    frames: list[TracebackType] = []
    frame = error.__traceback__
    while frame:
        if frames or _CELL_NAME.fullmatch(frame.tb_frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.tb_next
    shown = None
    for frame in reversed(frames):
        if not str(frame.tb_frame.f_globals.get("__name__", "")).startswith("mcnb."):
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown


def cell_line(error: BaseException, label: str) -> int | None:
    """Return the innermost line of the cell of that label that an error came through."""
    name = f"<In[{label}]>"
    if isinstance(error, SyntaxError) and error.filename == name:
        return error.lineno
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == name
    ]
    return lines[-1] if lines else None


def frame_line(frame: Any, label: str) -> int | None:
    """Return the innermost line of the cell of that label in a running frame's stack."""
    name = f"<In[{label}]>"
    while frame is not None:
        if frame.f_code.co_filename == name:
            return int(frame.f_lineno)
        frame = frame.f_back
    return None


def describe_error(error: BaseException, label: str, formatter: Any) -> ProcessError:
    """Describe an exception of a cell for the learner.

    Args:
        error: The exception.
        label: The label of the cell that it ended.
        formatter: IPython's `InteractiveTB`.
    """
    shown = learner_traceback(error)
    try:
        if hasattr(error, "_render_traceback_"):
            lines = error._render_traceback_()
        elif shown is None:
            lines = traceback.format_exception_only(error)
        else:
            lines = formatter.structured_traceback(type(error), error, shown, tb_offset=0)
        text = "\n".join(lines)
    except Exception:  # an exception whose own text can't be made, or IPython's formatter failing
        text = "".join(traceback.format_exception(type(error), error, shown))
    try:
        message = str(error)
    except Exception as failure:
        message = f"<its text can't be shown: str() raised {type(failure).__name__}>"
    return ProcessError(
        name=type(error).__name__,
        message=_ESCAPES.sub("", message),
        line=cell_line(error, label),
        traceback=_LIBRARY_PATH.sub("", text),
    )
