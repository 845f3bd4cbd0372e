"""Grades of exercises, from what each process has."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.errors import ClusterError
from mcnb.exercises import checker
from mcnb.exercises.checker import LIMIT_S, Grade, check, exercises, following, grade, look, shown
from mcnb.exercises.exercise import UNSET, Exercise
from mcnb.options import Options

HEAD = "Exercise 01.3 is not solved yet.\n"


def graded(
    seen: Mapping[int, Any], name: str = "01.3", *, text: str | None = None, show: bool = False
) -> Grade:
    """Return the grade on a cluster of 4 processes that have these values, or a failed try."""
    cluster: Any = SimpleNamespace(
        options=Options(processes=4, devices_per_process=2),
        examine=lambda source, timeout: SimpleNamespace(ok=text is None, text=lambda: text),
        pull=lambda name: seen,
    )
    return grade(name, cluster, show=show)


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
    ],
)
def test_a_wrong_answer(changes: dict[int, Any], hint: str) -> None:
    seen = RIGHT | changes
    yours = "".join(f"[{k}] yours: {seen[k]}\n" for k in RIGHT)
    assert graded(seen) == Grade(False, f"{HEAD}{yours}Hint: {hint}", tried=True)
    both = "".join(f"[{k}] yours: {seen[k]}\n    expected: {RIGHT[k]}\n" for k in RIGHT)
    assert graded(seen, show=True) == Grade(False, f"{HEAD}{both}Hint: {hint}", tried=True)


def test_an_answer_that_several_processes_lack() -> None:
    assert graded(RIGHT | {0: UNSET, 1: 7, 3: UNSET}) == Grade(
        False,
        f"{HEAD}[0,3] yours: not set yet\n[1]   yours: 7\n[2]   yours: 9\n"
        "Hint: Set own_sum on every process, in a cell that begins with %%mcjax; processes 0,3 "
        "have none.",
        tried=True,
    )


def test_an_answer_of_another_kind() -> None:
    assert graded(dict.fromkeys(RIGHT, "a list"), show=True).text == (
        f"{HEAD}[all 4] yours: a list\n"
        + "".join(f"[{k}]     expected: {RIGHT[k]}\n" for k in RIGHT)
        + "Hint: own_sum is one whole number on each process; here it is a list."
    )


def test_an_answer_that_fails_when_it_is_tried() -> None:
    text = f"{HEAD}[0] boom\nmcnb used own_sum to check it, with the result above."
    assert graded({}, text="[0] boom\n") == Grade(False, text)
    right = "\n".join(f"[{k}] expected: {RIGHT[k]}" for k in RIGHT)
    assert graded({}, text="[0] boom\n", show=True) == Grade(False, f"{text}\n{right}")


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
        "mcnb used sum_of_all_parts_on_this_process to check it, with the result above on the "
        "processes."
    )
    assert shown(text) == (
        "[0]     expected: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,\n"
        "          15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,\n"
        "          29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39\n"
        f"printed by the program: {numbers}\n"
        "Hint: whole.addressable_shards has the parts on this process's\n"
        "devices; part.data is one of them, and holds its values.\n"
        "mcnb used sum_of_all_parts_on_this_process to check it, with the\n"
        "result above on the processes."
    )


class Processes:
    """A cluster whose processes are namespaces, and that executes what the check asks for.

    Args:
        variables: What the learner has set, by process.
    """

    def __init__(self, *variables: dict[str, Any]) -> None:
        self.options = Options(processes=len(variables), devices_per_process=2)
        self.variables = variables
        self.limits: list[float] = []

    def examine(self, source: str, timeout: float) -> SimpleNamespace:
        self.limits.append(timeout)
        for own in self.variables:
            exec(source, own)
            own.pop("__builtins__")
        return SimpleNamespace(ok=True)

    def pull(self, expression: str) -> dict[int, Any]:
        return {k: own[expression] for k, own in enumerate(self.variables)}


def test_a_check_looks_at_every_process_and_leaves_nothing_behind() -> None:
    cluster: Any = Processes({"own_sum": 1}, {"own_sum": 5}, {}, {"own_sum": 13})
    assert grade("01.3", cluster, show=True).text == (
        f"{HEAD}[0] yours: 1\n    expected: 1\n[1] yours: 5\n    expected: 5\n"
        "[2] yours: not set yet\n    expected: 9\n[3] yours: 13\n    expected: 13\n"
        "Hint: Set own_sum on every process, in a cell that begins with %%mcjax; process 2 has "
        "none."
    )
    assert cluster.variables == ({"own_sum": 1}, {"own_sum": 5}, {}, {"own_sum": 13})
    assert cluster.limits == [LIMIT_S] * 2


def test_before_a_try_the_answer_is_not_told() -> None:
    cluster: Any = Processes({}, {}, {}, {})
    hint = (
        "Hint: Set own_sum on every process, in a cell that begins with %%mcjax; all 4 processes "
        "have none."
    )
    unset = f"{HEAD}[all 4] yours: not set yet\n"
    assert grade("01.3", cluster) == Grade(False, unset + hint)
    # On request, it is.
    right = "".join(f"[{k}]     expected: {RIGHT[k]}\n" for k in RIGHT)
    assert grade("01.3", cluster, show=True) == Grade(False, unset + right + hint)


def test_none_is_a_value() -> None:
    assert look("01.3", {"own_sum": None}) == "None, which is no whole number"


def test_an_exercise_is_told_who_and_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Exercise(
        "v",
        look=lambda value: 2 * value,
        expected=lambda *given: given,
        hint=lambda seen, right, *sizes: f"{seen} is not {right} with {sizes}.",
    )
    monkeypatch.setattr(checker, "exercises", lambda: {"00.1": own})
    cluster: Any = Processes({"v": (0, 3)}, {"v": 4}, {"v": 5})
    assert grade("00.1", cluster, show=True).text == (
        "Exercise 00.1 is not solved yet.\n"
        "[0] yours: (0, 3, 0, 3)\n    expected: (0, 3, 2)\n"
        "[1] yours: 8\n    expected: (1, 3, 2)\n[2] yours: 10\n    expected: (2, 3, 2)\n"
        "Hint: (0, 3, 0, 3) is not (0, 3, 2) with (3, 2)."
    )


def test_a_check_prints_lines_that_are_not_too_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checker, "current_cluster", lambda: Processes({"own_sum": 3}))
    check("01.3")
    hint = (
        "Hint: whole.addressable_shards has the parts on this process's\n"
        "devices; part.data is one.\n"
    )
    offer = 'mcnb.check("01.3", show=True) shows what is expected.\n'
    assert capsys.readouterr().out == f"{HEAD}[0] yours: 3\n{hint}{offer}"
    check("01.3", show=True)
    assert capsys.readouterr().out == f"{HEAD}[0] yours: 3\n    expected: 1\n{hint}"
    check("01.3", Processes({}))
    assert capsys.readouterr().out.endswith("begins with\n%%mcjax; process 0 has none.\n")
    own: Any = Processes({"own_sum": 1})
    check("01.3", own)
    assert capsys.readouterr().out == (
        "\x1b[32m✓\x1b[0m Exercise 01.3 is solved on process 0.\n"
        "This was the lesson's last exercise. Next: lesson 02.\n"
    )


def test_exercises_lead_from_one_to_the_next() -> None:
    assert following("01.1") == "Next: exercise 01.2."
    assert following("09.4") == "This was the lesson's last exercise. Next: lesson 10."
    assert following(max(exercises())) == "This was the last exercise of the course."
