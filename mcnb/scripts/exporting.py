"""`mcnb script`: a lesson as plain programs, one for each start of its processes."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcnb.errors import McnbError
from mcnb.options import Options
from mcnb.scripts.cells_of_lessons import Cell, parts_of
from mcnb.scripts.cells_to_code import plain
from mcnb.scripts.choosing import Choice, choose
from mcnb.scripts.editing import comment, indent
from mcnb.scripts.head import Place, end, head
from mcnb.scripts.needs import names_of
from mcnb.scripts.notebook_side import folder_numbers, with_lasting_folders
from mcnb.scripts.prose import as_comment, headings, lead


@dataclass(frozen=True)
class Program:
    """A plain program, made of a part of a lesson.

    Attributes:
        name: Its file's name.
        text: What stands in it.
        options: How many processes and devices it is for.
        cells: For each of its separators, which of the lesson's cells follows; the end has none.
        left_out: The cells of the processes that are left out, wholly or in part, with the reason.
    """

    name: str
    text: str
    options: Options
    cells: tuple[int, ...]
    left_out: dict[int, str]


def export(cells: Sequence[Any], lesson: str, name: str) -> list[Program]:
    r"""Return a lesson as plain programs: one, or several that run in their order.

    A program can't change how many processes it has, so each start of processes begins a new one.

    Args:
        cells: The lesson's cells, as nbformat has them.
        lesson: The name of the lesson's file.
        name: The name of the first program's file; the others have a number before the ending.

    Raises:
        McnbError: No cell of the lesson runs in processes, or a `%mcjax` line makes no sense.

    Example:
        >>> from types import SimpleNamespace
        >>> cell = SimpleNamespace(cell_type="code", source="%%mcjax\n1 + 1", metadata={})
        >>> (program,) = export([cell], "mine.ipynb", "mine.py")
        >>> print(program.text[program.text.index("# %%"):])
        # %%
        display(1 + 1)
        <BLANKLINE>
        # %% The end
        ...
    """
    display = _free_name(cells)
    parts = parts_of(cells, display)
    chosen: list[list[Choice]] = []
    earlier: list[Cell] = []
    for part in parts:
        chosen.append(choose(part.cells, earlier, display))
        earlier += part.cells
    # A part in which nothing runs is none.
    pairs = [(p, c) for p, c in zip(parts, chosen, strict=True) if any(one.code for one in c)]
    if not pairs:
        raise McnbError(f"{lesson}: no cell that a plain program can run begins with %%mcjax")
    names = names_of_files(name, len(pairs))
    shared = any(e.before for _, choices in pairs for c in choices for e in c.errands)
    folder = f"{Path(name).stem}_files" if len(pairs) > 1 and shared else ""
    notes, numbers = _notes(cells), folder_numbers(earlier)
    programs = []
    for number, (part, choices) in enumerate(pairs):
        place = Place(_title(cells) or lesson, lesson, names, number, folder)
        body, separated = _body(choices, notes, numbers if folder else {})
        shows = any(f"{display}(" in choice.code for choice in choices)
        futures = sorted({name for c in part.cells for name in c.futures if not c.why_not})
        text = head(place, part.options, body, display if shows else "", futures)
        left_out = {c.cell.index: c.why_not for c in choices if c.cell.in_processes and c.why_not}
        text += body + end(place)
        programs.append(Program(names[number], text, part.options, separated, left_out))
    return programs


def names_of_files(name: str, count: int) -> list[str]:
    """Return the names of the files of so many parts.

    Example:
        >>> names_of_files("train.py", 3)
        ['train.py', 'train_2.py', 'train_3.py']
    """
    path = Path(name)
    return [name, *(str(path.with_stem(f"{path.stem}_{k}")) for k in range(2, count + 1))]


def _free_name(cells: Sequence[Any]) -> str:
    """Return a name for the function that shows values, which no cell uses for its own."""
    taken: set[str] = set()
    for cell in cells:
        first, _, code = cell.source.lstrip("\n").partition("\n")
        if cell.cell_type == "code" and first.startswith("%%mcjax"):
            with contextlib.suppress(SyntaxError):
                taken |= names_of(plain(code)).defines
    return next(name for name in ("display", "show_value", "_display") if name not in taken)


def _title(cells: Sequence[Any]) -> str:
    texts = (cell.source for cell in cells if cell.cell_type == "markdown")
    return next((told for text in texts for level, told in headings(text) if level == 1), "")


def _notes(cells: Sequence[Any]) -> dict[int, tuple[str, str]]:
    """Return for each code cell the heading that it begins, and what leads to it."""
    notes = {}
    ahead: list[tuple[int, str]] = []
    told = ""
    for index, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            for level, text in headings(cell.source):
                # The section before had no code.
                ahead = [one for one in ahead if one[0] < level]
                ahead += [(level, text)] if level > 1 else []
            told = lead(cell.source)
        elif cell.cell_type == "code":
            notes[index] = (" / ".join(text for _, text in ahead), told)
            ahead, told = [], ""
    return notes


def _body(
    choices: Sequence[Choice],
    notes: Mapping[int, tuple[str, str]],
    folders: Mapping[int, int],
) -> tuple[str, tuple[int, ...]]:
    """Return the cells of a program, and which of the lesson's cells they are."""
    blocks = []
    separated = []
    done: set[int] = set()  # cells of the notebook that process 0 has executed
    heading = ""
    own = {choice.cell.index for choice in choices}
    for choice in choices:
        begun, told = notes[choice.cell.index]
        heading = begun or heading
        if choice.cell.is_of_the_head and not choice.errands:
            continue
        lines = [f"# %% {heading}".rstrip()]
        lines += [as_comment(told)] if told else []
        lines += ["#"] if told and choice.why_not else []
        heading = ""
        if choice.errands:
            lines += _errands(choice, done, folders, own)
        elif choice.code:
            if choice.why_not:
                lines += [f"# As {choice.why_not}, only what later cells need is left:"]
            lines += [_on(choice)]
        else:
            magic, _, code = choice.cell.source.lstrip("\n").partition("\n")
            # With options, as `-p 0-1` and `--unchecked`, it is why the cell does what it does.
            drop = choice.cell.in_processes and magic.split() == ["%%mcjax"]
            source = code if drop else choice.cell.source
            lines += [f"# Left out, as {choice.why_not}:", comment(_further(source.strip("\n")))]
        blocks.append("\n" + "\n".join(lines) + "\n")
        separated.append(choice.cell.index)
    return "".join(blocks), tuple(separated)


