"""Lessons on processes that others start: unchanged, but for the line that starts them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, once
from tests.support.launchers import NAMES, Engines, launcher_at_home
from tests.support.notebooks import started_by, strictly

pytestmark = [once, pytest.mark.thorough("lessons on every launcher")]
LESSONS = ROOT / "notebooks"


# By ssh and by Slurm, test_lessons_on_hosts.py executes some, on two hosts.
ELSEWHERE = pytest.mark.long("lessons on every launcher")
# What this one shows, the tests of test_engines.py show under each launcher in less time.
SLOW = pytest.param("05_lockstep", marks=pytest.mark.long("every hang of the lesson"))


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=ELSEWHERE if name != "mpi" else ()) for name in NAMES],
)
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    with launcher_at_home(request.param, tmp_path_factory.mktemp(request.param)) as launcher:
        yield launcher


@pytest.mark.parametrize("lesson", [SLOW, "06_assembling_arrays"])
def test_a_lesson(launcher: Engines, lesson: str, tmp_path: Path) -> None:
    """Each cell gives the output that is stored, by strict nbval."""
    path = started_by(launcher.line, LESSONS / lesson, tmp_path)
    done = subprocess.run(
        strictly(path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[:6000]
