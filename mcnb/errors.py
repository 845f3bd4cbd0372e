"""Define the exceptions that mcnb raises."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Self

# A notebook breaks longer lines inside words.
WIDTH = 68
# The begin of the note that JAX adds to an error whose traceback it has shortened.
_JAX_REMOVED = "For simplicity, JAX has removed its internal frames"


class McnbError(Exception):
    """The base class of mcnb's exceptions, which end a cell with their message alone.

    IPython shows `lines` in place of a traceback through mcnb's own frames, which would only
    hide the part that the reader can act on.

    Args:
        message: What happened and what to do, in sentences.
        lines: The lines that a notebook shows; by default the message.

    Attributes:
        what: What happened, for an error made by `remedied`; otherwise the message.
        remedy: The command that fixes the problem, for an error made by `remedied`.
    """

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = list(lines)
        self.what, self.remedy = message, ""

    @classmethod
    def remedied(cls, what: str, remedy: str, action: str = "Install it") -> Self:
        """Return an error that a command fixes.

        Args:
            what: What happened.
            remedy: The command.
            action: What the command does, in the imperative.

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
    """The failure of a cell on at least one process, with the root cause first.

    Example:
        >>> raise CellError("process 2 raised ZeroDivisionError: division by zero (line 3)")
        Traceback (most recent call last):
        mcnb.errors.CellError: process 2 raised ZeroDivisionError: division by zero (line 3)
    """


class LockstepError(CellError):
    """A divergence: one process launched a computation that the others did not launch.

    It is raised in the processes before they hang, and in the notebook kernel for the cell.

    Args:
        message: As in `McnbError`.
        lines: As in `McnbError`.
        kind: The kind of the verdict, such as `"missing"` or `"died"`.

    Example:
        >>> raise LockstepError("missing: process 0 is waiting in sum, line 4")
        Traceback (most recent call last):
        mcnb.errors.LockstepError: missing: process 0 is waiting in sum, line 4
    """

    def __init__(self, message: str, lines: Sequence[str] = (), kind: str = "") -> None:
        super().__init__(message, lines)
        self.kind = kind

    def add_note(self, note: str) -> None:
        """Add a note, unless it is JAX's own about frames that it has removed from the traceback.

        JAX adds it to what passes its Python code, but not to what passes its native code.
        """
        if _JAX_REMOVED not in note:
            super().add_note(note)


class UnequalNamesError(LockstepError, AssertionError):
    """A divergence for which JAX itself raises an `AssertionError`.

    Processes passed different names to `jax.experimental.multihost_utils.sync_global_devices`. A
    program that expects JAX's error gets it.
    """


# It is shown as what it is documented as.
UnequalNamesError.__name__ = UnequalNamesError.__qualname__ = LockstepError.__name__


def refusal(message: str, lines: Sequence[str], kind: str, only_names: bool) -> LockstepError:
    """Return the error of a launch that will never go ahead.

    Args:
        message: The verdict in sentences.
        lines: The verdict as it is shown.
        kind: Its kind.
        only_names: Whether only the names differ that processes passed to JAX's barrier.

    Example:
        >>> error = refusal("mismatch: ...", [], "mismatch", True)
        >>> isinstance(error, AssertionError), type(error).__name__
        (True, 'LockstepError')
    """
    return (UnequalNamesError if only_names else LockstepError)(message, lines, kind)


class ClusterError(McnbError):
    """The failure of a cluster's operation: a process died, could not start, or is gone."""


class OptionError(ClusterError, ValueError):
    """An option with a value that is not allowed; the message says which values are."""


class PictureError(McnbError, ValueError):
    """A value that can't be drawn; the message says what it is, and what can be drawn."""


def wrapped(line: str, indent: str = "") -> list[str]:
    """Wrap a line into several, so that a notebook need not break it; indent all but the first."""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _shown(line: str) -> list[str]:
    """Wrap a line of an error for a notebook; lines of code stay as they are."""
    code = line.startswith((" ", "---->")) or "\x1b" in line
    return [line] if len(line) <= WIDTH or code else wrapped(line)
