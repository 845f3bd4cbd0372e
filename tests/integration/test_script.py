"""`mcnb script`: every lesson's programs print what the lesson stores, whoever starts them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcnb._system import reserved_port
from mcnb.export.write import Program, export
from tests.conftest import once
from tests.support import slurm
from tests.support.programs import HANG_S, LESSONS, compare, in_a_shell, labelled, printed, run

pytestmark = pytest.mark.thorough("executes the programs of all lessons", once=True)

UNDER_LAUNCHERS = [path for path in LESSONS if path.stem[:2] in ("01", "05", "06")]


@pytest.mark.parametrize(
    "lesson",
    # Lessons are executed with each Python; of their programs, those that have most of it.
    [pytest.param(path, marks=() if path in UNDER_LAUNCHERS else once) for path in LESSONS],
    ids=lambda path: path.stem,
)
def test_a_lesson_in_a_shell_prints_what_is_stored(lesson: Path, tmp_path: Path) -> None:
    compare(lesson, tmp_path, in_a_shell, dict(os.environ))


@pytest.fixture(scope="module", params=["mpirun", "srun"])
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield the beginning of a command line that starts processes, and its environment."""
    if request.param == "srun":
        if not slurm.available():
            pytest.skip(slurm.WHY_NOT)
        with slurm.slurm(tmp_path_factory.mktemp("slurm")) as environment:
            yield [str(slurm.program("srun")), "-n"], environment
        return
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun: apt-get install openmpi-bin")
    # Tests may run as root, in a container of their own.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    yield [mpirun, "--oversubscribe", "-np"], {**os.environ, **allowed}


@once
@pytest.mark.parametrize("lesson", UNDER_LAUNCHERS, ids=lambda path: path.stem)
def test_a_lesson_under_a_launcher(
    lesson: Path, tmp_path: Path, launcher: tuple[list[str], dict[str, str]]
) -> None:
    command, environment = launcher

    def start(program: Program, path: Path, _: int) -> list[str]:
        return [*command, str(program.options.processes), sys.executable, "-P", path.name]

    compare(lesson, tmp_path, start, environment)


def tiny(processes: int = 2) -> Program:
    """Return a program of one cell, with one device in each process."""
    says = "%%mcjax\nimport jax\njax.process_index(), jax.device_count()"
    sources = f"%mcjax start -n {processes} -d 1", says
    cells = [SimpleNamespace(cell_type="code", source=s, metadata={}) for s in sources]
    (program,) = export(cells, "tiny.md", "tiny.py")
    return program


def test_an_open_mpi_that_jax_does_not_find(tmp_path: Path) -> None:
    """Open MPI 5 has no ORTE; here it is hidden."""
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun: apt-get install openmpi-bin")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    hidden = [mpirun, "--oversubscribe", "-np", "2", "env", "-u", "OMPI_MCA_orte_hnp_uri"]
    told = run(
        tiny(),
        tmp_path,
        lambda program, path, _: [*hidden, sys.executable, "-P", path.name],
        {**os.environ, **allowed},
    )
    assert labelled("[0] (0, 2)\n[1] (1, 2)\n") == printed(told, 0)


def alone(folder: Path, program: Program, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "tiny.py").write_text(program.text)
    return subprocess.run(
        [sys.executable, "-P", "tiny.py", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.promise("the program says what is missing")
def test_a_program_that_nobody_tells_who_it_is(tmp_path: Path) -> None:
    done = alone(tmp_path, tiny())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Nothing says which of 2 processes this is.\n\ntiny.md\n\nFor 2 ")


def test_another_number_of_processes(tmp_path: Path) -> None:
    with reserved_port() as port:
        done = alone(tmp_path, tiny(), f"localhost:{port}", "0", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "This program is for 2 processes, not for 1.\n" in done.stderr


def test_many_computations_under_way(tmp_path: Path) -> None:
    """With a thread for each core, JAX 0.10 on two of them hangs here."""
    launches = (
        "%%mcjax\nimport jax, jax.numpy as jnp\n"
        "mesh = jax.make_mesh((jax.device_count(),), ('a',))\n"
        "where = jax.sharding.NamedSharding(mesh, jax.P('a'))\n"
        "x = jax.device_put(jnp.arange(16), where)\n"
        "for i in range(200): y = jnp.sum(x + i)"
    )
    cells = [SimpleNamespace(cell_type="code", source=launches, metadata={})]
    (program,) = export(cells, "many.md", "many.py")
    run(program, tmp_path, in_a_shell, dict(os.environ))


@pytest.mark.promise("mcnb script")
def test_only_what_cells_print_is_on_stdout(tmp_path: Path) -> None:
    with reserved_port() as port:
        done = alone(tmp_path, tiny(1), f"localhost:{port}", "0", "1")
    assert (done.returncode, done.stdout) == (0, "(0, 1)\n"), done.stderr
