"""Folding loses nothing, changes no order, and puts together what is equal to the letter."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.messages import Display, Event, Reply, Stream, Text
from mcnb.report.fold import Block, Item, Line, display_key, fold, fold_events, items_of
from mcnb.report.show import shortened
from mcnb.result import Result

NOT_LINE_ENDS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def line(text: str, stream: Stream = "stdout") -> Line:
    return Line(stream, f"{text}\n")


def lines(text: str) -> list[Item]:
    """Return the words of a text, each as a line."""
    return [line(word) for word in text.split()]


def brief(blocks: Sequence[Block]) -> list[str]:
    """Return blocks of lines as text: `"0,1: a b"`."""
    return [
        ",".join(map(str, block.processes))
        + ": "
        + " ".join(item.text.removesuffix("\n") for item in block.items if isinstance(item, Line))
        for block in blocks
    ]


def spoken(blocks: Sequence[Block], k: int) -> list[Item]:
    """Return what process k said, read from the blocks."""
    return [item for block in blocks if k in block.processes for item in block.items]


def identity(item: Item) -> Any:
    """Return what tells an item from all others; `==` takes 1 for True."""
    return repr(item)


JSON = st.recursive(
    st.sampled_from([None, True, 1, 1.0, "1", 0, False, ""]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=3,
)
DISPLAYS = st.builds(
    Display,
    st.dictionaries(st.sampled_from(["text/plain", "image/png"]), JSON, min_size=1),
    st.dictionaries(st.sampled_from(["width"]), JSON),
    st.booleans(),
)
LINES = st.builds(
    Line, st.sampled_from(["stdout", "stderr"]), st.sampled_from(["a\n", "b\n", "c\n", "\n", "a"])
)
ITEMS = st.lists(LINES | LINES | DISPLAYS, max_size=8)
# Several processes often say the same, or nearly.
SAID = st.lists(ITEMS, min_size=1, max_size=4).flatmap(
    lambda texts: st.dictionaries(
        st.integers(0, 9), st.sampled_from(texts) | ITEMS, min_size=1, max_size=6
    )
)


@given(SAID)
def test_every_process_reads_exactly_what_it_said(said: Mapping[int, list[Item]]) -> None:
    blocks = fold(said)
    for k, items in said.items():
        assert [*map(identity, spoken(blocks, k))] == [*map(identity, items)]


@given(SAID)
def test_blocks_are_well_formed(said: Mapping[int, list[Item]]) -> None:
    blocks = fold(said)
    for block in blocks:
        assert block.items
        assert list(block.processes) == sorted(set(block.processes))
    for before, after in itertools.pairwise(blocks):
        assert before.processes != after.processes
    # Nobody says in two neighbouring blocks what one block could hold.
    for before, after in itertools.pairwise(blocks):
        if not set(before.processes) & set(after.processes):
            assert [*map(identity, before.items)] != [*map(identity, after.items)]


@given(SAID, st.randoms(use_true_random=False))
def test_the_order_of_the_replies_does_not_matter(
    said: dict[int, list[Item]], rng: random.Random
) -> None:
    keys = list(said)
    rng.shuffle(keys)
    copies = {k: list(said[k]) for k in keys}
    assert repr(fold(copies)) == repr(fold(said))


@given(SAID)
def test_processes_of_the_same_kind_can_be_renamed(said: Mapping[int, list[Item]]) -> None:
    """Which numbers processes have does not matter, only their order."""
    renamed = {7 * k + 3: items for k, items in said.items()}
    expected = [Block(tuple(7 * k + 3 for k in b.processes), b.items) for b in fold(said)]
    assert repr(fold(renamed)) == repr(expected)


@given(ITEMS, st.sets(st.integers(0, 511), min_size=1, max_size=20))
def test_all_the_same_is_one_block(items: list[Item], processes: set[int]) -> None:
    blocks = fold({k: list(items) for k in processes})
    assert repr(blocks) == repr([Block(tuple(sorted(processes)), tuple(items))] if items else [])


def test_nobody_said_anything() -> None:
    assert fold({}) == []
    assert fold({0: [], 1: []}) == []


def plain(value: object, **kwargs: Any) -> Display:
    return Display({"text/plain": value}, **kwargs)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (line("a"), line("a", "stderr")),
        (line("a"), Line("stdout", "a")),
        (line("a"), line("a ")),
        (line("1"), plain("1")),
        (plain("1"), plain("1", is_value=True)),
        (plain("1"), plain("1", metadata={"w": 1})),
        (plain("1", metadata={"w": 1}), plain("1", metadata={"w": True})),
        (plain(1), plain(True)),
        (plain(1), plain("1")),
        (plain(1), plain(1.0)),
        (plain(0.0), plain(-0.0)),
        (plain(None), plain("None")),
        (plain({}), plain([])),
        (plain({}), plain("")),
        (plain([1]), plain([True])),
        (plain(["a", "b"]), plain({"a": "b"})),
        (plain([[1], 2]), plain([1, [2]])),
        (Display({1: "x"}), Display({True: "x"})),  # type: ignore[dict-item]
        (Display({"text/plain": "x"}), Display({"text/html": "x"})),
    ],
)
def test_what_is_not_equal_to_the_letter_stays_apart(one: Item, other: Item) -> None:
    assert fold({0: [one], 1: [other]}) == [Block((0,), (one,)), Block((1,), (other,))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (plain({"a": 1, "b": 2}), plain({"b": 2, "a": 1})),
        (plain([1]), plain((1,))),  # JSON does not tell them apart
        (plain(float("nan")), plain(float("nan"))),
    ],
)
def test_what_is_equal_to_the_letter(one: Display, other: Display) -> None:
    assert display_key(one) == display_key(other)
    assert fold({0: [one], 1: [other]}) == [Block((0, 1), (one,))]


SAVES = {
    0: lines("step0 saving step1 step2 saving"),
    **{k: lines("step0 step1 step2") for k in (1, 2)},
}
CASES: dict[str, tuple[Mapping[int, list[Item]], list[str]]] = {
    "the seed program: one line of its own, then an equal one": (
        {k: lines(f"process{k} sum=28") for k in range(4)},
        ["0: process0", "1: process1", "2: process2", "3: process3", "0,1,2,3: sum=28"],
    ),
    "process 0 says more than the others": (
        SAVES,
        ["0,1,2: step0", "0: saving", "0,1,2: step1 step2", "0: saving"],
    ),
    "a range of its own per process: 2 does not become an anchor": (
        {k: lines(" ".join(map(str, range(k, k + 3)))) for k in range(4)},
        ["0: 0 1 2", "1: 1 2 3", "2: 2 3 4", "3: 3 4 5"],
    ),
    "a few words in common among many are no anchor": (
        {0: lines("a b c d e x"), 1: lines("x f g h i j k")},
        ["0: a b c d e x", "1: x f g h i j k"],
    ),
    "pairs of processes": (
        {k: lines(f"all row{k // 2} all") for k in range(4)},
        ["0,1,2,3: all", "0,1: row0", "2,3: row1", "0,1,2,3: all"],
    ),
    "a subset, as of -p": (
        {3: lines("a x"), 1: lines("a y")},
        ["1,3: a", "1: y", "3: x"],
    ),
    "one process": ({2: lines("a b")}, ["2: a b"]),
    "one says nothing: the others fold as if it were not there": (
        {0: lines("a b z"), 1: [], 2: lines("a c z")},
        ["0,2: a", "0: b", "2: c", "0,2: z"],
    ),
    "one was stopped early: the others fold on without it": (
        {0: lines("start a end"), 1: lines("start b end"), 2: lines("start")},
        ["0,1,2: start", "0: a", "1: b", "0,1: end"],
    ),
    "each stops a line later": (
        {k: lines(" ".join(str(i) for i in range(k + 1))) for k in range(4)},
        ["0,1,2,3: 0", "1,2,3: 1", "2,3: 2", "3: 3"],
    ),
    "the same line again and again, not equally often": (
        {0: lines("tick tick tick"), 1: lines("tick tick")},
        ["0,1: tick tick", "0: tick"],
    ),
}


@pytest.mark.parametrize(("said", "expected"), CASES.values(), ids=CASES.keys())
def test_how_it_reads(said: Mapping[int, list[Item]], expected: list[str]) -> None:
    assert brief(fold(said)) == expected


def test_an_array_of_several_rows_stays_together() -> None:
    said = {
        k: [Text("stdout", f"part:\n[[{k}]\n [9]]\nend\n", joins=(6 + len(f"[[{k}]"),))]
        for k in range(2)
    }
    assert fold_events(said) == [
        Block((0, 1), (Line("stdout", "part:\n"),)),
        Block((0,), (Line("stdout", "[[0]\n [9]]\n"),)),
        Block((1,), (Line("stdout", "[[1]\n [9]]\n"),)),
        Block((0, 1), (Line("stdout", "end\n"),)),
    ]


EVENTS = st.lists(
    st.builds(Text, st.sampled_from(["stdout", "stderr"]), st.text("ab\n\r", max_size=8))
    | DISPLAYS,
    max_size=4,
)


@given(st.dictionaries(st.integers(0, 3), EVENTS))
def test_folding_events_is_folding_their_items(said: dict[int, list[Event]]) -> None:
    expected = fold({k: items_of(events) for k, events in said.items()})
    assert repr(fold_events(said)) == repr(expected)


@pytest.mark.parametrize("character", NOT_LINE_ENDS)
def test_only_a_newline_ends_a_line(character: str) -> None:
    text = f"a{character}b{character}\nc{character}"
    assert items_of([Text("stdout", text)]) == [
        Line("stdout", f"a{character}b{character}\n"),
        Line("stdout", f"c{character}"),
    ]


TEXTS = st.text(st.sampled_from("ab\n" + NOT_LINE_ENDS) | st.characters(), max_size=30)


@given(TEXTS, st.data())
def test_items_make_up_the_text(text: str, data: st.DataObject) -> None:
    ends = [i for i, character in enumerate(text) if character == "\n"]
    joins = tuple(sorted(data.draw(st.sets(st.sampled_from(ends)) if ends else st.just(set()))))
    items = items_of([Text("stderr", text, joins)])
    assert all(isinstance(item, Line) and item.stream == "stderr" and item.text for item in items)
    assert "".join(item.text for item in items if isinstance(item, Line)) == text
    # An item ends at every line end that is not within one print, and nowhere else.
    position, cuts = 0, []
    for item in items:
        assert isinstance(item, Line)
        position += len(item.text)
        cuts.append(position - 1)
    assert cuts == sorted(
        {*ends, *([len(text) - 1] if text else [])} - ({*joins} - {len(text) - 1})
    )


def test_displays_stand_between_texts() -> None:
    shown = plain("x")
    events = [Text("stdout", "a"), shown, Text("stdout", "\nb\n"), Text("stderr", "")]
    assert items_of(events) == [
        Line("stdout", "a"),
        shown,
        Line("stdout", "\n"),
        Line("stdout", "b\n"),
    ]


def result_of(texts: Sequence[str]) -> Result:
    replies = {k: Reply((Text("stdout", text),)) for k, text in enumerate(texts)}
    return Result(replies, count=len(texts))


def million() -> str:
    return "".join(f"line {i}\n" for i in range(1_000_000))


# What it is, the processes' texts, how many blocks, and seconds that a slow machine may take.
HUGE: list[tuple[str, Any, int, float]] = [
    ("equal", lambda: [million() for _ in range(4)], 1, 12),
    ("an extra line", lambda: ["extra\n" + million(), million()], 2, 12),
    ("different", lambda: [f"{k} {i}\n" * 20_000 for i, k in enumerate(range(4))], 4, 5),
    (
        "different, not equally long",
        lambda: ["".join(f"{k} {i}\n" for i in range(20_000 + k)) for k in range(4)],
        4,
        5,
    ),
    (
        "every other line different",
        lambda: ["".join(f"{k} {i}\nsame\n" for i in range(10_000)) for k in range(4)],
        50_000,
        10,
    ),
    (
        "many processes, few different words, not equally long",
        lambda: ["".join("ab"[i * k % 7 % 2] + "\n" for i in range(400 - k)) for k in range(64)],
        64,
        10,
    ),
    (
        "512 processes, each with a line more than the one before",
        lambda: ["".join(f"{i}\n" for i in range(k + 1)) for k in range(512)],
        512,
        20,
    ),
]


@pytest.mark.parametrize(
    ("texts", "blocks", "seconds"), [case[1:] for case in HUGE], ids=[case[0] for case in HUGE]
)
def test_much_output_is_folded_fast(texts: Any, blocks: int, seconds: float) -> None:
    result = result_of(texts())
    begin = time.perf_counter()
    assert len(result.blocks) == blocks
    shortened(result.blocks)
    assert time.perf_counter() - begin < seconds
