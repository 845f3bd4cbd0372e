"""Find, read and run lessons, and parse their Markdown and their cells for plain programs."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcnb._cells import magic_first
from mcnb._lessons import read_notebook
from mcnb._text import plural
from mcnb.errors import McnbError, OptionError
from mcnb.export.source import (
    awaits,
    commented,
    display_last,
    edited,
    mcnb_names,
    plain,
    silent_functions,
    without_mcnb,
)
from mcnb.notebook.magics import line_parser
from mcnb.notebook.parsing import cell_parser
from mcnb.options import SCRIPT, Options, field_values, process_set
from mcnb.output.terminal import without_escapes
from mcnb.pods.topology import MISSING, has_compiler

WIDTH = 88
_FENCE = re.compile(r"^(```|~~~|\$\$).*?^\1", re.MULTILINE | re.DOTALL)
_EMPHASIS = re.compile(r"(?<![A-Za-z0-9*])\*([^*\s](?:[^*]*[^*\s])?)\*(?![A-Za-z0-9*])")
_NO_PROSE = re.compile(r"\s*(#|!\[|\||[-*+] |\d+\. |>|<|    )")


def headings(text: str) -> list[tuple[int, str]]:
    r"""Return the headings of Markdown text with their levels.

    Example:
        >>> headings("# One\ntext\n## `x` and *y*")
        [(1, 'One'), (2, '`x` and y')]
    """
    lines = _FENCE.sub("", text).splitlines()
    found = (re.match(r"(#+) (.*)", line) for line in lines)
    return [(len(match[1]), unmarked(match[2].strip())) for match in found if match]


def lead(text: str) -> str:
    r"""Return the last paragraph of Markdown text, which introduces the next cell of a lesson.

    Lists, tables, pictures and code are not paragraphs, and are skipped.

    Example:
        >>> lead("## Title\n\nBoth do.\n\n**Predict:** which [one](x.md)?\n\n- a list")
        'Predict: which one?'
    """
    paragraphs = re.split(r"\n\s*\n", _FENCE.sub("", text).strip())
    told = [part for part in paragraphs if part.strip() and not _NO_PROSE.match(part)]
    return unmarked(" ".join(told[-1].split())) if told else ""


def unmarked(text: str) -> str:
    r"""Remove the markup of emphasis and links from Markdown text, but not from code.

    Example:
        >>> unmarked("**Now** *two* [links](a.md), and `P(*spec)`")
        'Now two links, and `P(*spec)`'
    """
    pieces = re.split(r"(`[^`]*`)", text)
    for number in range(0, len(pieces), 2):
        piece = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", pieces[number])
        piece = piece.replace("\\", "").replace("**", "")
        pieces[number] = _EMPHASIS.sub(r"\1", piece)
    return "".join(pieces)


def as_comment(text: str) -> str:
    """Wrap text into comment lines of at most `WIDTH` characters."""
    return "\n".join(
        f"# {line}"
        for line in textwrap.wrap(text, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    )


NEEDS_TPU_TAG = "needs-tpu"  # marks cells that need the TPU compiler


def run_lesson(path: Path, notebook: Any = None) -> int:
    """Execute a lesson, and print each cell with its output.

    The lesson continues after a cell that fails if the cell has the tag raises-exception. Cells
    with the tag needs-tpu are left out if the TPU compiler is missing.

    Args:
        path: The lesson's file.
        notebook: What is in the file, if it has been read.

    Returns:
        0 if the lesson reached its end, 1 if a cell failed or succeeded contrary to its tags.

    Raises:
        McnbError: The file is not a lesson, or jupytext, which reads lessons, is missing.
    """
    notebook = read_notebook(path) if notebook is None else notebook
    shell = _shell()
    with contextlib.chdir(path.resolve().parent):  # lessons use files beside them
        for i, cell in enumerate(notebook.cells):
            if cell.cell_type == "markdown":
                for line in cell.source.splitlines():
                    if line.startswith("#"):
                        print(f"\n{line}")
            elif cell.cell_type == "code" and not _run(shell, cell):
                after = sum(one.cell_type == "code" for one in notebook.cells[i + 1 :])
                if after:
                    cells = plural(after, "cell", "cells")
                    print(f"\n{cells} after this one did not run", file=sys.stderr)
                return 1
    return 0


def _shell() -> Any:
    """Return an IPython shell that colours errors only in a terminal."""
    from IPython.core.interactiveshell import InteractiveShell

    class Shell(InteractiveShell):  # type: ignore[misc, unused-ignore]
        def _showtraceback(self, _kind: Any, _error: Any, lines: list[str]) -> None:
            text = "\n".join(lines)
            print(text if sys.stdout.isatty() else without_escapes(text))

    return Shell.instance()


def _run(shell: Any, cell: Any) -> bool:
    tags = cell.metadata.get("tags", [])
    if NEEDS_TPU_TAG in tags and not has_compiler():
        print(f"\nA cell is left out. {MISSING}")
        return True
    number = f"In [{shell.execution_count}]: "
    source = cell.source.replace("\n", f"\n{'':{len(number)}}")
    print(f"\n{number}{source}")
    sys.stdout.flush()
    done = shell.run_cell(cell.source, store_history=True)
    must_fail = "raises-exception" in tags
    if must_fail and done.success:
        print("This cell is meant to fail, and did not", file=sys.stderr)
    return bool(done.success) != must_fail


LEFT_OUT_TAG = "no-script"
_MAGIC = re.compile(r"%%mcjax\b(.*)")
_LINE_MAGIC = re.compile(r"\s*%mcjax\b(.*)")
# Lines that the head of a program replaces, or that a program does not need.
_OF_THE_HEAD = re.compile(r"\s*(%load_ext mcnb|%mcjax (start|stop|auto)\b.*|import mcnb|#.*)?\s*")


@dataclass(frozen=True)
class Cell:
    """A code cell of a lesson.

    Attributes:
        index: The cell's index in the lesson.
        source: The cell's text.
        code: The cell's code for a plain program; empty if there is none.
        in_processes: Whether the cell runs in the processes, not in the notebook kernel.
        fails: Whether the cell is expected to fail.
        processes: The processes that run the cell; empty if all do.
        why_not: Why no plain program can run the cell; empty if one can.
        futures: The names that the cell imports from `__future__`.
    """

    index: int
    source: str
    code: str = ""
    in_processes: bool = False
    fails: bool = False
    processes: tuple[int, ...] = ()
    why_not: str = ""
    futures: tuple[str, ...] = ()

    @property
    def is_of_the_head(self) -> bool:
        """Whether the head of a program already does everything that the cell does."""
        lines = self.source.splitlines()
        return not self.in_processes and all(_OF_THE_HEAD.fullmatch(line) for line in lines)


@dataclass
class Part:
    """The cells between one start of processes and the next.

    Attributes:
        options: The number of processes and devices.
        cells: The code cells, in order.
    """

    options: Options
    cells: list[Cell] = field(default_factory=list)


def parts_of(cells: Sequence[Any], display: str) -> list[Part]:
    r"""Divide a lesson's cells into parts, each with its own processes.

    Args:
        cells: The cells, as nbformat objects.
        display: The name of the function that shows a value.

    Raises:
        McnbError: A `%mcjax` line is invalid.

    Example:
        >>> from types import SimpleNamespace
        >>> sources = "%mcjax start -n 2", "%%mcjax\nx = 1", "%mcjax restart", "%%mcjax\nx = 2"
        >>> cells = [SimpleNamespace(cell_type="code", source=s, metadata={}) for s in sources]
        >>> [(part.options.processes, len(part.cells)) for part in parts_of(cells, "display")]
        [(2, 2), (2, 2)]
    """
    parts = [Part(Options())]
    running = False
    known = _Known(display)
    for index, cell in enumerate(cells):
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags", [])
        read = Cell(index, magic_first(cell.source), fails="raises-exception" in tags)
        first, _, code = read.source.lstrip("\n").partition("\n")
        if magic := _MAGIC.fullmatch(first):
            running = True
            read = _in_processes(read, code, magic[1], parts[-1].options.processes, known)
            if LEFT_OUT_TAG in tags:
                read = replace(read, why_not=f"it has the tag {LEFT_OUT_TAG}")
        else:
            for command, options in _commands(read):
                if command == "stop":
                    running = False
                elif command == "restart" or not running:
                    running = True
                    options = options or parts[-1].options
                    if any(one.in_processes for one in parts[-1].cells):
                        parts.append(Part(options))
                    parts[-1].options = options
        parts[-1].cells.append(read)
    return parts


def _commands(cell: Cell) -> Iterator[tuple[str, Options | None]]:
    """Yield the commands of a cell that stop or start processes, with their options."""
    for line in cell.source.splitlines():
        if (magic := _LINE_MAGIC.match(line)) is None:
            continue
        try:
            args = line_parser().parse(magic[1])
            if args.command == "start":
                yield "start", Options(**field_values(SCRIPT, vars(args)))
            elif args.command == "stop" or (args.command == "restart" and not args.replay):
                yield args.command, None
        except OptionError as error:
            if not cell.fails:
                raise McnbError(f"Cell {cell.index + 1} of the lesson: {error}") from None


@dataclass
class _Known:
    """Names collected from a lesson's cells so far."""

    display: str  # the function that shows a value
    mcnb: set[str] = field(default_factory=set)  # the names of mcnb and its members
    silent: dict[str, bool] = field(default_factory=dict)  # whether a function returns nothing


