"""Run cells in a process's IPython shell, and record their output instead of sending it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import io
import subprocess
import sys
import tokenize
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from traceback import walk_tb
from types import CodeType
from typing import Any, ClassVar

from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.jsonutil import encode_images, json_clean
from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell
from IPython import get_ipython

from mcnb.errors import OptionError
from mcnb.lockstep.threads import module_of, stack_of
from mcnb.messages import STREAMS, Reply
from mcnb.worker import signals
from mcnb.worker.breakpoints import TO_LOOK, Breakpoints
from mcnb.worker.capture import Record, RecordedStream
from mcnb.worker.cellcode import IN_PROFILER, CellCompiler, leading_blank_lines, magic_body
from mcnb.worker.debugging import Failure
from mcnb.worker.introspection import card, resolve, with_layout
from mcnb.worker.monitor import Monitor
from mcnb.worker.session import Session
from mcnb.worker.tracebacks import describe_error, format_error

_BLANK = {tokenize.ENDMARKER, tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT}
NO_INPUT = (
    "input() can't work in a %%mcjax cell: the cell runs on several processes and there is one "
    "keyboard. Read the value in an ordinary cell and hand it over: "
    "mcnb.current_cluster().push({'name': value})"
)
NO_DEBUGGER = (
    "this debugger can't read commands in a %%mcjax cell. To stop at a line: breakpoint(), or "
    "mcnb.breakpoint(2) on process 2 only. To look around after an error: %mcjax debug"
)
# Parts of the names of modules with debuggers, which read commands by `input`.
_DEBUGGERS = {"pdb", "bdb", "debugger"}


class RecordingPublisher(ZMQDisplayPublisher):
    """A display publisher that records what a process displays."""

    def publish(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        *,
        transient: Mapping[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        """Record a display, or an update of one."""
        data, metadata = json_clean(encode_images(data)), json_clean(metadata or {})
        display_id = (transient or {}).get("display_id")
        record = self.shell.worker.record
        if update and display_id is not None:
            record.update_display(data, metadata, display_id)
        else:
            record.display(data, metadata, display_id)

    def clear_output(self, wait: bool = False) -> None:
        """Clear the cell's output so far."""
        self.shell.worker.record.clear(wait)


