"""Run a process as an ipyparallel engine, with mcnb's shell, record, monitor and session."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import faulthandler
import getpass
import importlib
import logging
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from traitlets import Type

from mcnb._ipyparallel.engine import Engine, Kernel, adopt_engine, publish_data
from mcnb.errors import LockstepError
from mcnb.messages import STREAMS, ProcessError, Stack, Stream, unreadable
from mcnb.worker import signals
from mcnb.worker.breakpoints import Breakpoints
from mcnb.worker.capture import CrashLog, NativeOutput, Record, RecordedStream
from mcnb.worker.leaving import leave
from mcnb.worker.monitor import Monitor
from mcnb.worker.rpc import Call
from mcnb.worker.session import Session
from mcnb.worker.shell import Worker, WorkerShell, adopt_shell, refuse_input
from mcnb.worker.textbars import draw_bars_as_text
from mcnb.worker.tracebacks import describe_error, format_error, main_thread_lines

# Reported by the cell: its process diverged, or the thread was interrupted with the cell.
_ENDS_QUIETLY = (LockstepError, SystemExit, KeyboardInterrupt)


class WorkerKernel(Kernel):
    """The kernel of a worker, which has mcnb's shell and executes mcnb's own calls directly."""

    shell_class = Type(WorkerShell)

    def answers(self, function: object) -> bool:
        """Return whether the function is one of mcnb's own calls."""
        return isinstance(function, Call)

    def answer(self, function: Call, args: Any, kwargs: Any) -> Any:
        """Call mcnb's own function, and return its result."""
        module, _, name = function.target.rpartition(".")
        return getattr(importlib.import_module(module), name)(self.shell, *args, **kwargs)

    def describe(self, error: BaseException) -> Any:
        """Return a description of an error."""
        return describe_error(error, "")

    def describe_unsendable(self, error: BaseException) -> Any:
        """Return a description of why a result can't be sent."""
        if isinstance(error, KeyboardInterrupt):
            return self.describe(error)
        return ProcessError.refusal(
            f"This value can't be sent to the notebook kernel: {error}. Pull a part of it that can "
            "be sent, such as an array, a number or a text"
        )

    def describe_unreadable(self, error: Exception) -> Any:
        """Return a description of why the arguments of a call can't be read here."""
        return unreadable(error, "on this process", "in a cell that begins with %%mcjax")


class WorkerEngine(Engine):
    """The engine of a worker."""

    kernel_type = WorkerKernel

    def handle_signals(self) -> None:
        """Install handlers: SIGHUP ends the process, and SIGINT reaches only cells."""
        signals.install(WorkerShell.worker.session.runs_learners_code)


def main(shared: Path | None) -> None:
    """Run this process as an engine until it is stopped.

    Args:
        shared: The folder of its profile, if it holds settings.
    """
    output = os.environ.pop("MCNB_OUTPUT", "")
    _prepare(output or _output_of_its_own(shared))
    engine = WorkerEngine.instance()
    engine.initialize(sys.argv[1:])
    _take_over(engine.log)
    try:
        engine.start()
    except SystemExit as leaving:
        if leaving.code:
            raise
    asyncio.set_event_loop(None)
    if output:  # other launchers may wait for what a library does at the very end, as MPI does
        leave({} if engine.kernel is None else engine.kernel.shell.user_ns)


def adopt(folder: Path) -> None:
    """Turn the engine that runs in this process into one of mcnb's.

    Args:
        folder: The folder for its output, if this host has that folder.

    Raises:
        ClusterError: This process is no ipyparallel engine.
    """
    _prepare(_output_of_its_own(folder if os.access(folder, os.W_OK) else None))
    kernel = adopt_engine(WorkerKernel)
    adopt_shell(kernel.shell)
    signals.install(WorkerShell.worker.session.runs_learners_code)
    _take_over(kernel.log)


def _prepare(output: str) -> None:
    """Set up the parts that a process's shell uses."""
    faulthandler.enable(file=2, all_threads=False)  # sys.stderr may be no file
    draw_bars_as_text()
    native: dict[Stream, NativeOutput] = {
        "stdout": NativeOutput(f"{output}.out", hide_gloo=True),
        "stderr": NativeOutput(f"{output}.err", hide_gloo=False),
    }
    record = Record(native, CrashLog(output))
    session = Session()
    one = threading.Lock()  # two threads must not send at once

    def publish(**data: Any) -> None:
        with one:
            publish_data(data)

    monitor = Monitor(
        lambda progress: publish(progress=progress), record.recent, session.tracer.sample
    )
    breakpoints = Breakpoints(session, lambda pause: publish(pause=pause), record.recent)

    def tell_stack(number: int) -> None:
        publish(stack=Stack(number, main_thread_lines()))

    session.ask = tell_stack
    WorkerShell.worker = Worker(record, monitor, session, breakpoints, output)


def _take_over(log: logging.Logger) -> None:
    """Redirect the output of cells into the record, and the engine's warnings to a file."""
    worker = WorkerShell.worker
    handler = logging.FileHandler(f"{worker.output}.log")
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    own = logging.getLogger("mcnb")
    own.propagate = False
    for logger in (log, own):
        logger.setLevel(logging.WARNING)
        logger.handlers[:] = [handler]
    worker.record.take()
    for stream in STREAMS:
        setattr(sys, stream, RecordedStream(worker.record, stream))
    threading.excepthook = _show_thread_error
    builtins.input = refuse_input
    getpass.getpass = refuse_input
    worker.breakpoints.install()


def _show_thread_error(args: threading.ExceptHookArgs) -> None:
    """Print an error that ended a thread, unless the cell reports it."""
    error = args.exc_value
    if error is not None and not isinstance(error, _ENDS_QUIETLY):
        name = args.thread.name if args.thread is not None else "unknown"
        print(f"Error in thread {name}:\n{format_error(error)}", file=sys.stderr)


def _output_of_its_own(shared: Path | None) -> str:
    """Create output files in that folder, or in a temporary one; return their common path."""
    folder = Path(tempfile.mkdtemp(prefix="process-" if shared else "mcnb-process-", dir=shared))
    if shared is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    output = str(folder / "process")
    for number, kind in ((1, "out"), (2, "err")):
        file = os.open(f"{output}.{kind}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    return output
