"""Lessons on two hosts, and the programs of `mcnb script`: the outputs are those of one host."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.export.write import Program, export
from tests.conftest import once
from tests.support import hosts, slurm
from tests.support.launchers import Engines, launcher_on_hosts
from tests.support.notebooks import started_by, strictly
from tests.support.programs import LESSONS, Start, compare, printed, run

pytestmark = [pytest.mark.thorough("needs hosts in network namespaces"), once]


def params(few: Sequence[str]) -> list[Any]:
    """Return lessons 01 to 10; those that are not among the few are left out unless named."""
    every = pytest.mark.long("every lesson on two hosts")
    return [
        pytest.param(path, id=path.stem, marks=() if path.stem[:2] in few else every)
        for path in LESSONS[:10]
    ]


@pytest.fixture(scope="module", params=["ssh", "slurm"])
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


def start_of(launcher: Engines) -> Start:
    """Return what starts a program's processes on two hosts, as this launcher does."""

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

    return by_slurm if launcher.name == "slurm" else by_a_shell


@pytest.mark.parametrize("lesson", params(["03"]))
def test_a_program(launcher: Engines, lesson: Path, tmp_path: Path) -> None:
    compare(lesson, tmp_path, start_of(launcher), dict(os.environ))


_MESHES = """\
%%mcjax
import inspect, pathlib, runpy
from functools import partial
import jax
from jax import make_mesh

module = pathlib.Path(f"module_of_{jax.process_index()}.py")
_ = module.write_text("import jax; mesh = jax.make_mesh((4, 2), ('a', 'b'))")
shape, names = (4, 2), ("a", "b")
words = list(inspect.signature(make_mesh).parameters)[:2]
meshes = [
    runpy.run_path(str(module))["mesh"],
    make_mesh(shape, names),
    partial(jax.make_mesh, shape)(names),
    jax.make_mesh(**dict(zip(words, [shape, names]))),
    jax.make_mesh(shape, names, devices=jax.devices()),
]
len(set(meshes)), meshes[0].shape_tuple, list(meshes[0].devices.flat) == jax.devices()
"""


def test_meshes_of_a_program(launcher: Engines, tmp_path: Path) -> None:
    """However a program, or a module that it imports, spells it: a mesh over two hosts."""
    cells = [
        SimpleNamespace(cell_type="code", source=source, metadata={})
        for source in ("%mcjax start -n 4 -d 2", _MESHES)
    ]
    (program,) = export(cells, "meshes.md", "meshes.py")
    told = run(program, tmp_path, start_of(launcher), dict(os.environ))
    (number,) = {cell for pairs in told for cell, _ in pairs} - {-1}
    assert printed(told, number) == [("[all 4]", "(1, (('a', 4), ('b', 2)), True)")]
