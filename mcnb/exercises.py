"""The lessons' exercises, and their checker.

A learner solves an exercise in a `%%mcjax` cell, by setting a variable on every process, and then
asks for `mcnb.check("01.1")`. The checker only looks at what each process has itself: it launches
nothing that could wait for another process.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcnb.cluster import Cluster
from mcnb.current import current_cluster
from mcnb.errors import ClusterError
from mcnb.options import name_processes
from mcnb.report.fold import Line, fold
from mcnb.report.text import entries

UNSET = "not set yet"


@dataclass(frozen=True)
class Exercise:
    """An exercise.

    Attributes:
        variable: The variable that the learner sets.
        look: Describes the variable's value on one process, in plain values; runs there.
        expected: Returns the right description, from the process index, the number of processes
            and the number of devices per process.
        hint: Returns what to think about, from a wrong description, the right one and the numbers
            of processes and devices per process.
    """

    variable: str
    look: Callable[[Any], object]
    expected: Callable[[int, int, int], object]
    hint: Callable[[object, object, int, int], str]


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
        CellError: A process could not be looked at.
    """
    print(grade(name, cluster or current_cluster()).text)


def grade(name: str, cluster: Cluster) -> Grade:
    """Check an exercise and return what the checker found.

    Args:
        name: The exercise.
        cluster: The cluster that it was solved on.

    Raises:
        ClusterError: There is no such exercise, or the cluster does not run.
        CellError: A process could not be looked at.
    """
    exercise = EXERCISES.get(name)
    if exercise is None:
        raise ClusterError(
            f"There is no exercise {name!r}. Exercises: {', '.join(sorted(EXERCISES))}"
        )
    # __import__ leaves no name behind in the learner's namespace.
    seen = cluster.pull(f"__import__({__name__!r}, fromlist=['look']).look({name!r}, globals())")
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
    exercise = EXERCISES[name]
    value = variables.get(exercise.variable, ...)
    return UNSET if value is ... else exercise.look(value)


def _rows(seen: Mapping[int, object], expected: Mapping[int, object], count: int) -> str:
    said = {
        k: [Line("stdout", f"yours: {seen[k]}\n"), Line("stdout", f"expected: {expected[k]}\n")]
        for k in seen
    }
    return "".join(entry.text for entry in entries(fold(said), count))


def _number(value: Any) -> object:
    return int(value) if hasattr(value, "__index__") else f"{value!r}, which is no whole number"


def _foreign_hint(seen: object, _: object, processes: int, devices: int) -> str:
    if seen == processes * devices:
        return "that is how many devices there are in all. Leave out those of this process."
    if seen == devices:
        return "those are the devices of this process. Count the others."
    return "jax.devices() lists all devices, jax.local_devices() those of this process."


@dataclass(frozen=True)
class SeenArray:
    """A global array, as one process sees it.

    Attributes:
        shape: The whole array's shape.
        spans: Whether it lies on devices of several processes.
        pieces: The values of this process's pieces, by where each begins.
    """

    shape: tuple[int, ...]
    spans: bool
    pieces: tuple[tuple[tuple[int, ...], list[Any]], ...]

    def __str__(self) -> str:
        where = "spans processes" if self.spans else "lies on this process alone"
        pieces = ", ".join(f"{values} at {start}" for start, values in self.pieces)
        return f"shape {self.shape}, {where}, here {pieces}"


def _array(value: Any) -> object:
    jax = importlib.import_module("jax")
    if not isinstance(value, jax.Array):
        return f"a {type(value).__name__}, which is no jax.Array"
    pieces = [
        (tuple(part.start or 0 for part in shard.index), shard.data.tolist())
        for shard in value.addressable_shards
    ]
    return SeenArray(value.shape, not value.is_fully_addressable, tuple(sorted(pieces)))


def _squares(process: int, processes: int, devices: int) -> SeenArray:
    pieces = [((process, d), [[(process * devices + d) ** 2]]) for d in range(devices)]
    return SeenArray((processes, devices), processes > 1, tuple(pieces))


def _squares_hint(seen: object, expected: object, processes: int, devices: int) -> str:
    if not isinstance(seen, SeenArray) or not isinstance(expected, SeenArray):
        return "build it with jax.make_array_from_single_device_arrays."
    if not seen.spans:
        return (
            "this array lies on one process alone. A global array is put together from the "
            "pieces of all processes: jax.make_array_from_single_device_arrays."
        )
    if seen.shape != expected.shape:
        return f"one element for each device makes an array of shape ({processes}, {devices})."
    return "a piece's value depends on which device it lies on, counted over all processes."


EXERCISES = {
    "01.1": Exercise(
        variable="foreign",
        look=_number,
        expected=lambda _, processes, devices: (processes - 1) * devices,
        hint=_foreign_hint,
    ),
    "01.2": Exercise(
        variable="squares",
        look=_array,
        expected=_squares,
        hint=_squares_hint,
    ),
}
