"""A process as an ipyparallel engine: the only file that touches ipyparallel's inner names.

It fits ipyparallel 9. What it reaches into: the kernel class that `IPEngine` instantiates, the
engine's redirection of output and its signal handlers, and how a kernel applies functions.
"""

from __future__ import annotations

import asyncio
import builtins
import faulthandler
import getpass
import importlib
import logging
import os
import sys
import tempfile
import threading
from typing import Any

import ipyparallel.engine.app as engine_app
from ipyparallel.engine.datapub import publish_data
from ipyparallel.engine.kernel import IPythonParallelKernel
from ipyparallel.serialize import serialize_object, unpack_apply_message
from traitlets import Type

from mcnb.errors import LockstepError
from mcnb.messages import STREAMS
from mcnb.process import interrupt
from mcnb.process.blackbox import BlackBox
from mcnb.process.calls import Call
from mcnb.process.lockstep import Lockstep
from mcnb.process.native import NativeOutput
from mcnb.process.record import Record, RecordedStream, as_text_io
from mcnb.process.shell import ProcessShell, RecordingHook, RecordingPublisher, refuse_input
from mcnb.process.tracebacks import describe_error, format_error
from mcnb.process.watch import Watch


class ProcessKernel(IPythonParallelKernel):
    """The engine's kernel, with mcnb's shell and a short way for mcnb's own calls."""

    shell_class = Type(ProcessShell)

    def pre_handler_hook(self) -> None:
        """Leave SIGINT alone: `interrupt` decides what it reaches."""

    def post_handler_hook(self) -> None:
        """Leave SIGINT alone."""

    def do_apply(
        self, content: Any, bufs: Any, msg_id: str, reply_metadata: Any
    ) -> tuple[dict[str, Any], list[Any]]:
        """Apply a function; one of mcnb's own without a trace in the learner's namespace."""
        call, args, kwargs = unpack_apply_message(bufs, self.shell.user_ns, copy=False)
        if not isinstance(call, Call):
            reply: tuple[dict[str, Any], list[Any]] = super().do_apply(
                content, bufs, msg_id, reply_metadata
            )
            return reply
        try:
            module, _, name = call.target.rpartition(".")
            answer = getattr(importlib.import_module(module), name)(self.shell, *args, **kwargs)
            return {"status": "ok"}, self._serialize(answer)
        except Exception as error:
            described = describe_error(error, "")
            return {"status": "ok"}, self._serialize(described)

    def _serialize(self, answer: Any) -> list[Any]:
        buffers: list[Any] = serialize_object(
            answer,
            buffer_threshold=self.session.buffer_threshold,
            item_threshold=self.session.item_threshold,
        )
        return buffers


class ProcessEngine(engine_app.IPEngine):
    """The engine application, whose output goes into a record instead of to ipyparallel."""

    def init_signal(self) -> None:
        """Have SIGHUP end the process, and SIGINT reach cells only."""
        interrupt.install()

    def redirect_output(self, iopub_socket: Any) -> None:
        """Redirect nothing: the record has taken the streams over."""


def main() -> None:
    """Run this process until it is told to end."""
    output = os.environ.pop("MCNB_OUTPUT", None) or _output_of_its_own()
    paths = {"stdout": f"{output}.out", "stderr": f"{output}.err"}
    faulthandler.enable(all_threads=False)
    record = Record(
        {stream: NativeOutput(paths[stream], hide_gloo=stream == "stdout") for stream in STREAMS},
        BlackBox(output),
    )
    for recording in (RecordingHook, RecordingPublisher, ProcessShell):
        recording.record = record
    ProcessShell.watch = Watch(
        lambda progress: publish_data({"progress": progress}), record.newest_line
    )
    ProcessShell.lockstep = Lockstep()
    engine_app.Kernel = ProcessKernel
    engine = ProcessEngine.instance()
    engine.initialize(sys.argv[1:])
    _log_to_file(engine.log, f"{output}.log")
    record.take()
    sys.stdout = as_text_io(RecordedStream(record, "stdout"))
    sys.stderr = as_text_io(RecordedStream(record, "stderr"))
    threading.excepthook = _show_thread_error
    builtins.input = refuse_input
    getpass.getpass = refuse_input
    engine.start()
    asyncio.set_event_loop(None)


def _show_thread_error(args: threading.ExceptHookArgs) -> None:
    """Show an error that ended a thread, but not that its process parted: the cell says so."""
    error = args.exc_value
    if error is not None and not isinstance(error, (LockstepError, SystemExit)):
        name = args.thread.name if args.thread is not None else "unknown"
        print(f"Error in thread {name}:\n{format_error(error)}", file=sys.stderr)


def _log_to_file(log: logging.Logger, path: str) -> None:
    """Keep the engine's own messages out of the cells' output."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    log.handlers[:] = [handler]


def _output_of_its_own() -> str:
    """Return a path for output files, for a process that nobody gave one."""
    folder = tempfile.mkdtemp(prefix="mcnb-process-")
    output = f"{folder}/process"
    for number, kind in ((1, "out"), (2, "err")):
        file = os.open(f"{output}.{kind}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(file, number)
        os.close(file)
    return output
