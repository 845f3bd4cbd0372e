"""Where mpiexec starts processes, and what it reports of their end."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.launchers import mpi
from mcnb.launchers.mpi import MpiLauncher
from mcnb.lockstep.messages import exit_text

KILLED = "was killed by SIGKILL (sent by a program, or by the system because memory ran out)"
OPEN_MPI_4 = """\
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpiexec noticed that process rank 2 with PID 0 on node one exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
OPEN_MPI_5 = """\
--------------------------------------------------------------------------
prterun noticed that process rank 12 with PID 4711 on node one exited on
signal 11 (Segmentation fault).
--------------------------------------------------------------------------
"""
EXIT_CODE = """\
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[61037,1],3]
  Exit code:    7
"""


@pytest.mark.parametrize(
    ("text", "process", "sentence"),
    [
        (OPEN_MPI_4, 2, KILLED),
        (OPEN_MPI_4, 0, ""),
        (OPEN_MPI_5, 12, "was killed by SIGSEGV (a fault in native code)"),
        (OPEN_MPI_5, 2, ""),
        (OPEN_MPI_5, 1, ""),
        (EXIT_CODE, 3, "ended with exit code 7"),
        (EXIT_CODE, 1, ""),
        ("", 0, ""),
    ],
)
def test_exit_reasons(text: str, process: int, sentence: str) -> None:
    how = MpiLauncher.parse_exit(process, text)
    assert ("" if how is None else exit_text(how)) == sentence


@pytest.mark.parametrize(
    ("words", "environment", "address"),
    [
        ("", {}, "127.0.0.1"),
        ("--bind-to none", {}, "127.0.0.1"),
        ("--host one,two", {}, "10.0.0.7"),
        ("-hostfile hosts", {}, "10.0.0.7"),
        ("-machinefile hosts", {}, "10.0.0.7"),
        ("-H one,two", {}, "10.0.0.7"),
        ("", {"SLURM_JOB_ID": "7"}, "10.0.0.7"),
        ("", {"PBS_NODEFILE": ""}, "127.0.0.1"),
    ],
)
def test_processes_on_other_hosts_need_another_address(
    words: str, environment: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setattr(mpi, "outward_address", lambda: "10.0.0.7")
    launcher: Any = SimpleNamespace(words=words.split())
    assert MpiLauncher.find_host(launcher) == address


class Here(MpiLauncher):
    """A launcher that is not connected to anything."""

    def __init__(self, host: str) -> None:
        self.host, self.words = host, ["-x", "A"]


def test_more_processes_than_cores_are_allowed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"OMPI_MCA_rmaps_base_oversubscribe": "0"})
    here, there = Here("127.0.0.1"), Here("10.0.0.7")
    assert here.engine_traits() == {
        "mpi_args": ["-x", "A"],
        # What the user has set stays.
        "environment": {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"},
    }
    assert there.engine_traits() == {"mpi_args": ["-x", "A"]}
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ada"))
    assert (here.folder_parent(), there.folder_parent()) == (None, Path("/home/ada/.cache/mcnb"))
