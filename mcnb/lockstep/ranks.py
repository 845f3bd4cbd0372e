"""Identify this process among its job's processes, from arguments or its launcher's environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcnb.errors import ClusterError

PROCESS, PROCESSES = "MCNB_PROCESS", "MCNB_PROCESSES"
OURS = "mcnb run"


@dataclass(frozen=True)
class Identity:
    """The identity of a process.

    Attributes:
        process: The process's index.
        processes: The number of processes.
        launcher: The name of the launcher that started the processes.
        job: A name that distinguishes this start from others of the same user.
        one_host: Whether all processes are known to run on one host.
    """

    process: int
    processes: int
    launcher: str
    job: str = ""
    one_host: bool = True


@dataclass(frozen=True)
class _Launcher:
    """The environment variables that a launcher sets.

    Attributes:
        name: The launcher's name.
        process, processes: The variables of a process's index and of the number of processes.
        job: The variables that distinguish one start from another.
        hosts: A variable, and another or a number that it equals if all processes run on one host.
    """

    name: str
    process: str
    processes: str
    job: tuple[str, ...] = ()
    hosts: tuple[str, str] = ("", "")


# In this order, because mpirun inside an allocation of Slurm also sees Slurm's variables.
# Open MPI: https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html; Slurm:
# https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES; MPICH and its
# descendants: https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md
_LAUNCHERS = (
    _Launcher(OURS, PROCESS, PROCESSES),
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("PMIX_NAMESPACE",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ),
    _Launcher("mpirun", "PMI_RANK", "PMI_SIZE", (), ("MPI_LOCALNRANKS", "PMI_SIZE")),
    _Launcher(
        "srun",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
        ("SLURM_STEP_NUM_NODES", "1"),
    ),
)


def rank_variables(name: str = "") -> tuple[str, ...]:
    """Return the variables with a process's rank, of one launcher or all, most specific first.

    Example:
        >>> rank_variables("srun")
        ('SLURM_PROCID',)
    """
    others = [launcher for launcher in _LAUNCHERS if launcher.name != OURS]
    return tuple(launcher.process for launcher in others if name in ("", launcher.name))


def identify(environment: Mapping[str, str]) -> Identity:
    """Return the identity of this process from its environment.

    Raises:
        ClusterError: No known launcher has started the process.

    Example:
        >>> identify({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}).process
        2
    """
    for launcher in _LAUNCHERS:
        process = environment.get(launcher.process, "")
        processes = environment.get(launcher.processes, "")
        if process.isdecimal() and processes.isdecimal() and int(process) < int(processes):
            # Without a name for the job, children of one parent belong together.
            job = [environment.get(name, "") for name in launcher.job]
            first, second = launcher.hosts
            equal = environment.get(first, first) == environment.get(second, second)
            return Identity(
                int(process),
                int(processes),
                launcher.name,
                ".".join(job) if all(job) and job else f"parent {os.getppid()}",
                equal,
            )
    raise ClusterError(
        "The environment does not say which process this is. Start the program with mcnb run "
        "FILE, srun python -m mcnb.lockstep FILE, or mpirun python -m mcnb.lockstep FILE"
    )


def identity_of(given: Mapping[str, Any], environment: Mapping[str, str]) -> Identity:
    """Return this process's identity, first from `jax.distributed.initialize`'s arguments.

    Raises:
        ClusterError: Neither the arguments nor the environment identify the process.

    Example:
        >>> given = {"coordinator_address": "10.0.0.1:99", "num_processes": 4, "process_id": 2}
        >>> identity_of(given, {})
        Identity(process=2, processes=4, launcher='initialize', job='10.0.0.1:99', one_host=False)
    """
    process, processes = given.get("process_id"), given.get("num_processes")
    if process is None or processes is None:
        return identify(environment)
    address = given.get("coordinator_address") or ""
    return Identity(process, processes, "initialize", address, on_this_host(address))


def on_this_host(address: str) -> bool:
    """Return whether a coordinator's `host:port` can be reached on this host alone."""
    return address.rpartition(":")[0] in ("localhost", "127.0.0.1")