def _further(text: str) -> str:
    """Return text four spaces to the right."""
    return textwrap.indent(text, "    ")


def _on(choice: Choice) -> str:
    """Return a cell's code, under a condition where only some processes run it."""
    cell = choice.cell
    if cell.everywhere:
        return choice.code
    which = f"== {cell.processes[0]}" if len(cell.processes) == 1 else f"in {tuple(cell.processes)}"
    return f"if jax.process_index() {which}:\n{indent(choice.code)}"


def _errands(
    choice: Choice, done: set[int], folders: Mapping[int, int], own: Collection[int]
) -> list[str]:
    """Return what process 0 does in the notebook's place, and sends to the others.

    Args:
        choice: The cell.
        done: The cells of the notebook that were executed before.
        folders: The number of the first temporary folder that a cell makes, where they last.
        own: The cells of this part.
    """
    made: dict[int, str] = {}
    for errand in choice.errands:
        made |= {index: code for index, code in errand.before if index not in done}
    done |= made.keys()
    lines = ["# Process 0 does what the notebook did, and tells the others."]
    for index, code in sorted(made.items()):
        if index in folders:
            code = with_lasting_folders(code, folders[index], new=index in own)
        lines.append(f"if jax.process_index() == 0:\n{indent(code)}")
    lines += [f"{e.name} = from_process_0(lambda: {e.value})" for e in choice.errands]
    return lines
