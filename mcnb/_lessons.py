"""Find the course's notebooks, which come with the package, and read notebooks."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from mcnb.errors import McnbError

INSTALL_LAB = 'python -m pip install "mcnb[lab]"'
REINSTALL = "python -m pip install --force-reinstall --no-deps mcnb"


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
