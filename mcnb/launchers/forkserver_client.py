"""Control fork servers from the notebook kernel, and keep an idle one for the next cluster."""

from __future__ import annotations

import atexit
import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mcnb.errors import ClusterError
from mcnb.launchers.base import OnExit
from mcnb.launchers.exits import FORKSERVER
from mcnb.launchers.forkserver import Spec, python_command
from mcnb.lockstep.model import ExitSource, ProcessExit

ENDING_S = 60.0  # a second or two, but longer on a busy machine
_GONE = (
    "The fork server, which starts and monitors the processes, has ended, and the processes with "
    "it. To restart the cluster (variables are lost): %mcjax restart"
)
# Variables that may differ between clusters of one fork server, because each fork receives them.
_LATE = ("JAX_NUM_CPU_DEVICES", "NPROC")


class ForkServerClient:
    """Client of a fork server process, which serves one cluster after another.

    Args:
        env: The fork server's environment, in which it preloads the processes' modules.
        gently: Whether to preload at the lowest priority until a process needs the modules.

    Attributes:
        env: The environment.
        why_not: Why the fork server can't fork, in words; empty if it can, None if not known yet.
    """

    def __init__(self, env: Mapping[str, str], *, gently: bool = False) -> None:
        self.env = dict(env)
        self.why_not: str | None = None
        self._on_exit: OnExit | None = None
        self._process = subprocess.Popen(
            [*python_command("mcnb.launchers.forkserver"), *(["--gently"] if gently else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.env,
            cwd="/",  # the fork server may outlive the notebook kernel's working directory
            # Jupyter sends SIGINT (stop button) and SIGKILL to the notebook kernel's group.
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._reports = self._process.stdin, self._process.stdout
        self._lock = threading.Lock()
        self._closing = False
        self._ended: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="mcnb forkserver", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether the fork server process is running."""
        return self._process.poll() is None

    def begin(self, folder: Path, on_exit: OnExit) -> None:
        """Start using the fork server for a cluster.

        Args:
            folder: The folder that the fork server removes when the cluster ends.
            on_exit: Called from another thread with the name and exit reason of an ended process.
        """
        self._on_exit = on_exit
        self._order(do="begin", folder=str(folder))

    def start(self, folder: Path, spec: Spec) -> None:
        """Start a process.

        Args:
            folder: The cluster's folder. If that cluster has ended, no process is started.
            spec: The process.
        """
        self._order(do="start", cluster=str(folder), **asdict(spec))

    def signal(self, folder: Path, name: str, number: int) -> None:
        """Send a signal to a process of a cluster, if the process still runs."""
        self._order(do="signal", cluster=str(folder), name=name, number=number)

    def end(self, *, remove: bool = True, grace_s: float | None = None) -> None:
        """End all processes of the cluster; return when they have ended.

        Args:
            remove: Whether to end the cluster, too, and remove its folder.
            grace_s: How many seconds processes have to exit before they are killed.
        """
        self._order(do="end", remove=remove, grace_s=grace_s)
        try:
            ended = self._ended.get(timeout=ENDING_S)
        except queue.Empty:  # it is stopped, for example
            self._process.kill()
            ended = False
        if not ended:
            raise ClusterError(_GONE)
        if remove:
            self._on_exit = None

    def close(self) -> None:
        """End all processes and the fork server; return when they have ended."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            with contextlib.suppress(OSError):  # the fork server was killed
                self._orders.close()
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(ENDING_S)
        self._reports.close()

    def _order(self, **order: Any) -> None:
        try:
            with self._lock:
                self._orders.write(json.dumps(order).encode() + b"\n")
                self._orders.flush()
        except (OSError, ValueError):
            raise ClusterError(_GONE) from None

    def _read(self) -> None:
        for line in self._reports:
            report = json.loads(line)
            if "ended" in report:
                self._ended.put(True)
            elif "why_not" in report:
                self.why_not = report["why_not"]
            elif "failed" in report:
                how = ProcessExit(ExitSource.NOT_STARTED, reason=report["failed"])
                self._tell(report["name"], how)
            else:
                self._tell(report["name"], ProcessExit(ExitSource.OBSERVED, report["status"]))
        self._ended.put(False)
        if not self._closing:
            self._tell(FORKSERVER, ProcessExit(ExitSource.OBSERVED))

    def _tell(self, name: str, how: ProcessExit) -> None:
        if self._on_exit is not None:
            self._on_exit(name, how)


_lock = threading.Lock()  # guards _idle
_idle: ForkServerClient | None = None


def preload(env: Mapping[str, str], *, gently: bool = True) -> None:
    """Start an idle fork server for processes with this environment, unless there is one."""
    global _idle
    with _lock:
        if _idle is not None and _fits(_idle, env):
            return
        before, _idle = _idle, ForkServerClient(_early(env), gently=gently)
    if before is not None:
        before.close()


def take(env: Mapping[str, str]) -> ForkServerClient:
    """Return a fork server for an environment: the idle one if it fits, otherwise a new one."""
    global _idle
    with _lock:
        if (idle := _idle) is not None and _fits(idle, env):
            _idle = None
            return idle
    return ForkServerClient(_early(env))


def give_back(forkserver: ForkServerClient, grace_s: float | None = None) -> None:
    """End a fork server's cluster, and keep it as the idle fork server; close the previous one."""
    try:
        forkserver.end(grace_s=grace_s)
    except ClusterError:  # the fork server was killed
        forkserver.close()
    else:
        _keep(forkserver)


@atexit.register
def close_idle() -> None:
    """Close the idle fork server, if there is one."""
    _keep(None)


def _keep(forkserver: ForkServerClient | None) -> None:
    """Replace the idle fork server, and close the previous one."""
    global _idle
    with _lock:
        before, _idle = _idle, forkserver
    if before is not None:
        before.close()


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in _LATE}


def _fits(forkserver: ForkServerClient, env: Mapping[str, str]) -> bool:
    return forkserver.alive and forkserver.env == _early(env)
