"""Grades of exercises, from what each process has."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.errors import ClusterError
from mcnb.exercises.checker import Grade, exercises, grade, look, shown
from mcnb.exercises.exercise import UNSET
from mcnb.options import Options

HEAD = "Exercise 01.3 is not solved yet.\n"


def graded(seen: Mapping[int, Any], name: str = "01.3", *, text: str | None = None) -> Grade:
    """Return the grade on a cluster of 4 processes that have these values, or a failed try."""
    cluster: Any = SimpleNamespace(
        options=Options(processes=4, devices_per_process=2),
        examine=lambda source, timeout: SimpleNamespace(ok=text is None, text=lambda: text),
        pull=lambda name: seen,
    )
    return grade(name, cluster)


RIGHT = {0: 1, 1: 5, 2: 9, 3: 13}


def test_a_right_answer() -> None:
    assert graded(RIGHT) == Grade(True, "Exercise 01.3 is solved on all 4 processes.")
    assert graded({1: 5, 2: 9}) == Grade(True, "Exercise 01.3 is solved on processes 1,2.")


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        (
            {2: 8},
            "whole.addressable_shards has the parts on this process's devices; part.data is one.",
        ),
        # The hint is for the first process that is wrong.
        (
            {1: 28, 3: 2},
            "that is the sum of all elements. Add up those that lie on this process's devices.",
        ),
        (
            {0: UNSET},
            "Set own_sum on every process, in a cell that begins with %%mcjax; process 0 has none.",
        ),
        (
            {0: UNSET, 1: 7, 3: UNSET},
            "Set own_sum on every process, in a cell that begins with %%mcjax; processes 0,3 have "
            "none.",
        ),
    ],
)
def test_a_wrong_answer(changes: dict[int, Any], hint: str) -> None:
    seen = RIGHT | changes
    rows = "".join(f"[{k}] yours: {seen[k]}\n    expected: {RIGHT[k]}\n" for k in RIGHT)
    assert graded(seen) == Grade(False, f"{HEAD}{rows}Hint: {hint}")


def test_an_answer_of_another_kind() -> None:
    assert graded(dict.fromkeys(RIGHT, "a list")).text == (
        f"{HEAD}[all 4] yours: a list\n"
        + "".join(f"[{k}]     expected: {RIGHT[k]}\n" for k in RIGHT)
        + "Hint: own_sum is one whole number on each process; here it is a list."
    )


def test_an_answer_that_fails_when_it_is_tried() -> None:
    assert graded({}, text="[0] boom\n") == Grade(
        False, f"{HEAD}[0] boom\nThat is what came of it when own_sum was tried out."
    )


def test_no_such_exercise() -> None:
    with pytest.raises(ClusterError) as raised:
        graded(RIGHT, "99.1")
    assert str(raised.value) == (
        f"There is no exercise '99.1'. Exercises: {', '.join(sorted(exercises()))}"
    )


def test_what_a_process_has() -> None:
    assert look("01.3", {"own_sum": 5}) == 5
    assert look("01.3", {"other": 5}) == UNSET


def test_long_lines_are_wrapped_at_words() -> None:
    numbers = ", ".join(map(str, range(40)))
    text = (
        f"[0]     expected: {numbers}\n"
        f"printed by the program: {numbers}\n"
        "Hint: whole.addressable_shards has the parts on this process's devices; part.data is one "
        "of them, and holds its values.\n"
        "That is what came of it when sum_of_all_parts_on_this_process was tried out on the "
        "processes."
    )
    assert shown(text) == (
        "[0]     expected: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
        "          18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34,\n"
        "          35, 36, 37, 38, 39\n"
        f"printed by the program: {numbers}\n"
        "Hint: whole.addressable_shards has the parts on this process's devices;\n"
        "part.data is one of them, and holds its values.\n"
        "That is what came of it when sum_of_all_parts_on_this_process was tried out on\n"
        "the processes."
    )
