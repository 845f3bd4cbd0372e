"""Find the course's notebooks, which come with the package, and recognize and read notebooks."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

from mcnb.errors import McnbError, OptionError

INSTALL_LAB = 'python -m pip install "mcnb[lab]"'
REINSTALL = "python -m pip install --force-reinstall --no-deps mcnb"
# The endings of files that hold lessons.
ENDINGS = (".md", ".ipynb")
# The first line of a cell, in a Python file.
_CELL = re.compile(rb"^#[ ]?%%( |\[|$)", re.MULTILINE)
# What a notebook says that starts its own processes.
_OWN = re.compile(
    r"^\s*(%%?mcjax\b|%(re)?load_ext\s+mcnb\b|import\s+mcnb\b|from\s+mcnb\b)", re.MULTILINE
)


def find_lessons(package: Path | None = None) -> Path:
    """Find the folder of the lessons: beside the package in a checkout, else inside it.

    Args:
        package: The folder of the package `mcnb`; this one by default.

    Raises:
        McnbError: There are no lessons.

    Example:
        >>> find_lessons().name
        'notebooks'
    """
    package = Path(__file__).parent if package is None else package
    beside, inside = package.parent / "notebooks", package / "notebooks"
    if (package.parent / "pyproject.toml").is_file() and any(beside.glob("*.ipynb")):
        return beside
    if any(inside.glob("*.ipynb")):
        return inside
    what = f"mcnb's lessons are not in {inside}"
    raise McnbError.remedied(what, REINSTALL, "Reinstall mcnb")


def is_lesson(path: Path) -> bool:
    """Return whether a file is a lesson rather than a program.

    Example:
        >>> is_lesson(Path("05_lockstep.md")), is_lesson(Path("train.py"))
        (True, False)
    """
    return path.suffix in ENDINGS


def find_lesson(path: Path, command: str = "run") -> Path:
    """Find a lesson's file: the given file if it exists, or the course's lesson of that name.

    Args:
        path: The path from the command line.
        command: The mcnb command, for the error.

    Raises:
        OptionError: There is no such file.
    """
    if path.is_file():
        return path
    lessons = find_lessons()
    if path.parent == Path() and (lessons / path).is_file():
        return lessons / path
    names = ", ".join(sorted(lesson.name for lesson in lessons.glob("[0-9]*.md")))
    raise OptionError(f"mcnb {command} {path}: there is no such file. The course has: {names}")


def read_notebook(path: Path) -> Any:
    """Read a notebook as an nbformat notebook.

    Args:
        path: An .ipynb file, Markdown, or Python with a cell after each `# %%`.

    Raises:
        McnbError: The file is not a notebook, or jupytext, which reads notebooks, is missing.
    """
    if importlib.util.find_spec("jupytext") is None:
        raise McnbError(f"Notebooks are read by jupytext, which is not installed: {INSTALL_LAB}")
    jupytext = importlib.import_module("jupytext")  # it has no type annotations
    try:
        return jupytext.read(path, fmt="py:percent" if path.suffix == ".py" else None)
    except Exception as error:
        why = str(error).strip().partition("\n")[0]
        raise McnbError(f"{path} can't be read as a notebook: {why}") from None


def is_notebook_of_one_process(path: Path) -> bool:
    """Return whether a Python file is divided into cells, and joins no other processes.

    https://jupytext.readthedocs.io/en/latest/formats-scripts.html describes the cells.
    """
    text = path.read_bytes() if path.suffix == ".py" else b""
    return _CELL.search(text) is not None and b"distributed.initialize" not in text


def starts_processes(notebook: Any) -> bool:
    """Return whether a notebook uses mcnb, and so starts its own processes.

    Args:
        notebook: The notebook, as nbformat reads it.
    """
    return any(one.cell_type == "code" and _OWN.search(one.source) for one in notebook.cells)
