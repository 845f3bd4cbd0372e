"""`mcnb run LESSON.md`: a lesson's cells, executed in the terminal, from top to bottom."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from mcnb.errors import McnbError, OptionError
from mcnb.lab import INSTALL_LAB, find_lessons
from mcnb.pods.topology import MISSING, has_compiler
from mcnb.report.text import without_escapes

ENDINGS = (".md", ".ipynb")
NEEDS_TPU_TAG = "needs-tpu"  # of cells that need the compiler for TPUs


def is_lesson(path: Path) -> bool:
    """Return whether a file is a lesson rather than a program.

    Example:
        >>> is_lesson(Path("05_lockstep.md")), is_lesson(Path("train.py"))
        (True, False)
    """
    return path.suffix in ENDINGS


def find_lesson(path: Path, command: str = "run") -> Path:
    """Return a lesson's file: the one that is given, or the course's own of that name.

    Args:
        path: What is given.
        command: The command that it is given to.

    Raises:
        OptionError: There is none.
    """
    if path.is_file():
        return path
    lessons, _ = find_lessons()
    if path.parent == Path() and (lessons / path).is_file():
        return lessons / path
    names = ", ".join(sorted(lesson.name for lesson in lessons.glob("[0-9]*.md")))
    raise OptionError(f"mcnb {command} {path}: there is no such file. The course has: {names}")


def run_lesson(path: Path) -> int:
    """Execute a lesson, and show each cell with what it says.

    Cells that are meant to fail, which have the tag raises-exception, are shown and passed. Those
    with the tag needs-tpu are left out where the compiler for TPUs is missing.

    Args:
        path: The lesson.

    Returns:
        0 if it came to its end, 1 if a cell failed that is not meant to, or did not that is.

    Raises:
        McnbError: It is no lesson, or jupytext is missing, which reads them.
    """
    notebook = read_lesson(path)
    shell = _shell()
    with contextlib.chdir(path.resolve().parent):  # lessons have files beside them
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                _print_headings(cell.source)
            elif cell.cell_type == "code" and not _run(shell, cell):
                return 1
    return 0


def read_lesson(path: Path) -> Any:
    """Return a lesson as a notebook of nbformat.

    Raises:
        McnbError: It is no lesson, or jupytext is missing, which reads them.
    """
    if importlib.util.find_spec("jupytext") is None:
        raise McnbError(f"Lessons are read by jupytext, which is not installed: {INSTALL_LAB}")
    try:
        return importlib.import_module("jupytext").read(path)  # it brings no types
    except Exception as error:
        why = str(error).strip().partition("\n")[0]
        raise McnbError(f"{path} can't be read as a notebook: {why}") from None


def _shell() -> Any:
    """Return an IPython shell whose errors have colours in a terminal only."""
    from IPython.core.interactiveshell import InteractiveShell

    class Shell(InteractiveShell):  # type: ignore[misc, unused-ignore]
        def _showtraceback(self, _kind: Any, _error: Any, lines: list[str]) -> None:
            text = "\n".join(lines)
            print(text if sys.stdout.isatty() else without_escapes(text))

    return Shell.instance()


def _print_headings(text: str) -> None:
    for line in text.splitlines():
        if line.startswith("#"):
            print(f"\n{line}")


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