def _in_processes(cell: Cell, source: str, words: str, count: int, known: _Known) -> Cell:
    """Return a cell of the processes with its code for a plain program."""
    cell = replace(cell, in_processes=True, code=_parsed(source))
    try:
        chosen = cell_parser().parse(words).processes
        targets = () if chosen is None else process_set(chosen, count)
    except OptionError:
        return replace(cell, why_not="its options make no sense")
    cell = replace(cell, processes=targets if len(targets) < count else ())
    try:
        code = plain(source)
        if awaits(code):
            return replace(cell, why_not="only a notebook can await outside a function")
        known.mcnb |= mcnb_names(code)
        known.silent |= silent_functions(code)
        silent = [name for name, is_silent in known.silent.items() if is_silent]
        had_code = bool(_statements(code))
        if not (cell.fails or _ends_in_mcnb(code, known.mcnb)):
            code = display_last(code, known.display, silent)
        code, futures = _without_futures(without_mcnb(code, known.mcnb))
        compile(code, "<cell>", "exec", dont_inherit=True)
    except SyntaxError:
        return replace(cell, why_not="it is not plain Python")
    if had_code and not _statements(code) and not futures:
        return replace(cell, why_not="it only draws pictures")
    return replace(cell, code=code.strip("\n"), futures=futures)


def _parsed(source: str) -> str:
    """Return the part of a cell's code that parses, even if it can't be run; empty if none."""
    for code in (source, source.partition("\n")[2]):  # without a cell magic
        with contextlib.suppress(SyntaxError):
            return plain(code)
    return ""


def _statements(code: str) -> list[ast.stmt]:
    return ast.parse(code).body


def _ends_in_mcnb(code: str, ours: Collection[str]) -> bool:
    """Return whether a plain program leaves out the last statement of code."""
    before, after = _statements(code), _statements(without_mcnb(code, ours))
    return bool(before) and [*map(ast.dump, after[-1:])] != [ast.dump(before[-1])]


def _without_futures(code: str) -> tuple[str, tuple[str, ...]]:
    imports = (node for node in _statements(code) if isinstance(node, ast.ImportFrom))
    found = [node for node in imports if node.module == "__future__"]
    names = tuple(alias.name for node in found for alias in node.names)
    return edited(code, [commented(code, node) for node in found]), names
