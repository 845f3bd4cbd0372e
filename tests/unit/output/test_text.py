"""Blocks as text: labels in a gutter of their own, and lines as a terminal shows them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb._text import label
from mcnb.messages import Display
from mcnb.output.fold import Block, Item, Line, fold
from mcnb.output.terminal import without_escapes
from mcnb.output.text import Entry, entries, gutter, label_width, text_of

RED, END = "\x1b[31m", "\x1b[0m"


def out(text: str) -> Line:
    return Line("stdout", text)


def shown(blocks: list[Block], count: int) -> str:
    return "".join(entry.text for entry in entries(blocks, count))


@pytest.mark.parametrize(
    ("processes", "count", "expected"),
    [
        ([0], 1, "[0]"),
        ([0], 4, "[0]"),
        ([0, 1], 2, "[all 2]"),
        ([0, 1], 4, "[0,1]"),
        ([0, 1, 2, 3], 4, "[all 4]"),
        ([0, 1, 2], 4, "[0-2]"),
        ([0, 2, 3], 4, "[0,2,3]"),
        ([1, 2, 3, 8, 10, 11], 12, "[1-3,8,10,11]"),
        (range(12), 12, "[all 12]"),
    ],
)
def test_labels(processes: list[int], count: int, expected: str) -> None:
    assert label(processes, count) == expected


def test_a_label_stands_once_before_its_lines() -> None:
    blocks = [
        Block((0, 1, 2, 3), (out("8 devices\n"), out("ready\n"))),
        Block((0,), (out("my part is [0 1]\n"),)),
        Block((1, 2, 3), (out("my part is [[2 3]\n [4 5]]\n"),)),
    ]
    assert shown(blocks, 4) == (
        "[all 4] 8 devices\n"
        "        ready\n"
        "[0]     my part is [0 1]\n"
        "[1-3]   my part is [[2 3]\n"
        "         [4 5]]\n"
    )
    assert label_width(blocks, 4) == 7
    assert label_width([], 4) == 0


def test_more_than_ten_processes() -> None:
    said: dict[int, list[Item]] = {k: [out("last\n" if k == 11 else "other\n")] for k in range(12)}
    assert shown(fold(said), 12) == "[0-10] other\n[11]   last\n"


def test_one_process_has_its_index_for_a_label() -> None:
    assert shown(fold({0: [out("a\n"), out("b\n")]}), 1) == "[0] a\n    b\n"


def test_a_blank_line_stays_a_line() -> None:
    assert shown([Block((0, 1), (out("\n"), out("a\n"), out("\n")))], 2) == (
        "[all 2]\n        a\n\n"
    )
    assert gutter("\n", "[0]", 3) == "[0]\n"
    assert gutter("a\n\nb\n", "[0]", 3) == "[0] a\n\n    b\n"


def test_a_missing_line_end_is_added() -> None:
    blocks = [Block((0,), (out("a"),)), Block((1,), (out("b"),))]
    assert shown(blocks, 2) == "[0] a\n[1] b\n"


@given(st.text("ab \n\r", max_size=20), st.integers(3, 8))
def test_the_gutter_keeps_the_number_of_lines(text: str, width: int) -> None:
    gutters = gutter(text, "[0]", width)
    assert gutters.endswith("\n")
    assert gutters.count("\n") == text.removesuffix("\n").count("\n") + 1
    first, *others = gutters.split("\n")
    assert first.startswith("[0]")
    assert all(not line.strip() or line.startswith(" " * (width + 1)) for line in others)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{RED}red\n", f"[0] {RED}red{END}\n"),
        (f"{RED}red", f"[0] {RED}red{END}\n"),
        (f"{RED}red{END}\n", f"[0] {RED}red{END}\n"),
        (f"{RED}red\x1b[m\n", f"[0] {RED}red\x1b[m\n"),
        (f"{RED}red\nstill\n", f"[0] {RED}red\n    still{END}\n"),
    ],
)
def test_a_colour_ends_with_its_item(text: str, expected: str) -> None:
    assert gutter(text, "[0]", 3) == expected


def test_entries_keep_the_order_over_kinds() -> None:
    picture = Display({"image/png": "iVBO", "text/plain": "<Figure>"})
    blocks = [
        Block((0, 1), (out("a\n"), Line("stderr", "b\n"), out("c\n"), out("d\n"))),
        Block((0,), (picture, out("e\n"))),
        Block((1,), (out("f\n"), picture, picture)),
        Block((0, 1), (Display({"text/plain": "8"}, is_value=True),)),
    ]
    assert entries(blocks, 2) == [
        Entry("stdout", "[all 2] a\n"),
        Entry("stderr", "[all 2] b\n"),
        Entry("stdout", "[all 2] c\n        d\n"),
        Entry("rich", "[0]\n", picture),
        Entry("stdout", "[0]     e\n[1]     f\n"),
        Entry("rich", "[1]\n", picture),
        Entry("rich", "[1]\n", picture),
        Entry("value", "[all 2] 8\n"),
    ]
    assert entries([], 2) == []
    assert entries(blocks[3:], 2, width=9) == [Entry("value", "[all 2]   8\n")]


def test_values_of_several_processes_are_one_entry() -> None:
    values = [Block((k,), (Display({"text/plain": f"[{k}\n {k}]"}, {}, True),)) for k in range(2)]
    assert entries(values, 2) == [Entry("value", "[0] [0\n     0]\n[1] [1\n     1]\n")]


@given(
    st.lists(
        st.builds(
            Block,
            st.sampled_from([(0,), (1,), (0, 1)]),
            st.lists(
                st.builds(
                    Line, st.sampled_from(["stdout", "stderr"]), st.sampled_from(["a\n", "b"])
                ),
                min_size=1,
                max_size=4,
            ).map(tuple),
        ),
        max_size=5,
    )
)
def test_entries_hold_every_line_under_its_label(blocks: list[Block]) -> None:
    parts = entries(blocks, 2, width=7)
    assert all(one.kind != other.kind for one, other in itertools.pairwise(parts))
    said, name = [], ""
    for part in parts:
        for line in part.text.splitlines():
            name = line[:7].strip() or name
            said.append((name, part.kind, line[8:]))
    assert said == [
        (label(block.processes, 2), item.stream, item.text.strip())
        for block in blocks
        for item in block.items
        if isinstance(item, Line)
    ]


def test_text_of() -> None:
    assert text_of(out("a")) == "a"
    assert text_of(Display({"text/plain": "1"})) == "1\n"
    assert text_of(Display({"text/plain": "1", "text/html": "1"})) == ""


def test_without_escapes() -> None:
    assert without_escapes(f"{RED}a{END}\x1b[1;32mb\x1b[m [0m") == "ab [0m"
