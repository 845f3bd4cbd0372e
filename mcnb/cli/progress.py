"""The first page of the learner's folder, with marks of what is solved and where to go on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SOLVED = re.compile(r"Exercise (\d\d\.\d+) is solved on ")
_ROW = re.compile(r"(?m)^(\| \[\d\d [^]]+\]\((\d\d_\w+)\.ipynb\))")
_BEGIN = "To begin, click on lesson 01."
_SEAL = re.compile(r"\n<!-- Written by mcnb lab, (\w{16})\. -->\n\Z")


@dataclass(frozen=True)
class Progress:
    """How far a learner is in one lesson.

    Attributes:
        solved: How many exercises are solved.
        exercises: How many there are.
    """

    solved: int
    exercises: int

    @property
    def complete(self) -> bool:
        """Whether all exercises are solved."""
        return self.solved == self.exercises


def progress_in(folder: Path, page: str) -> dict[str, Progress]:
    """Return the progress in each lesson to which a page leads, by the lesson's name.

    An exercise counts as solved if an output in the lesson's notebook, as it is saved, says so. In
    what can't be read as a notebook, nothing is solved.

    Args:
        folder: Where the learner's notebooks are.
        page: The course's first page.
    """
    from mcnb.exercises import exercises

    names = exercises()
    found = {}
    for row in _ROW.finditer(page):
        own = {name for name in names if name[:2] == row[2][:2]}
        found[row[2]] = Progress(len(own & _solved(folder / f"{row[2]}.ipynb")), len(own))
    return found


def _solved(path: Path) -> set[str]:
    try:
        return set(_SOLVED.findall(_printed(json.loads(path.read_bytes()))))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return set()  # the learner may do with the file whatever they like


def _printed(notebook: Mapping[str, Any]) -> str:
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return "\n".join(
        "".join(output.get("text", "")) for cell in cells for output in cell["outputs"]
    )


def marked(page: str, progress: Mapping[str, Progress]) -> str:
    r"""Return the first page with the progress in each lesson, and the lesson to go on with.

    Args:
        page: The page without marks.
        progress: The progress by lesson; the page stays as it is if nothing is solved.

    Example:
        >>> page = "To begin, click on lesson 01.\n| [01 One](01_one.ipynb) | to count |\n"
        >>> print(marked(page, {"01_one": Progress(1, 2)}), end="")
        To go on, click on lesson 01.
        | [01 One](01_one.ipynb), 1 of 2 solved | to count |
    """
    if not any(one.solved for one in progress.values()):
        return page

    def mark(row: re.Match[str]) -> str:
        one = progress[row[2]]
        if not one.solved:
            return row[1]
        return row[1] + (" ✓" if one.complete else f", {one.solved} of {one.exercises} solved")

    left = [name for name, one in sorted(progress.items()) if not one.complete]
    said = f"To go on, click on lesson {left[0][:2]}." if left else "You have solved all exercises."
    return _ROW.sub(mark, page).replace(_BEGIN, said)


def sealed(page: str) -> str:
    """Return a page with a line, which is not shown, that tells whether somebody has changed it.

    Example:
        >>> is_sealed(sealed("a page")), is_sealed(sealed("a page").replace("a page", "my page"))
        (True, False)
    """
    return f"{page}\n<!-- Written by mcnb lab, {_digest(page)}. -->\n"


def is_sealed(page: str) -> bool:
    """Return whether a page is as `sealed` returned it, also by another version of mcnb."""
    seal = _SEAL.search(page)
    return seal is not None and seal[1] == _digest(page[: seal.start()])


def _digest(page: str) -> str:
    return hashlib.sha256(page.encode()).hexdigest()[:16]
