"""ipyparallel's launchers for this machine, with the keeper as the one who starts processes.

This is the seam for other ways to start processes: whatever implements ipyparallel's launcher
interface can take this module's place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ipyparallel
from ipyparallel.cluster.launcher import ControllerLauncher, EngineLauncher
from traitlets import Instance

from mcnb.launch.keeping import Keeping
from mcnb.options import Options

CONTROLLER = "controller"
CONNECTION_POLL_S = 0.005

# The keeper sees deaths, so no nanny has to, and a process that is stopped or deep in native code
# must not be given up for dead. A new engine is known only at the next heartbeat: be quick there.
CONTROLLER_ARGS = [
    "--ip=127.0.0.1",
    "--nodb",
    "--usethreads",
    "--log-level=WARN",
    "--HeartMonitor.period=200",
    "--HeartMonitor.max_heartmonitor_misses=1000000",
    "--IPController.broadcast_scheduler_depth=0",
]
ENGINE_ARGS = [
    "--IPEngine.enable_nanny=False",
    "--IPEngine.max_heartbeat_misses=0",
    "--IPEngine.timeout=60",
    "--log-level=WARN",
]


def process_name(index: int) -> str:
    """Return the keeper's name for a JAX process."""
    return f"process {index}"


def process_index(name: str) -> int | None:
    """Return the index of the process of that name, None for the controller."""
    match = re.fullmatch(r"process (\d+)", name)
    return int(match[1]) if match else None


def output_path(folder: Path, name: str) -> str:
    """Return the common path of a process's output files."""
    return str(folder / name.replace(" ", "-"))


class KeptController(ControllerLauncher):
    """ipyparallel's controller, started by the keeper."""

    def find_args(self) -> list[str]:
        """Return the command line."""
        return [
            *(sys.executable, "-P", "-m", "mcnb.launch.controller"),
            f"--profile-dir={self.profile_dir}",
            *CONTROLLER_ARGS,
        ]

    async def start(self) -> None:
        """Start the controller."""
        self.parent.start_kept(CONTROLLER, self.args, self.get_env())
        self.notify_start({})

    def poll(self) -> str | None:
        """Return None while the controller runs, how it ended when it has."""
        how: str | None = self.parent.exits.get(CONTROLLER)
        return how

    async def get_connection_info(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the connection files' contents once both are whole.

        ipyparallel does not write them atomically, so a file that exists may be half a file.
        """
        deadline = time.monotonic() + (timeout or self.connection_info_timeout)
        while time.monotonic() < deadline:
            try:
                return {
                    kind: json.loads(Path(path).read_text())
                    for kind, path in self.connection_files.items()
                }
            except (FileNotFoundError, json.JSONDecodeError):
                pass
            if self.poll() is not None:
                raise RuntimeError("the controller ended")
            await asyncio.sleep(CONNECTION_POLL_S)
        raise TimeoutError("the controller did not come up")

    def signal(self, sig: int) -> None:
        """Send the controller a signal."""
        self.parent.keeping.signal(CONTROLLER, sig)

    async def stop(self) -> None:
        """Do nothing: the keeper ends all processes together."""
        self.notify_stop({})


class KeptProcesses(EngineLauncher):
    """The JAX processes, started by the keeper as ipyparallel's engines."""

    def find_args(self) -> list[str]:
        """Return the command line, but for the process index."""
        return [
            *(sys.executable, "-P", "-m", "mcnb.process"),
            f"--profile-dir={self.profile_dir}",
            *ENGINE_ARGS,
        ]

    async def start(self, n: int) -> None:
        """Start `n` processes, each with its index as the engine id that it asks for."""
        self.n = n
        for index in range(n):
            self.parent.start_kept(
                process_name(index), [*self.args, f"--IPEngine.id={index}"], self.get_env()
            )
        self.notify_start({})

    def signal(self, sig: int) -> None:
        """Send all processes a signal."""
        for index in range(self.n):
            self.parent.keeping.signal(process_name(index), sig)

    async def stop(self) -> None:
        """Do nothing: the keeper ends all processes together."""
        self.notify_stop({})


class KeptCluster(ipyparallel.Cluster):
    """An ipyparallel cluster on this machine that lives and dies with its keeper.

    Args:
        keeping: The keeper that starts its processes.
        folder: A folder of its own, private to the user, for all that it writes.
        options: What the processes get: their number, devices, platform and environment.
        exits: How processes ended, by name; whoever listens to the keeper fills it in.
    """

    keeping = Instance(Keeping)

    def __init__(
        self, keeping: Keeping, folder: Path, options: Options, exits: Mapping[str, str]
    ) -> None:
        super().__init__(
            keeping=keeping,
            controller=KeptController,
            engines=KeptProcesses,
            n=options.processes,
            profile_dir=str(folder),
            cluster_id="",
            cluster_file="",
            shutdown_atexit=False,
            send_engines_connection_env=True,
            log=_silent_log(),
        )
        self.folder = folder
        self.exits = exits
        self.cwd = Path.cwd()
        self._base_env = process_environment(options, os.environ)

    def start_kept(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        """Have the keeper start a process in the notebook's own working folder."""
        self.keeping.start(
            name,
            argv,
            {
                **self._base_env,
                **env,
                "MCNB_OUTPUT": output_path(self.folder, name),
                # The user's own IPython is none of the processes' business.
                "IPYTHONDIR": str(self.folder / "ipython"),
            },
            str(self.cwd),
            output_path(self.folder, name),
            graceful=name != CONTROLLER,
            # ipyparallel writes some files for all to read. What cells write is the user's affair.
            umask=0o077 if name == CONTROLLER else -1,
        )


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
    # Plots are drawn into the notebook: no process needs a display.
    env["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    env["PYTHONIOENCODING"] = "utf-8"
    env.update(options.env)
    return env


def _silent_log() -> logging.Logger:
    log = logging.getLogger("mcnb.ipyparallel")
    log.propagate = False
    log.addHandler(logging.NullHandler())
    log.setLevel(logging.CRITICAL)
    return log
