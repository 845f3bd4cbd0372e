"""Lessons on two hosts, and the programs of `mcnb script`: the outputs are those of one host."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcnb.export.write import Program
from tests.conftest import once
from tests.support import hosts, slurm
from tests.support.launchers import Engines, launcher_on_hosts
from tests.support.notebooks import started_by, strictly
from tests.support.programs import LESSONS, compare

pytestmark = pytest.mark.thorough("needs hosts in network namespaces")


def params(few: Sequence[str]) -> list[Any]:
    """Return lessons 01 to 10; those that are not among the few are left out unless named."""
    every = pytest.mark.long("every lesson on two hosts")
    return [
        pytest.param(path, id=path.stem, marks=() if path.stem[:2] in few else every)
        for path in LESSONS[:10]
    ]


@pytest.fixture(scope="module", params=["ssh", pytest.param("slurm", marks=once)])
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    with launcher_on_hosts(request.param, tmp_path_factory.mktemp(request.param)) as launcher:
        yield launcher


@pytest.mark.parametrize("lesson", params(["02", "06"]))
def test_a_lesson(launcher: Engines, lesson: Path, tmp_path: Path) -> None:
    """Each cell gives the output that is stored for one host, by strict nbval."""
    path = started_by(launcher.line, lesson, tmp_path)
    done = hosts.on_the_notebooks(*strictly(path))
    assert done.returncode == 0, done.stdout[:6000]


@pytest.mark.parametrize("lesson", params(["03"]))
def test_a_program(launcher: Engines, lesson: Path, tmp_path: Path) -> None:
    def by_a_shell(program: Program, path: Path, port: int) -> list[str]:
        count = program.options.processes
        coordinator = f"{hosts.ADDRESSES[hosts.OTHERS[0]]}:{port}"
        lines = []
        for k in range(count):
            words = (sys.executable, "-P", path.name, coordinator, str(k), str(count))
            host = hosts.OTHERS[k * len(hosts.OTHERS) // count]
            lines.append(f"{shlex.join(hosts.on(host, *words))} &")
        return ["bash", "-c", "\n".join([*lines, "wait"])]

    def by_slurm(program: Program, path: Path, _: int) -> list[str]:
        srun = (str(slurm.program("srun")), "--nodes=2", "-n", str(program.options.processes))
        return hosts.on(hosts.NOTEBOOK, *srun, sys.executable, "-P", path.name)

    start = by_slurm if launcher.name == "slurm" else by_a_shell
    compare(lesson, tmp_path, start, dict(os.environ))
