"""Start processes on this machine with ipyparallel launchers that use the fork server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ipyparallel
import zmq
from ipyparallel.cluster.launcher import ControllerLauncher, EngineLauncher
from traitlets.config import Config

from mcnb._system import LOOPBACK, RunningClock, current_umask, remove_folder
from mcnb.errors import ClusterError
from mcnb.launchers.base import Launcher, OnExit, process_environment
from mcnb.launchers.exits import CONTROLLER, FORKSERVER, last_lines, output_path, process_name
from mcnb.launchers.forkserver import Spec
from mcnb.launchers.forkserver_client import give_back, take
from mcnb.lockstep.model import ProcessExit
from mcnb.options import Options

START_TRIES = 3  # ipyparallel's controller chooses ports before it binds them
CONNECTION_POLL_S = 0.005
# ipyparallel's nanny and heartbeats are off. The fork server detects exits, and a process that is
# stopped, or busy in native code, must not be taken for dead.
CONTROLLER_ARGS = [
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
# The process begins there: ipyparallel would expand a dollar sign in the folder's name.
WORK_DIR = "--work-dir=."
_SOCKET_NUMBER = ":65535"
# ipyparallel's log messages; no level is this high.
_SILENT = logging.Logger("mcnb.ipyparallel", logging.CRITICAL + 1)


def unix_sockets(folder: Path) -> str:
    """Return the common path of a controller's Unix sockets in a folder that only the user enters.

    What passes through them needs no encryption, and is faster without: 10 MB in a third of the
    time.

    Returns:
        The path, to which ipyparallel appends a number; empty if TCP has to be used, with
        encryption.
    """
    path = str(folder / "s")
    fits = len(os.fsencode(path)) + len(_SOCKET_NUMBER) <= zmq.IPC_PATH_MAX_LEN
    # With this variable, ipyparallel's client would encrypt what the controller does not.
    return path if zmq.has("ipc") and fits and "IPP_CURVE_SERVERKEY" not in os.environ else ""


class LocalLauncher(Launcher):
    """A launcher that uses a fork server for the controller and the processes.

    Args:
        options: The cluster's options.
    """

    watched = numbered = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self.forkserver = take(process_environment(options, os.environ))
        self.cluster: ForkedCluster | None = None
        # `close` may run beside `begin` in another thread. Closed, it asks nothing more of the fork
        # server, which may serve another cluster by then.
        self._turn = threading.Lock()  # guards `closed` together with what is asked then
        self.closed = False
        try:
            self.folder = self._make_folder()
        except OSError:
            give_back(self.forkserver)
            raise
        # At once, because the fork server removes the folder if this process is killed.
        with contextlib.suppress(ClusterError):  # it was killed: `begin` raises the error again
            self.forkserver.begin(self.folder, lambda *_: None)

    def _make_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="mcnb-"))

    def begin(self, exits: dict[str, ProcessExit], on_exit: OnExit) -> None:
        """Start the cluster with the fork server, and retry if the controller's ports are taken.

        Raises:
            ClusterError: The controller could not be started, or `close` was called.
        """
        with self._turn:
            if self.closed:
                raise ClusterError("The cluster was closed while it started")
            self.forkserver.begin(self.folder, on_exit)
        for try_number in range(1, START_TRIES + 1):
            self.cluster = self._cluster(exits)
            try:
                self._start(self.cluster)
            except (RuntimeError, TimeoutError) as error:
                if self.closed or try_number == START_TRIES:
                    lines = last_lines(self.output(CONTROLLER))
                    raise ClusterError(
                        f"ipyparallel's controller could not be started: {error}.{lines}"
                    ) from None
                self.forkserver.end(remove=False)
                exits.clear()
            else:
                return

    def _cluster(self, exits: dict[str, ProcessExit]) -> ForkedCluster:
        return ForkedCluster(self, exits)

    def _start(self, cluster: ForkedCluster) -> None:
        cluster.start_cluster_sync(n=self.options.processes)

    def connect(self) -> Any:
        """Return a new ipyparallel client of the controller."""
        assert self.cluster is not None
        return self.cluster.connect_client_sync()

    @property
    def unforked(self) -> str:
        """The reason that the processes were not forked; empty if they were forked."""
        return self.forkserver.why_not or ""

    @property
    def alive(self) -> bool:
        """Whether the fork server is running."""
        return self.forkserver.alive

    def signal(self, k: int, number: int) -> None:
        """Send a process a signal through the fork server."""
        self.forkserver.signal(self.folder, process_name(k), number)

    def output(self, name: str) -> str:
        """Return the base path of a process's output files."""
        return output_path(self.folder, name)

    def close(self, grace_s: float | None = None) -> None:
        """End all processes with the fork server, and remove the folder; a `begin` ends, too."""
        with self._turn:
            self.closed = True
        give_back(self.forkserver, grace_s)
        remove_folder(self.folder)  # needed if the fork server was killed


