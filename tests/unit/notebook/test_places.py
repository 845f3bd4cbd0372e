"""Where something changes: a terminal that is written to again, and nothing above it is lost."""

from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.notebook import places
from mcnb.notebook.places import InNotebook, InTerminal, can_move
from tests.support.terminal import ACCENT, WIDE, Terminal

COLUMNS, LINES = 10, 6


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return in_terminal(monkeypatch)


def in_terminal(patch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal(COLUMNS, LINES)
    size = os.terminal_size((COLUMNS, LINES))
    patch.setattr(shutil, "get_terminal_size", lambda: size)
    patch.setattr(places, "print", lambda text, end, flush: terminal.feed(text), raising=False)
    return terminal


def test_a_text_is_replaced_and_removed(terminal: Terminal) -> None:
    terminal.feed("In [1]:\n")
    place = InTerminal()
    place.show("one\ntwo")
    assert terminal.text == "In [1]:\none\ntwo\n"
    place.show("three")
    assert terminal.text == "In [1]:\nthree\n"
    place.show("")
    assert terminal.text == "In [1]:\n"
    place.show("four\n\nfive\n")
    assert terminal.text == "In [1]:\nfour\n\nfive\n"
    place.remove()
    place.remove()
    assert terminal.text == "In [1]:\n"


def test_a_text_is_left_and_the_next_comes_below(terminal: Terminal) -> None:
    place = InTerminal()
    place.show("running")
    place.leave("> step()\n(pdb) ")
    assert terminal.text == "> step()\n(pdb) "
    terminal.feed("next\n")
    place.show("running")
    assert terminal.text == "> step()\n(pdb) next\nrunning\n"
    place.remove()
    assert terminal.text == "> step()\n(pdb) next\n"


def test_lines_that_are_wrapped(terminal: Terminal) -> None:
    place = InTerminal()
    terminal.feed("above\n")
    for text in (
        "a" * 10,
        "a" * 11,
        "\x1b[31m" + "b" * 10 + "\x1b[0m",
        WIDE * 6,
        f"e{ACCENT}" * 10,
    ):
        place.show(text)
        place.show("short")
        assert terminal.text == "above\nshort\n"


def test_the_end_of_a_text_that_is_too_long(terminal: Terminal) -> None:
    place = InTerminal()
    terminal.feed("above\n")
    place.show("\n".join("abcdefgh"))
    assert terminal.text == "above\nd\ne\nf\ng\nh\n"
    place.remove()
    assert terminal.text == "above\n"


LINE = st.lists(st.sampled_from(["a", "b", " ", WIDE, f"e{ACCENT}"]), max_size=25).map("".join)
TEXT = st.lists(LINE, min_size=1, max_size=8).map("\n".join)


@given(st.lists(st.tuples(st.sampled_from(["show", "leave", "remove"]), TEXT), max_size=12))
def test_only_what_was_left_stays(steps: list[tuple[str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        terminal, expected = in_terminal(patch), Terminal(COLUMNS, LINES)
        place = InTerminal()
        for step, text in steps:
            if step == "show":
                place.show(text)
            elif step == "leave":
                place.leave(f"{text}\n")
                expected.feed(f"{text}\n")
            else:
                place.remove()
        place.remove()
        assert terminal.text == expected.text


@pytest.mark.parametrize(
    ("name", "can"), [("xterm-256color", True), ("dumb", False), (None, False)]
)
def test_which_terminals_can_move(
    name: str | None, can: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if name is not None:
        monkeypatch.setenv("TERM", name)
    assert can_move() == can


class Output:
    """The output of a notebook's cell."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def display(
        self, data: dict[str, str], raw: bool, metadata: object, display_id: bool
    ) -> Handle:
        assert raw
        assert metadata is None
        assert display_id
        self.parts.append(data["text/plain"])
        return Handle(self, len(self.parts) - 1)

    def print(self, text: str, end: str, flush: bool) -> None:
        self.parts.append(text)

    def clear(self) -> None:
        self.parts.clear()


class Handle:
    """A part of an output that can be replaced."""

    def __init__(self, output: Output, number: int) -> None:
        self._output, self._number = output, number

    def update(self, data: dict[str, str], raw: bool, metadata: object = None) -> None:
        assert raw
        self._output.parts[self._number] = data["text/plain"]


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Output:
    output = Output()
    monkeypatch.setattr(places, "display", output.display)
    monkeypatch.setattr(places, "clear_output", output.clear)
    monkeypatch.setattr(places, "print", output.print, raising=False)
    return output


def test_a_place_in_a_notebook(output: Output) -> None:
    place = InNotebook()
    place.remove()
    place.show("one")
    place.show("two")
    assert output.parts == ["two"]
    place.remove()
    assert output.parts == []
    output.parts.append("printed since")
    place.remove()
    assert output.parts == ["printed since"]


def test_what_the_cell_may_have_output_before_is_never_cleared(output: Output) -> None:
    """Such as "Stopped: …" of %mcjax stop, before %mcjax start in the same cell."""
    output.parts.append("Stopped: 2 processes")
    place = InNotebook(below=True)
    place.remove()
    place.show("Starting 2 processes …")
    assert output.parts == ["Stopped: 2 processes", "Starting 2 processes …"]
    place.remove()
    assert output.parts == ["Stopped: 2 processes", ""]


def test_what_is_left_in_a_notebook_is_never_cleared(output: Output) -> None:
    """A prompt that comes by another channel would be cleared, too, also by what came before it."""
    place = InNotebook()
    place.show("running")
    place.leave("> step()\n")
    assert output.parts == ["> step()"]
    place.leave("> next()\n")
    place.show("running")
    place.show("still running")
    assert output.parts == ["> step()", "> next()\n", "still running"]
    place.remove()
    assert output.parts == ["> step()", "> next()\n", ""]
