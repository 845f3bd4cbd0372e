"""Define the reply of a process for a cell, and its parts, as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from mcnb.errors import CellError
from mcnb.lockstep.model import Caught, LaunchRecord
from mcnb.lockstep.trace import Trace

Stream: TypeAlias = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")
# The longest text of an error, in characters, that is told in a sentence.
MOST_SUMMARY = 1000
# What a shortened text of an error has in the place of its middle, after the number.
LEFT_OUT = "characters are left out here"
# What a tracer is that is still in a variable when JAX has traced the function.
LEAKED_TRACER = "tracer without values, leaked from a traced function"
# What the main thread of a process does in a cell.
Doing: TypeAlias = Literal["python", "compiles", "computes"]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text that a process wrote to one stream, unchanged.

    Attributes:
        stream: `"stdout"` or `"stderr"`.
        text: The text.
        joins: Offsets in `text` of line ends inside one `print`. Such lines belong together: an
            array of two rows is one item, not two.
    """

    stream: Stream
    text: str
    joins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Display:
    """A display of a process: a plot, a table, or the value of the last expression.

    Attributes:
        data: The representations by MIME type, as in a notebook file.
        metadata: Jupyter's metadata, by MIME type.
        is_value: Whether it is the value of the cell's last expression.
    """

    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_value: bool = False


Event: TypeAlias = Text | Display