class ForkedController(ControllerLauncher):
    """Launcher of ipyparallel's controller that uses the fork server."""

    def find_args(self) -> list[str]:
        """Return the controller's module and arguments."""
        return [
            "mcnb.launchers.controller",
            f"--profile-dir={self.profile_dir}",
            WORK_DIR,
            f"--HeartMonitor.expected={self.parent.n}",
            *self._address_args(),
            *CONTROLLER_ARGS,
        ]

    def _address_args(self) -> list[str]:
        """Return the arguments that say where the controller listens, and whether it encrypts."""
        sockets = self.parent.sockets
        if sockets:
            return [
                "--IPController.transport=ipc",
                f"--ip={sockets}",
                f"--location={LOOPBACK}",
                "--IPController.enable_curve=False",
            ]
        host = self.parent.launcher.host or LOOPBACK
        # With signatures alone, any user of this machine could read published messages.
        return [f"--ip={host}", f"--location={host}", "--IPController.enable_curve=True"]

    async def start(self) -> None:
        """Start the controller; return when its connection files are complete."""
        self.parent.start_process(CONTROLLER, self.args, self.get_env())
        self.notify_start({})
        await self.get_connection_info()

    async def get_connection_info(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the connection files' contents when both files are complete.

        ipyparallel does not write the files atomically, so an existing file may be incomplete.
        """
        clock = RunningClock()
        while clock() < (timeout or self.connection_info_timeout):
            try:
                return {
                    kind: json.loads(Path(path).read_text())
                    for kind, path in self.connection_files.items()
                }
            except (FileNotFoundError, json.JSONDecodeError):
                pass
            # After `close`, the fork server starts nothing and so reports nothing.
            if self.parent.launcher.closed or self.parent.exits.keys() & {CONTROLLER, FORKSERVER}:
                raise RuntimeError("the controller ended")
            await asyncio.sleep(CONNECTION_POLL_S)
        raise TimeoutError("the controller did not start in time")


class ForkedEngines(EngineLauncher):
    """Launcher of the JAX processes, as ipyparallel engines, that uses the fork server."""

    def find_args(self) -> list[str]:
        """Return an engine's module and arguments, without the process index."""
        return [
            "mcnb.worker",
            f"--profile-dir={self.profile_dir}",
            WORK_DIR,
            *ENGINE_ARGS,
        ]

    async def start(self, n: int) -> None:
        """Start `n` processes, each of which requests its process index as its engine id."""
        for index in range(n):
            words = [*self.args, f"--IPEngine.id={index}"]
            self.parent.start_process(process_name(index), words, self.get_env())
        self.notify_start({})


class ForkedCluster(ipyparallel.Cluster):
    """An ipyparallel cluster whose controller ends with its fork server.

    Args:
        launcher: The launcher, with the fork server that starts the controller.
        exits: The processes' exit reasons by name, filled in by the fork server's `on_exit`.
        engines: ipyparallel's launcher of the engines; by default, one that uses the fork server.
        config: Additional configuration of the engines' launcher.
    """

    def __init__(
        self,
        launcher: LocalLauncher,
        exits: Mapping[str, ProcessExit],
        engines: type[EngineLauncher] = ForkedEngines,
        config: Config | None = None,
    ) -> None:
        super().__init__(
            controller=ForkedController,
            engines=engines,
            n=launcher.options.processes,
            profile_dir=str(launcher.folder),
            # The folder has no configuration. To look for it, ipyparallel would make folders there,
            # maybe after `close` has removed it.
            load_profile=False,
            cluster_id="",
            cluster_file="",
            shutdown_atexit=False,
            delay=0,  # the controller listens before it writes its connection files
            send_engines_connection_env=engines is ForkedEngines,
            log=_SILENT,
            config=config or Config(),
        )
        self.launcher = launcher
        self.exits = exits
        self.sockets = "" if engines is not ForkedEngines else unix_sockets(launcher.folder)
        self.cwd = Path.cwd()
        self._base_env = process_environment(launcher.options, os.environ)

    def start_process(self, name: str, words: list[str], env: Mapping[str, str]) -> None:
        """Start a process in the kernel's directory; `words` are its module and arguments."""
        module, *arguments = words
        folder = self.launcher.folder
        output = output_path(folder, name)
        own = {
            "MCNB_OUTPUT": output,
            # Keep the user's own IPython configuration out of the processes.
            "IPYTHONDIR": str(folder / "ipython"),
        }
        # ipyparallel makes some files world-readable. For cells, the user's umask applies.
        graceful = name != CONTROLLER
        umask = current_umask() if graceful else 0o077
        environment = {**self._base_env, **env, **own}
        spec = Spec(name, module, arguments, environment, str(self.cwd), output, umask, graceful)
        self.launcher.forkserver.start(folder, spec)
