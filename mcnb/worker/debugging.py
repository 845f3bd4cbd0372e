"""Look around in the frames of a cell's error, with the commands of Python's debugger.

The commands come one by one, as calls: the process waits for none, so it answers other calls, and
the rest of the cluster never waits for it. `breakpoints` has the debugger of a cell that runs.
"""

from __future__ import annotations

import io
import pdb
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from mcnb._text import LIBRARY_PATH, cell_label
from mcnb.errors import LockstepError
from mcnb.lockstep.source import is_script
from mcnb.output.terminal import without_escapes
from mcnb.worker.session import ALONE
from mcnb.worker.tracebacks import format_error, learner_entries

# Commands that would run the cell on, or read what is typed at a terminal of this process.
_GO_ON = (
    *("step", "s", "next", "n", "until", "unt", "return", "r", "continue", "cont", "c"),
    *("jump", "j", "run", "restart", "break", "b", "tbreak", "commands", "clear", "cl"),
    *("enable", "disable", "ignore", "condition", "debug", "interact"),
)
_ENDED = (
    "The cell has ended with this error and can't go on. Look around: where, up, down, list, args, "
    "p EXPRESSION, pp EXPRESSION, or any line of Python. To leave: quit"
)


class ProcessDebugger(pdb.Pdb):
    """Python's debugger for a person who types elsewhere.

    Args:
        commands: The file from which it reads commands.
        out: Where it prints.
        skip: The modules that `step` passes over, as patterns.
    """

    def __init__(self, commands: Any, out: Any, skip: Iterable[str] | None = None) -> None:
        super().__init__(stdin=commands, stdout=out, skip=skip, readrc=False, nosigint=True)
        self.use_rawinput = False

    def format_stack_entry(self, frame_lineno: tuple[FrameType, int], *args: Any) -> str:
        """Return the text of a frame, with paths that are the same on every machine."""
        return LIBRARY_PATH.sub("", super().format_stack_entry(frame_lineno, *args))

    def error(self, msg: str) -> None:
        """Print what went wrong in a command."""
        super().error(ALONE if isinstance(sys.exception(), LockstepError) else msg)


class Debugger(ProcessDebugger):
    """Python's debugger on the frames of an error, without what would resume the cell.

    Args:
        error: The error.
        out: Where it prints.
    """

    def __init__(self, error: BaseException, out: Any) -> None:
        super().__init__(io.StringIO(), out)
        self._failed = error
        entries = learner_entries(error)
        self.reset()
        self.setup(None, entries[0])
        self._frames = [frame for frame, _ in self.stack]
        shown = {entry.tb_frame for entry in entries}
        self.stack: list[tuple[FrameType, int]] = [one for one in self.stack if one[0] in shown]
        own = [i for i, (frame, _) in enumerate(self.stack) if is_learners(frame)]
        self.curindex = own[-1]
        self.curframe = self.stack[self.curindex][0]
        self.curframe_locals = self.curframe.f_locals

    def answer(self, line: str) -> bool:
        """Execute a line, and return whether it ends the debugger."""
        self.cmdqueue: list[str] = [line]
        ended = False
        while self.cmdqueue and not ended:
            following = self.precmd(self.cmdqueue.pop(0))
            ended = bool(self.postcmd(self.onecmd(following), following))
        return ended

    def do_exceptions(self, arg: str) -> None:
        """Print the error, with those that led to it."""
        del arg
        self.message(without_escapes(format_error(self._failed)))

    def refuse(self, _: str) -> None:
        """Say that the cell can't go on."""
        self.message(_ENDED)

    def close(self) -> None:
        """Let go of the frames: newer versions of pdb leave them in the modules' variables."""
        for frame in self._frames:
            frame.f_globals.pop("__pdb_convenience_variables", None)


def is_learners(frame: FrameType) -> bool:
    """Return whether a frame runs code of a cell, or of a file of the learner's."""
    filename = frame.f_code.co_filename
    return bool(cell_label(filename)) or is_script(filename)


for _name in _GO_ON:
    setattr(Debugger, f"do_{_name}", Debugger.refuse)


@dataclass
class Failure:
    """The error that ended the newest cell, kept until the next one begins.

    Attributes:
        error: The error.
        debugger: The debugger on its frames, while it is used.
        looked: Whether it was used.
    """

    error: BaseException
    debugger: Debugger | None = None
    looked: bool = False

    def execute(self, line: str, out: Any) -> bool:
        """Execute a command of the debugger; return whether it ends the debugger.

        Args:
            line: The command, as it is typed.
            out: Where the debugger prints, if it begins with this command.
        """
        if self.debugger is None:
            self.debugger, self.looked = Debugger(self.error, out), True
        ended = self.debugger.answer(line)
        if ended:
            self.close()
        return ended

    def close(self) -> None:
        """End the debugger."""
        if self.debugger is not None:
            self.debugger.close()
            self.debugger = None
