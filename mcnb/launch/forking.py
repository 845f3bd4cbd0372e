"""Forking processes from one that has imported what they need.

A fork copies the thread that asks for it and no other: a lock that another thread holds at that
moment stays held in the copy for ever. That can't happen here, for there is no other thread:

- The process that forks is the keeper. Its main thread does all of its work, imports included. Only
  while it warms up gently, before anybody waits for it, a second thread imports; it is joined
  before anything is forked.
- What is imported makes no backend of JAX's and no context of ZeroMQ's, with which threads come.
- OpenBLAS starts threads when NumPy is imported. It ends them itself before a fork, by
  `pthread_atfork`, and starts new ones when it is next asked for something.

`why_not` looks whether all that is so; where it is not, processes are started in the ordinary way.
"""

from __future__ import annotations

import ctypes
import gc
import os
import runpy
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
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
    """Unwinds the keeper's stack in a process that was forked from it.

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
    backends = sys.modules.get("jax._src.xla_bridge")
    if backends is not None and backends.backends_are_initialized():
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


def prctl(option: int, value: Any) -> None:
    """Call Linux's prctl; do nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    """Have the system kill this process when its parent ends, where the system can."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