class RecordingHook(ZMQShellDisplayHook):
    """A display hook that records the value of a cell's last expression."""

    source = ""
    value_text: str | None = None

    def quiet(self) -> bool:
        """Return whether the cell ends in a semicolon."""
        last = ""
        # A line of a magic or for a shell may be no Python.
        with contextlib.suppress(tokenize.TokenError, SyntaxError):
            for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
                last = last if token.type in _BLANK else token.string
        return last == ";"

    def start_displayhook(self) -> None:
        """Do nothing: the record takes whole values."""

    def write_output_prompt(self) -> None:
        """Write no prompt: the notebook labels values by process."""

    def compute_format_data(self, result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the value's representations, and their metadata."""
        data, metadata = super().compute_format_data(result)
        if "text/plain" in data:
            data["text/plain"] = with_layout(result, data["text/plain"])
        return data, metadata

    def write_format_data(
        self, format_dict: Mapping[str, Any], md_dict: Mapping[str, Any] | None = None
    ) -> None:
        """Record the value's representations."""
        self.value_text = format_dict.get("text/plain")
        self.shell.worker.record.display(
            json_clean(encode_images(format_dict)), json_clean(md_dict or {}), is_value=True
        )

    def finish_displayhook(self) -> None:
        """Do nothing after a value."""


@dataclass
class Worker:
    """The parts of a process beside its shell.

    Attributes:
        record: The output of the cell.
        monitor: Reports the position and the progress of a cell.
        session: Checks and records the launches of cells.
        breakpoints: Stop a cell where it asks for the debugger.
        output: The common path of the process's output files.
        process_index: The process's index, once it has joined the others.
        failure: The error of the newest cell, until the next one begins.
    """

    record: Record
    monitor: Monitor
    session: Session
    breakpoints: Breakpoints
    output: str
    process_index: int = 0
    failure: Failure | None = None

    def forget_failure(self) -> None:
        """Let go of the newest cell's error, and so of all variables of its frames."""
        failure, self.failure = self.failure, None
        if failure is None:
            return
        failure.close()
        if failure.looked:
            del failure
            gc.collect()  # the debugger's objects refer to each other, and to the frames


class WorkerShell(ZMQInteractiveShell):
    """The shell that runs `%%mcjax` cells in a process."""

    compiler_class = CellCompiler
    displayhook_class = RecordingHook
    display_pub_class = RecordingPublisher

    worker: ClassVar[Worker]
    _depth = 0
    _finished = False  # whether all statements of the cell have run, and raised nothing
    _cell_loop: asyncio.AbstractEventLoop | None = None

    def init_magics(self) -> None:
        """Make IPython's magics available."""
        super().init_magics()
        _change_magics(self)

    def _update_code_co_name(self, code: CodeType) -> CodeType:
        """Leave a cell's code its name; IPython 7 and 8.0 call it after its line."""
        return code

    def init_hooks(self) -> None:
        """Show in the cell's output what IPython shows in a pager, such as `name?`."""
        super().init_hooks()
        self.set_hook("show_in_pager", _print_page, 0)

    def run(self, source: str, label: str, first_line: int, typed: bool) -> Reply:
        """Run a cell and return the reply.

        Args:
            source: The cell's code.
            label: The number in the notebook's prompt for the cell.
            first_line: The line of the notebook's cell on which the code begins.
            typed: Whether a person can type commands for a debugger.
        """
        self.compile.label = label
        self.compile.first_line = first_line + leading_blank_lines(source)
        self.displayhook.source, self.displayhook.value_text = source, None
        # At the end of a cell that has closed a descriptor, a thread may just have had a file open
        # under its number.
        self.worker.record.reopen()
        if label:  # not mcnb's own
            self.last_execution_result = None  # it has the error, too
            self.worker.forget_failure()
        self._finished = False
        error: BaseException | None
        try:
            with signals.armed(), self.worker.breakpoints.in_cell(typed):
                result = self._run_here(source)
            error = result.error_before_exec
            if error is None:
                error = result.error_in_exec
        except KeyboardInterrupt as interrupted:
            error = interrupted
        # If an interrupt comes after the last statement, the cell has ended by itself.
        by_itself = isinstance(error, KeyboardInterrupt) and self._has_ended(error)
        if by_itself:
            error = None
        self._restore_streams()
        if error is not None and label:
            self.worker.failure = Failure(error)
        described = None if error is None else describe_error(error, label)
        return Reply(
            self.worker.record.take(),
            described,
            self.displayhook.value_text,
            interrupted=not by_itself
            and (signals.was_raised() or isinstance(error, KeyboardInterrupt)),
        )

    def _has_ended(self, interrupt: KeyboardInterrupt) -> bool:
        """Return whether the cell had shown its value, or ended, when it was interrupted."""
        display = type(self.displayhook).__call__.__code__
        showing = any(frame.f_code is display for frame, _ in walk_tb(interrupt.__traceback__))
        shown = showing and self.displayhook.value_text is not None
        return self._finished or (shown and self.ast_node_interactivity.startswith("last"))

    async def run_ast_nodes(self, *args: Any, **more: Any) -> bool:
        """Run the statements of a cell; return whether one of them raised an error."""
        raised: bool = await super().run_ast_nodes(*args, **more)
        self._finished = not raised
        return raised

    def _restore_streams(self) -> None:
        """Replace streams that the cell has closed or broken: the kernel flushes them to reply."""
        self.worker.record.reopen()
        for stream in STREAMS:
            current = getattr(sys, stream, None)
            broken = not callable(getattr(current, "flush", None))
            if broken or getattr(current, "closed", False) is True:
                setattr(sys, stream, RecordedStream(self.worker.record, stream))

    def _run_here(self, source: str) -> Any:
        # This call runs in the engine's own event loop. A cell gets another loop, so that `await`
        # and asyncio.run work in it.
        engine_loop = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(None)
        try:
            if self._cell_loop is None:
                self._cell_loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._cell_loop)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="To exit: use 'exit'")
                return self.run_cell(source, store_history=False)
        finally:
            asyncio.set_event_loop(None)
            asyncio.events._set_running_loop(engine_loop)

    def _inspect(self, meth: str, oname: str, namespaces: Any = None, **kw: Any) -> Any:
        """Show what `name?` asks for; of arrays, their layout instead of IPython's description."""
        text = card(resolve(self.user_ns, oname)) if meth == "pinfo" else ""
        if not text:
            return super()._inspect(meth, oname, namespaces, **kw)
        print(text)
        return None

    def run_cell(self, *args: Any, **kwargs: Any) -> Any:
        """Run a cell as IPython does, also within another cell."""
        compiler = self.compile
        body = magic_body(sys._getframe(1), compiler.label) if self._depth else None
        line = compiler.first_line if body is None else body.first_line
        self._depth += 1
        try:
            with compiler.beginning_at(line):
                return super().run_cell(*args, **kwargs)
        finally:
            self._depth -= 1

    def showtraceback(
        self, exc_tuple: Any = None, *_: Any, running_compiled_code: bool = False, **__: Any
    ) -> None:
        """Show an error that does not end the cell; the one that does goes into the reply."""
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        ends_cell = running_compiled_code or isinstance(error, (SystemExit, KeyboardInterrupt))
        if error is not None and not (ends_cell and self._depth == 1):
            self.worker.record.write("stderr", format_error(error) + "\n")

    def showsyntaxerror(
        self, filename: str | None = None, running_compiled_code: bool = False
    ) -> None:
        """Show a syntax error in code that the cell runs, unless it ends the cell."""
        del filename
        self.showtraceback(running_compiled_code=running_compiled_code)

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        del etype, evalue
        self.worker.record.write("stderr", "\n".join(stb) + "\n")

    def debugger(self, force: bool = False) -> None:
        """Say how to look around after an error: nobody can type on a process."""
        del force
        print(f"To look around in the frames of a cell's error: {TO_LOOK}", file=sys.stderr)

    def system(self, cmd: str) -> None:
        """Run `!command` without the terminal for which IPython would fork.

        JAX is multithreaded, so a fork of this process might never return. The command writes to
        the process's own file descriptors, and its output goes from there into the record.
        """
        status = subprocess.run(self.var_expand(cmd, depth=1), shell=True, check=False)  # noqa: S602
        self.user_ns["_exit_code"] = status.returncode

    system_piped = system_raw = system

    def ask_exit(self) -> None:
        """Refuse to exit: `exit` would remove this one process from the cluster."""
        raise SystemExit("exit has no effect in a %%mcjax cell. To end all processes: %mcjax stop")


