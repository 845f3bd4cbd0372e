"""Identify this process among its job's processes, from arguments or its launcher's environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcnb.lockstep.network import host_of, is_loopback

PROCESS, PROCESSES = "MCNB_PROCESS", "MCNB_PROCESSES"


@dataclass(frozen=True)
class Identity:
    """The identity of a process.

    Attributes:
        process: The process's index.
        processes: The number of processes.
        job: The address of JAX's coordinator, which distinguishes this start from others.
        one_host: Whether all processes are known to run on one host.
    """

    process: int
    processes: int
    job: str = ""
    one_host: bool = True


@dataclass(frozen=True)
class _Launcher:
    """The environment variables that a launcher sets.

    Attributes:
        name: The launcher's name.
        process, processes: The variables of a process's index and of the number of processes.
        hosts: A variable, and another or a number that it equals if all processes run on one host.
    """

    name: str
    process: str
    processes: str
    hosts: tuple[str, str]


# In this order, because mpirun inside an allocation of Slurm also sees Slurm's variables.
# Open MPI: https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html; Slurm:
# https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES; MPICH and its
# descendants: https://github.com/pmodels/mpich/blob/main/doc/wiki/how_to/Using_the_Hydra_Process_Manager.md
_LAUNCHERS = (
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ),
    _Launcher("mpirun", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALNRANKS", "PMI_SIZE")),
    _Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ("SLURM_STEP_NUM_NODES", "1")),
)


def rank_variables(name: str = "") -> tuple[str, ...]:
    """Return the variables with a process's rank, of one launcher or all, most specific first.

    Example:
        >>> rank_variables("srun")
        ('SLURM_PROCID',)
    """
    return tuple(one.process for one in _LAUNCHERS if name in ("", one.name))


def identity_by_mcnb(environment: Mapping[str, str]) -> Identity | None:
    """Return this process's identity if `mcnb run` has started it; None otherwise.

    Example:
        >>> identity_by_mcnb({"MCNB_PROCESS": "2", "MCNB_PROCESSES": "4"})
        Identity(process=2, processes=4, job='', one_host=True)
    """
    process, processes = environment.get(PROCESS, ""), environment.get(PROCESSES, "")
    if not (process.isdecimal() and processes.isdecimal()):
        return None
    return Identity(int(process), int(processes))


def identity_of(given: Mapping[str, Any], environment: Mapping[str, str]) -> Identity | None:
    """Return this process's identity in a job, or None if JAX does not know it either.

    Args:
        given: The arguments of `jax.distributed.initialize`, with what JAX adds to them.
        environment: The process's environment, which may tell that there is only one host.

    Example:
        >>> given = {"coordinator_address": "10.0.0.1:99", "num_processes": 4, "process_id": 2}
        >>> identity_of(given, {})
        Identity(process=2, processes=4, job='10.0.0.1:99', one_host=False)
    """
    process, processes = given.get("process_id"), given.get("num_processes")
    address = given.get("coordinator_address")
    if process is None or processes is None or not address:
        return None
    return Identity(process, processes, address, on_this_host(address) or _one_host(environment))


def _one_host(environment: Mapping[str, str]) -> bool:
    """Return whether the launcher says that it has started all processes on one host."""
    for launcher in _LAUNCHERS:
        if launcher.process in environment:
            first, second = launcher.hosts
            return first in environment and environment[first] == environment.get(second, second)
    return False


def on_this_host(address: str) -> bool:
    """Return whether a coordinator's `host:port` can be reached on this host alone."""
    return is_loopback(host_of(address))
