"""What native code writes: Gloo's notes are taken out, all else comes through as it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.worker.capture import GlooFilter, NativeOutput, flush_c_stdio

OPENING = "[Gloo] Rank "
numbers = st.integers(0, 2000).map(str)


def pieces(rank: str, connected: str, expected: str) -> list[str]:
    """Return a note in the pieces in which Gloo writes it."""
    return [
        *(OPENING, rank, " is connected to ", connected, " peer ranks. "),
        *("Expected number of connected peer ranks is : ", expected, "\n"),
    ]


NOTE = "".join(pieces("1", "3", "3"))


@st.composite
def mixed_notes(draw: st.DrawFn) -> str:
    """One to four notes that were written at once: each in its own order."""
    notes = draw(st.lists(st.builds(pieces, numbers, numbers, numbers), min_size=1, max_size=4))
    turns = draw(st.permutations([k for k, note in enumerate(notes) for _ in note]))
    return "".join(notes[k].pop(0) for k in turns)


# Nothing is ambiguous but text that holds the opening of a note: digits of the learner's right
# before a note stand before its "[", and those right after it stand after its line end.
learner_text = (
    st.lists(
        st.sampled_from(["a", "7", "\n", " ", "[", "[Gloo", "[Gloo] ", "Rank ", "é"])
        | st.sampled_from(pieces("1", "2", "3")[1:]),
        max_size=12,
    )
    .map("".join)
    .filter(lambda text: OPENING not in text)
)


@st.composite
def text_with_notes(draw: st.DrawFn) -> tuple[str, str]:
    """The learner's text, and the same with notes in it."""
    text = draw(learner_text)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    written = ""
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        written += text[start:end]
        if len(written) < len(text) or end in places:
            written += draw(mixed_notes())
    return text, written


def in_chunks(text: str, cuts: list[int]) -> list[str]:
    places = sorted({min(cut, len(text)) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@given(text_with_notes(), st.lists(st.integers(0, 400), max_size=20))
def test_only_notes_are_taken_out(texts: tuple[str, str], cuts: list[int]) -> None:
    text, written = texts
    gloo = GlooFilter()
    *first, last = in_chunks(written, cuts)
    passed = "".join(gloo.feed(chunk) for chunk in first)
    assert text.startswith(passed)
    assert passed + gloo.feed(last, final=True) == text


@given(text_with_notes())
def test_characters_may_come_one_by_one(texts: tuple[str, str]) -> None:
    text, written = texts
    gloo = GlooFilter()
    assert "".join(map(gloo.feed, written)) + gloo.rest() == text


def test_notes_within_notes() -> None:
    a, b = pieces("0", "3", "3"), pieces("2", "3", "3")
    for mixed in (
        [a[0], b[0], a[1], b[1], *a[2:], *b[2:]],
        [*a[:-1], *b[:-1], a[-1], b[-1]],
        [*a[:4], *b, *a[4:]],
        [a[0], *b[:6], a[1], *a[2:7], b[6], b[7], a[7]],
    ):
        assert GlooFilter().feed("7" + "".join(mixed) + "8") == "78"


LOOK_ALIKES = [
    OPENING,
    OPENING + "1",
    OPENING + "1 is fast\n",
    OPENING + "\n",
    OPENING * 3,
    NOTE[:-1],
    NOTE[:-1] + " and more\n",
    NOTE.replace("3", ""),
    NOTE.replace(" peer ranks. ", " "),
    OPENING + "1\n",
    OPENING + "1 peer ranks. 2 is connected to 3\n",
    OPENING + "1" * 5000 + NOTE.removeprefix(OPENING),
    "[gloo] Rank 1 is connected to 3 peer ranks. \n",
]


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_what_only_looks_like_a_note_stays(text: str) -> None:
    assert GlooFilter().feed(text, final=True) == text
    gloo = GlooFilter()
    assert "".join(map(gloo.feed, text)) + gloo.feed("", final=True) == text
    assert GlooFilter().feed(f"a{NOTE}{text}", final=True) == f"a{text}"
    assert GlooFilter().feed(f"{text}x{NOTE}b", final=True) == f"{text}xb"


def test_a_note_that_has_begun_is_held_back() -> None:
    gloo = GlooFilter()
    assert gloo.feed("a" + NOTE[:30]) == "a"
    assert gloo.rest() == ""
    assert gloo.feed(NOTE[30:] + "b") == "b"
    assert gloo.feed("c[Glo") == "c"
    assert gloo.rest() == "[Glo"
    assert gloo.rest() == ""


def test_no_text_is_held_back_for_ever() -> None:
    gloo = GlooFilter()
    text = OPENING + "1" * 5000
    assert gloo.feed(text) == text


Open = Callable[[bool], tuple[NativeOutput, Path]]


@pytest.fixture
def native(tmp_path: Path) -> Open:
    def opened(hide_gloo: bool) -> tuple[NativeOutput, Path]:
        path = tmp_path / "process.out"
        path.write_bytes(b"")
        return NativeOutput(str(path), hide_gloo), path

    return opened


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_what_is_appended_is_read_once(native: Open) -> None:
    output, path = native(False)
    assert output.read() == ""
    append(path, b"one\n")
    assert output.read() == "one\n"
    assert output.read() == ""
    append(path, b"two\n")
    append(path, b"three")
    assert output.read(cell_ends=True) == "two\nthree"
    assert output.read(cell_ends=True) == ""
    assert output.reported == path.stat().st_size


@given(st.text(max_size=20), st.integers(0, 80))
def test_characters_that_come_in_parts(
    tmp_path_factory: pytest.TempPathFactory, text: str, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "parts.out"
    path.write_bytes(b"")
    output = NativeOutput(str(path), hide_gloo=False)
    data = text.encode()
    append(path, data[:cut])
    first = output.read()
    append(path, data[cut:])
    assert first + output.read(cell_ends=True) == text
    os.close(output._reader)


def test_bytes_that_are_no_text(native: Open) -> None:
    output, path = native(False)
    append(path, b"a\xffb")
    assert output.read() == "a\ufffdb"


def test_a_file_that_was_emptied(native: Open) -> None:
    output, path = native(False)
    append(path, b"long ago\n")
    assert output.read() == "long ago\n"
    path.write_bytes(b"new\n")
    assert output.read() == "new\n"
    assert output.reported == 4
    path.write_bytes(b"")
    assert output.read() == ""
    append(path, b"newer\n")
    assert output.read() == "newer\n"


def test_notes_are_hidden_where_it_is_asked_for(native: Open) -> None:
    output, path = native(True)
    append(path, b"a\n" + NOTE.encode() + b"b\n" + NOTE[:20].encode())
    assert output.read(cell_ends=True) == "a\nb\n"
    append(path, NOTE[20:].encode() + b"c[")
    assert output.read() == "c"
    assert output.read(cell_ends=True) == "["


def test_notes_are_shown_where_it_is_not(native: Open) -> None:
    output, path = native(False)
    append(path, NOTE.encode())
    assert output.read() == NOTE


def test_flushing_c_has_no_effect_on_python() -> None:
    flush_c_stdio()
