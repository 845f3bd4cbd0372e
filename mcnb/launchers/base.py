"""What each launcher has to offer, and the environment of the processes that it starts."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mcnb.lockstep.model import ProcessExit
from mcnb.options import Options

THREADS_FOR_EACH, MOST_THREADS = 8, 64


OnExit = Callable[[str, ProcessExit], None]


class Launcher(ABC):
    """A way to have processes; each is an ipyparallel engine.

    Attributes:
        folder: A folder that this user alone can enter, for what the processes share.
        host: At which of this host's addresses the processes find the referee; empty where a socket
            in the folder will do.
        watched: Whether it tells by itself when a process ends, and can send it signals.
        numbered: Whether engines have their process index as their id.
        patient: Whether processes may wait in a queue, for who knows how long, before they begin.
        told_s: How long it may take, in seconds, until it knows how a process ended.
    """

    folder: Path
    host: str = ""
    watched: bool = False
    numbered: bool = False
    patient: bool = False
    told_s: float = 0.0

    @abstractmethod
    def begin(self, exits: dict[str, ProcessExit], on_exit: OnExit) -> None:
        """Bring them up, or begin to.

        Args:
            exits: How what is gone ended, by name.
            on_exit: Called with a name and how it ended when something ends.

        Raises:
            ClusterError: That is not possible.
        """

    @abstractmethod
    def connect(self) -> Any:
        """Return a new client of ipyparallel's."""

    def failure(self) -> str:
        """Return why processes that have not come up yet never will, as far as is known."""
        return ""

    def said(self) -> str:
        """Return what the launcher has said, for the end of a sentence; empty if nothing."""
        return ""

    def ending(self, k: int) -> ProcessExit | None:
        """Return how a process ended that is gone without a word; None if that is not known."""
        del k
        return None

    @property
    def unforked(self) -> str:
        """Why processes import JAX one by one; empty if they do not."""
        return ""

    @property
    def alive(self) -> bool:
        """Whether the process that started them, and ends them, runs."""
        return True

    def signal(self, k: int, number: int) -> None:
        """Send a process a signal."""
        raise NotImplementedError

    def output(self, name: str) -> str:
        """Return the common path of a process's output files; empty if they can't be read here."""
        del name
        return ""

    @abstractmethod
    def close(self, grace_s: float | None = None) -> None:
        """End everything; return when all is gone.

        Args:
            grace_s: How long processes have to leave before they are killed, in seconds, where that
                can be chosen.
        """


def process_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the cluster's processes.

    What would fight with the number of devices or with `jax.distributed.initialize` is left out.

    Args:
        options: Platform, number of devices and the user's own settings, which win.
        inherited: The notebook's environment.

    Example:
        >>> env = process_environment(
        ...     Options(devices_per_process=2),
        ...     {"XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_dump_to=d"},
        ... )
        >>> env["XLA_FLAGS"], env["JAX_NUM_CPU_DEVICES"]
        ('--xla_dump_to=d', '2')
    """
    env = {
        name: value
        for name, value in inherited.items()
        if name not in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    }
    flags = env.get("XLA_FLAGS", "").split()
    flags = [f for f in flags if not f.startswith("--xla_force_host_platform_device_count")]
    env["XLA_FLAGS"] = " ".join(flags)
    env["JAX_PLATFORMS"] = options.platform
    env["JAX_NUM_CPU_DEVICES"] = str(options.devices_per_process)
    env.setdefault("NPROC", str(threads_for(options.devices_per_process)))
    # Plots are drawn into the notebook: no process needs a display.
    env["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    env["PYTHONIOENCODING"] = "utf-8"
    env.update(options.env)
    return env


def threads_for(devices: int) -> int:
    """Return how many threads XLA is to have for a process's CPU devices.

    By default it has as many as there are cores. On a laptop these are all taken by collectives of
    launches that nobody has waited for, each of which waits for another that finds none: a few
    dozen launches without a wait can hang for ever. XLA takes `NPROC` for the number of cores:
    DefaultThreadPoolSize in https://github.com/openxla/xla/blob/main/xla/pjrt/utils.cc
    """
    return max(os.cpu_count() or 1, min(THREADS_FOR_EACH * devices, MOST_THREADS))
