"""The newest lines of outputs that grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.messages import Display, Recent, Text
from mcnb.output.recent import MOST_LINES, MOST_ROWS, WIDEST, Tail, newest, recent_of


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], Recent()),
        (["\n", "  \n"], Recent(2, ("", ""))),
        (["a\n", "b\n"], Recent(2, ("a", "b"))),
        (["a\n", "b", " ", "c"], Recent(2, ("a", "b c"))),
        (["a", "\n", " "], Recent(1, ("a",))),
        (["10%\r", "20%\r"], Recent(1, ("20%",))),
        (["10%\r20%\n", "  a  \n"], Recent(2, ("20%", "  a"))),
        (["\x1b[31mred\x1b[0m\n"], Recent(1, ("red",))),
        (["x" * 10**6, "y"], Recent(1, ("x" * WIDEST,))),
        (["a\n", "outer\n", "\rinner 1\x1b[A"], Recent(3, ("a", "outer", "inner 1"))),
        (["outer\n\rinner 1\x1b[A\n\rinner 2\x1b[A"], Recent(2, ("outer", "inner 2"))),
        (["o\n\rinner\x1b[A\n\r     \x1b[A", "\ro 2\n", "b\n"], Recent(2, ("o 2", "b"))),
    ],
)
def test_the_newest_lines(texts: list[str], expected: Recent) -> None:
    tail = Tail()
    for text in texts:
        tail.feed(text)
    assert tail.recent() == expected


@given(st.lists(st.text("ab\n", max_size=30), max_size=30))
def test_however_it_comes_it_is_the_same(texts: list[str]) -> None:
    tail = Tail()
    for text in texts:
        tail.feed(text)
    lines = "".join(texts).split("\n")
    if not lines[-1]:
        lines.pop()
    kept = tail.recent()
    assert kept.count == len(lines)
    assert kept.lines == tuple(lines[-len(kept.lines) :] if kept.lines else ())
    assert len(kept.lines) >= min(len(lines), MOST_LINES)


@given(st.integers(1, 400), st.integers(1, 400))
def test_nested_bars_keep_the_numbers_of_the_lines(before: int, steps: int) -> None:
    tail = Tail()
    tail.feed("line\n" * before)
    for step in range(steps):
        tail.feed(f"\repochs {step:100}")
        tail.feed(f"\n\rsteps {step:100}\x1b[A")
    assert tail.recent().count == before + 2
    tail.feed("\n\n")
    tail.feed("x" * 5000 + "\n")
    assert tail.recent().count == before + 3


def test_the_newest_lines_of_an_output_that_is_complete() -> None:
    events = (Text("stdout", "a"), Text("stderr", "b\n"), Display({}), Text("stderr", "c"))
    assert recent_of(events) == Recent(3, ("a", "b", "c"))


def test_what_all_say_is_shown_once() -> None:
    said = {k: Recent(3, ("step 0", "step 20", f"mine {k % 2}")) for k in range(3)}
    said[3] = Recent(1, ("step 0",))
    assert newest(said, 4) == [
        "[all 4] step 0",
        "[0-2]   step 20",
        "[0,2]   mine 0",
        "[1]     mine 1",
    ]
    assert newest({}, 4) == newest({0: Recent()}, 4) == []


def test_equal_bars_are_one_row() -> None:
    bars = [f"train: 10%|█ | 5/50 [00:0{k + 1}<00:09, {5 - k}.00it/s]" for k in range(3)]
    said = {k: Recent(1, (bar,)) for k, bar in enumerate(bars)}
    said[3] = Recent(1, (bars[0].replace("5/50", "4/50"),))
    assert newest(said, 4) == [
        "[0-2] train: 10%|█ | 5/50 [00:03<00:09, 3.00 to 5.00it/s]",
        "[3]   train: 10%|█ | 4/50 [00:01<00:09, 5.00it/s]",
    ]


def test_lines_are_compared_by_their_number() -> None:
    slow, fast = Recent(2, ("0", "1")), Recent(30, tuple(map(str, range(20, 30))))
    assert newest({0: slow, 1: fast}, 2) == [
        "… 20 lines above",
        "[1] 20",
        *(f"    {i}" for i in range(21, 30)),
    ]


def test_the_rows_have_an_end() -> None:
    said = {k: Recent(10, tuple(f"{k}.{i}" for i in range(10))) for k in range(8)}
    shown = newest(said, 8)
    assert len(shown) == MOST_ROWS
    assert shown[-1] == "[7] 7.9"
