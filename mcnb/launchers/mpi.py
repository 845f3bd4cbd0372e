"""Start processes with mpiexec of Open MPI or MPICH."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ipyparallel.cluster.launcher import MPIEngineSetLauncher

from mcnb._system import LOOPBACK, outward_address
from mcnb.launchers.batch import REPORT_S, BatchLauncher
from mcnb.lockstep.model import ExitSource, ProcessExit
from mcnb.lockstep.ranks import rank_variables

# By default Open MPI refuses more processes than cores. The settings are for versions 4 and 5.
_MORE_THAN_CORES = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
# Set inside a job to which hosts are allocated, possibly other hosts than this one.
_ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "PE_HOSTFILE", "LSB_HOSTS")
# mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed).
_SIGNAL = re.compile(
    r"that process rank (?P<who>\d+) with(?:.|\n){1,300}?exited\s+on\s+signal\s+(?P<status>\d+)"
)
# Process name: [[1234,1],2]
#   Exit code:    3
_CODE = re.compile(r"Process name: \[[^]]*\],(?P<who>\d+)\]\s+Exit code:\s+(?P<status>\d+)")


class MpiEngines(MPIEngineSetLauncher):
    """Launcher of engines with Open MPI or MPICH, which set the ranks in the environment.

    With ipyparallel's own option, engines would ask MPI for their ranks, which requires mpi4py.
    """

    @property
    def program(self) -> list[str]:
        """The command line of an engine."""
        return list(self.engine_cmd)


class MpiLauncher(BatchLauncher):
    """A launcher that starts the processes with mpiexec, on this host or on others.

    Open MPI: https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html
    """

    engines = MpiEngines
    rank_variables = rank_variables("mpirun")
    exit_delay_s = REPORT_S

    def find_host(self) -> str:
        """Return loopback, unless mpiexec's options or a job may name other hosts."""
        allocated = any(os.environ.get(name) for name in _ALLOCATIONS)
        named = any("host" in word or "machinefile" in word for word in self.words)
        return outward_address() if allocated or named or "-H" in self.words else LOOPBACK

    def folder_parent(self) -> Path | None:
        """Return the parent of the shared folder; None for this host's temporary folder."""
        return None if self.host == LOOPBACK else super().folder_parent()

    def engine_traits(self) -> dict[str, Any]:
        """Return mpiexec's options and settings."""
        given: dict[str, Any] = {"mpi_args": self.words}
        if self.host == LOOPBACK:
            settings = {k: v for k, v in _MORE_THAN_CORES.items() if k not in os.environ}
            given["environment"] = settings
        return given

    @staticmethod
    def parse_exit(process: int, text: str) -> ProcessExit | None:
        """Parse a process's exit reason from the output of mpiexec."""
        for pattern, sign in ((_SIGNAL, -1), (_CODE, 1)):
            for found in pattern.finditer(text):
                if int(found["who"]) == process:
                    return ProcessExit(ExitSource.LAUNCHER, sign * int(found["status"]))
        return None
