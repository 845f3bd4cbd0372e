"""The fork server: one small process between the notebook and all that it starts.

    notebook kernel ──stdin──▶ fork server ──fork──▶ controller, process 0, process 1, ...
                    ◀─stdout──             ◀─exit──

It imports what processes need and forks them, so that none has to import it again; delivers
signals to them and reports how they end. When the notebook is gone, however it went, it ends
everything that it started, and everything that those started, removes the folder that they shared,
and goes too. Orders and reports are lines of JSON. It serves one cluster after the other.

It runs as `python -P -m mcnb.launchers.forkserver [--gently]`. At first it has imported little but
the standard library and psutil, so that it hears orders at once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import psutil

from mcnb._system import PR_SET_NAME, die_with_parent, prctl

_TASKS = Path("/proc/self/task")


@dataclass(frozen=True)
class Spec:
    """A process to be started.

    Attributes:
        name: What it is called in orders and reports.
        module: The module that it runs.
        arguments: Its arguments.
        env: Its environment.
        cwd: Its working folder.
        output: Where it writes to: files of that name with ".out" and ".err" appended.
        umask: Its file mode creation mask.
    """

    name: str
    module: str
    arguments: list[str]
    env: dict[str, str]
    cwd: str
    output: str
    umask: int

    @property
    def argv(self) -> list[str]:
        """Its command line, for a Python of its own."""
        return [sys.executable, "-P", "-m", self.module, *self.arguments]

    def run(self) -> None:
        """Run the module in this process; return when it has ended."""
        sys.argv = [self.module, *self.arguments]
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)


class Forked(BaseException):
    """Unwinds the fork server's stack in a process that was forked from it.

    Attributes:
        spec: What this process is to become.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec.name)
        self.spec = spec


def why_not(spec: Spec) -> str:
    """Return why this process can't fork another, in words; empty if it can."""
    if sys.platform != "linux":
        return f"on {sys.platform} libraries do not survive a fork"
    if spec.env.get("PYTHONHASHSEED") == "random":
        # Forks share the seed, so a set of strings has one order on all of them. Several hosts
        # differ there, and who looks for a fault of that kind has to see it.
        return "each has hashes of its own, as PYTHONHASHSEED=random demands"
    if "jax" in sys.modules:
        from mcnb.lockstep import _jax

        if _jax.backends_are_initialized():
            return "JAX has been initialized"
    try:
        # A rehearsal: what ends its threads before a fork has done so then.
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    except OSError as error:
        return f"the system forbids it: {error.strerror}"
    except RuntimeError as error:  # an audit hook of the interpreter's
        return f"this Python forbids it: {error}"
    threads = len(list(_TASKS.iterdir()))
    return f"there are {threads} threads" if threads > 1 else ""


def settle() -> None:
    """Have the garbage collector leave alone what is there, so that forks go on sharing it."""
    gc.freeze()


