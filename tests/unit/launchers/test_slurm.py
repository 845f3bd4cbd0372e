"""What Slurm reports of the end of processes."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.errors import ClusterError
from mcnb.launchers import slurm
from mcnb.launchers.slurm import SlurmLauncher
from mcnb.lockstep.messages import exit_text

KILLED = "was killed by SIGKILL (sent by a program, or by the system because memory ran out)"
CANCELLED = "slurmstepd: error: *** JOB 12 ON a1 CANCELLED AT 2026-01-01T00:00:00"
SRUN = """\
slurmstepd: error: *** STEP 3.0 ON vm FAILED (non-zero exit code or other failure mode) ***
srun: error: vm: task 0: Exited with exit code 3
srun: error: vm: tasks 1,4-6: Killed
srun: error: vm: task 2: Segmentation fault (core dumped)
srun: error: vm: task 7: Something new
"""


@pytest.mark.parametrize(
    ("text", "process", "sentence"),
    [
        (SRUN, 0, "ended with exit code 3"),
        (SRUN, 1, KILLED),
        (SRUN, 2, "was killed by SIGSEGV (a fault in native code)"),
        (SRUN, 3, ""),
        (SRUN, 5, KILLED),
        (SRUN, 7, "ended (Something new)"),
        (
            f"{CANCELLED} DUE TO TIME LIMIT ***",
            1,
            "was ended by Slurm: the job reached its time limit",
        ),
        (
            "slurmstepd: error: *** STEP 12.0 ON a1 CANCELLED AT 2026-01-01T00:00:00 ***",
            0,
            "was ended by Slurm: the job was cancelled",
        ),
        (
            f"{CANCELLED} DUE TO PREEMPTION ***",
            0,
            "was ended by Slurm: the job was preempted",
        ),
        ("", 0, ""),
    ],
)
def test_exit_reasons(text: str, process: int, sentence: str) -> None:
    how = SlurmLauncher.parse_exit(process, text)
    assert ("" if how is None else exit_text(how)) == sentence


@pytest.mark.parametrize(
    ("code", "out", "err", "ended"),
    [
        (0, "7 tests ipengine root R 0:01 1 vm\n", "", False),
        (0, "", "", True),
        (1, "", "slurm_load_jobs error: Invalid job id specified\n", True),
        (1, "", "slurm_load_jobs error: Socket timed out on send/recv operation\n", False),
    ],
)
def test_whether_a_job_has_ended(
    code: int, out: str, err: str, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = subprocess.CompletedProcess([], code, out, err)
    monkeypatch.setattr("mcnb.launchers.slurm._ask", lambda *_: answer)
    launcher: Any = SimpleNamespace(engine_set=SimpleNamespace(job_id="7"))
    assert SlurmLauncher.has_ended(launcher) == ended


@pytest.mark.parametrize(
    ("out", "waits"),
    [
        ("PENDING Resources\n", "Slurm starts the job (PENDING: Resources)"),
        ("CONFIGURING None\n", "Slurm starts the job"),
        ("", "Slurm starts the job"),
    ],
)
def test_why_a_job_waits(out: str, waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(*command: str) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, out, "")

    monkeypatch.setattr(slurm, "_ask", ask)
    monkeypatch.setattr(slurm.time, "monotonic", lambda: 100.0)
    launcher: Any = SimpleNamespace(engine_set=SimpleNamespace(job_id="7"), _asked=0.0, _reason="")
    assert SlurmLauncher.queued(launcher) == SlurmLauncher.queued(launcher) == waits
    # It is not asked again at once.
    assert asked == [("squeue", "--noheader", "--format=%T %r", "--jobs", "7")]


def test_the_address_is_the_one_toward_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = subprocess.CompletedProcess([], 0, "b2\na1\nb2\n", "")
    monkeypatch.setattr(slurm, "_ask", lambda *_: answer)
    monkeypatch.setattr(slurm, "address_toward", ",".join)
    launcher: Any = SimpleNamespace()
    assert SlurmLauncher.find_host(launcher) == "a1,b2"
    answer = subprocess.CompletedProcess([], 1, "", "sinfo: error: no controller\n")
    with pytest.raises(ClusterError) as caught:
        SlurmLauncher.find_host(launcher)
    assert str(caught.value) == "Slurm does not answer: sinfo: error: no controller"
