"""Lessons executed as CI executes them, with the very outputs that are stored."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from tests.conftest import ROOT

_START = re.compile(r"^%mcjax start -n \d+ -d \d+", re.MULTILINE)


def started_by(line: str, lesson: Path, folder: Path) -> Path:
    """Copy a lesson into a folder, with other processes, and the program that it reads.

    Args:
        line: More options for each `%mcjax start`.
        lesson: The lesson, in either of its forms.
        folder: The folder.
    """
    path = folder / f"{lesson.stem}.ipynb"
    notebook = json.loads(lesson.with_suffix(".ipynb").read_text())
    started = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            source, count = _START.subn(lambda found: f"{found[0]} {line}", "".join(cell["source"]))
            assert count == source.count("%mcjax start")
            cell["source"] = source
            started += count
    assert started > 0
    path.write_text(json.dumps(notebook))
    shutil.copy(lesson.with_name("toy.py"), folder)
    return path


def strictly(path: Path) -> list[str]:
    """Return the command line that executes a notebook, and compares its outputs by nbval."""
    return [
        *(sys.executable, str(ROOT / ".ci" / "notebooks.py"), "-c", "/dev/null"),
        *("--rootdir", str(path.parent), "-p", "no:cacheprovider", "-q", str(path)),
    ]
