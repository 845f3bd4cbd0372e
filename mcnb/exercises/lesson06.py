"""The exercises of lesson 06, Assembling arrays.

Their arrays have two rows for each process and one column for each, so that every mesh of
processes by devices that divides them is served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of
from mcnb.exercises.looks import SeenArray
from mcnb.exercises.predictions import Prediction

Bounds: TypeAlias = tuple[tuple[int, int], tuple[int, int]]
Table: TypeAlias = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class SeenAssembly:
    """An array, or what came instead, and how many numbers this process read for it."""

    array: object
    read: int

    def __str__(self) -> str:
        return f"{self.read} numbers read; {self.array}"


def _whole(processes: int) -> Any:
    return np.arange(2 * processes * processes, dtype=np.int32).reshape(2 * processes, processes)


def _sharding() -> Any:
    from jax.sharding import NamedSharding, PartitionSpec

    return NamedSharding(mesh_of(("a", "b"), explicit=True), PartitionSpec("a"))


def _held(process: int, processes: int, devices: int) -> Bounds:
    return (0, 2 * processes // devices), (process, process + 1)


@hint_for(((object, object),) * 2, "two pairs of whole numbers are wanted: rows, then columns.")
def _held_hint(
    seen: tuple[tuple[object, object], ...], expected: Bounds, processes: int, devices: int
) -> str:
    straight = 2, processes // devices
    sizes = tuple(b - a if isinstance(a, int) and isinstance(b, int) else None for a, b in seen)
    if sizes == straight:
        return 'that is a piece of P("a", "b"). Here the rows are cut by the other axis.'
    if seen[0] != expected[0]:
        return "rows are cut along 'b', which counts the devices of one process."
    return "columns are cut along 'a', which counts the processes: which of them is this one?"


def _feed(process: int, processes: int, _: int) -> Table:
    return _lists(_whole(processes)[process::processes])


def _lists(value: Any) -> Table:
    return tuple(tuple(row) for row in value.tolist())


def _feed_look(value: Any) -> object:
    try:
        found = np.asarray(value)
    except (RuntimeError, TypeError, ValueError):  # a global array, or rows of different lengths
        return looks.kind(value, "table of numbers")
    if found.ndim != 2 or found.dtype.kind not in "biuf":
        return looks.kind(value, "table of numbers")
    return _lists(found)


@hint_for(tuple, "an array of rows of whole is wanted.")
def _feed_hint(seen: Table, expected: Table, processes: int, devices: int) -> str:
    if len(seen) != len(expected):
        return f"{devices} devices with one row each: {len(expected)} rows from this process."
    if sorted(seen) == sorted(expected):
        return "these rows are the right ones, in the wrong order."
    if all(row in _lists(_whole(processes)) for row in seen):
        return (
            'mcnb.show(NamedSharding(mesh, P(("b", "a"))), (8, 4)) draws which rows lie here: they '
            "are no neighbours."
        )
    return "each row has to be a row of whole, with all its columns."


@looks.function
def _spread_look(spread: Any) -> object:
    import jax

    whole = _whole(jax.process_count())
    return looks.array(spread(whole if jax.process_index() == 0 else -whole - 1, _sharding()))


def _rows(process: int, processes: int, devices: int) -> SeenArray:
    return looks.rows(_whole(processes), [2 * process] * devices, 2, processes)


def _array_hint(seen: object, expected: SeenArray) -> str:
    if not isinstance(seen, SeenArray):
        return "the function has to return a global array."
    if seen.shape != expected.shape:
        return "the global array has the shape of the whole, on every process."
    if not seen.spans:
        return "this array lies on one process alone. Is it laid out with the sharding given?"
    if [start for start, _ in seen.pieces] != [start for start, _ in expected.pieces]:
        return "the pieces lie elsewhere than the sharding says."
    return "a shard does not hold what its index says."


def _spread_hint(seen: object, expected: SeenArray, *_: int) -> str:
    if isinstance(seen, SeenArray) and any((np.asarray(own) < 0).any() for _, own in seen.pieces):
        return "here are numbers that this process was given, not those of process 0."
    return _array_hint(seen, expected)


@looks.function
def _assemble_look(assemble: Any) -> object:
    import jax

    whole = _whole(jax.process_count())
    sizes: list[int] = []

    def load(index: Sequence[slice]) -> Any:
        part = whole[tuple(index)]
        sizes.append(int(part.size))
        return part.copy()

    array = looks.array(assemble(load, whole.shape, _sharding()))
    return SeenAssembly(array, sum(sizes))


def _assembled(process: int, processes: int, devices: int) -> SeenAssembly:
    return SeenAssembly(_rows(process, processes, devices), 2 * processes)


@hint_for(SeenAssembly, "define a function, assemble(load, shape, sharding).")
def _assemble_hint(seen: SeenAssembly, expected: SeenAssembly, processes: int, devices: int) -> str:
    if isinstance(expected.array, SeenArray) and seen.array != expected.array:
        return _array_hint(seen.array, expected.array)
    if seen.read >= 2 * processes * processes:
        return "this process has read the whole, and its devices hold only a part of it."
    if seen.read == devices * expected.read:
        return (
            "a callback is called once for each device, though here both ask for the same. "
            "Keep what you have read; slices have .start and .stop."
        )
    return "count what load is asked for on this process: each number once."


EXERCISES = {
    "06.1": Exercise("held", looks.items(looks.items(looks.number)), _held, _held_hint),
    "06.2": Exercise("feed", _feed_look, _feed, _feed_hint),
    "06.3": Exercise("spread", _spread_look, _rows, _spread_hint),
    "06.4": Exercise("assemble", _assemble_look, _assembled, _assemble_hint),
}

PREDICTIONS = {
    "06.a": Prediction(
        "what is the shape of the global array?",
        {
            "(2, 4)": r"^\[all \d+\] \(2, 4\)",
            "(4, 8)": r"^\[all \d+\] \(4, 8\)",
            "(8, 4)": r"^\[all \d+\] \(8, 4\)",
            "(8, 8)": r"^\[all \d+\] \(8, 8\)",
        },
    ),
    "06.b": Prediction(
        "how many bytes have to be sent between processes to get the layout `tiled`?",
        number=r"(\d+) B have to go between processes",
    ),
    "06.c": Prediction(
        "how often is the function called if both devices of a process hold the same two rows?",
        {
            "Once; once, too, if each device holds all": r"'a',?\) 1 calls.*P\(\) 1 calls",
            "Twice; once if each device holds all": r"'a',?\) 2 calls.*P\(\) 1 calls",
            "Twice; twice, too, if each device holds all": r"'a',?\) 2 calls.*P\(\) 2 calls",
        },
    ),
    "06.d": Prediction(
        "this takes two changes of layout. Which of them sends data between processes?",
        {
            "The first one": (r"^1 [^\n]*P0-3[^\n]*\n2 [^\n]*each process by itself"),
            "The second one": (r"^1 [^\n]*each process by itself[^\n]*\n2 [^\n]*P0-3"),
            "Both": r"^1 [^\n]*P0-3[^\n]*\n2 [^\n]*P0-3",
            "None": r"^1 [^\n]*each process by itself[^\n]*\n2 [^\n]*each process by itself",
        },
    ),
    "06.e": Prediction(
        "is there an error?",
        {
            "Yes, from the function": None,
            "Yes, a verdict": "Processes diverged",
            "No, and the array is right": r"^\[all \d+\] True",
            "No, but the array is wrong": r"^\[all \d+\] False",
        },
    ),
    "06.f": Prediction(
        "what is the sum on each process, and who notices?",
        {
            "0, 32, 64 and 96; mcnb adds a note": r"^\[0\] +0\n.*^\[3\] +96\n.*^Note: ",
            "192 on every process; nobody": r"^\[all \d+\] 192",
            "0, 32, 64 and 96; JAX raises an error": None,
            "0 on every process; nobody": r"^\[all \d+\] 0",
        },
    ),
}
