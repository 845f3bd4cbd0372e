"""Record a cell's output from Python and native code, with a copy in case of a crash."""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import io
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcnb.messages import STREAMS, Display, Event, Recent, Stream, Text
from mcnb.output.recent import Tail

_C = ctypes.CDLL(None)  # the C library
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
_DIGITS = 20
_HEADER = 2 * _DIGITS
# The most that is kept of one cell: a cell that prints for ever must not fill the disk.
MOST_BYTES = 8 << 20
_INSIDE_CHARACTER = bytes(range(0x80, 0xC0))  # no character begins with these in UTF-8
# The lines of a longer write are a listing, and need not be kept together.
MOST_JOINED_LINES = 200


class GlooFilter:
    r"""A filter that removes Gloo's connection notes, and nothing else, from a stream of text.

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
        """Return the text that can be passed on now.

        Args:
            text: The next piece of the stream.
            final: Whether the stream ends here, so that nothing is held back.
        """
        text = self._held + text
        passed: list[str] = []
        position = 0
        while (start := text.find(_OPENING, position)) >= 0:
            end = _end_of_notes(text, start)
            if end is None and not final:  # the note is incomplete
                break
            if end is None or end < 0:  # this text is no note
                passed.append(text[position : start + len(_OPENING)])
                position = start + len(_OPENING)
            else:
                passed.append(text[position:start])
                position = end
        if start < 0:
            shorter = (_OPENING[:length] for length in range(len(_OPENING) - 1, 0, -1))
            begun = next((part for part in shorter if text.endswith(part, position)), "")
            start = len(text) - (0 if final else len(begun))
        passed.append(text[position:start])
        self._held = text[start:]
        return "".join(passed)

    def rest(self) -> str:
        """Return the text that is held back, unless it is the beginning of a note."""
        if self._held.startswith(_OPENING):
            return ""
        held, self._held = self._held, ""
        return held


def _end_of_notes(text: str, start: int) -> int | None:
    """Return the end of the notes that begin at `start`; None if they may go on, -1 for no note."""
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
                return -1  # no note has its words in this order
            if counts[0] == counts[-1]:
                return position if digits >= _NUMBERS_IN_NOTE * counts[0] else -1
        else:
            digits += len(match[0])
    return None if position - start < _LONGEST_HELD else -1


class NativeOutput:
    """The output of one file descriptor, read from the file to which it is redirected.

    Args:
        path: The descriptor's file before any redirection by a cell, opened for appending.
        hide_gloo: Whether to leave out Gloo's connection notes.

    Attributes:
        reported: The number of bytes read so far.
    """

    def __init__(self, path: str, hide_gloo: bool) -> None:
        self._path = path
        self._reader = os.open(path, os.O_RDONLY)
        self.reported = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._gloo = GlooFilter() if hide_gloo else None

    def reopen(self, descriptor: int) -> None:
        """Redirect a descriptor to the file again, if the cell has closed it.

        The next file or connection of the process would take its number, and what native code
        prints.
        """
        try:
            os.get_inheritable(descriptor)
        except OSError:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            if file == descriptor:
                os.set_inheritable(descriptor, True)
            else:
                os.dup2(file, descriptor)
                os.close(file)

    def read(self, cell_ends: bool = False) -> str:
        """Return the text written since the last call, without an incomplete character or note.

        Args:
            cell_ends: Whether later output belongs to another cell.
        """
        # Not fstat, which takes four times as long: this is called with each write of Python's.
        size = os.lseek(self._reader, 0, os.SEEK_END)
        if size == self.reported and not cell_ends:
            return ""
        # A child process that writes to /dev/stdout opens the file again, which may empty it.
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
    """Flush C's own buffers: `printf` holds text back when stdout is a file."""
    _C.fflush(None)


