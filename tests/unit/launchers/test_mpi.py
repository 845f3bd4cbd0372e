"""What mpiexec reports of the end of processes."""

from __future__ import annotations

import pytest

from mcnb.launchers.mpi import MpiLauncher
from mcnb.lockstep.messages import exit_text

KILLED = "was killed by SIGKILL (sent by another process, or by the system because memory ran out)"
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
