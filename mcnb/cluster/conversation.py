"""Ask for commands to the debuggers of processes that have stopped at breakpoints of a cell."""

from __future__ import annotations

import time
from collections.abc import Callable

from mcnb._text import plural
from mcnb.cluster.workers import Pending
from mcnb.messages import Pause

# The next command for a process, given its index and what its debugger printed.
Debugger = Callable[[int, str], str]
# How long a process that was told to execute a line may take before the commands go to another one
# that has stopped, for which it may be waiting.
PATIENCE_S = 0.5
_QUIT = ("q", "quit", "exit")
_CONTINUE = ("c", "cont", "continue")
INTRODUCTION = (
    "Stopped at a breakpoint. Type commands of Python's debugger, such as p x, next and continue. "
    "quit ends the cell on all processes\n"
)
SEVERAL = (
    "Other processes have stopped, too. process K goes to process K, and continue all lets all of "
    "them go on\n"
)


class Conversation:
    """The commands that a person types to the processes that have stopped in a cell, one at a time.

    Args:
        ask: Asks for the next command.
        send: Sends a command to a process, given the process and the number of its halt.
        stop: Ends the cell.

    Attributes:
        opened: Whether a process has stopped.
        typing_s: For how many seconds the person has been asked.
        error: The error of `ask` that ended the cell, or None.
    """

    def __init__(
        self, ask: Debugger, send: Callable[[int, int, str], None], stop: Callable[[], None]
    ) -> None:
        self._ask = ask
        self._send = send
        self._stop = stop
        self._answered: dict[int, int] = {}  # the number of the last halt that was answered
        self._lines: dict[int, int] = {}  # how many lines of the output were shown
        self._at: int | None = None  # the process to which the person types
        self._since = 0.0  # when it received its last command
        self._said_several = False
        self.opened = False
        self.typing_s = 0.0
        self.error: BaseException | None = None

    def go_on(self, pending: Pending) -> None:
        """Ask for a command, if a process has stopped, and send it."""
        halts = self._halts(pending)
        if not halts or (self._at not in halts and self._is_about_to_stop(pending)):
            return
        k = self._at if self._at in halts else min(halts)
        assert k is not None
        text = self._position(pending) if self.opened else INTRODUCTION
        self.opened = True
        if len(halts) > 1 and not self._said_several:
            self._said_several = True
            text += SEVERAL
        text += self._news(k, halts[k])
        while True:
            line = self._typed(k, text)
            words = ["quit"] if line is None else line.split()
            halts = self._halts(pending)  # others may have stopped while the person was thinking
            if words[:1] == ["process"] and len(words) == 2:
                text, k = self._change(words[1], halts, k)
            else:
                break
        if len(words) == 1 and words[0].removesuffix("()") in _QUIT:
            self._at = None
            self._stop()
        elif len(words) == 2 and words[0] in _CONTINUE and words[1] == "all":
            for other, halt in halts.items():
                self._command(other, halt, "continue")
            self._at = None
        else:
            self._command(k, halts[k], line or "")
            self._at = None if len(words) == 1 and words[0] in _CONTINUE else k

    def _halts(self, pending: Pending) -> dict[int, Pause]:
        """Return the halts that have not been answered, by process."""
        return {
            k: halt
            for k in sorted(pending.waiting)
            if (halt := pending.pause(k)).number > self._answered.get(k, 0)
        }

    def _is_about_to_stop(self, pending: Pending) -> bool:
        """Return whether the process to which the person types executes its last command."""
        here = self._at in pending.waiting and self._at not in pending.waits
        return here and time.monotonic() < self._since + PATIENCE_S

    def _position(self, pending: Pending) -> str:
        """Return where the process waits to which the person typed; empty if it does not wait."""
        wait = None if self._at is None else pending.waits.get(self._at)
        if wait is None or wait.state.launch is None:
            return ""
        line = "" if wait.state.line is None else f", line {wait.state.line}"
        return f"process {self._at} is waiting for others in {wait.state.launch.name}{line}\n"

    def _change(self, word: str, halts: dict[int, Pause], k: int) -> tuple[str, int]:
        """Return what to print, and the process to type to, after a command to go to another."""
        other = int(word) if word.isdecimal() else -1
        if other not in halts:
            stopped = ", ".join(map(str, halts))
            return f"*** process {word} has not stopped. Stopped: {stopped}\n", k
        return self._news(other, halts[other]), other

    def _news(self, k: int, halt: Pause) -> str:
        """Return what a process has printed, and then its debugger."""
        new = halt.recent.count - self._lines.get(k, 0)
        self._lines[k] = halt.recent.count
        lines = list(halt.recent.lines[-new:]) if new > 0 else []
        if new > len(lines):
            lines.insert(0, f"… {plural(new - len(lines), 'line', 'lines')} …")
        return "".join(f"{line}\n" for line in lines) + halt.text

    def _typed(self, k: int, text: str) -> str | None:
        """Return the command that the person types; None for the end of the conversation."""
        began = time.monotonic()
        try:
            return self._ask(k, text)
        except (EOFError, KeyboardInterrupt):
            return None
        except BaseException as error:
            self.error = error
            return None
        finally:
            self.typing_s += time.monotonic() - began

    def _command(self, k: int, halt: Pause, line: str) -> None:
        self._answered[k] = halt.number
        self._since = time.monotonic()
        self._send(k, halt.number, line)
