"""The record of a cell's output: everything, in its order, and a copy for when the process dies."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcnb.messages import STREAMS, Display, Recent, Stream, Text
from mcnb.worker.capture import (
    MOST_BYTES,
    MOST_JOINED_LINES,
    CrashLog,
    NativeOutput,
    Record,
    RecordedStream,
    read_crash_log,
)

NOTE = (
    "[Gloo] Rank 1 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3\n"
)


@dataclasses.dataclass
class Recorded:
    """A record whose file descriptors are files of the test's."""

    record: Record
    output: str

    def native(self, stream: Stream, text: str) -> None:
        """Write as native code does."""
        with Path(f"{self.output}.{stream.removeprefix('std')}").open("ab") as file:
            file.write(text.encode())


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    output = str(tmp_path / "process")
    natives: dict[Stream, NativeOutput] = {}
    for stream in STREAMS:
        path = Path(f"{output}.{stream.removeprefix('std')}")
        path.touch()
        natives[stream] = NativeOutput(str(path), hide_gloo=stream == "stdout")
    black_box = CrashLog(output)
    yield Recorded(Record(natives, black_box), output)
    os.close(black_box._file)
    for native in natives.values():
        os.close(native._reader)


@pytest.fixture
def record(recorded: Recorded) -> Record:
    return recorded.record


def said(recorded: Recorded) -> str:
    return read_crash_log(recorded.output).said


def test_all_that_comes_stands_in_its_order(recorded: Recorded) -> None:
    record = recorded.record
    record.write("stdout", "1\n")
    record.write("stdout", "2\n")
    record.write("stderr", "3\n")
    recorded.native("stdout", "4\n")
    record.write("stdout", "5\n")
    record.display({"text/plain": "6"}, {"a": 1})
    recorded.native("stderr", "7\n")
    record.display({"text/plain": "8"}, {}, is_value=True)
    recorded.native("stdout", "9\n")
    assert record.take() == (
        Text("stdout", "1\n2\n"),
        Text("stderr", "3\n"),
        Text("stdout", "4\n5\n"),
        Display({"text/plain": "6"}, {"a": 1}),
        Text("stderr", "7\n"),
        Display({"text/plain": "8"}, {}, True),
        Text("stdout", "9\n"),
    )
    assert record.take() == ()


def test_nothing_of_one_cell_is_in_the_next(recorded: Recorded) -> None:
    record = recorded.record
    record.write("stderr", "first")
    recorded.native("stdout", "[Glo")
    assert record.take() == (Text("stderr", "first"), Text("stdout", "[Glo"))
    record.clear(wait=True)
    assert record.take() == ()
    record.write("stdout", "second")
    assert record.take() == (Text("stdout", "second"),)


def test_gloo_says_nothing(recorded: Recorded) -> None:
    recorded.native("stdout", "a\n" + NOTE)
    recorded.native("stderr", NOTE)
    assert recorded.record.take() == (Text("stdout", "a\n"), Text("stderr", NOTE))


def test_the_lines_of_one_write_are_joined(recorded: Recorded) -> None:
    record = recorded.record
    record.write("stdout", "a\n")
    record.write("stdout", "[[0]\n [1]\n [2]]")
    record.write("stdout", "\n")
    record.write("stdout", "")
    recorded.native("stdout", "b\nc\n")
    record.write("stderr", "d\ne")
    assert record.take() == (
        Text("stdout", "a\n[[0]\n [1]\n [2]]\nb\nc\n", (6, 11)),
        Text("stderr", "d\ne", (1,)),
    )


def test_a_long_listing_is_not_joined(record: Record) -> None:
    record.write("stdout", "x\n" * MOST_JOINED_LINES)
    record.write("stderr", "x\n" * (MOST_JOINED_LINES + 1))
    joined, listing = record.take()
    assert isinstance(joined, Text)
    assert joined.joins == tuple(range(1, 2 * MOST_JOINED_LINES - 1, 2))
    assert isinstance(listing, Text)
    assert listing.joins == ()


def test_clear_output(recorded: Recorded) -> None:
    record = recorded.record
    record.write("stdout", "a")
    recorded.native("stderr", "b")
    record.display({"text/plain": "c"}, {})
    record.clear(wait=False)
    record.write("stdout", "d")
    assert record.take() == (Text("stdout", "d"),)


def test_clear_output_may_wait_for_the_next(recorded: Recorded) -> None:
    record = recorded.record
    record.write("stdout", "a")
    record.clear(wait=True)
    assert record.recent() == Recent(1, ("a",))
    record.write("stderr", "b")
    record.write("stderr", "c")
    assert record.recent() == Recent(1, ("bc",))
    record.clear(wait=True)
    record.display({"text/plain": "d"}, {})
    record.clear(wait=True)
    recorded.native("stdout", "e")
    assert record.take() == (Text("stdout", "e"),)


def test_clear_output_at_the_end_clears_nothing(record: Record) -> None:
    record.write("stdout", "a")
    record.clear(wait=True)
    assert record.take() == (Text("stdout", "a"),)


def test_a_display_can_be_updated(record: Record) -> None:
    record.display({"text/plain": "1"}, {}, "x")
    record.display({"text/plain": "2"}, {}, "y")
    record.display({"text/plain": "3"}, {}, "x")
    record.write("stdout", "a")
    record.update_display({"text/plain": "4"}, {"m": 1}, "x")
    record.update_display({"text/plain": "5"}, {}, "unknown")
    four = Display({"text/plain": "4"}, {"m": 1})
    assert record.take() == (four, Display({"text/plain": "2"}), four, Text("stdout", "a"))
    record.update_display({"text/plain": "6"}, {}, "x")
    assert record.take() == ()


