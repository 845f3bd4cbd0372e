"""The record of what a process wrote and displayed during a cell, in its order."""

from __future__ import annotations

import codecs
import io
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any, cast

from mcnb.messages import STREAMS, Display, Event, Stream, Text
from mcnb.process.blackbox import BlackBox
from mcnb.process.native import NativeOutput, flush_c_stdio

# A write of more lines than this is a listing, not one thing to be kept together.
MOST_JOINED_LINES = 200
# More of one line than this is of no use where there is room for one line.
LONGEST_NEWEST_LINE = 1000


class Record:
    """Collects a cell's output from Python and from native code.

    Args:
        native: The file descriptors' outputs, by stream.
        black_box: Keeps a copy of what Python prints, for when the process dies before it can
            answer.
    """

    def __init__(self, native: Mapping[Stream, NativeOutput], black_box: BlackBox) -> None:
        self._native = native
        self._black_box = black_box
        # Reentrant: a signal handler may print while the main thread is in the middle of a write.
        self._lock = threading.RLock()
        self._events: list[Event | tuple[str, Display]] = []
        self._parts: list[str] = []
        self._joins: list[int] = []
        self._length = 0
        self._stream: Stream = "stdout"
        self._clear_next = False

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
        """Add something displayed; with an id, it can be updated later in the same cell."""
        with self._lock:
            self._add_native()
            self._close_text()
            self._clear_if_asked()
            shown = Display(dict(data), dict(metadata), is_value)
            self._events.append(shown if display_id is None else (display_id, shown))

    def update_display(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], display_id: str
    ) -> None:
        """Replace what was displayed under an id."""
        with self._lock:
            for position, event in enumerate(self._events):
                if isinstance(event, tuple) and event[0] == display_id:
                    self._events[position] = (display_id, Display(dict(data), dict(metadata)))

    def clear(self, wait: bool) -> None:
        """Forget the cell's output so far, or do so when the next output comes."""
        with self._lock:
            self._add_native()
            self._clear_next = True
            if not wait:
                self._clear_if_asked()

    def newest_line(self) -> str:
        """Return the last line with something in it that was written in this cell."""
        with self._lock:
            self._add_native()
            newest = ""
            for text in self._newest_first():
                newest = (text[-LONGEST_NEWEST_LINE:] + newest).rstrip()
                if len(newest) >= LONGEST_NEWEST_LINE or len(newest.splitlines()) > 1:
                    break
        return newest.splitlines()[-1].strip() if newest else ""

    def _newest_first(self) -> Iterator[str]:
        yield from reversed(self._parts)
        for event in reversed(self._events):
            if isinstance(event, Text):
                yield event.text + "\n"

    def take(self) -> tuple[Event, ...]:
        """Return what was recorded and begin anew."""
        flush_c_stdio()
        with self._lock:
            self._add_native(cell_ends=True)
            self._close_text()
            self._black_box.begin(*(self._native[stream].reported for stream in STREAMS))
            self._clear_next = False
            events = tuple(e[1] if isinstance(e, tuple) else e for e in self._events)
            self._events.clear()
        return events

    def _add_native(self, cell_ends: bool = False) -> None:
        for stream, native in self._native.items():
            if text := native.read(cell_ends):
                self._add(stream, text, as_one=False)

    def _add(self, stream: Stream, text: str, as_one: bool = True) -> None:
        if not text:
            return
        if self._clear_next:
            self._clear_if_asked()
        if stream != self._stream:
            self._close_text()
            self._stream = stream
        inner = text.find("\n")
        if as_one and -1 < inner < len(text) - 1 and text.count("\n") <= MOST_JOINED_LINES:
            while -1 < inner < len(text) - 1:
                self._joins.append(self._length + inner)
                inner = text.find("\n", inner + 1)
        self._parts.append(text)
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
            self._events.clear()


class _Bytes(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes that go into the record as UTF-8 text."""

    def __init__(self, stream: RecordedStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raw = bytes(data)
        self._stream.write(self._decoder.decode(raw))
        return len(raw)


class RecordedStream(io.TextIOBase):
    """`sys.stdout` or `sys.stderr` of a process."""

    def __init__(self, record: Record, name: Stream) -> None:
        self._record = record
        self._name = name
        self.buffer = _Bytes(self)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """UTF-8, always."""
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        """As Python's own streams in a notebook."""
        return "strict"

    @property
    def name(self) -> str:
        """`<stdout>` or `<stderr>`, as Python's own streams."""
        return f"<{self._name}>"

    def fileno(self) -> int:
        """Return the descriptor that child processes write to; its output is recorded too."""
        return STREAMS.index(self._name) + 1

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Record text."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._record.write(self._name, text)
        return len(text)


def as_text_io(stream: RecordedStream) -> IO[str]:
    """Return the stream as the type that `sys.stdout` is declared with."""
    return cast("IO[str]", stream)
