"""Compile cells under the names and line numbers that the notebook shows."""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from IPython.core.compilerop import CachingCompiler
from IPython.core.interactiveshell import InteractiveShell

from mcnb._text import cell_label, cell_name
from mcnb.lockstep.threads import line_of
from mcnb.messages import ProcessError

# A number of a line in the text of a syntax error.
_LINE = re.compile(r"\b((?:at|on) line )(\d+)")
# A line that is a command of a shell, as pages show them.
_COMMAND = re.compile(
    r"\s*(?:\$ |export \w+=|[A-Z_]+=\S+ +\w|(?:python3?|pip3?|mpirun|mpiexec|srun|sbatch|ssh|scp|"
    r"kubectl|gcloud|docker|git|curl|cd|mcnb) +[-\w./~$'\"@])"
)
_PROGRAM = re.compile(r"\bpython3? +([\w./-]+\.py)(?: +(\S))?")


def leading_blank_lines(source: str) -> int:
    r"""Return how many blank lines IPython strips from the top of a cell before it counts lines.

    Example:
        >>> leading_blank_lines("\n  \nx = 1\n")
        2
    """
    lines = source.splitlines()
    return next((number for number, line in enumerate(lines) if line.strip()), 0)


# IPython's functions that run a magic, and the names of the code that magics compile: a name of
# ours for what the profiler runs, and IPython's own.
MAGIC_CALLS = (InteractiveShell.run_cell_magic.__code__, InteractiveShell.run_line_magic.__code__)
IN_PROFILER = "<profiled>"
_IN_MAGICS = (IN_PROFILER, "<timed exec>", "<timed eval>", "<magic-timeit>")


@dataclass(frozen=True, slots=True)
class MagicBody:
    """The code that a magic of a cell was given.

    Attributes:
        first_line: The line of the notebook's cell on which the code begins.
        text: The code; empty for a magic that takes a line.
        shell: The shell that runs the magic.
    """

    first_line: int
    text: str
    shell: Any


def magic_body(frame: FrameType | None, label: str) -> MagicBody | None:
    """Return the code of the innermost magic in a stack, or None.

    Args:
        frame: The innermost frame of the stack.
        label: The label of the cell that contains the magic.
    """
    while frame is not None:
        caller = frame.f_back
        if frame.f_code in MAGIC_CALLS:
            if caller is None or caller.f_code.co_filename != cell_name(label):
                return None
            line, shell = line_of(caller), frame.f_locals["self"]
            text = str(frame.f_locals.get("cell") or "")
            below = 1 + leading_blank_lines(text) if "cell" in frame.f_locals else 0
            return MagicBody(line + below, text, shell)
        frame = caller
    return None


