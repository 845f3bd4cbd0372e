"""Blocks as text: labels, the column that they stand in, and what a terminal makes of a line."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.messages import Display
from mcnb.report.fold import Block, Item, Line
from mcnb.report.text import (
    Entry,
    entries,
    gutter,
    label,
    label_width,
    overwritten,
    text_of,
    without_escapes,
)

RED, GREEN, BOLD, OFF = "\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[0m"


def out(text: str) -> Line:
    return Line("stdout", text)


def err(text: str) -> Line:
    return Line("stderr", text)


def value(text: str) -> Display:
    return Display({"text/plain": text}, is_value=True)


PLOT = Display({"text/plain": "<Figure>", "image/png": "iVBO"})


@pytest.mark.parametrize(
    ("processes", "count", "expected"),
    [
        ([0], 1, "[0]"),
        ([0, 1], 2, "[all 2]"),
        ([1], 2, "[1]"),
        ([0, 1], 4, "[0,1]"),
        ([0, 1, 2], 4, "[0-2]"),
        ([0, 2], 4, "[0,2]"),
        ([0, 2, 3, 4, 9], 10, "[0,2-4,9]"),
        (range(10), 10, "[all 10]"),
        (range(9), 10, "[0-8]"),
        (range(0, 10, 2), 10, "[0,2,4,6,8]"),
        (range(512), 512, "[all 512]"),
    ],
)
def test_label(processes: range, count: int, expected: str) -> None:
    assert label(processes, count) == expected


def test_width_of_the_column() -> None:
    assert label_width([], 4) == 0
    assert label_width([Block((0,), ()), Block((0, 1, 2), ()), Block((3,), ())], 4) == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n", "[0]   a\n"),
        ("a", "[0]   a\n"),
        ("", "[0]\n"),
        ("\n", "[0]\n"),
        ("\n\n", "[0]\n\n"),
        ("a\n\nb\n", "[0]   a\n\n      b\n"),
        ("a\nb", "[0]   a\n      b\n"),
        ("  a \n", "[0]     a\n"),
        ("a\tb\n", "[0]   a\tb\n"),
        ("a\u2028b\x85c\x0cd\n", "[0]   a\u2028b\x85c\x0cd\n"),
        ("10%\r20%\r\n", "[0]   20%\n"),
        ("\r10%\r100%\nnext\n", "[0]   100%\n      next\n"),
        ("dos\r\nlines\r\n", "[0]   dos\n      lines\n"),
        (f"{RED}a{OFF}\n", f"[0]   {RED}a{OFF}\n"),
        (f"{RED}a\x1b[m\n", f"[0]   {RED}a\x1b[m\n"),
        (f"{RED}a\x1b[39m\n", f"[0]   {RED}a\x1b[39m\n"),
        (f"{RED}a\n", f"[0]   {RED}a{OFF}\n"),
        (f"{RED}a\nb\n", f"[0]   {RED}a\n      b{OFF}\n"),
        (f"{RED}a{OFF}{BOLD}\n", f"[0]   {RED}a{OFF}{BOLD}{OFF}\n"),
        (f"{RED}10%\r{GREEN}99%\r\n", f"[0]   {GREEN}99%{OFF}\n".replace(GREEN, RED + GREEN)),
    ],
)
def test_gutter(text: str, expected: str) -> None:
    assert gutter(text, "[0]", 5) == expected


def test_gutter_of_a_continued_block() -> None:
    assert gutter("a\nb\n", "", 5) == "      a\n      b\n"
    assert gutter("\n", "", 5) == "\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("\r", ""),
        ("a\r", "a"),
        ("a\r\r\r", "a"),
        ("abc\rx", "xbc"),
        ("abc\r    ", "    "),
        ("12%|█▏  |\r99%|███ |", "99%|███ |"),
        # The sequences of colours take no room.
        (f"{RED}abc{OFF}\r{RED}ab{OFF}", f"{RED}abc{OFF}"),
        (f"{RED}abc{OFF}\r{GREEN}ab{OFF}", f"{GREEN}ab{OFF}{RED}c{OFF}"),
        (f"{RED}abc{OFF}\rx", f"x{RED}bc{OFF}"),
        (f"abc\r{RED}x", f"{RED}x{OFF}bc{RED}"),
        (f"{BOLD}{RED}abc\x1b[39m\rx", f"x{BOLD}{RED}bc{OFF}"),
        # What is left on stays on for the lines that follow.
        (f"a\rb{RED}", f"b{RED}"),
        # Erasing the line, as pip and rich do.
        ("long text\r\x1b[Kab", "ab"),
        ("long text\r\x1b[0Kab", "ab"),
        ("long text\rab\x1b[K", "ab"),
        ("long text\x1b[2K\rab", "ab" + " " * 7),
        # Other movements are left out: there is one line only.
        ("abc\r\x1b[Ax\x1b[?25l", "xbc"),
        (f"{RED}no carriage return", f"{RED}no carriage return"),
    ],
)
def test_overwritten(line: str, expected: str) -> None:
    assert overwritten(line) == expected


@given(st.text("ab \r", max_size=20))
def test_overwritten_is_what_a_terminal_shows(line: str) -> None:
    screen: list[str] = []
    column = 0
    for character in line:
        if character == "\r":
            column = 0
        else:
            screen[column : column + 1] = [character]
            column += 1
    assert overwritten(line) == "".join(screen)


@given(st.lists(st.sampled_from(["a", "b", " ", "\r", RED, GREEN, BOLD, OFF]), max_size=20))
def test_colours_do_not_move_characters(pieces: list[str]) -> None:
    line = "".join(pieces)
    assert without_escapes(overwritten(line)) == overwritten(without_escapes(line))


@given(
    st.lists(st.sampled_from(["a", "b", " ", "\n", "\r", "[0]", RED, OFF]), max_size=20),
    st.sampled_from(["[0]", "[all 4]", ""]),
)
def test_gutter_keeps_lines_and_alignment(pieces: list[str], name: str) -> None:
    text = "".join(pieces)
    shown = gutter(text, name, 7)
    rows = shown.split("\n")
    assert rows.pop() == ""
    plain = [without_escapes(row) for row in text.removesuffix("\n").split("\n")]
    assert [without_escapes(row).rstrip() for row in rows] == [
        f"{name if number == 0 else '':<7} {overwritten(row)}".rstrip()
        for number, row in enumerate(plain)
    ]
    colours = re.findall(r"\x1b\[\d+m", shown)
    assert not colours or colours[-1] == OFF


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (out("a\n"), "a\n"),
        (err("a"), "a"),
        (value("[1,\n 2]"), "[1,\n 2]\n"),
        (PLOT, ""),
        (Display({"text/html": "<b>"}), ""),
        (Display({}), ""),
    ],
)
def test_text_of(item: Item, expected: str) -> None:
    assert text_of(item) == expected


ENTRIES: dict[str, tuple[list[Block], list[Entry]]] = {
    "nothing": ([], []),
    "lines of several blocks are one stretch": (
        [
            Block((0, 1, 2, 3), (out("all\n"), out("two\n"))),
            Block((0,), (out("me\n"),)),
            Block((1, 2, 3), (out("[[0]\n [1]]\n"), out("x\n"))),
        ],
        [
            Entry(
                "stdout",
                "[all 4] all\n        two\n[0]     me\n[1-3]   [[0]\n         [1]]\n        x\n",
            )
        ],
    ),
    "a block that changes its stream is labelled again": (
        [Block((0, 1), (out("a\n"), err("b\n"), err("c\n"), out("d\n"), value("7")))],
        [
            Entry("stdout", "[0,1] a\n"),
            Entry("stderr", "[0,1] b\n      c\n"),
            Entry("stdout", "[0,1] d\n"),
            Entry("value", "[0,1] 7\n"),
        ],
    ),
    "values of several processes are one stretch": (
        [Block((0,), (value("0"),)), Block((1,), (value("a\nb"),))],
        [Entry("value", "[0] 0\n[1] a\n    b\n")],
    ),
    "a plot is alone, and the label stands again after it": (
        [Block((0, 1, 2, 3), (out("a\n"), PLOT, PLOT, out("b\n"))), Block((2,), (PLOT,))],
        [
            Entry("stdout", "[all 4] a\n"),
            Entry("rich", "[all 4]\n", PLOT),
            Entry("rich", "[all 4]\n", PLOT),
            Entry("stdout", "[all 4] b\n"),
            Entry("rich", "[2]\n", PLOT),
        ],
    ),
    "blank lines stay lines": (
        [Block((0, 1), (out("\n"), out("a\n"), out("\n"))), Block((0,), (out("\n"), out("b\n")))],
        [Entry("stdout", "[0,1]\n      a\n\n[0]\n      b\n")],
    ),
    "what does not end in a line end gets one": (
        [Block((0,), (out("a"),)), Block((1,), (out("b"),))],
        [Entry("stdout", "[0] a\n[1] b\n")],
    ),
    "a colour that was left on ends with its line": (
        [Block((0,), (out(f"{RED}a\n"),)), Block((1,), (out("b\n"),))],
        [Entry("stdout", f"[0] {RED}a{OFF}\n[1] b\n")],
    ),
}


@pytest.mark.parametrize(("blocks", "expected"), ENTRIES.values(), ids=ENTRIES.keys())
def test_entries(blocks: list[Block], expected: list[Entry]) -> None:
    assert entries(blocks, 4) == expected


def test_one_process() -> None:
    block = Block((0,), (out("a\nb\n"), value("1")))
    assert entries([block], 1) == [
        Entry("stdout", "[0] a\n    b\n"),
        Entry("value", "[0] 1\n"),
    ]


def test_ten_processes() -> None:
    blocks = [
        Block(tuple(range(10)), (out("all\n"),)),
        Block((0, 2, 3, 4, 9), (out("x\n"),)),
        Block((1,), (out("y\n"),)),
    ]
    assert entries(blocks, 10) == [
        Entry("stdout", "[all 10]  all\n[0,2-4,9] x\n[1]       y\n"),
    ]


def test_a_wider_column() -> None:
    assert entries([Block((0,), (out("a\n"),))], 4, width=7) == [Entry("stdout", "[0]     a\n")]


ITEMS = st.sampled_from([out("a\n"), out("b"), out("\n"), err("e\n"), value("v"), PLOT])
BLOCKS = st.lists(
    st.builds(
        Block,
        st.sampled_from([(0,), (1, 2), (0, 1, 2, 3)]),
        st.lists(ITEMS, min_size=1, max_size=4).map(tuple),
    ),
    max_size=5,
)


@given(BLOCKS)
def test_entries_keep_order_and_kinds(blocks: list[Block]) -> None:
    shown = entries(blocks, 4, width=7)
    rows: list[tuple[str, object]] = []
    for entry in shown:
        if entry.kind == "rich":
            rows.append(("rich", entry.item))
        else:
            rows += [(entry.kind, row[8:]) for row in entry.text.split("\n")[:-1]]
    expected: list[tuple[str, object]] = []
    for block in blocks:
        for item in block.items:
            if isinstance(item, Line):
                expected.append((item.stream, item.text.removesuffix("\n")))
            else:
                expected.append(("rich", item) if item is PLOT else ("value", "v"))
    assert rows == expected
    for before, after in itertools.pairwise(shown):
        assert "rich" in (before.kind, after.kind) or before.kind != after.kind
    # Whatever follows something of another kind begins with a label.
    assert all(entry.text.startswith("[") for entry in shown)


def test_without_escapes() -> None:
    assert without_escapes(f"{RED}a{OFF} \x1b[38;5;28;01mb\x1b[39;00m [0m") == "a b [0m"