class CrashLog:
    """A copy of Python's output in a cell, in a file that survives the death of the process.

    Args:
        output: The files' common path, without their endings.
    """

    def __init__(self, output: str) -> None:
        self._file = os.open(f"{output}.said", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self.begin(0, 0)

    def begin(self, reported_out: int, reported_err: int) -> None:
        """Begin a cell, after these numbers of bytes of `.out` and `.err` were reported."""
        with contextlib.suppress(OSError):  # a full disk must not end the cell
            self._size = _HEADER
            os.ftruncate(self._file, 0)
            header = f"{reported_out:0{_DIGITS}d}{reported_err:0{_DIGITS}d}"
            os.pwrite(self._file, header.encode(), 0)

    def add(self, text: str) -> None:
        """Append text; if the log becomes too large, keep the newest part."""
        data = text.encode("utf-8", "replace")
        with contextlib.suppress(OSError):  # a full disk must not end the cell
            if self._size + len(data) > MOST_BYTES:
                data = self._newest(data)
                os.pwrite(self._file, data, _HEADER)
                self._size = _HEADER + len(data)
                os.ftruncate(self._file, self._size)
            else:
                self._size += os.pwrite(self._file, data, self._size)

    def _newest(self, data: bytes) -> bytes:
        """Return the newest output, which ends with `data`: half of what may be kept."""
        length = MOST_BYTES // 2
        before = max(self._size - max(length - len(data), 0), _HEADER)
        data = (os.pread(self._file, self._size - before, before) + data)[-length:]
        line_end = data.find(b"\n", 0, -1)
        if line_end >= 0:
            return data[line_end + 1 :]
        return data.lstrip(_INSIDE_CHARACTER)


@dataclass(frozen=True)
class LastOutput:
    """The output of a process in its last cell, or since its start.

    Attributes:
        said: Text that Python printed, both streams in their order.
        out: Text that native code wrote to stdout.
        err: Text that native code wrote to stderr, including a crash's own report.
    """

    said: str
    out: str
    err: str


def read_crash_log(output: str) -> LastOutput:
    """Read the last output of a process from its files.

    Args:
        output: The files' common path, without their endings.
    """
    contents = []
    for ending in ("said", "out", "err"):
        try:
            contents.append(Path(f"{output}.{ending}").read_bytes())
        except OSError:
            contents.append(b"")
    starts = (_HEADER, *(int(contents[0][i : i + _DIGITS] or 0) for i in (0, _DIGITS)))
    pieces = (data[start:] for data, start in zip(contents, starts, strict=True))
    said, out, err = (piece.decode("utf-8", "replace") for piece in pieces)
    return LastOutput(said, GlooFilter().feed(out, final=True), err)


class Record:
    """The record of a cell's output, from Python and from native code.

    Args:
        native: The outputs of the file descriptors, by stream.
        black_box: Keeps a copy of Python's output in case the process dies before it replies.
    """

    def __init__(self, native: Mapping[Stream, NativeOutput], black_box: CrashLog) -> None:
        self._native = native
        self._black_box = black_box
        # Reentrant: a signal handler may print in the middle of a write by the main thread.
        self._lock = threading.RLock()
        self._events: list[Event | tuple[str, Display]] = []
        self._parts: list[str] = []
        self._joins: list[int] = []
        self._length = 0
        self._stream: Stream = "stdout"
        self._clear_next = False
        self._tail = Tail()
        # What the tail has not read; None where another stream begins.
        self._unread: list[str | None] = []

    def write(self, stream: Stream, text: str) -> None:
        """Add text that Python wrote."""
        with self._lock:
            self._add_native()
            self._add(stream, text)
            self._black_box.add(text)

    def display(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any],
        display_id: str | None = None,
        is_value: bool = False,
    ) -> None:
        """Add a display; with an id, it can be updated later in the same cell."""
        with self._lock:
            self._add_native()
            self._close_text()
            self._clear_if_asked()
            shown = Display(dict(data), dict(metadata), is_value)
            self._events.append(shown if display_id is None else (display_id, shown))

    def update_display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str
    ) -> None:
        """Replace the displays that have this id."""
        with self._lock:
            for position, event in enumerate(self._events):
                if isinstance(event, tuple) and event[0] == display_id:
                    self._events[position] = (display_id, Display(dict(data), dict(metadata)))

    def clear(self, wait: bool) -> None:
        """Clear the cell's output so far, now or when the next output arrives."""
        with self._lock:
            self._add_native()
            self._clear_next = True
            if not wait:
                self._clear_if_asked()

    def reopen(self) -> None:
        """Record native code again, if the cell has closed a descriptor."""
        for descriptor, stream in enumerate(STREAMS, 1):
            self._native[stream].reopen(descriptor)

    def recent(self) -> Recent:
        """Return the newest lines of this cell's output."""
        with self._lock:
            self._add_native()
            # Read only now, because a cell may print a million lines.
            for text in self._unread:
                self._tail.end_line() if text is None else self._tail.feed(text)
            self._unread.clear()
            return self._tail.recent()

    def take(self) -> tuple[Event, ...]:
        """Return the recorded events, and start the next record."""
        flush_c_stdio()
        with self._lock:
            self._add_native(cell_ends=True)
            self._close_text()
            self._black_box.begin(*(self._native[stream].reported for stream in STREAMS))
            self._clear_next = False
            events = tuple(e[1] if isinstance(e, tuple) else e for e in self._events)
            self._forget()
        return events

    def _forget(self) -> None:
        self._events.clear()
        self._unread.clear()
        self._tail = Tail()

    def _add_native(self, cell_ends: bool = False) -> None:
        for stream, native in self._native.items():
            if text := native.read(cell_ends):
                self._add(stream, text, as_one=False)

    def _add(self, stream: Stream, text: str, as_one: bool = True) -> None:
        if not text:
            return
        self._clear_if_asked()
        if stream != self._stream:
            self._close_text()
            self._stream = stream
            self._unread.append(None)
        inner = text.find("\n")
        if as_one and -1 < inner < len(text) - 1 and text.count("\n") <= MOST_JOINED_LINES:
            while -1 < inner < len(text) - 1:
                self._joins.append(self._length + inner)
                inner = text.find("\n", inner + 1)
        self._parts.append(text)
        self._unread.append(text)
        self._length += len(text)

    def _close_text(self) -> None:
        if self._parts:
            self._events.append(Text(self._stream, "".join(self._parts), tuple(self._joins)))
            self._parts.clear()
            self._joins.clear()
            self._length = 0

    def _clear_if_asked(self) -> None:
        if self._clear_next:
            self._clear_next = False
            self._close_text()
            self._forget()


class _Bytes(io.BufferedIOBase):
    """The `buffer` of a recorded stream: bytes go into the record as UTF-8 text."""

    def __init__(self, stream: RecordedStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def close(self) -> None:
        """Do nothing, as the stream's own `close`."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._stream.write(self._decoder.decode(raw))
        return len(raw)


class RecordedStream(io.TextIOBase):
    """The `sys.stdout` or `sys.stderr` of a process, which writes into the record.

    Its encoding, error handling and name are the same as of Python's own streams in a notebook.
    """

    encoding = "utf-8"
    errors = "strict"

    def __init__(self, record: Record, stream: Stream) -> None:
        self._record = record
        self._stream = stream
        self.name = f"<{stream}>"
        self.buffer: _Bytes = _Bytes(self)

    def fileno(self) -> int:
        """Return the descriptor that child processes write to; its output is recorded too."""
        return STREAMS.index(self._stream) + 1

    def close(self) -> None:
        """Do nothing: later cells, and the reply to this one, need the stream."""

    def detach(self) -> _Bytes:  # type: ignore[override]
        """Return the stream's buffer, and leave the stream as it is."""
        return self.buffer

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Record text."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._record.write(self._stream, text)
        return len(text)
