"""Texts that move the cursor, as a terminal shows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.output.terminal import lines_ended, overwritten, without_escapes

RED, END = "\x1b[31m", "\x1b[0m"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ""),
        ("abc", "abc"),
        ("abc\r", "abc"),
        ("10%\r50%\r100%", "100%"),
        ("10%\r50%\r100%\r", "100%"),
        ("abcdef\rAB", "ABcdef"),
        ("\rabc", "abc"),
        ("\r", ""),
        (f"{RED}10%\r50%{END}", f"{RED}50%{END}"),
        (f"a\r{RED}b{END}", f"{RED}b{END}"),
        ("abc\rxy\x1b[Kz", "xyz"),
        ("abc\rxy\x1b[0Kz", "xyz"),
        ("abc\rxy\x1b[2Kz", "  z"),
        ("abcdef\rxy\x1b[K", "xy"),
        ("ab\n\rcd\x1b[A", "ab\ncd"),
        ("ab\ncd\x1b[AX\rY", "YbX\ncd"),
        ("ab\nlonger\x1b[A!", "ab    !\nlonger"),
        ("a\nb\nc\x1b[2A\rx\n", "x\nb\nc"),
        ("a\x1b[5A\rb", "b"),
        (f"a\n{RED}b{END}\x1b[A\rx", f"x\n{RED}b{END}"),
        ("\x1b[?25la\rb\x1b[?25h", "b"),
        ("one\ntwo\n", "one\ntwo\n"),
        ("abc\b\b\b\rx", "xbc"),
    ],
)
def test_carriage_returns(line: str, expected: str) -> None:
    assert overwritten(line) == expected


@given(st.lists(st.text("abc", max_size=5), min_size=1, max_size=4))
def test_what_is_overwritten_is_what_a_terminal_shows(parts: list[str]) -> None:
    screen = [""] * 5
    for part in parts:
        for column, character in enumerate(part):
            screen[column] = character
    assert overwritten("\r".join(parts)) == "".join(screen)


@given(st.text("ab\n\r", max_size=30))
def test_escape_sequences_change_nothing_else(text: str) -> None:
    # Texts without them take a shorter way.
    plain = overwritten(text)
    assert without_escapes(overwritten(text.replace("a", f"{RED}a{END}"))) == plain
    assert overwritten(f"{text}\n\x1b[A\n") == f"{plain}\n"


def test_only_the_end_of_a_long_text_is_written_over() -> None:
    lines = "".join(f"{i}\n" for i in range(5000))
    assert overwritten(f"{lines}\x1b[3Ax\x1b[9999Ay") == (
        lines.replace("4997", "x997").replace("\n4501\n", "\n4y01\n")
    )


@given(st.lists(st.sampled_from(["a", "\n", "\x1b[A", "\x1b[3A", "\x1b[31m"])))
def test_each_line_up_takes_back_a_line_end(parts: list[str]) -> None:
    text = "".join(parts)
    assert lines_ended(text) == sum(
        {"\n": 1, "\x1b[A": -1, "\x1b[3A": -3}.get(part, 0) for part in parts
    )
