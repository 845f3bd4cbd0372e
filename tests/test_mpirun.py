"""`mpirun python -m mcnb.lockstep`: the same check where something else starts the processes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from .conftest import wait_until
from .test_run import AT, BEGIN, TOTAL

MPIRUN = shutil.which("mpirun")
pytestmark = pytest.mark.skipif(MPIRUN is None, reason="no mpirun: apt-get install openmpi-bin")


def mpirun(folder: Path, program: str, *options: str) -> tuple[int, str, str]:
    """Run a program under mpirun in three processes; return its exit code and output."""
    (folder / "train.py").write_text(program)
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        "MCNB_FOLDER": str(folder / "meeting"),
        # Tests may run as root, in a container of their own.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    assert MPIRUN is not None
    done = subprocess.run(
        [
            *(MPIRUN, "--oversubscribe", "-np", "3"),
            *(sys.executable, "-m", "mcnb.lockstep", *options, "train.py"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert wait_until(lambda: not referees(folder), 10)
    assert [path.name for path in (folder / "meeting").iterdir()] == []
    return done.returncode, done.stdout, done.stderr


def referees(folder: Path) -> list[int]:
    """Return the processes that still keep a referee for programs of a folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "mcnb.scripts.keeping" in words and any(str(folder) in word for word in words):
            found.append(process.pid)
    return found


def test_a_program_runs(tmp_path: Path) -> None:
    code, out, _ = mpirun(tmp_path, BEGIN + "print('sum', k, float(jnp.sum(x)))\n")
    assert code == 0
    said = sorted(line for line in out.splitlines() if line.startswith("sum"))
    assert said == [f"sum {k} 66.0" for k in range(3)]


def test_processes_that_part(tmp_path: Path) -> None:
    code, _, err = mpirun(tmp_path, f"{BEGIN}if k == 0:\n    {TOTAL}")
    assert code == 1
    assert (
        f"LockstepError: missing: process 0 waits at train.py:{AT + 1} in sum; processes 1,2 ended "
        "without it. Hint: that line runs only where `k == 0` holds."
    ) in err


def test_one_that_raises(tmp_path: Path) -> None:
    program = f"{BEGIN}if k == 1:\n    raise ValueError('mine')\n{TOTAL}"
    code, _, err = mpirun(tmp_path, program)
    assert code == 1
    assert f"missing: process 1 raised ValueError: mine (train.py:{AT + 1}); process" in err


@pytest.mark.parametrize("who", [0, 2])
def test_one_that_is_killed(tmp_path: Path, who: int) -> None:
    program = f"{BEGIN}if k == {who}:\n    os.kill(os.getpid(), signal.SIGKILL)\n{TOTAL}"
    code, _, err = mpirun(tmp_path, program)
    assert code == 128 + signal.SIGKILL or code == 1
    if who:
        assert f"LockstepError: died: process {who} ended without a word" in err
    else:  # JAX's coordinator is gone with it, and JAX aborts all others at once
        assert re.search(r"process rank 0 .* exited on signal 9", err)


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir(mode=0o755)
    code, _, err = mpirun(tmp_path, BEGIN)
    assert code == 1
    assert (
        f"ClusterError: {meeting} must be a folder that only its owner, you, can enter, since a "
        f"key is left in it: chmod 700 {meeting}, or name another one in MCNB_FOLDER"
    ) in err
