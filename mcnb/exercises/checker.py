"""The checker: what each process has, beside what it should have, and a hint."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcnb._text import name_processes
from mcnb.cluster.cluster import Cluster, current_cluster
from mcnb.errors import WIDTH, ClusterError, wrapped
from mcnb.exercises.exercise import UNSET, Exercise
from mcnb.output.fold import Line, fold
from mcnb.output.text import entries

# A check that takes longer has met something that never ends.
LIMIT_S = 60.0
# What the check leaves in a process until it is fetched; no name that a learner would use.
_SEEN = "__mcnb_seen__"


@dataclass(frozen=True)
class Grade:
    """What the checker found.

    Attributes:
        solved: Whether the exercise is solved on every process.
        text: What the learner reads.
    """

    solved: bool
    text: str


def check(name: str, cluster: Cluster | None = None) -> None:
    """Check an exercise, and print what each process has and what was expected.

    Args:
        name: The exercise: lesson and number, such as `"01.1"`.
        cluster: The cluster that it was solved on; by default the one that the magics drive.

    Raises:
        ClusterError: There is no such exercise, or no cluster that runs.
    """
    print(shown(grade(name, cluster or current_cluster()).text))


def exercises() -> dict[str, Exercise]:
    """Return all exercises by their names.

    Example:
        >>> sorted(exercises())[:2]
        ['01.1', '01.2']
    """
    package = importlib.import_module("mcnb.exercises")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    found: dict[str, Exercise] = {}
    for name in sorted(names):
        if re.fullmatch(r"lesson\d\d", name):
            found.update(importlib.import_module(f"mcnb.exercises.{name}").EXERCISES)
    return found


def grade(name: str, cluster: Cluster) -> Grade:
    """Check an exercise and return what the checker found.

    What the learner wrote may be called, on all processes at once. Where that fails, parts the
    processes or does not end, it is told as it is for a cell.

    Args:
        name: The exercise.
        cluster: The cluster that it was solved on.

    Raises:
        ClusterError: There is no such exercise, or the cluster does not run.
    """
    exercise = exercises().get(name)
    if exercise is None:
        raise ClusterError(
            f"There is no exercise {name!r}. Exercises: {', '.join(sorted(exercises()))}"
        )
    # __import__ leaves no name behind in the learner's namespace.
    look = f"__import__({__name__!r}, fromlist=['look']).look({name!r}, globals())"
    tried = cluster.examine(f"{_SEEN} = {look}", timeout=LIMIT_S)
    if not tried.ok:
        return Grade(
            False,
            f"Exercise {name} is not solved yet.\n{tried.text()}"
            f"That is what came of it when {exercise.variable} was tried out.",
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
    """Describe an exercise's variable; this runs in a process."""
    exercise = exercises()[name]
    value = variables.get(exercise.variable, ...)
    return UNSET if value is ... else exercise.look(value)


def _rows(seen: Mapping[int, object], expected: Mapping[int, object], count: int) -> str:
    # Nobody who has not tried yet is told what comes out.
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
    """Return text in lines that a notebook need not break, which it would do within words.

    Example:
        >>> print(shown("[all 4] yours: " + "1, " * 30))
        [all 4] yours: 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                  1, 1, 1, 1, 1, 1, 1, 1, 1,
    """
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    told = re.match(r"(?:\[[\d, all-]+\])? *(?=yours: |expected: )|Hint: (?=\w)|That is", line)
    if told is None or len(line) <= WIDTH:
        return [line]
    return wrapped(line, "" if "Hint" in told[0] else " " * (told.end() + 2))
