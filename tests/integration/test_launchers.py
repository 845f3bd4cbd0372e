"""`mpirun` and `srun python -m mcnb.lockstep`: the same check where others start the processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.conftest import once, wait_until
from tests.integration.test_run import AT, BEGIN, TOTAL
from tests.support import slurm
from tests.support.launchers import OPEN_MPI

pytestmark = [once, pytest.mark.thorough("programs under every launcher")]

PROCESSES = 3
# mpirun kills the others two seconds after a process has failed. On a busy machine that is too soon
# for a verdict; this makes it ten.
PATIENT = {"OMPI_MCA_odls_base_sigkill_timeout": "5"}
# In one piece: the processes share a pipe.
SAY = "os.write(1, f'sum {k} {float(jnp.sum(x))}\\n'.encode())\n"


@dataclass(frozen=True)
class Launcher:
    """Who starts the processes.

    Attributes:
        command: Its command line.
        environment: The environment of that.
        killed: What it says of process 0 when that is killed, as a pattern.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    killed: str


@pytest.fixture(scope="module", params=["mpirun", "srun"])
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Launcher]:
    if request.param == "srun":
        if not slurm.available():
            pytest.skip(slurm.WHY_NOT)
        with slurm.slurm(tmp_path_factory.mktemp("slurm")) as environment:
            command = (str(slurm.program("srun")), f"-n{PROCESSES}")
            yield Launcher(command, environment, "task 0: Killed")
        return
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun: apt-get install openmpi-bin")
    command = (mpirun, "--oversubscribe", "-np", str(PROCESSES))
    killed = "process rank 0 .* exited on signal 9"
    yield Launcher(command, {**os.environ, **OPEN_MPI}, killed)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(launcher: Launcher, tmp_path: Path) -> Run:
    """Return what runs a program, and returns its exit code and output."""

    def started(program: str, *options: str, patient: bool = False) -> tuple[int, str, str]:
        (tmp_path / "train.py").write_text(program)
        environment = {
            **launcher.environment,
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": "1",
            "MCNB_FOLDER": str(tmp_path / "meeting"),
            **(PATIENT if patient else {}),
        }
        done = subprocess.run(
            [
                *launcher.command,
                *(sys.executable, "-m", "mcnb.lockstep", *options, "train.py"),
            ],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert wait_until(lambda: not referees(tmp_path), 30)
        assert [path.name for path in (tmp_path / "meeting").iterdir()] == []
        return done.returncode, done.stdout, done.stderr

    return started


def referees(folder: Path) -> list[int]:
    """Return the processes that still keep a referee for programs of a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "mcnb.lockstep.rendezvous" in words and any(str(folder) in word for word in words):
            found.append(process.pid)
    return found


def test_a_program_runs(run: Run) -> None:
    code, out, _ = run(BEGIN + SAY)
    assert code == 0
    assert all(f"sum {k} 66.0\n" in out for k in range(PROCESSES))


def test_unchecked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "meeting").mkdir()
    code, out, _ = run(BEGIN + SAY, "--unchecked")
    assert code == 0
    assert all(f"sum {k} 66.0\n" in out for k in range(PROCESSES))


@pytest.mark.promise("verdicts under mpirun and srun")
def test_processes_that_part(run: Run) -> None:
    code, _, err = run(f"{BEGIN}if k == 0:\n    {TOTAL}")
    assert code == 1
    assert (
        f"LockstepError: missing: process 0 is waiting in sum, train.py:{AT + 1}; processes 1,2 "
        "exited without reaching it. Hint: this line runs only if `k == 0`."
    ) in err


def test_one_that_raises(run: Run) -> None:
    code, _, err = run(f"{BEGIN}if k == 1:\n    raise ValueError('mine')\n{TOTAL}", patient=True)
    assert code == 1
    assert f"missing: process 1 raised ValueError: mine (train.py:{AT + 1}); process" in err


@pytest.mark.parametrize("who", [0, 2])
def test_one_that_is_killed(run: Run, launcher: Launcher, who: int) -> None:
    killed = f"{BEGIN}if k == {who}:\n    os.kill(os.getpid(), signal.SIGKILL)\n{TOTAL}"
    code, _, err = run(killed, patient=who > 0)
    assert code in (1, 128 + signal.SIGABRT, 128 + signal.SIGKILL)
    if who:
        assert f"LockstepError: died: process {who} ended, and the reason is not known" in err
    else:  # JAX's coordinator is gone with it, and JAX aborts all others at once
        assert re.search(launcher.killed, err)


def test_a_folder_that_others_can_enter_is_refused(run: Run, tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir(mode=0o755)
    code, _, err = run(BEGIN)
    assert code == 1
    assert (
        f"ClusterError: {meeting} must be accessible to you alone, because a key is stored in it: "
        f"chmod 700 {meeting}, or name another one in MCNB_FOLDER"
    ) in err
