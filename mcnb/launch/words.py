"""What a process or a launcher said last, for a sentence about its end."""

from __future__ import annotations

import re

from mcnb.process.blackbox import read_black_box
from mcnb.process.tracebacks import crash_report

LAST_LINES = 8
MOST_LINES = 10

# XLA's messages begin with a letter for how grave they are, the time, and the thread.
_LOG_PREFIX = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ ")


def last_lines(output: str) -> str:
    """Return the last lines that a process wrote to its file descriptor 2; empty if none.

    Args:
        output: The common path of its output files; empty if there are none.
    """
    return lines_of(crash_report(read_black_box(output).err)) if output else ""


def said_lines(text: str) -> str:
    r"""Return what a launcher said, for the end of a sentence: its beginning and its end.

    Example:
        >>> print(said_lines("no such host\n"))
         It said:
        no such host
    """
    lines = text.strip().splitlines()
    if len(lines) > 2 * MOST_LINES:
        lines = [*lines[:MOST_LINES], "…", *lines[-MOST_LINES:]]
    return " It said:\n" + "\n".join(lines) if lines else ""


def lines_of(text: str) -> str:
    """Return the last lines of a text, for the end of a sentence; empty if there are none.

    Example:
        >>> print(lines_of("E0923 04:05:06.789012  77 nobody.cc:1] No such host"))
         Its last lines:
        nobody.cc:1] No such host
    """
    lines = [_LOG_PREFIX.sub("", line) for line in text.strip().splitlines()[-LAST_LINES:]]
    return " Its last lines:\n" + "\n".join(lines) if lines else ""