def is_process() -> bool:
    """Return whether this is a process of a cluster, which runs cells.

    Example:
        >>> is_process()
        False
    """
    return isinstance(get_ipython(), WorkerShell)


def adopt_shell(shell: Any) -> None:
    """Turn the shell of an adopted engine into a `WorkerShell`, which keeps its variables."""
    shell.__class__ = WorkerShell
    shell.compile = CellCompiler()
    _change_magics(shell)
    shell.set_hook("show_in_pager", _print_page, 0)
    for name, made in (
        ("displayhook", RecordingHook(parent=shell, shell=shell)),
        ("display_pub", RecordingPublisher(parent=shell, shell=shell)),
    ):
        made.session = shell.kernel.session
        setattr(shell, name, made)
    shell.display_trap.hook = shell.displayhook


def _print_page(_: Any, text: Any, start: int = 0, screen_lines: int = 0) -> None:
    """Print what IPython would show in a pager, from a line on."""
    del screen_lines
    if isinstance(text, dict):
        text = text.get("text/plain", "")
    print("\n".join(str(text).split("\n")[start:]).rstrip("\n"))


def _change_magics(shell: Any) -> None:
    _let_profiler_compile(shell)
    shell.register_magic_function(_refuse, "line", "mcjax")
    for name, instead in _OF_THE_KERNEL.items():
        shell.register_magic_function(functools.partial(_refer, name, instead), "line", name)


def _refuse(line: str) -> None:
    """Refuse mcnb's own magic, which controls the processes from outside."""
    raise OptionError(
        f"%mcjax {line}: this cell runs on the processes, and %mcjax in the notebook kernel. Give "
        "it a cell of its own, without %%mcjax; with %mcjax auto on, begin that cell with %%here"
    )


# What has to do with errors as the notebook shows them, and what does it there.
_OF_THE_KERNEL = {
    "tb": "To see the last output again: %mcjax last",
    "xmode": "To see all frames of JAX: jax.config.update('jax_traceback_filtering', 'off')",
    "pdb": f"To look around after an error: {TO_LOOK}",
}


def _refer(name: str, instead: str, line: str) -> None:
    """Say of a magic that it does nothing on a process; notebooks begin with such lines."""
    magic = f"%{name} {line}".strip()
    print(f"{magic}: in a cell on the processes, this does nothing. {instead}", file=sys.stderr)


def _let_profiler_compile(shell: Any) -> None:
    """Let `%prun` run code that the shell has compiled, with the lines of the notebook's cell.

    IPython gives the profiler source, which would get lines and a name of its own.
    """
    magics = shell.magics_manager.registry["ExecutionMagics"]
    run_with_profiler = magics._run_with_profiler

    def compiling(code: Any, *rest: Any) -> Any:
        body = magic_body(sys._getframe(1), shell.compile.label)
        # A statement in the magic's own line comes before the code below it.
        if body is not None and (not body.text or code == shell.transform_cell(body.text)):
            code = shell.compile(shell.compile.ast_parse(code), IN_PROFILER, "exec")
        return run_with_profiler(code, *rest)

    magics._run_with_profiler = compiling


def refuse_input(*_: object, **__: object) -> str:
    """Raise an error in place of `input` and `getpass` in a process."""
    names = {name for one in stack_of(sys._getframe(1)) for name in module_of(one).split(".")}
    raise RuntimeError(NO_DEBUGGER if names & _DEBUGGERS else NO_INPUT)
