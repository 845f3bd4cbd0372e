"""The black box: files that tell what a process said, when it can no longer say it itself.

A process has three: `.out` and `.err`, which are its file descriptors 1 and 2, and `.said`, a copy
of what Python printed in the cell that runs. The latter begins with how much of the other two was
reported before that cell.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from mcnb.process.native import GlooFilter

_DIGITS = 20
_HEADER = 2 * _DIGITS
# More is not kept of one cell: a cell that prints for ever must not fill the disk.
MOST_BYTES = 8 << 20
_INSIDE_CHARACTER = bytes(range(0x80, 0xC0))  # what no character begins with in UTF-8


class BlackBox:
    """The process's end: writes.

    Args:
        output: The files' common path, without their endings.
    """

    def __init__(self, output: str) -> None:
        self._file = os.open(f"{output}.said", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self.begin(0, 0)

    def begin(self, reported_out: int, reported_err: int) -> None:
        """Begin a cell, with the number of bytes of `.out` and `.err` that are reported."""
        with contextlib.suppress(OSError):  # a full disk must not end the cell
            self._size = _HEADER
            os.ftruncate(self._file, 0)
            header = f"{reported_out:0{_DIGITS}d}{reported_err:0{_DIGITS}d}"
            os.pwrite(self._file, header.encode(), 0)

    def add(self, text: str) -> None:
        """Keep text; where it becomes too much, the newest of it."""
        data = text.encode("utf-8", "replace")
        try:
            if self._size + len(data) > MOST_BYTES:
                data = self._newest(data)
                os.pwrite(self._file, data, _HEADER)
                self._size = _HEADER + len(data)
                os.ftruncate(self._file, self._size)
            else:
                self._size += os.pwrite(self._file, data, self._size)
        except OSError:  # a full disk must not end the cell
            return

    def _newest(self, data: bytes) -> bytes:
        """Return half of what may be kept: the end of what was said, of which `data` is the end."""
        length = MOST_BYTES // 2
        before = max(self._size - max(length - len(data), 0), _HEADER)
        data = (os.pread(self._file, self._size - before, before) + data)[-length:]
        line_end = data.find(b"\n", 0, -1)
        if line_end >= 0:
            return data[line_end + 1 :]
        return data.lstrip(_INSIDE_CHARACTER)


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
    words = LastWords(*(piece.decode("utf-8", "replace") for piece in pieces))
    return replace(words, out=GlooFilter().feed(words.out, final=True))
