"""The keeper: one small process between the notebook and all that it starts.

    notebook kernel ──stdin──▶ keeper ──fork──▶ controller, process 0, process 1, ...
                    ◀─stdout──        ◀─exit──

It starts processes, delivers signals to them and reports how they end. When the notebook is
gone, however it went, it ends everything that it started, and everything that those started,
removes the folder that they shared, and goes too. Orders and reports are lines of JSON.

It runs as `python -P -m mcnb.launch.keeper FOLDER` and imports nothing but the standard library
and psutil.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

import psutil

GRACE_S = 1.0  # for atexit handlers and open files, before SIGKILL
PARENT_POLL_S = 1.0  # only where the kernel cannot tell us that the notebook died
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    """Have the system kill this process when its parent ends, where the system can."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Keeper:
    """The keeper's state: the processes that it started and still has.

    Args:
        folder: The folder to remove at the end.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.graceful: set[str] = set()
        self.parent = os.getppid()
        self.selector = selectors.DefaultSelector()
        self.pending = b""

    def run(self) -> None:
        """Serve until the notebook is gone, then end everything."""
        # Orphans of what we start become our children, so that none can slip away.
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(wake_read, selectors.EVENT_READ, "wake")
        self.selector.register(0, selectors.EVENT_READ, "order")
        timeout = self._watch_parent()
        try:
            while os.getppid() == self.parent:
                for key, _ in self.selector.select(timeout):
                    if key.data == "notebook gone":
                        return
                    data = os.read(key.fd, 65536)
                    if key.data == "order" and not self._obey(data):
                        return
                self._reap()
        finally:
            self._end_all()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _watch_parent(self) -> float | None:
        # The pipe alone is not enough: a process that the notebook forked keeps it open.
        try:
            self.selector.register(
                os.pidfd_open(self.parent), selectors.EVENT_READ, "notebook gone"
            )
        except (AttributeError, OSError):
            return PARENT_POLL_S
        return None

    def _obey(self, data: bytes) -> bool:
        if not data:
            return False
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            getattr(self, f"_do_{order.pop('do')}")(**order)
        return True

    def _do_start(
        self,
        name: str,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        output: str,
        graceful: bool,
        umask: int,
    ) -> None:
        try:
            with open(f"{output}.out", "ab") as out, open(f"{output}.err", "ab") as err:  # noqa: PTH123
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=env,
                    cwd=cwd,
                    start_new_session=True,
                    umask=umask,
                    preexec_fn=die_with_parent,
                )
        except OSError as error:
            self._report(name=name, failed=f"{error.strerror}: {error.filename}")
        else:
            self.running[name] = process
            if graceful:
                self.graceful.add(name)

    def _do_signal(self, name: str, number: int) -> None:
        if name in self.running:
            self.running[name].send_signal(number)

    def _do_end(self) -> None:
        """End everything that runs, and say when it is gone."""
        self._end_all()
        self.graceful.clear()
        self._report(ended=True)

    def _reap(self) -> None:
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13; there are no orphans of ours
            exited = [name for name, process in self.running.items() if process.poll() is not None]
            for name in exited:
                self._report(name=name, status=self.running.pop(name).returncode)
            return
        names = {process.pid: name for name, process in self.running.items()}
        with contextlib.suppress(ChildProcessError):
            while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if child.si_pid in names:
                    name = names[child.si_pid]
                    self._report(name=name, status=self.running.pop(name).wait())
                else:
                    os.waitpid(child.si_pid, 0)

    def _end_all(self) -> None:
        # Not SIGTERM: JAX takes it as the notice of a preemption, and goes on.
        self._signal_groups(signal.SIGHUP, self.graceful)
        self._reap_until(lambda: self.graceful.isdisjoint(self.running), GRACE_S)
        self._signal_groups(signal.SIGKILL, set(self.running))
        self._reap_until(lambda: not self.running, None)
        # What is left are orphans, and each that ends may leave us new ones.
        while children := psutil.Process().children():
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            self._reap_until(lambda: not psutil.Process().children(), 0.1)

    def _reap_until(self, done: Callable[[], bool], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not done() and (deadline is None or time.monotonic() < deadline):
            self._reap()
            time.sleep(0.005)

    def _signal_groups(self, number: int, names: Collection[str]) -> None:
        # Each of ours leads a group of its own; its id can't be another's while we wait for it.
        for name in self.running.keys() & names:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.running[name].pid, number)

    def _report(self, **report: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(1, json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    Keeper(sys.argv[1]).run()
