"""Folding: what each process said is in the blocks, to the letter and in its order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.messages import Display, Event, Text
from mcnb.output.bars import plain
from mcnb.output.fold import Block, Item, Line, display_key, fold, fold_events, items_of
from tests.support.timing import known_work_s

EVERYONE = (0, 1, 2, 3)

line_items = st.builds(
    Line, st.sampled_from(["stdout", "stderr"]), st.sampled_from(["a\n", "b\n", "c\n", "a", "\n"])
)
displays = st.builds(
    Display,
    st.sampled_from([{"text/plain": value} for value in ("1", 1, True, 1.0, [1], ["1"])]),
    st.sampled_from([{}, {"isolated": True}, {"isolated": 1}]),
    st.booleans(),
)
some_items: st.SearchStrategy[list[Item]] = st.lists(line_items | displays, max_size=12)
said_items = st.dictionaries(st.integers(0, 11), some_items, max_size=5)
joined_texts = st.builds(
    lambda stream, lines, joins: Text(
        stream, lines, tuple(i for i in joins if lines[i : i + 1] == "\n")
    ),
    st.sampled_from(["stdout", "stderr"]),
    st.text("ab\n\r\f\u2028", max_size=20),
    st.sets(st.integers(0, 19)).map(sorted),
)
some_events: st.SearchStrategy[list[Event]] = st.lists(joined_texts | displays, max_size=5)


def key(item: Item) -> object:
    if not isinstance(item, Line):
        return display_key(item)
    # Of a line with carriage returns, what a terminal shows.
    return item.stream, plain(item.text) if "\r" in item.text else item.text


def keys(items: Sequence[Item]) -> list[object]:
    return [key(item) for item in items]


def heard(blocks: Sequence[Block], k: int) -> list[object]:
    """Return what stands in the blocks of process k, read in order."""
    return keys([item for block in blocks if k in block.processes for item in block.items])


def lines(*texts: str) -> list[Line]:
    return [Line("stdout", f"{text}\n") for text in texts]


def folded(said: Mapping[int, Sequence[str]]) -> list[tuple[tuple[int, ...], list[str]]]:
    blocks = fold({k: lines(*texts) for k, texts in said.items()})
    return [
        (block.processes, [item.text.strip() for item in block.items if isinstance(item, Line)])
        for block in blocks
    ]


def check(said: Mapping[int, Sequence[Item]], blocks: Sequence[Block]) -> None:
    for k, items in said.items():
        assert heard(blocks, k) == keys(items)
    for block in blocks:
        assert block.items
        assert block.processes
        assert list(block.processes) == sorted(set(block.processes))
        assert all(said[k] for k in block.processes)
    for one, next_one in itertools.pairwise(blocks):
        assert one.processes != next_one.processes


@given(said_items)
def test_blocks_hold_what_each_process_said_in_its_order(said: dict[int, list[Item]]) -> None:
    check(said, fold(said))


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=30), min_size=2, max_size=5))
def test_blocks_hold_long_sequences_of_few_lines(said: list[list[str]]) -> None:
    items = {k: lines(*texts) for k, texts in enumerate(said)}
    check(items, fold(items))


@given(st.dictionaries(st.integers(0, 11), some_events, max_size=4))
def test_folded_events_hold_what_each_process_said(said: dict[int, list[Event]]) -> None:
    check({k: items_of(events) for k, events in said.items()}, fold_events(said))


@given(said_items.flatmap(lambda said: st.tuples(st.just(said), st.permutations(list(said)))))
def test_the_order_in_which_replies_come_changes_nothing(
    given_said: tuple[dict[int, list[Item]], list[int]],
) -> None:
    said, order = given_said
    one, other = fold(said), fold({k: list(said[k]) for k in order})
    assert [(b.processes, keys(b.items)) for b in one] == [
        (b.processes, keys(b.items)) for b in other
    ]


@given(some_items.filter(bool), st.sets(st.integers(0, 20), min_size=1))
def test_what_all_said_is_one_block(items: list[Item], processes: set[int]) -> None:
    blocks = fold({k: list(items) for k in processes})
    assert blocks == [Block(tuple(sorted(processes)), tuple(items))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Line("stdout", "a\n"), Line("stderr", "a\n")),
        (Line("stdout", "a\n"), Line("stdout", "a")),
        (Line("stdout", "a\n"), Line("stdout", "a \n")),
        (Line("stdout", "1"), Display({"text/plain": "1"})),
        (Display({"text/plain": "1"}), Display({"text/plain": "1"}, is_value=True)),
        (Display({"text/plain": "1"}), Display({"text/plain": "1"}, {"text/plain": {"a": 1}})),
        (Display({"application/json": 1}), Display({"application/json": True})),
        (Display({"application/json": 1}), Display({"application/json": "1"})),
        (Display({"application/json": 1}), Display({"application/json": 1.0})),
        (Display({"application/json": {"a": [1]}}), Display({"application/json": {"a": [True]}})),
        (Display({"application/json": [1, 2]}), Display({"application/json": [2, 1]})),
        (Display({"application/json": None}), Display({"application/json": "None"})),
        (Display({"image/png": b"a"}), Display({"image/png": "a"})),
    ],
)
def test_equal_is_equal_to_the_letter(one: Item, other: Item) -> None:
    assert fold({0: [one], 1: [other]}) == [Block((0,), (one,)), Block((1,), (other,))]


def test_the_order_of_mime_types_is_no_difference() -> None:
    one = Display({"text/plain": "x", "text/html": "<b>x</b>"})
    other = Display({"text/html": "<b>x</b>", "text/plain": "x"})
    assert fold_events({0: [one], 1: [other]}) == [Block((0, 1), (one,))]


def test_no_number_is_the_same_as_no_number() -> None:
    one, other = (Display({"application/json": {"loss": float("nan")}}) for _ in range(2))
    assert fold_events({0: [one], 1: [other]}) == [Block((0, 1), (one,))]


def test_how_writes_were_cut_is_no_difference() -> None:
    whole = [Text("stdout", "a\nb\n")]
    parts = [Text("stdout", "a\n"), Text("stdout", "b\n")]
    assert fold_events({0: whole, 1: parts}) == [Block((0, 1), tuple(lines("a", "b")))]


def test_nothing_said_is_no_block() -> None:
    assert fold({}) == []
    assert fold({0: [], 1: []}) == []
    assert folded({0: ["a"], 1: [], 2: ["a"]}) == [((0, 2), ["a"])]


def test_a_line_of_their_own_and_then_one_in_common() -> None:
    assert folded({k: [f"I am {k}", "done"] for k in range(4)}) == [
        ((0,), ["I am 0"]),
        ((1,), ["I am 1"]),
        ((2,), ["I am 2"]),
        ((3,), ["I am 3"]),
        (EVERYONE, ["done"]),
    ]


def test_process_0_says_more_within_a_loop() -> None:
    said = {
        k: [
            text
            for step in range(3)
            for text in (f"step {step}", "saving" if k == 0 else "", f"loss {step}")
            if text
        ]
        for k in range(4)
    }
    assert folded(said) == [
        (EVERYONE, ["step 0"]),
        ((0,), ["saving"]),
        (EVERYONE, ["loss 0", "step 1"]),
        ((0,), ["saving"]),
        (EVERYONE, ["loss 1", "step 2"]),
        ((0,), ["saving"]),
        (EVERYONE, ["loss 2"]),
    ]


def test_a_long_loop_of_the_same_lines_stays_aligned() -> None:
    """Lines that come again and again are as good as others to tell where processes agree."""
    said = {
        k: [
            text
            for step in range(360)
            for text in ("step", "saving" if k == 0 and step % 120 == 119 else "", "loss")
            if text
        ]
        for k in range(3)
    }
    steps = ["step", "loss"] * 119
    assert folded(said) == [
        ((0, 1, 2), [*steps, "step"]),
        ((0,), ["saving"]),
        ((0, 1, 2), ["loss", *steps, "step"]),
        ((0,), ["saving"]),
        ((0, 1, 2), ["loss", *steps, "step"]),
        ((0,), ["saving"]),
        ((0, 1, 2), ["loss"]),
    ]


def test_half_of_the_shorter_output_is_enough_to_agree() -> None:
    assert folded({0: ["x", "p"], 1: ["x", "q", "r"]}) == [
        ((0, 1), ["x"]),
        ((0,), ["p"]),
        ((1,), ["q", "r"]),
    ]
    said = {0: ["x", "o", "p"], 1: ["x", "q", "r", "s"]}
    assert folded(said) == [((0,), said[0]), ((1,), said[1])]


def test_lines_that_happen_to_be_equal_are_no_anchors() -> None:
    said = {k: [str(number) for number in range(k, k + 3)] for k in range(4)}
    assert folded(said) == [((k,), said[k]) for k in range(4)]
    said = {k: ["x", *(f"{k} {i}" for i in range(5 + k))] for k in range(2)}
    assert folded(said) == [((k,), said[k]) for k in range(2)]


def test_groups_come_in_the_order_of_their_lowest_index() -> None:
    assert folded({3: ["b"], 2: ["a"], 1: ["b"], 0: ["a"]}) == [((0, 2), ["a"]), ((1, 3), ["b"])]
    said = {0: ["x", "p", "y"], 1: ["x", "q", "y"], 2: ["x", "p", "y"], 3: ["x", "q", "y"]}
    assert folded(said) == [
        (EVERYONE, ["x"]),
        ((0, 2), ["p"]),
        ((1, 3), ["q"]),
        (EVERYONE, ["y"]),
    ]


def test_the_rows_of_an_array_stay_together() -> None:
    said = {k: [Text("stdout", f"part\n[[0 1]\n [2 {k}]]\nend\n", (11,))] for k in range(2)}
    assert fold_events(said) == [
        Block((0, 1), (Line("stdout", "part\n"),)),
        Block((0,), (Line("stdout", "[[0 1]\n [2 0]]\n"),)),
        Block((1,), (Line("stdout", "[[0 1]\n [2 1]]\n"),)),
        Block((0, 1), (Line("stdout", "end\n"),)),
    ]


def test_many_equal_lines_take_little_time() -> None:
    text = "".join(f"line {number}\n" for number in range(200_000))
    start = time.process_time()
    blocks = fold_events({k: [Text("stdout", text)] for k in range(4)})
    assert time.process_time() - start < 110 * known_work_s()
    assert [block.processes for block in blocks] == [EVERYONE]
    assert len(blocks[0].items) == 200_000


def test_many_different_lines_take_little_time() -> None:
    said = {k: [str(i * (k + 1)) for i in range(20_000 + k)] for k in range(4)}
    start = time.process_time()
    check({k: lines(*texts) for k, texts in said.items()}, fold({k: lines(*said[k]) for k in said}))
    assert time.process_time() - start < 370 * known_work_s()


def seen(text: str) -> str:
    """Return a text without a line at its end that was erased."""
    rest = text.rpartition("\n")[2]
    return text[: len(text) - len(rest)] if "\r" in rest and not plain(rest) else text


@given(some_events)
def test_items_hold_all_that_was_said(events: list[Event]) -> None:
    items = items_of(events)
    for stream in ("stdout", "stderr"):
        assert "".join(
            item.text for item in items if isinstance(item, Line) and item.stream == stream
        ) == "".join(seen(e.text) for e in events if isinstance(e, Text) and e.stream == stream)
    assert [i for i in items if isinstance(i, Display)] == [
        e for e in events if isinstance(e, Display)
    ]
    assert all(item.text for item in items if isinstance(item, Line))


@given(st.text("ab\n\r\v\f\x1c\x85\u2028", max_size=30))
def test_only_a_newline_ends_a_line(text: str) -> None:
    cut = [item.text for item in items_of([Text("stdout", text)]) if isinstance(item, Line)]
    assert "".join(cut) == seen(text)
    assert all("\n" not in line[:-1] for line in cut)
    assert all(line.endswith("\n") for line in cut[:-1])


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("<Model object at 0x7f1b2c3d4e5f>", "<Model object at 0x7f0000000000>", True),
        (
            "<bound method A.f of <A at 0x7f1b2c3d4e5f>>",
            "<bound method A.f of <A at 0x111111>>",
            True,
        ),
        ("<Model object at 0x7f1b2c3d4e5f>", "<Other object at 0x7f1b2c3d4e5f>", False),
        (
            "This BatchTracer with object id 139908830018048 was created",
            "This BatchTracer with object id 139908829850752 was created",
            True,
        ),
        ("with object id 139908830018048", "with object id 139908829850752", False),
        ("hash 0x7f1b2c3d4e5f", "hash 0x7f0000000000", False),
        ("at 0x7f1b2c3d4e5f", "at 0x7f0000000000", False),
        (
            "W1127 13:04:50.117942     839 xla/bfc_allocator.cc:598] Out of memory",
            "W1128 00:00:01.000009 1234567 xla/bfc_allocator.cc:598] Out of memory",
            True,
        ),
        (
            "2026-11-27 13:04:50.117942: W external/xla/service.cc:1] Slow",
            "2026-11-27 13:04:51.217942: W external/xla/service.cc:1] Slow",
            True,
        ),
        (
            "Two lines:\nI1127 13:04:50.117942 139846 manager.py:7] Saved",
            "Two lines:\nI1127 13:04:50.217942 139848 manager.py:7] Saved",
            True,
        ),
        (
            "WARNING:2026-11-27 13:04:50,117:jax._src.xla_bridge:864: No GPU",
            "WARNING:2026-11-27 13:04:50,118:jax._src.xla_bridge:864: No GPU",
            True,
        ),
        # Another severity, another place, another message; a time that the user's program prints.
        (
            "W1127 13:04:50.117942 839 service.cc:598] Slow",
            "E1127 13:04:50.117942 839 service.cc:598] Slow",
            False,
        ),
        (
            "W1127 13:04:50.117942 839 service.cc:598] 8 devices",
            "W1127 13:04:50.117942 839 service.cc:598] 4 devices",
            False,
        ),
        (
            "WARNING:2026-11-27 13:04:50,117:train:8: Slow",
            "WARNING:2026-11-27 13:04:50,118:train:8: Slow",
            False,
        ),
        ("2026-11-27 13:04:50.117942: step 1", "2026-11-27 13:04:50.117943: step 1", False),
        ("{'a', 'b'}", "{'b', 'a'}", True),
        ("x {1, 2} {(3, 4), 5}", "x {2, 1} {5, (3, 4)}", True),
        ("{'a', 'b'}", "{'a', 'c'}", False),
        ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", False),
        ("{a, b}", "{b, a}", False),
    ],
)
def test_what_differs_by_chance_counts_as_the_same(one: str, other: str, alike: bool) -> None:
    both = [((0, 2), [one]), ((1,), [other])]
    said = {0: [one], 1: [other], 2: [one]}
    assert folded(said) == ([((0, 1, 2), [one])] if alike else both)
    values = {
        k: [Display({"text/plain": t}, {}, is_value=True)] for k, t in enumerate((one, other))
    }
    assert len(fold(values)) == (1 if alike else 2)
