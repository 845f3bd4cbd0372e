"""Define the launcher interface, and the environment of the processes that launchers start."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcnb._system import THREADS, threads_for
from mcnb.lockstep.compiling import without_device_count
from mcnb.lockstep.model import ProcessExit
from mcnb.lockstep.ranks import rank_variables
from mcnb.options import JAX_PLATFORMS, Options

# Prefixes of the notebook kernel's variables that processes on other hosts receive, too.
_FORWARDED = ("JAX_", "XLA_")

OnExit = Callable[[str, ProcessExit], None]


class Launcher(ABC):
    """Base class of launchers, which start processes as ipyparallel engines.

    Another package adds a launcher with an entry point in the group `mcnb.launchers`: the name for
    `--launcher`, and a subclass that takes the cluster's options as its only argument.

    Attributes:
        folder: The private folder, for this user only, of the files that the processes share.
        host: The address of this host at which the processes reach the referee; empty if a socket
            in the folder is enough.
        watched: Whether the launcher reports each process's exit, and can send the process signals.
        numbered: Whether the engine ids are the process indices.
        rank_variables: The environment variables of which the first that a process has contains its
            rank. The ranks become the process indices, if the engine ids are not.
        patient: Whether processes may wait in a queue for an unlimited time before they start.
        exit_delay_s: How many seconds the launcher may need to find out an exit reason.
    """

    folder: Path
    host: str = ""
    watched: bool = False
    numbered: bool = False
    rank_variables: tuple[str, ...] = rank_variables()
    patient: bool = False
    exit_delay_s: float = 0.0

    @abstractmethod
    def begin(self, exits: dict[str, ProcessExit], on_exit: OnExit) -> None:
        """Start the processes, without waiting until they are ready.

        Args:
            exits: The exit reasons of ended processes, by name.
            on_exit: Called with a process's name and exit reason when the process ends.

        Raises:
            ClusterError: The processes can't be started.
        """

    @abstractmethod
    def connect(self) -> Any:
        """Return a new ipyparallel client."""

    def failure(self) -> str:
        """Return why the missing processes can never start; empty if no reason is known."""
        return ""

    def queued(self) -> str:
        """Return what a job that has no process yet waits for, after "until"; else empty."""
        return ""

    def output_lines(self) -> str:
        """Return the launcher's output, to be appended to a sentence; empty if there is none."""
        return ""

    def exit_of(self, k: int) -> ProcessExit | None:
        """Return the exit reason of a process that was lost; None if the reason is not known."""
        del k
        return None

    @property
    def unforked(self) -> str:
        """The reason that each process imports JAX itself; empty if the processes are forked."""
        return ""

    @property
    def alive(self) -> bool:
        """Whether the process that starts and ends the cluster's processes is running."""
        return True

    def signal(self, k: int, number: int) -> None:
        """Send a process a signal."""
        raise NotImplementedError

    def output(self, name: str) -> str:
        """Return the base path of a process's output files; empty if unreadable from here."""
        del name
        return ""

    @abstractmethod
    def close(self, grace_s: float | None = None) -> None:
        """End all processes; return when they have ended.

        Args:
            grace_s: How many seconds processes have to exit before they are killed, if the launcher
                supports a choice.
        """


# What the kernel's process has for itself: who it is in a program of its own, and which notebook
# somebody has opened it for.
_OF_THE_KERNEL = frozenset(
    ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JPY_SESSION_NAME")
)


def process_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the cluster's processes.

    Variables that conflict with the device count or `jax.distributed.initialize` are removed, and
    so is the one by which a kernel knows that its notebook is open.

    Args:
        options: The platform, the number of devices and the user's settings, which take precedence.
        inherited: The notebook kernel's environment.

    Example:
        >>> env = process_environment(
        ...     Options(devices_per_process=2),
        ...     {"XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_dump_to=d"},
        ... )
        >>> env["XLA_FLAGS"], env["JAX_NUM_CPU_DEVICES"]
        ('--xla_dump_to=d', '2')
    """
    env = {name: value for name, value in inherited.items() if name not in _OF_THE_KERNEL}
    env["XLA_FLAGS"] = without_device_count(env.get("XLA_FLAGS", ""))
    env["JAX_PLATFORMS"] = JAX_PLATFORMS[options.platform]
    env["JAX_NUM_CPU_DEVICES"] = str(options.devices_per_process)
    env.setdefault(THREADS, str(threads_for(options.devices_per_process)))
    # Plots are drawn inline in the notebook, so no process needs a display.
    env["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    env["PYTHONIOENCODING"] = "utf-8"
    env.update(options.env)
    return env


def forwarded_environment(options: Options) -> dict[str, str]:
    """Return the environment of processes that don't inherit the notebook kernel's variables."""
    inherited = {k: v for k, v in os.environ.items() if k.startswith(_FORWARDED)}
    return process_environment(options, inherited)
