"""Stop a process at a breakpoint of a cell, and debug it there, while a person types elsewhere.

The process that has stopped is late for the others: they wait for it at their next launch, and the
referee proves nothing against it, because it runs.
"""

from __future__ import annotations

import bdb
import builtins
import contextlib
import io
import os
import pdb
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import IPython.core.debugger

from mcnb._text import cell_label
from mcnb.lockstep import _jax
from mcnb.lockstep.threads import module_of, stack_of
from mcnb.messages import Pause, Recent
from mcnb.options import process_set
from mcnb.worker.debugging import ProcessDebugger, is_learners
from mcnb.worker.tracebacks import learner_frames

if TYPE_CHECKING:
    from mcnb.worker.session import Session

# The modules whose code is not the learner's business: `step` passes over them, and so does what
# would be the next line after the end of a cell.
_PACKAGES = (
    *("mcnb", "jax", "jaxlib", "IPython", "ipykernel", "ipyparallel", "traitlets", "asyncio"),
    *("contextlib", "functools", "importlib", "threading", "tornado"),
)
_SKIPPED = [f"{package}{inside}" for package in _PACKAGES for inside in ("", ".*")]
# Commands that make no sense here, or would read from this process's own terminal.
_REFUSED = ("run", "restart", "interact", "debug")
_LEFT_BY_PDB = ("__return__", "__exception__", "__pdb_convenience_variables")
TO_LOOK = "%mcjax debug"
NOBODY_TYPES = (
    "breakpoint() ends this cell, because nobody can type here. To look around at this line: "
    f"{TO_LOOK}"
)
NOT_HERE = (
    "breakpoint() can stop a cell only in the thread that runs it, and this is another one. Print "
    "what you want to know instead"
)


class Prompt:
    """The commands of a person who types elsewhere, as a file that a debugger reads.

    Args:
        publish: Sends the notebook kernel what the debugger has printed.
        recent: Returns the newest lines of the cell's output.

    Attributes:
        out: Where the debugger prints.
    """

    def __init__(self, publish: Callable[[Pause], None], recent: Callable[[], Recent]) -> None:
        self.out = io.StringIO()
        self._publish = publish
        self._recent = recent
        self._number = 0
        self._lines: deque[str] = deque()
        # Replaced as a whole by another thread, which then writes to the socket.
        self._answer = 0, ""
        self._bell: socket.socket | None = None

    def readline(self) -> str:
        """Send what was printed, wait for a command, and return it."""
        if not self._lines:
            self._number += 1
            pause = Pause(self._number, self.out.getvalue(), self._recent())
            self.out.seek(0)
            self.out.truncate()
            # Not a lock: a signal interrupts a read, and who reads waits for no other thread.
            woken, self._bell = socket.socketpair()
            with woken, self._bell:
                # In a thread, because an interrupt of this one might leave half a message.
                threading.Thread(
                    target=self._publish, args=(pause,), name="mcnb prompt", daemon=True
                ).start()
                while self._answer[0] != self._number:
                    woken.recv(1)
            self._lines.extend(self._answer[1].split("\n"))
        return self._lines.popleft() + "\n"

    def deliver(self, number: int, line: str) -> None:
        """Answer a halt with a command; call it in another thread.

        Args:
            number: The number of the halt.
            line: The command.
        """
        self._answer = number, line
        if self._bell is not None:
            with contextlib.suppress(OSError):  # that halt is over
                self._bell.send(b".")


class CellDebugger(ProcessDebugger):
    """Python's debugger of a cell that runs.

    Args:
        prompt: Where it prints, and reads its commands.
        session: Refuses what the person types and what needs other processes.

    Attributes:
        asks: Whether it waits for a command, or executes one.
    """

    def __init__(self, prompt: Prompt, session: Session) -> None:
        super().__init__(prompt, prompt.out, _SKIPPED)
        self.prompt = ""
        self._modules: dict[int, dict[str, Any]] = {}
        self._session = session
        self._follows = True
        self.asks = False

    def stop_at(self, frame: FrameType) -> None:
        """Stop at a line, and return when the person lets the process go on.

        Raises:
            BdbQuit: The person has left the debugger in another way.
        """
        sys.settrace(None)
        self.reset()
        self._follows = True
        stack = stack_of(frame)
        self.botframe = stack[-1]
        self.interaction(frame, None)
        if self.quitting:
            raise bdb.BdbQuit
        # Only now: until here, it would follow the lines of this module, and a command may have
        # stopped at another breakpoint.
        if self._follows:
            for one in stack:
                one.f_trace = self.trace_dispatch
            sys.settrace(self.trace_dispatch)

    def interaction(self, *args: Any, **keywords: Any) -> None:
        """Read and execute commands until one of them lets the process go on."""
        self.asks = True
        try:
            with self._session.alone():
                super().interaction(*args, **keywords)
        finally:
            self.asks = False

    def _cmdloop(self) -> None:
        self.cmdloop()  # without pdb's own handling of KeyboardInterrupt, which ends the cell here

    def set_continue(self) -> None:
        """Go on until the next breakpoint."""
        super().set_continue()
        self._follows = bool(self.breaks)

    def stop_here(self, frame: FrameType) -> bool:
        """Return whether to stop in a frame.

        It does not stop in what IPython runs to show a cell's value, nor in what a module that is
        passed over, such as JAX, calls in other libraries.
        """
        if not super().stop_here(frame) or not _serves_cell(frame):
            return False
        outer: FrameType | None = frame
        while outer is not None and not is_learners(outer):
            if self.is_skipped_module(module_of(outer)):
                return False
            outer = outer.f_back
        return True

    def user_call(self, frame: FrameType, argument_list: Any) -> None:
        """Pass over the begin of a statement of a cell: its line follows."""
        if not _is_statement(frame):
            super().user_call(frame, argument_list)

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        """Pass over the end of a statement of a cell, whose next one is code of its own."""
        if _is_statement(frame):
            self.set_step()
        else:
            super().user_return(frame, return_value)

    def user_exception(self, frame: FrameType, exc_info: Any) -> None:
        """Stop at an error, but not at the end of a generator or a coroutine, which raises, too."""
        if _serves_cell(frame) and not (exc_info[0] is StopIteration and exc_info[2] is None):
            super().user_exception(frame, exc_info)

    def setup(self, f: FrameType | None, tb: Any) -> Any:
        """Prepare the stack, from the learner's first frame on."""
        over = super().setup(f, tb)
        shown = {id(one) for one in learner_frames([frame for frame, _ in self.stack])}
        stack = [one for one in self.stack if id(one[0]) in shown or one[0] is f]
        self._modules.update((id(one.f_globals), one.f_globals) for one, _ in stack)
        self.stack: list[tuple[FrameType, int]] = stack
        self.curindex = next((i for i, one in enumerate(stack) if one[0] is f), len(stack) - 1)
        self.curframe = stack[self.curindex][0]
        self.curframe_locals = self.curframe.f_locals
        return over

    def do_clear(self, arg: str) -> None:
        """Remove breakpoints; without any named, pdb would ask at this process's own terminal."""
        if arg:
            super().do_clear(arg)
        else:
            self.clear_all_breaks()
            self.message("All breakpoints are removed")

    do_cl = do_clear

    def refuse(self, _: str) -> None:
        """Say that the command is not available."""
        self.message("This command is not available in a %%mcjax cell")

    def close(self) -> None:
        """Remove all breakpoints, let go of the frames, and remove what pdb leaves in modules."""
        self.clear_all_breaks()
        self.forget()
        for variables in self._modules.values():
            for name in _LEFT_BY_PDB:
                variables.pop(name, None)


