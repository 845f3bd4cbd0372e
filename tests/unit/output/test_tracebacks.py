"""Tracebacks of several processes that differ only in the texts of their exceptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.output.text import text_of
from mcnb.output.tracebacks import fold_tracebacks, processes_of, traceback_text

STACK = ["Cell In[1], line 2", "      1 import data", "----> 2 data.load(k)", ""]
DEEPER = [*STACK, "Cell In[1], line 7, in load", "----> 7 raise ValueError(k)", ""]
CAUSE = ["", "The above exception was the direct cause of the following exception:", ""]
PYTHON = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    load(k)",
]


def texts(*groups: tuple[list[int], list[str]], count: int = 4) -> list[list[str]]:
    folded = fold_tracebacks((ks, "\n".join(lines)) for ks, lines in groups)
    return [traceback_text(blocks, count).split("\n") for blocks in folded]


def test_texts_of_exceptions_follow_one_stack() -> None:
    assert texts(
        ([1, 3], [*STACK, "KeyError: 1"]), ([0], [*STACK, "KeyError: 0"]), ([2], [*STACK, "2"])
    ) == [[*STACK, "[0]   KeyError: 0", "[1,3] KeyError: 1", "[2]   2"]]


def test_a_text_of_several_lines_and_what_follows_it() -> None:
    hint = "Hint: the same on all"
    assert texts(
        ([0], [*STACK, "E: one", "", "  two", hint]),
        ([1, 2, 3], [*STACK, "E: another", hint]),
    ) == [[*STACK, "[0]   E: one", "", "        two", "[1-3] E: another", hint]]


def test_each_exception_of_a_chain_is_compared() -> None:
    chains = [
        ([k], [*STACK, f"KeyError: {k}", *CAUSE, *DEEPER, f"ValueError: {k // 2}"])
        for k in range(4)
    ]
    [lines] = texts(*chains)
    assert lines == [
        *STACK,
        *(f"[{k}] KeyError: {k}" for k in range(4)),
        *CAUSE,
        *DEEPER,
        "[0,1] ValueError: 0",
        "[2,3] ValueError: 1",
    ]


def test_tracebacks_of_python() -> None:
    groups = [([k], "\n".join([*PYTHON, f"ValueError: {k}"])) for k in range(2)]
    [blocks] = fold_tracebacks(groups)
    assert [(one.processes, [text_of(item) for item in one.items]) for one in blocks] == [
        ((0, 1), [f"{line}\n" for line in PYTHON]),
        ((0,), ["ValueError: 0\n"]),
        ((1,), ["ValueError: 1\n"]),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([*STACK, "E: 1"], [*DEEPER, "E: 1"]),
        ([*STACK, "E: 1"], ["Cell In[1], line 3", *STACK[1:], "E: 1"]),
        ([*PYTHON, "E: 1"], [*PYTHON[:-1], "    load(k + 1)", "E: 1"]),
        (["\x1b[32m----> 2\x1b[39m a", "E: 1"], ["\x1b[32m----> 2\x1b[39m b", "E: 1"]),
        (["SyntaxError: 1"], ["SyntaxError: 2"]),
        ([*STACK, "E: 1", *CAUSE, *DEEPER, "E: 3"], [*STACK, "E: 3"]),
    ],
)
def test_what_shares_no_stack_is_shown_each(one: list[str], other: list[str]) -> None:
    folded = fold_tracebacks([([0], "\n".join(one)), ([1], "\n".join(other))])
    assert [processes_of(blocks) for blocks in folded] == [(0,), (1,)]
    assert [traceback_text(blocks, 2).split("\n") for blocks in folded] == [one, other]


def test_texts_that_are_much_longer_than_the_stack_are_shown_with_it() -> None:
    long = [[*STACK[-2:], *(f"{k} {i}" for i in range(20 + k))] for k in range(2)]
    assert texts(*(([k], lines) for k, lines in enumerate(long))) == long


def test_addresses_are_no_difference() -> None:
    own = [[*STACK, f"E: <A object at 0x7f1b2c3d4e5{k}>", f"in cell {k}"] for k in range(2)]
    [lines] = texts(*(([k], lines) for k, lines in enumerate(own)), count=2)
    assert lines == [
        *STACK,
        "E: <A object at 0x7f1b2c3d4e50>",
        "[0] in cell 0",
        "[1] in cell 1",
    ]


LINES = st.lists(
    st.sampled_from(["File a.py:1", "----> 1 x", "", "E: 1", "E: 2", "note", "    y"]), max_size=6
)


@given(st.lists(LINES, min_size=1, max_size=4))
def test_nothing_is_lost(each: list[list[str]]) -> None:
    folded = fold_tracebacks(([k], "\n".join(lines)) for k, lines in enumerate(each))
    assert sorted(k for blocks in folded for k in processes_of(blocks)) == [*range(len(each))]
    for blocks in folded:
        for k in processes_of(blocks):
            own = [text_of(item) for one in blocks if k in one.processes for item in one.items]
            assert "".join(own) == "\n".join(each[k]) + "\n"
