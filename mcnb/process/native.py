"""What native code and child processes write to file descriptors 1 and 2.

Each descriptor is a file of its own, apart from what Python prints. So a line that native code
writes can't land in the middle of one of Python's, and what remains of a process that died is
there to read.
"""

from __future__ import annotations

import codecs
import ctypes
import os
import re

# Gloo announces each connected context on stdout with
#   cout << "[Gloo] Rank " << r << " is connected to " << n << " peer ranks. "
#        << "Expected number of connected peer ranks is : " << n << endl;
# (gloo/rendezvous/context.cc). Two contexts that connect at once mix their pieces.
_OPENING = "[Gloo] Rank "
_CLOSING = "Expected number of connected peer ranks is : "
_PIECE = re.compile(rf"{re.escape(_OPENING)}|\d+| is connected to | peer ranks\. |{_CLOSING}|\n")
_PIECES = (_OPENING, " is connected to ", " peer ranks. ", _CLOSING)
# Longer than any line of Gloo's, times the contexts that may connect at once.
_LONGEST_HELD = 4096


class GlooFilter:
    r"""Takes Gloo's connection notes out of a stream of text and leaves all else as it was.

    Example:
        >>> gloo = GlooFilter()
        >>> gloo.feed("my[Gloo] Rank 1 is connected to 3 peer ranks. Expected number of")
        'my'
        >>> gloo.feed(" connected peer ranks is : 3\n own line\n")
        ' own line\n'
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str, final: bool = False) -> str:
        """Return what can be passed on by now.

        Args:
            text: The next stretch of the stream.
            final: Whether nothing follows: then nothing is held back.
        """
        text = self._held + text
        self._held = ""
        passed: list[str] = []
        while text:
            start = text.find(_OPENING)
            if start < 0:
                start = len(text) - (0 if final else _partial(text, _OPENING))
                passed.append(text[:start])
                self._held = text[start:]
                break
            passed.append(text[:start])
            end = _end_of_notes(text, start)
            if end is None:  # the rest of the note is still to come
                if final or len(text) - start > _LONGEST_HELD:
                    passed.append(text[start:])
                else:
                    self._held = text[start:]
                break
            if end < 0:  # it only looked like one
                passed.append(text[start : start + len(_OPENING)])
                text = text[start + len(_OPENING) :]
            else:
                text = text[end:]
        return "".join(passed)


def _partial(text: str, piece: str) -> int:
    """Return how many characters at the end of the text may be the beginning of the piece."""
    for length in range(min(len(piece) - 1, len(text)), 0, -1):
        if text.endswith(piece[:length]):
            return length
    return 0


def _end_of_notes(text: str, start: int) -> int | None:
    """Return where the notes that begin at `start` end, None if they may go on, -1 if none do."""
    position = start
    opened = closed = ended = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            rest = text[position:]
            return None if any(piece.startswith(rest) for piece in _PIECES) else -1
        opened += match[0] == _OPENING
        closed += match[0] == _CLOSING
        ended += match[0] == "\n"
        position = match.end()
        if opened == closed == ended:
            return position
    return None


class NativeOutput:
    """One file descriptor's output, read from the file that it goes to.

    Args:
        descriptor: 1 or 2.
        path: The file that it is, opened for appending.
        hide_gloo: Whether Gloo's connection notes are left out.

    Attributes:
        reported: How many bytes were read so far.
    """

    def __init__(self, descriptor: int, path: str, hide_gloo: bool) -> None:
        self._descriptor = descriptor
        self._reader = os.open(path, os.O_RDONLY)
        self.reported = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._gloo = GlooFilter() if hide_gloo else None

    def read(self) -> str:
        """Return what was written since the last call, as far as it is known to be whole."""
        size = os.fstat(self._descriptor).st_size
        if size == self.reported:
            return ""
        data = os.pread(self._reader, size - self.reported, self.reported)
        self.reported += len(data)
        text = self._decoder.decode(data)
        return self._gloo.feed(text) if self._gloo else text


def flush_c_stdio() -> None:
    """Have C's own buffers written out: `printf` holds text back when stdout is a file."""
    ctypes.CDLL(None).fflush(None)