def fork(spec: Spec) -> int:
    """Fork a process.

    Args:
        spec: What it becomes.

    Returns:
        Its id.

    Raises:
        OSError: It can't be forked, or its folder or files can't be used.
        Forked: In the process itself.
    """
    files = [
        os.open(os.devnull, os.O_RDONLY),
        *(
            os.open(f"{spec.output}.{kind}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            for kind in ("out", "err")
        ),
    ]
    try:
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            _become(spec, parent, files)
    finally:
        for file in files:
            os.close(file)
    return child


def _become(spec: Spec, parent: int, files: list[int]) -> NoReturn:
    """Make this process what it would be if it had been started by itself."""
    try:
        signal.set_wakeup_fd(-1)
        for other in signal.valid_signals():
            if signal.getsignal(other) not in (signal.SIG_DFL, None):
                signal.signal(other, signal.SIG_DFL)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python has it
            signal.signal(ignored, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        die_with_parent()
        if os.getppid() != parent:  # it died before the system was told
            os._exit(1)
        prctl(PR_SET_NAME, spec.name.encode())
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.umask(spec.umask)
        os.chdir(spec.cwd)
        os.environ.clear()
        os.environ.update(spec.env)
        _as_if_imported_now()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    raise Forked(spec)


def _as_if_imported_now() -> None:
    """Give libraries what they took when they were imported, and each process has of its own."""
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed()
    if "jax" in sys.modules and "JAX_NUM_CPU_DEVICES" in os.environ:
        import jax

        jax.config.update("jax_num_cpu_devices", int(os.environ["JAX_NUM_CPU_DEVICES"]))


# In the order in which it is needed: the controller's, the processes', and what cells often use.
CONTROLLER = (
    "ipyparallel.controller.app",
    "ipyparallel.controller.broadcast_scheduler",
    "mcnb._ipyparallel",
)
PROCESSES = (
    "jax",
    "mcnb.worker.kernel",
    "mcnb.worker.join",
    "jax.experimental.multihost_utils",
    "jax.extend.backend",
    # What those import when they are first used.
    "tornado.platform.asyncio",
    "tornado.queues",
    "IPython.core.completerlib",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "jaxlib.mlir.dialects.builtin",
    "jaxlib.mlir.dialects.mhlo",
)
CELLS = ("matplotlib.pyplot", "matplotlib_inline.backend_inline")
# By the module that a process runs.
NEEDED = {"mcnb.launchers.controller": CONTROLLER, "mcnb.worker": (*CONTROLLER, *PROCESSES)}
GENTLE = 10  # the priority of what nobody waits for: a tenth of the usual share of a busy core


class Preload:
    """Imports what is needed, one thing after the other, in a thread of its own or at once.

    Args:
        gently: Whether to begin at a low priority.

    Attributes:
        left: What is not imported yet.
    """

    def __init__(self, *, gently: bool) -> None:
        self.left = [*CONTROLLER, *PROCESSES, *CELLS]
        self._gently = gently
        self._thread: threading.Thread | None = None
        self._hurry = False

    @property
    def urgent(self) -> bool:
        """Whether there is something left that each process needs."""
        return not self.has(PROCESSES)

    def begin(self) -> None:
        """Import in a thread what is left, until it is stopped; what few need, gently."""
        self._hurry = False
        if self.left and self._thread is None:
            # A collection would find nothing in what is being imported, and write to all of it.
            gc.disable()
            gently = self._gently or not self.urgent
            self._thread = threading.Thread(
                target=self._import, args=(gently,), name="mcnb preload"
            )
            self._thread.start()

    def stop(self) -> None:
        """Return when no thread imports any more."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._hurry = True
            if sys.platform == "linux":
                with contextlib.suppress(PermissionError, ProcessLookupError):  # users may not
                    os.setpriority(os.PRIO_PROCESS, thread.native_id or 0, _usual())
            thread.join()
            gc.enable()

    def has(self, modules: tuple[str, ...]) -> bool:
        """Return whether these are imported."""
        return not set(modules) & set(self.left)

    def get(self, modules: tuple[str, ...]) -> None:
        """Have these imported, and no other thread running."""
        self.stop()
        self._gently = False
        while not self.has(modules):
            self._step()

    def _step(self) -> None:
        name = self.left[0]
        # Whoever needs it will say why it can't be imported.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        self.left.remove(name)

    def _import(self, gently: bool) -> None:
        # On Linux a thread has a priority of its own.
        if gently and sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(GENTLE, _usual()))
        while self.left and not self._hurry and (gently or self.urgent):
            self._step()


def _usual() -> int:
    """Return the priority of this process."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


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


class ForkServer:
    """The fork server's state: the processes that it started and still has.

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
        self.preload = Preload(gently=gently)
        self.why_not = ""  # why it can't fork
        self.looked_at: set[tuple[str, ...]] = set()  # with what imported it can
        self.settled = len(self.preload.left)  # how much was left to import then

    def run(self) -> Spec | None:
        """Serve until the notebook is gone, then end everything.

        Returns:
            What this process is to become, where it was forked from the fork server.
        """
        # Orphans of what we start become our children, so that none can slip away.
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_NAME, b"mcnb forkserver")
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
        self.preload.begin()
        try:
            self._serve(timeout)
        except Forked as forked:
            self.selector.close()
            for file in self.own:
                os.close(file)
            return forked.spec
        except BaseException:
            self._end_cluster()
            raise
        self._end_cluster()
        self.preload.stop()
        return None

    def _serve(self, timeout: float | None) -> None:
        while os.getppid() == self.parent:
            idle = IDLE_S if self.preload.left and not self.why_not else None
            events = self.selector.select(timeout or idle)
            if not events and idle:
                self.preload.begin()
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
            self._start(Spec(**spec), graceful)

    def _start(self, spec: Spec, graceful: bool) -> None:
        self.preload.stop()
        try:
            if self._can_fork(spec):
                process: _Child | subprocess.Popen[bytes] = _Child(fork(spec))
            else:
                process = self._execute(spec)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            self._report(name=spec.name, failed=f"{error.strerror}{where}")
        else:
            self.running[spec.name] = process
            if graceful:
                self.graceful.add(spec.name)
        if self.preload.urgent and not self.why_not:
            self.preload.begin()

    def _can_fork(self, spec: Spec) -> bool:
        needed = NEEDED.get(spec.module)
        if needed is None or self.why_not:
            return False
        self.preload.get(needed)
        if needed not in self.looked_at:
            self.looked_at.add(needed)
            self.why_not = why_not(spec)
            self._report(why_not=self.why_not)
        if len(self.preload.left) < self.settled:
            self.settled = len(self.preload.left)
            settle()
        return not self.why_not

    def _execute(self, spec: Spec) -> subprocess.Popen[bytes]:
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
                preexec_fn=die_with_parent,
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
    spec = ForkServer(gently="--gently" in sys.argv).run()
    if spec is not None:
        spec.run()


if __name__ == "__main__":
    main()
