"""Lessons executed as CI executes them, with the very outputs that are stored."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.conftest import ROOT

_START = re.compile(r"%mcjax start -n \d+ -d \d+")


def started_by(line: str, lesson: Path, folder: Path) -> Path:
    """Copy a lesson into a folder, with other processes.

    Args:
        line: More options for each `%mcjax start`.
        lesson: The lesson, in either of its forms.
        folder: The folder.
    """
    path = folder / f"{lesson.stem}.ipynb"
    stored = lesson.with_suffix(".ipynb").read_text()
    text, count = _START.subn(lambda found: f"{found[0]} {line}", stored)
    assert count == stored.count("%mcjax start") > 0
    path.write_text(text)
    return path


def strictly(path: Path) -> list[str]:
    """Return the command line that executes a notebook, and compares its outputs by nbval."""
    return [
        *(sys.executable, str(ROOT / ".ci" / "notebooks.py"), "-c", "/dev/null"),
        *("--rootdir", str(path.parent), "-p", "no:cacheprovider", "-q", str(path)),
    ]