for _name in _REFUSED:
    setattr(CellDebugger, f"do_{_name}", CellDebugger.refuse)


def _is_statement(frame: FrameType) -> bool:
    """Return whether a frame runs a statement of a cell, each of which IPython compiles alone."""
    code = frame.f_code
    return code.co_name == "<module>" and cell_label(code.co_filename) is not None


def _serves_cell(frame: FrameType) -> bool:
    """Return whether a frame is a cell's, or of what the cell calls without IPython between."""
    outer: FrameType | None = frame
    while outer is not None and cell_label(outer.f_code.co_filename) is None:
        if module_of(outer).partition(".")[0] in ("IPython", "ipykernel"):
            return False
        outer = outer.f_back
    return outer is not None


class Breakpoints:
    """The breakpoints of a process's cells.

    Args:
        session: The session of the process's cells.
        publish: Sends the notebook kernel a halt.
        recent: Returns the newest lines of the cell's output.
    """

    def __init__(
        self,
        session: Session,
        publish: Callable[[Pause], None],
        recent: Callable[[], Recent],
    ) -> None:
        self._session = session
        self._prompt = Prompt(publish, recent)
        session.command = self._prompt.deliver
        self._typed = False
        self._debugger: CellDebugger | None = None

    @contextmanager
    def in_cell(self, typed: bool) -> Iterator[None]:
        """Let breakpoints stop the code inside, if a person can type."""
        self._typed = typed
        try:
            yield
        finally:
            self._typed = False
            debugger, self._debugger = self._debugger, None
            if debugger is not None:
                debugger.close()

    def stop(self, *_: object, **__: object) -> None:
        """Stop here, in place of `breakpoint`, unless the user has turned it off.

        Raises:
            RuntimeError: Nobody can type, or the cell runs in another thread.
        """
        if os.environ.get("PYTHONBREAKPOINT") == "0":
            return
        if not self._typed or self._session.client is None:
            raise RuntimeError(NOBODY_TYPES)
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(NOT_HERE)
        debugger = self._debugger
        if debugger is None or debugger.asks:  # a command may call what has a breakpoint
            debugger = CellDebugger(self._prompt, self._session)
        self._debugger = self._debugger or debugger
        debugger.stop_at(_caller())

    def install(self) -> None:
        """Replace what stops a program in a debugger."""
        sys.breakpointhook = self.stop
        pdb.set_trace = IPython.core.debugger.set_trace = self.stop


def _caller() -> FrameType:
    """Return the innermost frame that is not of this module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    assert frame is not None
    return frame


def breakpoint(process: str | int | Iterable[int] | None = None) -> None:  # noqa: A001
    """Stop in the debugger, as Python's `breakpoint` does, and only on some processes.

    In a `%%mcjax` cell of a notebook that somebody has opened, the commands are typed below the
    cell. The other processes go on until they need a process that has stopped.

    Args:
        process: The processes that stop, such as `2`, `"0,2-3"` or `[0, 2]`; by default, each that
            calls it.

    Raises:
        OptionError: `process` names no process.
        RuntimeError: Nobody can type.

    Example:
        >>> breakpoint(process="1-3")
        Traceback (most recent call last):
        mcnb.errors.OptionError: process=1-3: there is no process 3. This cluster has 1 process: 0
    """
    if process is not None:
        chosen = process_set(process, _jax.process_count(), "process=")
        if _jax.process_index() not in chosen:
            return
    if sys.breakpointhook is sys.__breakpointhook__ and "PYTHONBREAKPOINT" not in os.environ:
        pdb.Pdb().set_trace(_caller())
    else:
        builtins.breakpoint()
