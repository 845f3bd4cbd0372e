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
TICK = "\x1b[32m✓\x1b[0m"  # green


@dataclass(frozen=True)
class Grade:
    """Outcome of checking an exercise.

    Attributes:
        solved: Whether the exercise is solved on every process.
        text: Message for the learner.
        tried: Whether some process has a value to compare with the expected one.
    """

    solved: bool
    text: str
    tried: bool = False


def check(name: str, cluster: Cluster | None = None, *, show: bool = False) -> None:
    """Check an exercise, and print the value on each process and a hint.

    Args:
        name: Lesson and number of the exercise, such as `"01.1"`.
        cluster: Cluster on which it was solved; by default, the one that the magics drive.
        show: Whether to print the expected value on each process as well, if it is not solved.

    Raises:
        ClusterError: The exercise does not exist, or no cluster is running.
    """
    graded = grade(name, cluster or current_cluster(), show=show)
    if graded.solved:
        print(f"{TICK} {graded.text}\n{following(name)}")
        return
    print(shown(graded.text))
    if graded.tried and not show:
        print(f'mcnb.check("{name}", show=True) shows what is expected.')


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


def grade(name: str, cluster: Cluster, *, show: bool = False) -> Grade:
    """Check an exercise and return its grade.

    The learner's function may be called, on all processes at once. If the call fails, makes the
    processes diverge or does not end, the grade has the same report as for a cell.

    Args:
        name: Name of the exercise.
        cluster: Cluster on which it was solved.
        show: Whether the text has the expected values as well, if it is not solved.

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
    count = cluster.options.processes
    devices = cluster.options.devices_per_process
    text = f"Exercise {name} is not solved yet.\n"
    if not tried.ok:
        text += f"{tried.text()}mcnb used {exercise.variable} to check it, with the result above."
        if show:
            expected = {k: exercise.expected(k, count, devices) for k in range(count)}
            text += f"\n{_rows({}, expected, count).rstrip()}"
        return Grade(False, text)
    seen = cluster.pull(_SEEN)
    cluster.examine(f"del {_SEEN}", timeout=LIMIT_S)
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
    text += f"{_rows(seen, expected if show else {}, count)}Hint: {hint}"
    return Grade(False, text, tried=len(unset) < len(seen))


def look(name: str, variables: Mapping[str, Any]) -> object:
    """Describe the variable of an exercise on the calling process."""
    exercise = exercises()[name]
    value = variables.get(exercise.variable, ...)
    return UNSET if value is ... else exercise.look(value)


def _rows(seen: Mapping[int, object], expected: Mapping[int, object], count: int) -> str:
    """Return a line for each value of a learner's and each expected one, folded by process."""
    said = {
        k: [
            Line("stdout", f"{what}: {values[k]}\n")
            for what, values in (("yours", seen), ("expected", expected))
            if k in values
        ]
        for k in sorted({*seen, *expected})
    }
    return "".join(entry.text for entry in entries(fold(said), count))


def shown(text: str) -> str:
    """Wrap text at word boundaries, because a notebook breaks long lines within words.

    Example:
        >>> print(shown("[all 4] yours: " + "1, " * 30))
        [all 4] yours: 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    """
    return "\n".join(part for line in text.split("\n") for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    value = re.match(r"(?:\[[\d, all-]+\])? *(?=yours: |expected: )", line)
    if len(line) <= WIDTH or not (value or re.match(r"Hint: (?=\w)|mcnb used ", line)):
        return [line]
    return wrapped(line, "" if value is None else " " * (value.end() + 2))