@dataclass(frozen=True, slots=True)
class ProcessError:
    """An exception that ended a cell on one process.

    Attributes:
        name: The exception's class name.
        message: The exception's text.
        line: The line of the cell at which it was raised, numbered as in the notebook, or None if
            the traceback contains no line of the cell.
        traceback: The traceback as text, from the learner's first line on.
        undefined: The global variable that does not exist, for a `NameError`; otherwise empty.
        close: A name that does exist, and is spelled much like the undefined one; empty if there is
            none.
    """

    name: str
    message: str
    line: int | None
    traceback: str
    undefined: str = ""
    close: str = ""

    @classmethod
    def refusal(cls, message: str) -> ProcessError:
        """Return an error of mcnb's own, that of a value which can't be sent or read."""
        kind = CellError.__name__
        return cls(kind, message, None, f"{kind}: {message}")

    def heading(self) -> str:
        """Return the error's name and place.

        Example:
            >>> ProcessError("KeyError", "'x'", 3, "").heading()
            'KeyError in line 3'
        """
        return self.name if self.line is None else f"{self.name} in line {self.line}"

    def summary(self) -> str:
        """Return the error in one line, for a sentence; a long one is cut.

        Example:
            >>> ProcessError("KeyError", "'x'", 3, "").summary()
            "KeyError: 'x' (line 3)"
        """
        message = self.begins()
        where = "" if self.line is None else f" (line {self.line})"
        return f"{self.name}: {message}{where}" if message else f"{self.name}{where}"

    def begins(self) -> str:
        r"""Return the first line of the error's text; a long one is cut.

        Example:
            >>> ProcessError("ValueError", "one\ntwo", 3, "").begins()
            'one'
        """
        line = self.message.strip().partition("\n")[0].rstrip()
        return line if len(line) <= MOST_SUMMARY else f"{line[:MOST_SUMMARY]}…"


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of one process for one cell.

    Attributes:
        events: The texts and displays of the process, in its own order.
        error: The exception that ended the cell, or None.
        value: The text of the last expression's value, or None.
        launches: The computations that it launched and that span processes.
        busy: Whether threads that the cell started still run its code.
        caught: The exceptions that its code caught, from the newest.
        trace: What it did over time; None if unknown.
        interrupted: Whether an interrupt was raised in it.
    """

    events: tuple[Event, ...] = ()
    error: ProcessError | None = None
    value: str | None = None
    launches: tuple[LaunchRecord, ...] = ()
    busy: bool = False
    caught: tuple[Caught, ...] = ()
    trace: Trace | None = None
    interrupted: bool = False


_NO_CLASS = re.compile(r"Can't get attribute '([^']+)' on <module '__main__'")


def unreadable(error: Exception, here: str, where: str) -> ProcessError:
    """Describe why a value that was sent can't be read.

    Args:
        error: What was raised while the value was read.
        here: Where it was read, such as `"on this process"`.
        where: Where to define what is missing.

    Example:
        >>> error = AttributeError("Can't get attribute 'Config' on <module '__main__'>")
        >>> print(unreadable(error, "on this process", "in a %%mcjax cell").message)
        A value can't be read on this process, because its class Config is not defined there. \
Define it in a %%mcjax cell, too
    """
    name = _NO_CLASS.search(str(error))
    why = f": {type(error).__name__}: {error}"
    if name is not None:
        why = f", because its class {name[1]} is not defined there. Define it {where}, too"
    return ProcessError.refusal(f"A value can't be read {here}{why}")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of a variable's PyTree on a process.

    Attributes:
        path: Its path in the PyTree, such as `"['w']"`; empty if the variable is the leaf.
        kind: What it is, with type, shape and layout.
        text: Its value, if that is short and no array.
        shared: Whether it is an array on devices of several processes.
        digests: Digests of what processes have in common of it, by the name of the slice.
    """

    path: str
    kind: str
    text: str = ""
    shared: bool = False
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable on a process.

    Attributes:
        name: Its name.
        type: The name of its class.
        leaves: The leaves of its PyTree.
        bytes: The bytes of its JAX arrays on each of their devices.
        sampled: Whether only a part of its elements has been digested, because they are many.
        truncated: Whether its PyTree has more leaves than are compared.
    """

    name: str
    type: str
    leaves: tuple[Leaf, ...]
    bytes: int = 0
    sampled: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest lines of a process's output in a cell.

    Attributes:
        count: The number of lines so far.
        lines: The last ones of them.
    """

    count: int = 0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a process in a cell that it has not finished.

    Attributes:
        recent: The newest lines of its output.
        line: The line of the cell that it runs, or None.
        waits_s: For how many seconds its main thread has been inside JAX while the whole process
            was idle: then it waits for other processes.
        inside_jax: Whether its main thread runs Python code of JAX, which an interrupt may leave
            half done.
        doing: Whether its main thread runs Python, compiles a function for JAX (or prepares to), or
            computes: then it waits for a result of JAX.
    """

    recent: Recent = Recent()
    line: int | None = None
    waits_s: float = 0.0
    inside_jax: bool = False
    doing: Doing = "python"


@dataclass(frozen=True, slots=True)
class Stack:
    """Where the main thread of a process is, in answer to a question.

    Attributes:
        number: The number of the question.
        lines: The learner's functions on its stack, from the outermost, a line for each; none
            while it runs nothing of the learner's.
    """

    number: int = 0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The computations, threads and processes that still run after a cell has ended.

    Attributes:
        devices: The local positions of the devices that still compute, ascending.
        newest: The newest launch among those that may take long, as name and line, such as
            `"fori_loop (In[3], line 2)"`; empty if none was noted.
        cell: The label of the cell that made that launch.
        arrays: Names of variables whose values are pending.
        threads: The lines of the cell at which threads run the learner's code; None for a thread
            that runs other code of the learner's.
        native: Whether threads of native code use the processor, for any purpose.
        children: The names of child processes that the cell started, sorted.
        bytes: The size of this process's parts of all arrays.
        gpu: Whether the process's devices are GPUs.
    """

    devices: tuple[int, ...] = ()
    newest: str = ""
    arrays: tuple[str, ...] = ()
    threads: tuple[int | None, ...] = ()
    native: bool = False
    children: tuple[str, ...] = ()
    bytes: int = 0
    cell: str = ""
    gpu: bool = False

    @property
    def nothing(self) -> bool:
        """Whether nothing runs any more."""
        return not (self.devices or self.threads or self.native or self.children)


@dataclass(frozen=True, slots=True)
class DebuggerAnswer:
    """The answer of a process to a command of the debugger.

    Attributes:
        text: What the debugger and the code that it ran printed.
        ended: Whether the command ended the debugger.
    """

    text: str
    ended: bool


@dataclass(frozen=True, slots=True)
class Pause:
    """The halt of a process at a breakpoint, until it receives a command for its debugger.

    Attributes:
        number: Counts the halts of the process; 0 if it has not halted.
        text: What the debugger has printed since the last halt.
        recent: The newest lines of the cell's output.
    """

    number: int = 0
    text: str = ""
    recent: Recent = Recent()


@dataclass(frozen=True, slots=True)
class Healed:
    """The result of a heal in a process.

    Attributes:
        arrays: The number of the learner's arrays that were restored, bit for bit.
        lost: Names of arrays without a value, because their computations were aborted.
        stale: Names of objects that could not be restored, with what to do.
    """

    arrays: int = 0
    lost: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
