"""The exceptions that mcnb raises."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Self

# A notebook breaks longer lines within words.
WIDTH = 80


class McnbError(Exception):
    """What all of mcnb's exceptions have in common: they end a cell with their message alone.

    IPython shows `lines` in place of a traceback through mcnb's own frames, which would only
    hide the part that the reader can act on.

    Args:
        message: What happened and what to do, in sentences.
        lines: What a notebook shows for it; the message, where nothing is given.

    Attributes:
        what: What happened, where `remedied` made the error; otherwise the message.
        remedy: The command that mends it, where `remedied` made the error.
    """

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = list(lines)
        self.what, self.remedy = message, ""

    @classmethod
    def remedied(cls, what: str, remedy: str, action: str = "Install it") -> Self:
        """Return an error that a command mends.

        Args:
            what: What happened.
            remedy: The command.
            action: What the command does, as an order.

        Example:
            >>> str(McnbError.remedied("jax is not installed", "python -m pip install jax"))
            'jax is not installed. Install it: python -m pip install jax'
        """
        error = cls(f"{what}. {action}: {remedy}")
        error.what, error.remedy = what, remedy
        return error

    def _render_traceback_(self) -> list[str]:
        lines = self.lines or [f"{type(self).__name__}: {self}"]
        return [part for line in lines for whole in line.split("\n") for part in _shown(whole)]


class CellError(McnbError):
    """A cell failed on at least one process: the root cause comes first.

    Example:
        >>> raise CellError("process 2 raised ZeroDivisionError: division by zero (line 3)")
        Traceback (most recent call last):
        mcnb.errors.CellError: process 2 raised ZeroDivisionError: division by zero (line 3)
    """


class LockstepError(CellError):
    """Processes diverged: one of them launched a computation that the others did not launch.

    It is raised in the processes before anything hangs, and in the notebook for the cell.

    Args:
        message: As for any of mcnb's exceptions.
        lines: As for any of mcnb's exceptions.
        kind: The kind of the verdict, such as `"missing"` or `"died"`.

    Example:
        >>> raise LockstepError("missing: process 0 is waiting in sum, line 4")
        Traceback (most recent call last):
        mcnb.errors.LockstepError: missing: process 0 is waiting in sum, line 4
    """

    def __init__(self, message: str, lines: Sequence[str] = (), kind: str = "") -> None:
        super().__init__(message, lines)
        self.kind = kind


class ClusterError(McnbError):
    """The cluster could not do what was asked: a process died, could not start, or is gone."""


class OptionError(ClusterError, ValueError):
    """An option has a value that is not allowed; the message says which values are."""


class PictureError(McnbError, ValueError):
    """Something can't be drawn; the message says what it is, and what can."""


def wrapped(line: str, indent: str = "") -> list[str]:
    """Return a line as several that a notebook need not break.

    Args:
        line: The line.
        indent: What the second and further ones begin with.
    """
    return textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _shown(line: str) -> list[str]:
    """Return a line of an error as a notebook shows it; code stays as it is."""
    code = line.startswith((" ", "---->")) or "\x1b" in line
    return [line] if len(line) <= WIDTH or code else wrapped(line)
