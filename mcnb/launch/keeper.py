"""The keeper: one small process between the notebook and all that it starts.

    notebook kernel ──stdin──▶ keeper ──fork──▶ controller, process 0, process 1, ...
                    ◀─stdout──        ◀─exit──

It imports what processes need and forks them, so that none has to import it again; delivers
signals to them and reports how they end. When the notebook is gone, however it went, it ends
everything that it started, and everything that those started, removes the folder that they shared,
and goes too. Orders and reports are lines of JSON. It serves one cluster after the other.

It runs as `python -P -m mcnb.launch.keeper [--gently]`. At first it has imported nothing but the
standard library and psutil, so that it hears orders at once.
"""

from __future__ import annotations

import contextlib
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

from mcnb.launch import forking, warmth

GRACE_S = 1.0  # for atexit handlers and open files, before SIGKILL
PARENT_POLL_S = 1.0  # only where the kernel cannot tell us that the notebook died
IDLE_S = 1.0  # without an order, before it imports what few need
_PR_SET_CHILD_SUBREAPER = 36


class _Child:
    """A process that was forked, as `subprocess.Popen` has one that was started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """Return how it ended, when it has."""
        status = self._wait(0)
        assert status is not None
        return status

    def _wait(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Keeper:
    """The keeper's state: the processes that it started and still has.

    Args:
        gently: Whether to import at the lowest priority, until somebody waits for it.

    Attributes:
        folder: The folder to remove at the end.
    """

    def __init__(self, *, gently: bool) -> None:
        self.folder = ""
        self.running: dict[str, _Child | subprocess.Popen[bytes]] = {}
        self.graceful: set[str] = set()
        self.parent = os.getppid()
        self.selector = selectors.DefaultSelector()
        self.pending = b""
        self.warmth = warmth.Warmth(gently=gently)
        self.cold = ""  # why it can't fork
        self.looked_at: set[tuple[str, ...]] = set()  # with what imported it can
        self.settled = len(self.warmth.left)  # how much was left to import then

    def run(self) -> forking.Spec | None:
        """Serve until the notebook is gone, then end everything.

        Returns:
            What this process is to become, where it was forked from the keeper.
        """
        # Orphans of what we start become our children, so that none can slip away.
        forking.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        forking.prctl(forking.PR_SET_NAME, b"mcnb keeper")
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(ignored, signal.SIG_IGN)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(wake_read, selectors.EVENT_READ, "wake")
        self.selector.register(0, selectors.EVENT_READ, "order")
        self.own = [wake_read, wake_write]
        timeout = self._watch_parent()
        self.warmth.begin()
        try:
            self._serve(timeout)
        except forking.Forked as forked:
            self.selector.close()
            for file in self.own:
                os.close(file)
            return forked.spec
        except BaseException:
            self._end_cluster()
            raise
        self._end_cluster()
        self.warmth.stop()
        return None

    def _serve(self, timeout: float | None) -> None:
        while os.getppid() == self.parent:
            idle = IDLE_S if self.warmth.left and not self.cold else None
            events = self.selector.select(timeout or idle)
            if not events and idle:
                self.warmth.begin()
            for key, _ in events:
                if key.data == "notebook gone":
                    return
                data = os.read(key.fd, 65536)
                if key.data == "order" and not self._obey(data):
                    return
            self._reap()

    def _watch_parent(self) -> float | None:
        # The pipe alone is not enough: a process that the notebook forked keeps it open.
        try:
            notebook = os.pidfd_open(self.parent)
            self.selector.register(notebook, selectors.EVENT_READ, "notebook gone")
            self.own.append(notebook)
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

    def _do_begin(self, folder: str) -> None:
        """Begin a cluster."""
        self.folder = folder

    def _do_start(self, cluster: str, graceful: bool, **spec: Any) -> None:
        """Start a process, unless its cluster has ended: who orders it may not know yet."""
        if cluster == self.folder:
            self._start(forking.Spec(**spec), graceful)

    def _start(self, spec: forking.Spec, graceful: bool) -> None:
        self.warmth.stop()
        try:
            if self._can_fork(spec):
                process: _Child | subprocess.Popen[bytes] = _Child(forking.fork(spec))
            else:
                process = self._execute(spec)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            self._report(name=spec.name, failed=f"{error.strerror}{where}")
        else:
            self.running[spec.name] = process
            if graceful:
                self.graceful.add(spec.name)
        if self.warmth.urgent and not self.cold:
            self.warmth.begin()

    def _can_fork(self, spec: forking.Spec) -> bool:
        needed = warmth.NEEDED.get(spec.module)
        if needed is None or self.cold:
            return False
        self.warmth.get(needed)
        if needed not in self.looked_at:
            self.looked_at.add(needed)
            self.cold = forking.why_not(spec)
            self._report(cold=self.cold)
        if len(self.warmth.left) < self.settled:
            self.settled = len(self.warmth.left)
            forking.settle()
        return not self.cold

    def _execute(self, spec: forking.Spec) -> subprocess.Popen[bytes]:
        with open(f"{spec.output}.out", "ab") as out, open(f"{spec.output}.err", "ab") as err:  # noqa: PTH123
            return subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=spec.env,
                cwd=spec.cwd,
                start_new_session=True,
                umask=spec.umask,
                preexec_fn=forking.die_with_parent,
            )

    def _do_signal(self, cluster: str, name: str, number: int) -> None:
        if cluster == self.folder and name in self.running:
            os.kill(self.running[name].pid, number)

    def _do_end(self, remove: bool, grace_s: float | None = None) -> None:
        """End everything that runs, and say when it is gone."""
        self._end_all(GRACE_S if grace_s is None else grace_s)
        self.graceful.clear()
        if remove:
            self._end_cluster()
        self._report(ended=True)

    def _end_cluster(self) -> None:
        self._end_all()
        self.graceful.clear()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""

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

    def _end_all(self, grace_s: float = GRACE_S) -> None:
        # Not SIGTERM: JAX takes it as the notice of a preemption, and goes on.
        self._signal_groups(signal.SIGHUP, self.graceful)
        self._reap_until(lambda: self.graceful.isdisjoint(self.running), grace_s)
        while self.running:
            self._signal_groups(signal.SIGKILL, set(self.running))
            self._reap_until(lambda: not self.running, 0.1)
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
        # Each of ours leads a group of its own, or is about to, where it was forked just now; its
        # id can't be another's while we wait for it.
        for name in self.running.keys() & names:
            try:
                os.killpg(self.running[name].pid, number)
            except PermissionError:  # macOS says so of a group that has ended
                pass
            except ProcessLookupError:
                os.kill(self.running[name].pid, number)

    def _report(self, **report: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(1, json.dumps(report).encode() + b"\n")


def main() -> None:
    """Keep, or be what was forked."""
    spec = Keeper(gently="--gently" in sys.argv).run()
    if spec is not None:
        spec.run()


if __name__ == "__main__":
    main()
