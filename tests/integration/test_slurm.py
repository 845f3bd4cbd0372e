"""What only a scheduler does: it cancels jobs, ends them in time, and lets them fail in a queue."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import mcnb
from tests.conftest import once, wait_until
from tests.support.launchers import ENDED_S, Engines, launcher_at_home

pytestmark = [once, pytest.mark.thorough("needs daemons of Slurm")]
HANG_S = 120.0
ANEW = (
    "Both processes are being restarted: their variables are lost. To restore them, re-run "
    "the cells that succeeded: %mcjax restart --replay"
)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with launcher_at_home("slurm", tmp_path_factory.mktemp("slurm")) as launcher:
        yield launcher


@pytest.fixture(autouse=True)
def only_its_own_job(launcher: Engines) -> None:
    """Wait until the jobs of the tests before have left the queue."""
    assert wait_until(lambda: launcher.jobs() == "", ENDED_S), launcher.jobs()


def command(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (("scancel", "{job}"), "the job was cancelled"),
        # As its time limit says it, but without a minute's waiting.
        (("scontrol", "update", "JobId={job}", "EndTime=now+1"), "the job reached its time limit"),
    ],
    ids=["scancel", "time limit"],
)
def test_a_job_that_is_ended_in_the_middle_of_a_cell(
    launcher: Engines, order: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    with mcnb.Cluster(2, 1, launcher=launcher.name) as cluster:
        cluster.run("x = 1").raise_for_errors()
        job = command("squeue", "--noheader", "--format=%i")

        def end_it() -> None:
            assert wait_until(lambda: len(list(tmp_path.iterdir())) == 2, HANG_S)
            command(*(word.format(job=job) for word in order))

        helper = threading.Thread(target=end_it)
        helper.start()
        result = cluster.run(
            "import os, time\nprint('begun')\n"
            f"open(f'{tmp_path}/{{os.getpid()}}', 'w').close()\ntime.sleep(10_000)"
        )
        helper.join()
        with pytest.raises(mcnb.ClusterError) as died:
            result.raise_for_errors()
        assert str(died.value) == f"both processes were ended by Slurm: {why}. {ANEW}"
        assert "begun" in result.text()
        assert cluster.run("import jax; print(jax.process_count())").stdout[1] == "2\n"


@pytest.mark.usefixtures("launcher")
def test_what_a_job_said_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'mcnb.worker' in sys.orig_argv: sys.exit('no licence is left')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(mcnb.ClusterError) as failed:
        mcnb.Cluster(2, 1, launcher="slurm").start()
    assert str(failed.value).startswith(
        "The cluster did not start: The slurm job ended before its processes had connected. Its "
        "output:"
    )
    assert "no licence is left" in str(failed.value)


@pytest.mark.usefixtures("launcher")
def test_a_job_that_is_cancelled_in_the_queue() -> None:
    failures: list[BaseException] = []

    def start() -> None:
        try:
            mcnb.Cluster(2, 1, launcher="slurm", launcher_options="--hold").start()
        except BaseException as error:
            failures.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    assert wait_until(lambda: "PD" in command("squeue", "--noheader", "--format=%t"), HANG_S)
    command("scancel", command("squeue", "--noheader", "--format=%i"))
    starting.join()
    assert str(failures[0]).startswith(
        "The cluster did not start: The slurm job ended before its processes had connected."
    )


@pytest.mark.parametrize("answers_after_s", [0, 2])
def test_a_start_that_is_interrupted_while_its_job_waits(
    launcher: Engines, answers_after_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that does not get its turn is waited for, until the user has enough.

    Also where Slurm has the job already and sbatch has not told its number yet.
    """
    slow = tmp_path / "sbatch"
    slow.write_text(f'#!/bin/sh\n{shutil.which("sbatch")} "$@"; sleep {answers_after_s}\n')
    slow.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    code = "import mcnb; mcnb.Cluster(2, 1, launcher='slurm', launcher_options='--hold').start()"
    notebook = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    try:
        assert wait_until(lambda: "PD" in command("squeue", "--noheader", "--format=%t"), HANG_S)
        notebook.send_signal(signal.SIGINT)
        _, said = notebook.communicate(timeout=HANG_S)
    finally:
        notebook.kill()
        notebook.wait()
    assert said.decode().rstrip().endswith("KeyboardInterrupt")
    assert wait_until(lambda: launcher.jobs() == "", ENDED_S), launcher.jobs()