class CellCompiler(CachingCompiler):
    """A compiler that gives cells the names and line numbers that the notebook shows.

    IPython's own name for a cell contains the process id, so tracebacks, and the programs that JAX
    compiles from the cell, would differ between processes.

    Attributes:
        label: The number in the notebook's prompt for the cell to compile, such as `"3"`.
        first_line: The line of the notebook's cell on which the code begins.
    """

    label = ""
    first_line = 1
    _replaced = 0

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """Return the file name of the cell's code."""
        del raw_code, transformed_code, number
        return cell_name(self.label)

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        """Return the kind and the name of a cell for a traceback."""
        label = cell_label(name)
        return super().format_code_name(name) if label is None else ("Cell", f"In[{label}]")

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        """Cache the cell's source for tracebacks, shifted to its line in the notebook's cell."""
        before = linecache.cache.get(cell_name(self.label))
        if before is not None:
            # A program that runs a notebook without a history gives all cells the same number.
            self._replaced += 1
            linecache.cache[f"{cell_name(self.label)} replaced {self._replaced}"] = before
        return str(super().cache("\n" * (self.first_line - 1) + transformed_code, number, raw_code))

    @contextmanager
    def beginning_at(self, line: int) -> Iterator[None]:
        """Compile code that begins on another line of the notebook's cell."""
        before, self.first_line = self.first_line, line
        try:
            yield
        finally:
            self.first_line = before

    def __call__(self, source: Any, filename: str, symbol: str, **options: Any) -> CodeType:
        """Compile source; what `%time`, `%timeit` and `%prun` run has the cell's name and lines."""
        body = None
        if filename in _IN_MAGICS and isinstance(source, ast.AST):
            body = magic_body(sys._getframe(1), self.label)
        if body is not None:
            filename = cell_name(self.label)
            ast.increment_lineno(source, body.first_line - 1)
            if body.text:
                with self.beginning_at(body.first_line):
                    self.cache(body.shell.transform_cell(body.text))
        code: CodeType = super().__call__(source, filename, symbol, **options)
        return code

    def ast_parse(self, source: str, filename: str = "<unknown>", symbol: str = "exec") -> ast.AST:
        """Parse source; the lines of a cell are numbered as in the notebook."""
        try:
            tree: ast.AST = super().ast_parse(source, filename, symbol)
        except SyntaxError as error:
            body = magic_body(sys._getframe(1), self.label)
            if body is not None and cell_label(filename) is None:
                error.filename = cell_name(self.label)
                error.lineno = (error.lineno or 1) + body.first_line - 1
                error.end_lineno = None
            raise
        if cell_label(filename) is not None and self.first_line > 1:
            ast.increment_lineno(tree, self.first_line - 1)
        return tree


def frame_line(frame: FrameType | None, label: str) -> int | None:
    """Return the innermost line of the cell with that label in a running frame's stack."""
    name = cell_name(label)
    while frame is not None:
        if frame.f_code.co_filename == name:
            return line_of(frame)
        frame = frame.f_back
    return None


def syntax_error(source: str, label: str, first_line: int) -> ProcessError | None:
    r"""Return the syntax error of a cell, or None.

    Args:
        source: The cell's code.
        label: The number in the notebook's prompt for the cell.
        first_line: The line of the notebook's cell on which the code begins.

    Example:
        >>> error = syntax_error("x = 1\ny = (", label="3", first_line=2)
        >>> error.summary() if error else None
        "SyntaxError: '(' was never closed (line 3)"
    """
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        python = TransformerManager().transform_cell(source)
        compile(python, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        blank = leading_blank_lines(source)
        number = (error.lineno or 1) + blank
        line = number + first_line - 1
        lines = source.splitlines()
        shown = lines[number - 1] if number <= len(lines) else ""
        caret = " " * max((error.offset or 1) - 1, 0) + "^"
        # Python's text may name lines, too, and counts those of the code only.
        later = blank + first_line - 1
        message = _LINE.sub(lambda found: f"{found[1]}{int(found[2]) + later}", error.msg)
        code = (one for one in lines if one.strip() and not one.lstrip().startswith("#"))
        is_command = any(map(_COMMAND.match, (next(code, ""), shown)))
        hint = f"\nHint: {_shell_hint(source)}" if is_command else ""
        return ProcessError(
            name=type(error).__name__,
            message=message,
            line=line,
            traceback=f"Cell In[{label}], line {line}\n    {shown}\n    {caret}\n"
            f"{type(error).__name__}: {message}{hint}\nNo process ran the cell.",
        )
    except (ValueError, OverflowError) as error:  # for example null bytes
        return ProcessError("SyntaxError", str(error), None, f"{error}\nNo process ran the cell.")
    return None


def _shell_hint(source: str) -> str:
    """Return what to do with a cell of commands for a shell."""
    hint = "this is a command of a shell. A cell that begins with %%bash runs it, without a $"
    if (found := _PROGRAM.search(source)) is None:
        return hint
    arguments = " {process} {processes}" if found[2] else ""
    return (
        f"{hint}. To start the program on several processes: mcnb run {found[1]} -n 4 -d 2"
        f"{arguments}"
    )
