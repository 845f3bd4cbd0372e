"""Check exercises: compare each process's value with the expected one, and print a hint."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcnb._text import name_processes
from mcnb.cluster.cluster import Cluster, current_cluster
from mcnb.errors import WIDTH, ClusterError, wrapped
from mcnb.exercises.exercise import UNSET, Exercise
from mcnb.output.fold import Line, fold
from mcnb.output.text import entries

# A check that takes longer than this is assumed to hang.
LIMIT_S = 60.0
# Holds a check's result on each process until it is fetched; unlikely to clash with user code.
_SEEN = "__mcnb_seen__"
_TICK = "\x1b[32m✓\x1b[0m"  # green


@dataclass(frozen=True)
class Grade:
    """Outcome of checking an exercise.

    Attributes:
        solved: Whether the exercise is solved on every process.
        text: Message for the learner.
    """

    solved: bool
    text: str


def check(name: str, cluster: Cluster | None = None) -> None:
    """Check an exercise, and print the value on each process beside the expected value.

    Args:
        name: Lesson and number of the exercise, such as `"01.1"`.
        cluster: Cluster on which it was solved; by default, the one that the magics drive.

    Raises:
        ClusterError: The exercise does not exist, or no cluster is running.
    """
    graded = grade(name, cluster or current_cluster())
    print(f"{_TICK} {graded.text}\n{following(name)}" if graded.solved else shown(graded.text))


def following(name: str) -> str:
    """Say which exercise comes after one.

    Example:
        >>> following("01.1")
        'Next: exercise 01.2.'
        >>> following("01.3")
        "This was the lesson's last exercise. Next: lesson 02."
    """
    names = sorted(exercises())
    after = names[names.index(name) + 1 :]
    if not after:
        return "This was the last exercise of the course."
    lesson = after[0].partition(".")[0]
    if name.startswith(lesson):
        return f"Next: exercise {after[0]}."
    return f"This was the lesson's last exercise. Next: lesson {lesson}."


def exercises() -> dict[str, Exercise]:
    """Return all exercises, keyed by name.

    Example:
        >>> sorted(exercises())[:2]
        ['01.1', '01.2']
    """
    found: dict[str, Exercise] = {}
    for path in sorted(Path(__file__).parent.glob("lesson[0-9][0-9].py")):
        found |= importlib.import_module(f"mcnb.exercises.{path.stem}").EXERCISES
    return found


def grade(name: str, cluster: Cluster) -> Grade:
    """Check an exercise and return its grade.

    The learner's function may be called, on all processes at once. If the call fails, makes the
    processes diverge or does not end, the grade has the same report as for a cell.

    Args:
        name: Name of the exercise.
        cluster: Cluster on which it was solved.

    Raises:
        ClusterError: The exercise does not exist, or the cluster is not running.
    """
    exercise = exercises().get(name)
    if exercise is None:
        raise ClusterError(
            f"There is no exercise {name!r}. Exercises: {', '.join(sorted(exercises()))}"
        )
    # __import__ adds no name to the learner's namespace.
    look = f"__import__({__name__!r}, fromlist=['look']).look({name!r}, globals())"
    tried = cluster.examine(f"{_SEEN} = {look}", timeout=LIMIT_S)
    if not tried.ok:
        return Grade(
            False,
            f"Exercise {name} is not solved yet.\n{tried.text()}"
            f"mcnb used {exercise.variable} to check it, with the result above.",
        )
    seen = cluster.pull(_SEEN)
    cluster.examine(f"del {_SEEN}", timeout=LIMIT_S)
    return _compare(name, exercise, seen, cluster)


def _compare(name: str, exercise: Exercise, seen: Mapping[int, object], cluster: Cluster) -> Grade:
    count = cluster.options.processes
    devices = cluster.options.devices_per_process
    expected = {k: exercise.expected(k, count, devices) for k in seen}
    wrong = [k for k in seen if seen[k] != expected[k]]
    if not wrong:
        return Grade(True, f"Exercise {name} is solved on {name_processes(list(seen), count)}.")
    unset = [k for k in wrong if seen[k] == UNSET]
    if unset:
        hint = (
            f"Set {exercise.variable} on every process, in a cell that begins with %%mcjax; "
            f"{name_processes(unset, count)} {'has' if len(unset) == 1 else 'have'} none."
        )
    else:
        hint = exercise.hint(seen[wrong[0]], expected[wrong[0]], count, devices)
    rows = _rows(seen, expected, count)
    return Grade(False, f"Exercise {name} is not solved yet.\n{rows}Hint: {hint}")


def look(name: str, variables: Mapping[str, Any]) -> object:
    """Describe the variable of an exercise on the calling process."""
    exercise = exercises()[name]
    value = variables.get(exercise.variable, ...)
    return UNSET if value is ... else exercise.look(value)


def _rows(seen: Mapping[int, object], expected: Mapping[int, object], count: int) -> str:
    # The expected value would reveal the answer before the learner has tried.
    tried = any(value != UNSET for value in seen.values())
    said = {
        k: [
            Line("stdout", f"yours: {seen[k]}\n"),
            *([Line("stdout", f"expected: {expected[k]}\n")] if tried else []),
        ]
        for k in seen
    }
    return "".join(entry.text for entry in entries(fold(said), count))


def shown(text: str) -> str:
    """Wrap text at word boundaries, because a notebook breaks long lines within words.

    Example:
        >>> print(shown("[all 4] yours: " + "1, " * 30))
        [all 4] yours: 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                  1, 1, 1, 1, 1, 1, 1, 1, 1,
    """
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    value = re.match(r"(?:\[[\d, all-]+\])? *(?=yours: |expected: )", line)
    if len(line) <= WIDTH or not (value or re.match(r"Hint: (?=\w)|mcnb used ", line)):
        return [line]
    return wrapped(line, "" if value is None else " " * (value.end() + 2))
