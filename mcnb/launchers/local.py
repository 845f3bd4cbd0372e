"""Start processes on this machine: ipyparallel's launchers, on top of the fork server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ipyparallel
from ipyparallel.cluster.launcher import ControllerLauncher, EngineLauncher
from traitlets import Instance
from traitlets.config import Config

from mcnb._system import LOOPBACK
from mcnb.errors import ClusterError
from mcnb.launchers.base import Launcher, OnExit, process_environment
from mcnb.launchers.exits import CONTROLLER, FORKSERVER, last_lines, output_path, process_name
from mcnb.launchers.forkserver_client import ForkServerClient, give_back, take
from mcnb.lockstep.model import ProcessExit
from mcnb.options import Options

START_TRIES = 3  # ipyparallel's controller chooses ports before it binds them


class LocalLauncher(Launcher):
    """Has a fork server start the controller and the processes.

    Args:
        options: What to start.
    """

    watched = numbered = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = self._make_folder()
        self.forkserver = take(process_environment(options, os.environ))
        self.cluster: ForkedCluster | None = None

    def _make_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="mcnb-"))

    def begin(self, exits: dict[str, ProcessExit], on_exit: OnExit) -> None:
        """Have the fork server start them, again where the controller finds its ports taken."""
        self.forkserver.begin(self.folder, on_exit)
        for try_number in range(1, START_TRIES + 1):
            self.cluster = self._cluster(exits)
            try:
                self._start(self.cluster)
            except (RuntimeError, TimeoutError) as error:
                if try_number == START_TRIES:
                    lines = last_lines(self.output(CONTROLLER))
                    raise ClusterError(
                        f"ipyparallel's controller could not be started: {error}.{lines}"
                    ) from None
                self.forkserver.end(remove=False)
                exits.clear()
            else:
                return

    def _cluster(self, exits: dict[str, ProcessExit]) -> ForkedCluster:
        return ForkedCluster(self.forkserver, self.folder, self.options, exits)

    def _start(self, cluster: ForkedCluster) -> None:
        cluster.start_cluster_sync(n=self.options.processes)

    def connect(self) -> Any:
        """Return a new client of the controller's."""
        assert self.cluster is not None
        return self.cluster.connect_client_sync()

    @property
    def unforked(self) -> str:
        """Why they were started one by one and not forked; empty if they were forked."""
        return self.forkserver.why_not or ""

    @property
    def alive(self) -> bool:
        """Whether the fork server runs."""
        return self.forkserver.alive

    def signal(self, k: int, number: int) -> None:
        """Have the fork server send a process a signal."""
        self.forkserver.signal(self.folder, process_name(k), number)

    def output(self, name: str) -> str:
        """Return the common path of a process's output files."""
        return output_path(self.folder, name)

    def close(self, grace_s: float | None = None) -> None:
        """Have the fork server end everything and remove the folder."""
        give_back(self.forkserver, grace_s)
        shutil.rmtree(self.folder, ignore_errors=True)  # where the fork server was killed


CONNECTION_POLL_S = 0.005
# The fork server sees deaths, so no nanny has to; and a process that is stopped, or busy in native
# code, must not be taken for dead.
CONTROLLER_ARGS = [
    # Signatures alone would let anybody on this machine read what is published.
    "--IPController.enable_curve=True",
    "--nodb",
    "--usethreads",
    "--log-level=WARN",
    "--HeartMonitor.period=20",
    "--HeartMonitor.max_heartmonitor_misses=1000000",
    "--IPController.broadcast_scheduler_depth=0",
]
ENGINE_ARGS = [
    "--IPEngine.enable_nanny=False",
    "--IPEngine.max_heartbeat_misses=0",
    "--IPEngine.timeout=60",
    "--log-level=WARN",
]


class ForkedController(ControllerLauncher):
    """ipyparallel's controller, started by the fork server."""

    def find_args(self) -> list[str]:
        """Return the command line."""
        return [
            *_python("mcnb.launchers.controller"),
            f"--profile-dir={self.profile_dir}",
            f"--work-dir={self.parent.cwd}",
            f"--HeartMonitor.expected={self.parent.n}",
            f"--ip={self.parent.host}",
            f"--location={self.parent.host}",
            *CONTROLLER_ARGS,
        ]

    async def start(self) -> None:
        """Start the controller."""
        self.parent.start_kept(CONTROLLER, self.args, self.get_env())
        self.notify_start({})

    def poll(self) -> ProcessExit | None:
        """Return None while the controller runs, how it ended when it has."""
        exits: Mapping[str, ProcessExit] = self.parent.exits
        return exits.get(CONTROLLER) or exits.get(FORKSERVER)

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
        self.parent.forkserver.signal(self.parent.folder, CONTROLLER, sig)

    async def stop(self) -> None:
        """Do nothing: the fork server ends all processes together."""
        self.notify_stop({})


class ForkedEngines(EngineLauncher):
    """The JAX processes, started by the fork server as ipyparallel's engines."""

    def find_args(self) -> list[str]:
        """Return the command line, but for the process index."""
        return [
            *_python("mcnb.worker"),
            f"--profile-dir={self.profile_dir}",
            f"--work-dir={self.parent.cwd}",
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
            self.parent.forkserver.signal(self.parent.folder, process_name(index), sig)

    async def stop(self) -> None:
        """Do nothing: the fork server ends all processes together."""
        self.notify_stop({})


class ForkedCluster(ipyparallel.Cluster):
    """An ipyparallel cluster whose controller lives and dies with its fork server.

    Args:
        forkserver: The fork server that starts the controller.
        folder: A folder of its own, private to the user, for all that it writes.
        options: What the processes get: their number, devices, platform and environment.
        exits: How processes ended, by name; whoever listens to the fork server fills it in.
        engines: What starts the processes; the fork server, by default.
        host: At which of this host's addresses the controller listens.
        config: What the launcher is told otherwise.
    """

    forkserver = Instance(ForkServerClient)

    def __init__(
        self,
        forkserver: ForkServerClient,
        folder: Path,
        options: Options,
        exits: Mapping[str, ProcessExit],
        engines: type[EngineLauncher] = ForkedEngines,
        host: str = LOOPBACK,
        config: Config | None = None,
    ) -> None:
        super().__init__(
            forkserver=forkserver,
            controller=ForkedController,
            engines=engines,
            n=options.processes,
            profile_dir=str(folder),
            cluster_id="",
            cluster_file="",
            shutdown_atexit=False,
            delay=0,  # the controller listens before its connection files are there
            send_engines_connection_env=engines is ForkedEngines,
            log=_silent_log(),
            config=config or Config(),
        )
        self.folder = folder
        self.host = host
        self.exits = exits
        self.cwd = Path.cwd()
        self._base_env = process_environment(options, os.environ)

    async def start_reachable_controller(self) -> None:
        """Start the controller; return when its connection files are whole."""
        await self.start_controller()
        assert self.controller is not None
        await self.controller.get_connection_info()

    def start_kept(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        """Have the fork server start a process in the notebook's own working folder."""
        module, *arguments = argv[len(_python()) :]
        self.forkserver.start(
            self.folder,
            name,
            module,
            arguments,
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
            umask=0o077 if name == CONTROLLER else None,
        )


def _python(*module: str) -> list[str]:
    return [sys.executable, "-P", "-m", *module]


def _silent_log() -> logging.Logger:
    log = logging.getLogger("mcnb.ipyparallel")
    log.propagate = False
    log.addHandler(logging.NullHandler())
    log.setLevel(logging.CRITICAL)
    return log
