"""Run the fork server, a small process between the notebook kernel and the other processes.

    notebook kernel ──stdin──▶ fork server ──fork──▶ controller, process 0, process 1, ...
                    ◀─stdout──             ◀─exit──

The fork server preloads modules and forks the processes, so that no process has to import the
modules again. It sends signals to the processes and reports how they end. When the notebook kernel
ends for any reason, the fork server kills all descendants, removes their shared folder, and exits.
Orders and reports are lines of JSON. A fork server serves one cluster after another.

The command is `python -P -m mcnb.launchers.forkserver [--gently]`. At first this module imports
little but the standard library and psutil, so that the fork server can read orders at once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import psutil

from mcnb._system import GRACE_S, PR_SET_NAME, die_with_parent, prctl, remove_folder

_TASKS = Path("/proc/self/task")
# What the environment has before the modules are imported, some of which add to it.
_AT_FIRST = frozenset(os.environ)
# Modules to preload, in the order of need: for the controller, the processes, and typical cells.
CONTROLLER = (
    "ipyparallel.controller.app",
    "ipyparallel.controller.broadcast_scheduler",
    "mcnb._ipyparallel.controller",
)
PROCESSES = (
    "jax",
    "mcnb.worker.kernel",
    "mcnb.worker.join",
    "jax.experimental.multihost_utils",
    "jax.extend.backend",
    # Modules that the ones above import on first use.
    "tornado.platform.asyncio",
    "tornado.queues",
    "encodings.idna",
    "IPython.core.completerlib",
    "IPython.core.logger",
    "IPython.core.magics.execution",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "jaxlib.mlir.dialects.builtin",
    "jaxlib.mlir.dialects.mhlo",
)
# In parts: a restart has to wait for the import of the part that has begun.
CELLS = (
    "pyparsing",
    "matplotlib",
    "matplotlib.text",
    "matplotlib.axes",
    "matplotlib.figure",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
)
# The preloaded modules that a process needs, by the module that the process runs.
NEEDED = {"mcnb.launchers.controller": CONTROLLER, "mcnb.worker": (*CONTROLLER, *PROCESSES)}
GENTLE = 10  # the nice value of unawaited imports: a tenth of the usual share of a busy core
THREAD_ENDS_S, THREAD_POLL_S = 5.0, 0.001
PARENT_POLL_S = 1.0  # only if the operating system can't report that the notebook kernel ended
# Without an order, before the fork server imports rarely needed modules: the first cells, or a
# restart, are not to wait for them.
IDLE_S = 5.0
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Spec:
    """Specification of a process to start.

    Attributes:
        name: The process's name in orders and reports.
        module: The module that the process runs.
        arguments: The module's arguments.
        env: The process's environment.
        cwd: The working directory.
        output: The base path of the output files, to which ".out" and ".err" are appended.
        umask: The file mode creation mask.
        graceful: Whether to send SIGHUP and allow a grace period before killing the process.
    """

    name: str
    module: str
    arguments: list[str]
    env: dict[str, str]
    cwd: str
    output: str
    umask: int
    graceful: bool = True

    def run(self) -> None:
        """Run the module in this process, and return when the module has finished."""
        sys.argv = [self.module, *self.arguments]
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)


class Forked(BaseException):
    """Exception that unwinds the fork server's stack in a forked child process.

    Attributes:
        spec: The specification of the child process.
    """

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec.name)
        self.spec = spec


def python_command(module: str) -> list[str]:
    """Return the command line of a module, without its arguments."""
    return [sys.executable, "-P", "-m", module]


def why_not(spec: Spec) -> str:
    """Return why this process can't be forked, in words; empty if it can."""
    if sys.platform != "linux":
        return f"on {sys.platform} forking is not safe for libraries"
    if spec.env.get("PYTHONHASHSEED") == "random":
        # Forks share the hash seed, so sets of strings have the same order on all processes. On
        # several hosts the order differs, and a user who debugs that must be able to see it here.
        return "PYTHONHASHSEED=random requires a different hash seed in each process"
    if "jax" in sys.modules:
        from mcnb.lockstep import _jax

        if _jax.backends_are_initialized():
            return "JAX has been initialized"
    try:
        # A trial fork: libraries that end their threads before a fork then have ended them.
        child = _fork_without_warning()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    except OSError as error:
        return f"the operating system does not allow it: {error.strerror}"
    except RuntimeError as error:  # raised by an audit hook of the interpreter
        return f"this Python does not allow it: {error}"
    deadline = time.monotonic() + THREAD_ENDS_S
    while (threads := len(list(_TASKS.iterdir()))) > 1 and time.monotonic() < deadline:
        time.sleep(THREAD_POLL_S)
    return f"the fork server has {threads} threads, so it can't fork safely" if threads > 1 else ""