def test_what_is_displayed_is_kept_as_it_was(record: Record) -> None:
    data = {"text/plain": "1"}
    record.display(data, {})
    data["text/plain"] = "2"
    assert record.take() == (Display({"text/plain": "1"}),)


def test_the_newest_lines_over_streams_and_displays(recorded: Recorded) -> None:
    record = recorded.record
    assert record.recent() == Recent()
    record.write("stdout", "a")
    record.write("stderr", "b")
    assert record.recent() == Recent(2, ("a", "b"))
    record.display({"text/plain": "1"}, {})
    recorded.native("stdout", "c\n")
    assert record.recent() == Recent(3, ("a", "b", "c"))
    record.take()
    assert record.recent() == Recent()


def test_threads_lose_nothing(record: Record) -> None:
    def write(k: int) -> None:
        for number in range(300):
            record.write("stdout" if k % 2 else "stderr", f"{k} {number}\n")

    threads = [threading.Thread(target=write, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    taken = list(record.take())
    for thread in threads:
        thread.join()
    taken += record.take()
    lines = [line for e in taken if isinstance(e, Text) for line in e.text.splitlines()]
    for k in range(6):
        mine = [line for line in lines if line.startswith(f"{k} ")]
        assert mine == [f"{k} {number}" for number in range(300)]


writes = st.lists(
    st.tuples(st.sampled_from(STREAMS), st.text(max_size=8), st.booleans()), max_size=12
)


@given(writes)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_black_box_has_what_was_printed(
    recorded: Recorded, writes: list[tuple[Stream, str, bool]]
) -> None:
    record = recorded.record
    record.take()
    printed: dict[str, str] = dict.fromkeys(STREAMS, "")
    newest = ""
    for stream, text, cell_ends in writes:
        record.write(stream, text)
        printed[stream] += text
        newest += text
        assert said(recorded) == newest
        if cell_ends:
            taken = record.take()
            for name in STREAMS:
                texts = [e.text for e in taken if isinstance(e, Text) and e.stream == name]
                assert "".join(texts) == printed[name]
            printed, newest = dict.fromkeys(STREAMS, ""), ""
            assert said(recorded) == ""


def test_the_black_box_before_the_first_cell(recorded: Recorded) -> None:
    recorded.record.write("stdout", "starting\n")
    assert said(recorded) == "starting\n"


def test_the_black_box_tells_what_native_code_said_since(recorded: Recorded) -> None:
    recorded.native("stdout", "reported\n")
    recorded.native("stderr", "reported\n")
    recorded.record.take()
    recorded.native("stdout", "new\n" + NOTE + "[Gloo] Rank")
    recorded.native("stderr", "Fatal\n")
    words = read_crash_log(recorded.output)
    assert (words.said, words.out, words.err) == ("", "new\n[Gloo] Rank", "Fatal\n")


def test_a_black_box_that_is_not_there(tmp_path: Path) -> None:
    words = read_crash_log(str(tmp_path / "none"))
    assert (words.said, words.out, words.err) == ("", "", "")


@pytest.mark.parametrize("size", [1000, MOST_BYTES // 3, MOST_BYTES - 100])
def test_the_black_box_keeps_the_newest(recorded: Recorded, size: int) -> None:
    line = "é" * (size // 2 - 1) + "\n"
    everything = ""
    for number in range(2 * MOST_BYTES // size + 2):
        everything += f"{number} {line}"
        recorded.record.write("stdout", f"{number} {line}")
    kept = said(recorded)
    assert everything.endswith(kept)
    assert min(MOST_BYTES // 3, size // 2) <= len(kept.encode()) <= MOST_BYTES
    assert "\ufffd" not in kept
    assert Path(f"{recorded.output}.said").stat().st_size <= MOST_BYTES
    recorded.record.take()
    recorded.record.write("stdout", "next")
    assert said(recorded) == "next"


def test_one_write_of_more_than_the_black_box_holds(recorded: Recorded) -> None:
    recorded.record.write("stdout", "a\n")
    recorded.record.write("stdout", "€" * MOST_BYTES)
    kept = said(recorded)
    assert set(kept) == {"€"}
    assert len(kept.encode()) > MOST_BYTES // 2 - 3


def test_a_recorded_stream_is_a_stream(recorded: Recorded) -> None:
    stream = RecordedStream(recorded.record, "stderr")
    print("a", 1, file=stream)
    assert stream.write("é") == 1
    stream.writelines(["b", "c"])
    stream.flush()
    assert stream.buffer.write("ü".encode()[:1]) == 1
    assert stream.buffer.write("ü".encode()[1:] + b"\n") == 2
    assert (stream.name, stream.encoding, stream.errors) == ("<stderr>", "utf-8", "strict")
    assert (stream.fileno(), stream.writable(), stream.isatty()) == (2, True, False)
    with pytest.raises(TypeError, match=r"^write\(\) argument must be str, not bytes$"):
        stream.write(b"x")  # type: ignore[arg-type]
    assert recorded.record.take() == (Text("stderr", "a 1\nébcü\n"),)
