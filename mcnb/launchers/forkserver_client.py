"""The client of the fork server, in the notebook kernel."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcnb.errors import ClusterError
from mcnb.launchers.base import OnExit
from mcnb.launchers.exits import FORKSERVER
from mcnb.lockstep.model import ExitSource, ProcessExit

ENDING_S = 10.0
_GONE = (
    "The process that looks after the cluster is gone, and the cluster with it. "
    "Start it again: %mcjax restart"
)


class ForkServerClient:
    """A fork server process, as the notebook sees it. It serves one cluster after the other.

    Args:
        env: Its environment, in which it imports what processes need.
        gently: Whether it does so at the lowest priority, until somebody waits for it.

    Attributes:
        env: The environment.
        why_not: Why it can't fork processes, in words; empty if it can, None if that is not
            known yet.
    """

    def __init__(self, env: Mapping[str, str], *, gently: bool = False) -> None:
        self.env = dict(env)
        self.why_not: str | None = None
        self._on_exit: OnExit | None = None
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "mcnb.launchers.forkserver",
                *(["--gently"] if gently else []),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.env,
            cwd="/",  # it outlives the folder in which the notebook began, perhaps
            # A stop button's SIGINT, and a Jupyter server's SIGKILL, go to the notebook's group.
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._closing = False
        self._ended: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="mcnb forkserver", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether the fork server runs."""
        return self._process.poll() is None

    def begin(self, folder: Path, on_exit: OnExit) -> None:
        """Begin a cluster.

        Args:
            folder: The folder that the fork server removes when the cluster ends.
            on_exit: Called with a process's name and how it ended when one ends; from another
                thread.
        """
        self._on_exit = on_exit
        self._order(do="begin", folder=str(folder))

    def start(
        self,
        folder: Path,
        name: str,
        module: str,
        arguments: list[str],
        env: Mapping[str, str],
        cwd: str,
        output: str,
        *,
        graceful: bool,
        umask: int | None = None,
    ) -> None:
        """Start a process.

        Args:
            folder: The cluster's folder. Where that cluster has ended, nothing is started.
            name: What it is called in orders and reports.
            module: The module that it runs.
            arguments: The module's arguments.
            env: Its environment.
            cwd: Its working folder.
            output: Where it writes to: files of that name with ".out" and ".err" appended.
            graceful: Whether it gets SIGHUP and a moment to leave before it is killed.
            umask: Its file mode creation mask; the notebook's by default.
        """
        self._order(
            do="start",
            cluster=str(folder),
            name=name,
            module=module,
            arguments=arguments,
            env=dict(env),
            cwd=cwd,
            output=output,
            graceful=graceful,
            umask=_umask() if umask is None else umask,
        )

    def signal(self, folder: Path, name: str, number: int) -> None:
        """Send a signal to a process of a cluster, if it still runs."""
        self._order(do="signal", cluster=str(folder), name=name, number=number)

    def end(self, *, remove: bool = True, grace_s: float | None = None) -> None:
        """End all processes of the cluster; return when they are gone.

        Args:
            remove: Whether the cluster ends with them, and its folder is removed.
            grace_s: How long processes have to leave before they are killed, in seconds.
        """
        self._order(do="end", remove=remove, grace_s=grace_s)
        if not self._ended.get(timeout=ENDING_S):
            raise ClusterError(_GONE)
        if remove:
            self._on_exit = None

    def close(self) -> None:
        """End everything, and the fork server too; return when all is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            if self._closing:
                return
            self._closing = True
            with contextlib.suppress(OSError):  # the fork server was killed
                self._process.stdin.close()
        self._process.wait(ENDING_S)
        self._reader.join(ENDING_S)
        self._process.stdout.close()

    def _order(self, **order: Any) -> None:
        assert self._process.stdin is not None
        try:
            with self._lock:
                self._process.stdin.write(json.dumps(order).encode() + b"\n")
                self._process.stdin.flush()
        except (OSError, ValueError):
            raise ClusterError(_GONE) from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
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


def _umask() -> int:
    """Return this process's file mode creation mask."""
    with contextlib.suppress(OSError):
        # To ask the system for it is to change it, for other threads too.
        match = re.search(
            r"^Umask:\s*([0-7]+)", Path("/proc/self/status").read_text(), re.MULTILINE
        )
        if match:
            return int(match[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# What may differ between clusters of one fork server: a fork receives it.
_LATE = ("JAX_NUM_CPU_DEVICES", "NPROC")
_lock = threading.Lock()
_idle: ForkServerClient | None = None


def preload(env: Mapping[str, str], *, gently: bool = True) -> None:
    """Have a fork server import what processes need in the background, unless one has.

    Args:
        env: The environment of the processes.
        gently: Whether it does so at the lowest priority, until somebody waits for it.
    """
    global _idle
    with _lock:
        if _idle is None or not _fits(_idle, env):
            before, _idle = _idle, ForkServerClient(_early(env), gently=gently)
        else:
            before = None
    if before is not None:
        before.close()


def take(env: Mapping[str, str]) -> ForkServerClient:
    """Return a fork server for that environment, the one that waits if there is one."""
    global _idle
    with _lock:
        idle = _idle
        if idle is not None and _fits(idle, env):
            _idle = None
            return idle
    return ForkServerClient(_early(env))


def give_back(forkserver: ForkServerClient, grace_s: float | None = None) -> None:
    """End a fork server's cluster; keep it for the next one, or close it if another waits.

    Args:
        forkserver: The fork server.
        grace_s: How long processes have to leave before they are killed, in seconds.
    """
    global _idle
    try:
        forkserver.end(grace_s=grace_s)
    except ClusterError:  # it was killed
        forkserver.close()
        return
    with _lock:
        before, _idle = _idle, forkserver
    if before is not None:
        before.close()


@atexit.register
def close_idle() -> None:
    """Close the fork server that waits, if there is one."""
    global _idle
    with _lock:
        idle, _idle = _idle, None
    if idle is not None:
        idle.close()


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in _LATE}


def _fits(forkserver: ForkServerClient, env: Mapping[str, str]) -> bool:
    return forkserver.alive and forkserver.env == _early(env)