def _fork_without_warning() -> int:
    """Fork, without the warning of threads that Python 3.12 and later give.

    Python counts the threads after the fork. BLAS ends its own before a fork, but on a busy machine
    the system may still list them. `why_not` reports all others.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def fork(spec: Spec) -> int:
    """Fork a process.

    Args:
        spec: The specification of the child process.

    Returns:
        The child's process id.

    Raises:
        OSError: The fork failed, or the child's directory or files can't be used.
        Forked: In the child process.
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
        child = _fork_without_warning()
        if child == 0:
            _become(spec, parent, files)
    finally:
        for file in files:
            os.close(file)
    return child


def _become(spec: Spec, parent: int, files: list[int]) -> NoReturn:
    """Give this forked process the state of a newly started process."""
    try:
        signal.set_wakeup_fd(-1)
        for other in signal.valid_signals():
            if signal.getsignal(other) not in (signal.SIG_DFL, None):
                signal.signal(other, signal.SIG_DFL)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python's default
            signal.signal(ignored, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        die_with_parent(parent)
        prctl(PR_SET_NAME, spec.name.encode())
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.umask(spec.umask)
        os.chdir(spec.cwd)
        # JAX, for example, says by a variable that XLA's notes are not to be printed.
        added = {name: value for name, value in os.environ.items() if name not in _AT_FIRST}
        os.environ.clear()
        os.environ.update(added | spec.env)
        _as_if_imported_now()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    raise Forked(spec)


def _execute(spec: Spec) -> int:
    """Start a process in a new Python interpreter, as `fork` does."""
    parent = os.getpid()

    def prepare() -> None:
        # The process would inherit that the fork server ignores these signals.
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ignored, signal.SIG_DFL)
        die_with_parent(parent)

    with open(f"{spec.output}.out", "ab") as out, open(f"{spec.output}.err", "ab") as err:  # noqa: PTH123
        process = subprocess.Popen(
            [*python_command(spec.module), *spec.arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=spec.env,
            cwd=spec.cwd,
            start_new_session=True,
            umask=spec.umask,
            preexec_fn=prepare,
        )
    process.returncode = 0  # or Popen would wait for the process, too, and keep its status
    return process.pid


def _as_if_imported_now() -> None:
    """Reset the per-process state that libraries initialized when they were imported."""
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed()
    if "jax" in sys.modules and "JAX_NUM_CPU_DEVICES" in os.environ:
        import jax

        jax.config.update("jax_num_cpu_devices", int(os.environ["JAX_NUM_CPU_DEVICES"]))


class Preload:
    """Preloader of modules, one after another, in a background thread or synchronously.

    Args:
        gently: Whether to start at a low priority.

    Attributes:
        left: The modules that are not imported yet.
    """

    def __init__(self, *, gently: bool) -> None:
        self.left = [*CONTROLLER, *PROCESSES, *CELLS]
        self._settled = len(self.left)  # how many were left when objects were last frozen
        self._gently = gently
        self._thread: threading.Thread | None = None
        self._hurry = False

    @property
    def urgent(self) -> bool:
        """Whether a module that every process needs is not imported yet."""
        return not self.has(PROCESSES)

    def begin(self) -> None:
        """Import the remaining modules in a thread, rarely needed ones at a low priority."""
        self._hurry = False
        if self.left and self._thread is None:
            # A collection would find no garbage during imports, and write to all objects.
            gc.disable()
            gently = self._gently or not self.urgent
            self._thread = threading.Thread(
                target=self._import, args=(gently,), name="mcnb preload"
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop the import thread, and join it."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._hurry = True
            if sys.platform == "linux":
                with contextlib.suppress(PermissionError, ProcessLookupError):  # not privileged
                    os.setpriority(os.PRIO_PROCESS, thread.native_id or 0, _usual())
            thread.join()
            _wait_until_gone(thread)
            gc.enable()

    def has(self, modules: tuple[str, ...]) -> bool:
        """Return whether all of these modules are imported."""
        return not set(modules) & set(self.left)

    def get(self, modules: tuple[str, ...]) -> None:
        """Import these modules now, after stopping the import thread."""
        self.stop()
        self._gently = False
        while not self.has(modules):
            self._step()
        if len(self.left) < self._settled:
            # Forks keep sharing the existing objects if garbage collections leave them out.
            self._settled = len(self.left)
            gc.freeze()

    def _step(self) -> None:
        name = self.left[0]
        # A process that needs the module will report the import error.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        self.left.remove(name)

    def _import(self, gently: bool) -> None:
        # On Linux, priorities are per thread.
        if gently and sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(GENTLE, _usual()))
        while self.left and not self._hurry and (gently or self.urgent):
            self._step()


def _wait_until_gone(thread: threading.Thread) -> None:
    """Wait until the operating system has ended a thread that has been joined.

    Until then, Python 3.12 and later warn at a fork that the process is multi-threaded.
    """
    task = _TASKS / str(thread.native_id)
    deadline = time.monotonic() + THREAD_ENDS_S
    while task.exists() and time.monotonic() < deadline:
        time.sleep(THREAD_POLL_S)


def _usual() -> int:
    """Return the priority of this process."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())


class ForkServer:
    """The fork server, with the processes that it has started and that still run.

    Args:
        gently: Whether to import at the lowest priority until a process needs the modules.

    Attributes:
        folder: The folder to remove when the cluster ends.
        running: The process ids, by name.
        graceful: The names of the processes that receive SIGHUP before they are killed.
    """

    def __init__(self, *, gently: bool) -> None:
        self.folder = ""
        self.running: dict[str, int] = {}
        self.graceful: set[str] = set()
        self.parent = os.getppid()
        self.selector = selectors.DefaultSelector()
        self.pending = b""
        self.preload = Preload(gently=gently)
        self.why_not = ""  # why this process can't be forked
        self.looked_at: set[tuple[str, ...]] = set()  # imports after which forking was checked

    def run(self) -> Spec | None:
        """Serve until the notebook kernel ends, then end all processes.

        Returns:
            In a forked child, the child's specification; otherwise None.
        """
        # Orphaned descendants become children of this process, so that it can end them all.
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
            self._end(remove=True)
            raise
        self._find_last_folder()
        self._end(remove=True)
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
        # The pipe alone is not enough: a process that the notebook kernel forked keeps it open.
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

    def _find_last_folder(self) -> None:
        """Find the folder to remove in orders that were not read before the kernel ended."""
        os.set_blocking(0, False)  # another process may keep the pipe open
        with contextlib.suppress(BlockingIOError):
            while data := os.read(0, 65536):
                self.pending += data
        for line in self.pending.split(b"\n")[:-1]:
            order = json.loads(line)
            if order["do"] == "begin":
                self.folder = order["folder"]

    def _do_begin(self, folder: str) -> None:
        """Start serving a cluster."""
        self.folder = folder

    def _do_start(self, cluster: str, **given: Any) -> None:
        """Start a process, unless its cluster has ended without the client knowing yet."""
        if cluster != self.folder:
            return
        spec = Spec(**given)
        self.preload.stop()
        try:
            self.running[spec.name] = fork(spec) if self._can_fork(spec) else _execute(spec)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            self._report(name=spec.name, failed=f"{error.strerror}{where}")
        else:
            if spec.graceful:
                self.graceful.add(spec.name)
        if self.preload.urgent and not self.why_not:
            self.preload.begin()

    def _can_fork(self, spec: Spec) -> bool:
        if self.why_not:
            return False
        needed = NEEDED[spec.module]
        self.preload.get(needed)
        if needed not in self.looked_at:
            self.looked_at.add(needed)
            self.why_not = why_not(spec)
            self._report(why_not=self.why_not)
        return not self.why_not

    def _do_signal(self, cluster: str, name: str, number: int) -> None:
        if cluster == self.folder and name in self.running:
            os.kill(self.running[name], number)

    def _do_end(self, remove: bool, grace_s: float | None = None) -> None:
        """End all running processes, and then send a report."""
        self._end(remove, GRACE_S if grace_s is None else grace_s)
        self._report(ended=True)

    def _reap(self) -> None:
        """Wait for all children that have ended, orphans too, and report those of the cluster."""
        names = {pid: name for name, pid in self.running.items()}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if pid in names:
                    del self.running[names[pid]]
                    self._report(name=names[pid], status=os.waitstatus_to_exitcode(status))

    def _end(self, remove: bool, grace_s: float = GRACE_S) -> None:
        # Not SIGTERM: JAX takes SIGTERM as a preemption notice, and continues.
        self._signal_groups(signal.SIGHUP, self.graceful)
        self._reap_until(lambda: self.graceful.isdisjoint(self.running), grace_s)
        while self.running:
            self._signal_groups(signal.SIGKILL, set(self.running))
            self._reap_until(lambda: not self.running, 0.1)
        # The remaining children are orphans, and each may leave new orphans when it ends.
        while children := psutil.Process().children():
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            self._reap_until(lambda: not psutil.Process().children(), 0.1)
        self.graceful.clear()
        if remove and self.folder:
            remove_folder(Path(self.folder))
            self.folder = ""

    def _reap_until(self, done: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not done() and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.005)

    def _signal_groups(self, number: int, names: Collection[str]) -> None:
        # Each process leads its own group, or will soon if it was just forked; its id can't be
        # reused until this process has waited for it.
        for name in self.running.keys() & names:
            try:
                os.killpg(self.running[name], number)
            except PermissionError:  # macOS raises this for a group that has ended
                pass
            except ProcessLookupError:
                os.kill(self.running[name], number)

    def _report(self, **report: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(1, json.dumps(report).encode() + b"\n")


def main() -> None:
    """Run the fork server and, in a forked child, the child's module."""
    spec = ForkServer(gently="--gently" in sys.argv).run()
    if spec is not None:
        spec.run()


if __name__ == "__main__":
    main()
