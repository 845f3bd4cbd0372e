"""Lessons on processes that others start: unchanged, but for the line that starts them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, once
from tests.support.launchers import NAMES, Engines, launcher_at_home

pytestmark = [once, pytest.mark.thorough("lessons on every launcher")]
LESSONS = ROOT / "notebooks"
START = "%mcjax start -n 4 -d 2"


@pytest.fixture(scope="module", params=NAMES)
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    with launcher_at_home(request.param, tmp_path_factory.mktemp(request.param)) as launcher:
        yield launcher


@pytest.mark.parametrize("lesson", ["05_lockstep", "06_assembling_arrays"])
def test_a_lesson(launcher: Engines, lesson: str, tmp_path: Path) -> None:
    """Each cell gives the output that is stored, by strict nbval."""
    path = tmp_path / f"{lesson}.ipynb"
    stored = (LESSONS / path.name).read_text()
    assert stored.count(START) == 1
    path.write_text(stored.replace(START, f"{START} {launcher.line}"))
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / ".ci" / "notebooks.py"), "-c", "/dev/null"),
            *("--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-q", str(path)),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[:6000]
