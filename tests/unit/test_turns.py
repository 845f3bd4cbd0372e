"""Lists that are folded: nothing is lost, and loops are found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb._turns import LONGEST_TURN, Fold, folded


def unfolded(folds: list[Fold[str]], length: int) -> list[str | None]:
    """Return the list of which these are the folds; None where none of them has a place."""
    things: list[str | None] = [None] * length
    for fold in folds:
        for turn in range(fold.rounds):
            for at in range(fold.number):
                place = fold.at + turn * fold.step + at
                assert things[place] is None, "two folds have one place"
                things[place] = fold.thing
    return things


@given(st.lists(st.sampled_from("abc"), max_size=60))
def test_a_folded_list_has_all_that_was_in_it(things: list[str]) -> None:
    assert unfolded(folded(things, str), len(things)) == things


@given(st.lists(st.characters(), min_size=1, max_size=LONGEST_TURN, unique=True), st.integers(2, 9))
def test_of_a_loop_one_round_remains(turn: list[str], rounds: int) -> None:
    folds = folded(turn * rounds, str)
    assert [fold.thing for fold in folds] == turn
    assert unfolded(folds, len(turn) * rounds) == turn * rounds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("aaa", [("a", 0, 3, 1)]),
        ("abab", [("a", 0, 1, 2), ("b", 1, 1, 2)]),
        ("xaabaabaab", [("x", 0, 1, 1), ("a", 1, 2, 3), ("b", 3, 1, 3)]),
    ],
)
def test_some_lists(text: str, expected: list[tuple[str, int, int, int]]) -> None:
    found = [(fold.thing, fold.at, fold.number, fold.rounds) for fold in folded(list(text), str)]
    assert found == expected
