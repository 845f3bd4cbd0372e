"""The black box: files that tell what a process said, when it can no longer say it itself.

A process has three: `.out` and `.err`, which are its file descriptors 1 and 2, and `.said`, a copy
of what Python printed in the cell that runs. The latter begins with how much of the other two was
reported before that cell.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_DIGITS = 20
_HEADER = 2 * _DIGITS
# More is not kept of one cell: a cell that prints for ever must not fill the disk.
MOST_BYTES = 8 << 20


class BlackBox:
    """The process's end: writes.

    Args:
        output: The files' common path, without their endings.
    """

    def __init__(self, output: str) -> None:
        self._file = os.open(f"{output}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._size = _HEADER

    def begin(self, reported_out: int, reported_err: int) -> None:
        """Begin a cell, with the number of bytes of `.out` and `.err` that are reported."""
        os.ftruncate(self._file, 0)
        header = f"{reported_out:0{_DIGITS}d}{reported_err:0{_DIGITS}d}"
        self._size = os.pwrite(self._file, header.encode(), 0)

    def add(self, text: str) -> None:
        """Keep text."""
        data = text.encode("utf-8", "replace")
        if self._size + len(data) > MOST_BYTES:
            os.ftruncate(self._file, _HEADER)
            self._size = _HEADER
        with contextlib.suppress(OSError):  # a full disk must not end the cell
            self._size += os.pwrite(self._file, data[-MOST_BYTES:], self._size)


@dataclass(frozen=True)
class LastWords:
    """What a process said in its last cell, or since its start.

    Attributes:
        said: What Python printed, both streams in their order.
        out: What native code wrote to stdout.
        err: What native code wrote to stderr; a crash's own report is here.
    """

    said: str
    out: str
    err: str


def read_black_box(output: str) -> LastWords:
    """Return what the files hold.

    Args:
        output: The files' common path, without their endings.
    """
    contents = {}
    for ending in ("said", "out", "err"):
        try:
            contents[ending] = Path(f"{output}.{ending}").read_bytes()
        except OSError:
            contents[ending] = b""
    said = contents["said"]
    starts = [int(said[i : i + _DIGITS] or 0) for i in (0, _DIGITS)]
    pieces = (said[_HEADER:], contents["out"][starts[0] :], contents["err"][starts[1] :])
    return LastWords(*(piece.decode("utf-8", "replace") for piece in pieces))
