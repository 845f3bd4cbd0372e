"""The notebook's end of the keeper."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from mcnb.errors import ClusterError

KEEPER = "keeper"
ENDING_S = 10.0


class Keeping:
    """A keeper process, as the notebook sees it.

    Args:
        folder: The folder that the keeper removes when all is over.
        on_exit: Called with a process's name and how it ended, in words, when one ends; from
            another thread.
    """

    def __init__(self, folder: str, on_exit: Callable[[str, str], None]) -> None:
        self._on_exit = on_exit
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mcnb.launch.keeper", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A stop button's SIGINT, and a Jupyter server's SIGKILL, go to the notebook's group.
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._closing = False
        self._ended: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="mcnb keeper", daemon=True)
        self._reader.start()

    def start(
        self,
        name: str,
        argv: list[str],
        env: Mapping[str, str],
        cwd: str,
        output: str,
        graceful: bool,
        umask: int = -1,
    ) -> None:
        """Start a process.

        Args:
            name: What it is called in orders and reports.
            argv: Its command line.
            env: Its environment.
            cwd: Its working folder.
            output: Where it writes to: files of that name with ".out" and ".err" appended.
            graceful: Whether it gets SIGHUP and a moment to leave before it is killed.
            umask: Its file mode creation mask; -1 for the notebook's.
        """
        self._order(
            do="start",
            name=name,
            argv=argv,
            env=dict(env),
            cwd=cwd,
            output=output,
            graceful=graceful,
            umask=umask,
        )

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process, if it still runs."""
        self._order(do="signal", name=name, number=number)

    def end(self) -> None:
        """End all processes; return when they are gone."""
        self._order(do="end")
        if not self._ended.get(timeout=ENDING_S):
            raise ClusterError("mcnb's keeper process was killed: start the cluster again")

    def close(self) -> None:
        """End everything, the keeper and its folder too; return when they are gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            if self._closing:
                return
            self._closing = True
            with contextlib.suppress(OSError):  # the keeper was killed
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
            raise ClusterError(
                "The process that looks after the cluster is gone, and the cluster with it. "
                "Start it again: %mcjax restart"
            ) from None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = json.loads(line)
            if "ended" in report:
                self._ended.put(True)
            elif "failed" in report:
                self._on_exit(report["name"], f"could not be started ({report['failed']})")
            else:
                self._on_exit(report["name"], describe_exit(report["status"]))
        self._ended.put(False)
        if not self._closing:
            self._on_exit(KEEPER, "was killed")


def describe_exit(status: int) -> str:
    """Say in words how a process ended.

    Args:
        status: Its exit code, or minus the signal that killed it.

    Example:
        >>> describe_exit(1)
        'ended with exit code 1'
        >>> describe_exit(-9)
        'was killed by SIGKILL (from outside, or because the machine ran out of memory)'
    """
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    causes = {
        "SIGKILL": " (from outside, or because the machine ran out of memory)",
        "SIGSEGV": " (a fault in native code)",
        "SIGABRT": " (native code gave up)",
        "SIGBUS": " (a fault in native code, or a full disk)",
    }
    return f"was killed by {name}{causes.get(name, '')}"
