"""What the cells of a lesson are: which run in processes, how many of these there are, and when."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mcnb.errors import McnbError, OptionError
from mcnb.magic_line import cell_parser, line_parser
from mcnb.options import Options, environment, process_set
from mcnb.scripts.cells_to_code import (
    awaits,
    display_last,
    mcnb_names,
    plain,
    silent_functions,
    without_mcnb,
)
from mcnb.scripts.editing import commented, edited

LEFT_OUT_TAG = "no-script"
_MAGIC = re.compile(r"%%mcjax\b(.*)")
_LINE_MAGIC = re.compile(r"\s*%mcjax\b(.*)")
# What the head of a program stands for, or what it has no use for.
_OF_THE_HEAD = re.compile(r"\s*(%load_ext mcnb|%mcjax (start|stop)\b.*|import mcnb|#.*)?\s*")


@dataclass(frozen=True)
class Cell:
    """A code cell of a lesson.

    Attributes:
        index: Which of the lesson's cells it is, counted from 0.
        source: What stands in it.
        code: Its code as a plain program's; empty if it can't be.
        in_processes: Whether it runs in the processes, rather than in the notebook.
        fails: Whether it is meant to fail.
        processes: Those that it runs on.
        everywhere: Whether these are all.
        why_not: Why no plain program can run it; empty if one can.
        futures: What it imports from `__future__`.
    """

    index: int
    source: str
    code: str = ""
    in_processes: bool = False
    fails: bool = False
    processes: tuple[int, ...] = ()
    everywhere: bool = True
    why_not: str = ""
    futures: tuple[str, ...] = ()

    @property
    def is_of_the_head(self) -> bool:
        """Whether it does no more than the head of a program does, too."""
        lines = self.source.splitlines()
        return not self.in_processes and all(_OF_THE_HEAD.fullmatch(line) for line in lines)


@dataclass
class Part:
    """What runs between a start of processes and the next.

    Attributes:
        options: How many processes and devices.
        cells: Its code cells, in order.
    """

    options: Options
    cells: list[Cell] = field(default_factory=list)


def parts_of(cells: Sequence[Any], display: str) -> list[Part]:
    r"""Divide a lesson's cells into parts, each with processes of its own.

    Args:
        cells: The cells, as nbformat has them.
        display: The name of the function that shows a value.

    Raises:
        McnbError: A `%mcjax` line makes no sense.

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
        read = Cell(index, cell.source, fails="raises-exception" in tags)
        first, _, code = cell.source.lstrip("\n").partition("\n")
        if magic := _MAGIC.fullmatch(first):
            running = True
            read = replace(read, in_processes=True, code=code)
            read = _in_processes(read, magic[1], parts[-1].options.processes, known)
            if LEFT_OUT_TAG in tags:
                read = replace(read, why_not=f"it has the tag {LEFT_OUT_TAG}")
        else:
            for command, options in _commands(read):
                if command == "stop":
                    running = False
                elif command == "restart" or (command == "start" and not running):
                    running = True
                    if any(one.in_processes for one in parts[-1].cells):
                        parts.append(Part(options or parts[-1].options))
                    parts[-1].options = options or parts[-1].options
        parts[-1].cells.append(read)
    return parts


def _commands(cell: Cell) -> Iterator[tuple[str, Options | None]]:
    """Yield the commands of a cell that end or start processes."""
    for line in cell.source.splitlines():
        if (magic := _LINE_MAGIC.match(line)) is None:
            continue
        try:
            args = line_parser().parse(magic[1])
            if args.command == "start":
                given = {"processes": args.processes, "devices_per_process": args.devices}
                yield "start", Options.of(**given, env=environment(args.env or []))
            elif args.command == "stop" or (args.command == "restart" and not args.replay):
                yield args.command, None
        except OptionError as error:
            if not cell.fails:
                raise McnbError(f"Cell {cell.index + 1} of the lesson: {error}") from None


@dataclass
class _Known:
    """What is known of a lesson's names so far.

    Attributes:
        display: The function that shows a value.
        mcnb: What mcnb, and what is in it, is called.
        silent: Functions, with whether they return nothing.
    """

    display: str
    mcnb: set[str] = field(default_factory=set)
    silent: dict[str, bool] = field(default_factory=dict)


def _in_processes(cell: Cell, words: str, count: int, known: _Known) -> Cell:
    """Return a cell with its code as a plain program's."""
    source, cell = cell.code, replace(cell, code=_parsed(cell.code))
    try:
        chosen = cell_parser().parse(words).processes
        targets = process_set(f"0-{count - 1}" if chosen is None else chosen, count)
    except OptionError:
        return replace(cell, why_not="its options make no sense")
    cell = replace(cell, processes=targets, everywhere=len(targets) == count)
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
        return replace(cell, why_not="it is no plain Python")
    if had_code and not _statements(code) and not futures:
        return replace(cell, why_not="it only draws pictures")
    return replace(cell, code=code.strip("\n"), futures=futures)


def _parsed(source: str) -> str:
    """Return what of a cell's code can be looked at, even if it can't be run: empty if nothing."""
    for code in (source, source.partition("\n")[2]):  # without a magic of its own
        with contextlib.suppress(SyntaxError):
            return plain(code)
    return ""


def _statements(code: str) -> list[ast.stmt]:
    return ast.parse(code).body


def _ends_in_mcnb(code: str, ours: Collection[str]) -> bool:
    """Return whether the last statement is one that a plain program leaves out."""
    before, after = _statements(code), _statements(without_mcnb(code, ours))
    return bool(before) and [*map(ast.dump, after[-1:])] != [ast.dump(before[-1])]


def _without_futures(code: str) -> tuple[str, tuple[str, ...]]:
    found = [
        node
        for node in ast.parse(code).body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    names = tuple(alias.name for node in found for alias in node.names)
    return edited(code, [commented(code, node) for node in found]), names
