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
# (gloo/rendezvous/context.cc). Two contexts that connect at once mix their pieces; each piece is
# written whole.
_OPENING = "[Gloo] Rank "
_WORDS = (
    _OPENING,
    " is connected to ",
    " peer ranks. ",
    "Expected number of connected peer ranks is : ",
    "\n",
)
_NUMBERS_IN_NOTE = 3
_PIECE = re.compile("|".join([r"[0-9]+", *map(re.escape, _WORDS)]))
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
        passed: list[str] = []
        position = 0
        while (start := text.find(_OPENING, position)) >= 0:
            end = _end_of_notes(text, start)
            if end is None and not final:  # the rest of the note is still to come
                break
            if end is None or end < 0:  # it only looked like one
                passed.append(text[position : start + len(_OPENING)])
                position = start + len(_OPENING)
            else:
                passed.append(text[position:start])
                position = end
        if start < 0:
            start = len(text) - (0 if final else _partial(text[position:], _OPENING))
        passed.append(text[position:start])
        self._held = text[start:]
        return "".join(passed)

    def rest(self) -> str:
        """Return what is held back, unless it is a note that has begun and is still to end."""
        if self._held.startswith(_OPENING):
            return ""
        held, self._held = self._held, ""
        return held


def _partial(text: str, piece: str) -> int:
    """Return how many characters at the end of the text may be the beginning of the piece."""
    for length in range(min(len(piece) - 1, len(text)), 0, -1):
        if text.endswith(piece[:length]):
            return length
    return 0


def _end_of_notes(text: str, start: int) -> int | None:
    """Return where the notes that begin at `start` end, None if they may go on, -1 if none do."""
    position = start
    said = dict.fromkeys(_WORDS, 0)
    digits = 0
    while position < min(len(text), start + _LONGEST_HELD):
        match = _PIECE.match(text, position)
        if match is None:
            rest = text[position:]
            return None if any(word.startswith(rest) for word in _WORDS) else -1
        position = match.end()
        if match[0] in said:
            said[match[0]] += 1
            counts = list(said.values())
            if counts != sorted(counts, reverse=True):
                return -1  # no note says its words in this order
            if counts[0] == counts[-1]:
                return position if digits >= _NUMBERS_IN_NOTE * counts[0] else -1
        else:
            digits += len(match[0])
    return None if position - start < _LONGEST_HELD else -1


class NativeOutput:
    """One file descriptor's output, read from the file that it goes to.

    Args:
        path: The file that it is, or was before a cell redirected it, opened for appending.
        hide_gloo: Whether Gloo's connection notes are left out.

    Attributes:
        reported: How many bytes were read so far.
    """

    def __init__(self, path: str, hide_gloo: bool) -> None:
        self._reader = os.open(path, os.O_RDONLY)
        self.reported = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._gloo = GlooFilter() if hide_gloo else None

    def read(self, cell_ends: bool = False) -> str:
        """Return what was written since the last call, as far as it is known to be whole.

        Args:
            cell_ends: Whether what is written later belongs to another cell.
        """
        # Not fstat: this is called with each write of Python's, and takes a quarter of the time.
        size = os.lseek(self._reader, 0, os.SEEK_END)
        if size == self.reported and not cell_ends:
            return ""
        # A child process that writes to /dev/stdout opens the file anew, which may empty it.
        if size < self.reported:
            self.reported = 0
        data = os.pread(self._reader, size - self.reported, self.reported)
        self.reported += len(data)
        text = self._decoder.decode(data)
        if self._gloo:
            text = self._gloo.feed(text)
            if cell_ends:
                text += self._gloo.rest()
        return text


def flush_c_stdio() -> None:
    """Have C's own buffers written out: `printf` holds text back when stdout is a file."""
    ctypes.CDLL(None).fflush(None)
