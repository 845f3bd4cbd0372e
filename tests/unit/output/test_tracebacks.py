"""Tracebacks of several processes that differ only in the texts of their exceptions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.output.tracebacks import MergedTraceback, merge_tracebacks

STACK = ["Cell In[1], line 2", "      1 import data", "----> 2 data.load(k)", ""]
DEEPER = [*STACK, "Cell In[1], line 7, in load", "----> 7 raise ValueError(k)", ""]
CAUSE = ["", "The above exception was the direct cause of the following exception:", ""]
PYTHON = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    load(k)",
]


def lines_of(*groups: tuple[list[int], list[str]], count: int = 4) -> list[list[str]]:
    return [[*merged.labelled(count)] for merged in merge_tracebacks(groups)]


def test_texts_of_exceptions_follow_one_stack() -> None:
    [merged] = merge_tracebacks(
        [([1, 3], [*STACK, "KeyError: 1"]), ([0], [*STACK, "KeyError: 0"]), ([2], [*STACK, "2"])]
    )
    assert merged.processes == (0, 1, 2, 3)
    assert [*merged.labelled(4)] == [*STACK, "[1,3] KeyError: 1", "[0]   KeyError: 0", "[2]   2"]


def test_a_text_of_several_lines_and_what_follows_it() -> None:
    hint = "Hint: the same on all"
    assert lines_of(
        ([0], [*STACK, "E: one", "", "  two", hint]),
        ([1, 2, 3], [*STACK, "E: another", hint]),
    ) == [[*STACK, "[0]   E: one", "", "        two", "[1-3] E: another", hint]]


def test_each_exception_of_a_chain_is_compared() -> None:
    chains = [
        ([k], [*STACK, f"KeyError: {k}", *CAUSE, *DEEPER, f"ValueError: {k // 2}"])
        for k in range(4)
    ]
    [lines] = lines_of(*chains)
    assert lines == [
        *STACK,
        *(f"[{k}] KeyError: {k}" for k in range(4)),
        *CAUSE,
        *DEEPER,
        "[0,1] ValueError: 0",
        "[2,3] ValueError: 1",
    ]


def test_tracebacks_of_python() -> None:
    [merged] = merge_tracebacks([([k], [*PYTHON, f"ValueError: {k}"]) for k in range(2)])
    shared = [((0, 1), line) for line in PYTHON]
    assert merged.lines == (*shared, ((0,), "ValueError: 0"), ((1,), "ValueError: 1"))


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
def test_other_stacks_are_shown_each(one: list[str], other: list[str]) -> None:
    assert merge_tracebacks([([0], one), ([1], other)]) == [
        MergedTraceback((k,), tuple(((k,), line) for line in lines))
        for k, lines in enumerate([one, other])
    ]


def test_addresses_are_no_difference() -> None:
    texts = [[*STACK, f"E: <A object at 0x7f1b2c3d4e5{k}>", f"in cell {k}"] for k in range(2)]
    [lines] = lines_of(*(([k], text) for k, text in enumerate(texts)), count=2)
    assert lines == [*STACK, "E: <A object at 0x7f1b2c3d4e50>", "[0] in cell 0", "[1] in cell 1"]


LINES = st.lists(
    st.sampled_from(["File a.py:1", "----> 1 x", "", "E: 1", "E: 2", "note", "    y"]), max_size=6
)


@given(st.lists(LINES, min_size=1, max_size=4))
def test_nothing_is_lost(texts: list[list[str]]) -> None:
    merged = merge_tracebacks([([k], text) for k, text in enumerate(texts)])
    assert sorted(k for one in merged for k in one.processes) == [*range(len(texts))]
    for one in merged:
        for k in one.processes:
            assert [line for ks, line in one.lines if k in ks] == texts[k]
