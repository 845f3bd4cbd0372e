"""What a process sends back for a cell: plain data, the same on both ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from mcnb.lockstep.model import LaunchRecord
from mcnb.lockstep.trace import Trace

Stream: TypeAlias = Literal["stdout", "stderr"]
STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


@dataclass(frozen=True, slots=True)
class Text:
    """A stretch of text that a process wrote to one stream, to the letter.

    Attributes:
        stream: `"stdout"` or `"stderr"`.
        text: What was written.
        joins: Offsets in `text` of line ends that stand inside one `print`. Such lines belong
            together: an array of two rows is one thing to read, not two.
    """

    stream: Stream
    text: str
    joins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Display:
    """Something that a process displayed: a plot, a table, the value of the last expression.

    Attributes:
        data: The representations by MIME type, as in a notebook file.
        metadata: What Jupyter's messages call metadata, by MIME type.
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
        line: The line of the cell at which it was raised, counted as the notebook counts, or
            None where the cell has no part in it.
        traceback: The traceback as text, from the learner's first line on.
        undefined: The global variable that does not exist, for a `NameError`; otherwise empty.
    """

    name: str
    message: str
    line: int | None
    traceback: str
    undefined: str = ""

    def heading(self) -> str:
        """Return the error's name and place.

        Example:
            >>> ProcessError("KeyError", "'x'", 3, "").heading()
            'KeyError in line 3'
        """
        return self.name if self.line is None else f"{self.name} in line {self.line}"

    def summary(self) -> str:
        """Return the error as half a sentence.

        Example:
            >>> ProcessError("KeyError", "'x'", 3, "").summary()
            "KeyError: 'x' (line 3)"
        """
        message = self.message.strip().partition("\n")[0].rstrip()
        where = "" if self.line is None else f" (line {self.line})"
        return f"{self.name}: {message}{where}" if message else f"{self.name}{where}"


@dataclass(frozen=True, slots=True)
class Reply:
    """All that one process has to say about one cell.

    Attributes:
        events: What it wrote and displayed, in its own order.
        error: The exception that ended the cell, or None.
        value: The text of the last expression's value, or None.
        launches: The computations that it launched and that span processes.
        busy: Whether threads that the cell started still run its code.
        trace: What it did when; None where it could not say.
    """

    events: tuple[Event, ...] = ()
    error: ProcessError | None = None
    value: str | None = None
    launches: tuple[LaunchRecord, ...] = ()
    busy: bool = False
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a process stands in a cell that it has not finished.

    Attributes:
        newest_line: The last line that it wrote in this cell.
        line: The line of the cell that it is at, or None.
        waits_s: For how many seconds its main thread has stood inside JAX while the whole process
            did nothing: then it waits for other processes.
        inside_jax: Whether its main thread runs Python code of JAX's, in which an interrupt may
            leave something half done.
    """

    newest_line: str = ""
    line: int | None = None
    waits_s: float = 0.0
    inside_jax: bool = False


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What still runs in a process after its cell has ended.

    Attributes:
        devices: The local positions of the devices that still compute, ascending.
        newest: The launch that was made last, of those that may take long: name and line, such as
            `"fori_loop (In[3], line 2)"`; empty if none was noted.
        cell: The label of the cell that made it.
        arrays: Names of variables that have no value yet.
        threads: The lines of the cell at which threads run the learner's code; None for a thread
            that runs other code of the learner's.
        native: Whether threads of native code use the processor, for whatever purpose.
        children: The names of child processes that the cell has started, sorted.
        bytes: How large this process's parts of all arrays are.
    """

    devices: tuple[int, ...] = ()
    newest: str = ""
    arrays: tuple[str, ...] = ()
    threads: tuple[int | None, ...] = ()
    native: bool = False
    children: tuple[str, ...] = ()
    bytes: int = 0
    cell: str = ""

    @property
    def nothing(self) -> bool:
        """Whether nothing runs any more."""
        return not (self.devices or self.threads or self.native or self.children)


@dataclass(frozen=True, slots=True)
class Healed:
    """What healing did in a process.

    Attributes:
        arrays: How many of the learner's arrays have their values back, bit for bit.
        bytes: How large this process's parts of them are.
        deleted: How many arrays had been deleted or donated before, and still are.
        lost: Names of arrays without a value: what was to compute them was ended.
        stale: Names of what could not be restored, with what to do.
    """

    arrays: int = 0
    bytes: int = 0
    deleted: int = 0
    lost: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
