"""The exercises of lesson 03, Shardings.

Its mesh has a row for each process along 'a', and a column for each of its devices along 'b'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for
from mcnb.exercises.looks import SeenSharding
from mcnb.exercises.predictions import Prediction


@dataclass(frozen=True)
class SeenKept:
    """An array's copies, and how many bytes the learner says that they take.

    Attributes:
        dtype: The array's type.
        shape: The whole array's shape.
        devices: On how many devices it lies.
        on_each: How many elements each of this process's devices holds; the most of them.
        here: How many different elements this process's devices hold together.
        total: How many bytes there are on all devices, as the learner says.
    """

    dtype: str
    shape: tuple[int, ...]
    devices: int
    on_each: int
    here: int
    total: object

    def __str__(self) -> str:
        return (
            f"{self.dtype}{list(self.shape)} on {self.devices} devices, {self.on_each} of "
            f"{math.prod(self.shape)} elements on each and {self.here} on this process; "
            f"{self.total} bytes in all"
        )


def _shapes(_: int, processes: int, devices: int) -> tuple[tuple[int, int], ...]:
    return (
        (16 // processes, 24 // devices),
        (16, 24 // processes),
        (16 // (processes * devices), 24),
        (16, 24),
    )


@hint_for(tuple, "set it to a list of four shapes, each a tuple of two numbers.")
def _shapes_hint(seen: tuple[object, ...], expected: tuple[object, ...], *_: int) -> str:
    if len(seen) != len(expected):
        return "there are four layouts, so it takes four shapes."
    about = (
        "the first entry of a spec is about dimension 0, the second about dimension 1.",
        "None leaves a dimension whole, and the other is split over 'a'.",
        "a dimension that is split over two axes is in as many parts as both make together.",
        "an axis that is not named splits nothing.",
    )
    wrong = next(i for i, shape in enumerate(expected) if seen[i] != shape)
    return f"look at number {wrong + 1} again: {about[wrong]}"


def _part(length: int, index: int, count: int) -> tuple[int, int]:
    return length // count * index, length // count * (index + 1)


def _bounds(process: int, processes: int, devices: int) -> tuple[object, object]:
    return _part(24, devices - 1, devices), _part(12, process, processes)


@hint_for(((object, object),) * 2, "set it to two pairs, (first row, end) and (first column, end).")
def _bounds_hint(
    seen: tuple[object, object], expected: tuple[object, object], processes: int, devices: int
) -> str:
    every = range(processes)
    if seen in [(_part(24, k, processes), _part(12, devices - 1, devices)) for k in every]:
        return "that is P('a', 'b'). Here 'b' splits the rows, and 'a' the columns."
    if seen in [_bounds(k, processes, devices) for k in every]:
        return "that is right for another process: jax.process_index() says which this is."
    if seen[1] == expected[1]:
        return "the columns are right. The last device is the last along 'b': which rows are those?"
    return "along 'b' stand the devices of one process, along 'a' the processes."


def _striped(process: int, processes: int, devices: int) -> SeenSharding:
    width = 16 // (processes * devices)
    starts = [width * (device * processes + process) for device in range(devices)]
    regions = tuple(((0, 4), (start, start + width)) for start in starts)
    return SeenSharding((4, 16), regions, 1)


@hint_for(
    SeenSharding,
    "make an array, for instance with jax.device_put of a NumPy array and a sharding.",
)
def _striped_hint(seen: SeenSharding, expected: SeenSharding, *_: int) -> str:
    if seen.shape != expected.shape:
        return "the whole array has 4 rows and 16 columns."
    if seen.copies > 1:
        return "no part of the picture lies on two devices: which axis is missing in the spec?"
    if any(region[0] != (0, 4) for region in seen.regions):
        return "dimension 0 is whole in the picture: what does a spec say for that?"
    if sorted(map(_widths, seen.regions)) == sorted(map(_widths, expected.regions)):
        return (
            "the parts are right, their order is not. From left to right, does the process "
            "change faster in the picture, or the device of a process?"
        )
    return "the columns are in as many parts as there are devices: both axes split them."


def _widths(region: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    return tuple(end - begin for begin, end in region)


def _look_kept(value: Any) -> object:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return looks.kind(value, "pair of an array and a number")
    array, total = value
    seen = looks.sharding(array)
    if not isinstance(seen, SeenSharding):
        return seen
    sizes = {region: math.prod(_widths(region)) for region in seen.regions}
    return SeenKept(
        str(array.dtype),
        seen.shape,
        len(array.sharding.device_set),
        max(sizes.values(), default=0),
        sum(sizes.values()),
        looks.number(total),
    )


def _kept(_: int, processes: int, devices: int) -> SeenKept:
    size = 16 * 8
    return SeenKept(
        "float32", (16, 8), processes * devices, size // devices, size, 4 * size * processes
    )


@hint_for(SeenKept, "set it to a pair: the array first, then the number of bytes.")
def _kept_hint(seen: SeenKept, expected: SeenKept, *_: int) -> str:
    if (seen.dtype, seen.shape) != (expected.dtype, expected.shape):
        return f"the array is to be {expected.dtype} of shape {expected.shape}."
    if seen.devices != expected.devices:
        return "place it on all devices: use a mesh of all of them."
    if seen.on_each > expected.on_each:
        return "a device holds too much: split a dimension over the devices of a process."
    if seen.here < expected.here:
        return "a process lacks a part: do not split over the axis that the processes stand along."
    if seen.total == math.prod(expected.shape) * 4:
        return "the layout is right. That is nbytes, which counts each element once; copies count."
    return "the layout is right. How many bytes lie on one device, and on how many devices?"


EXERCISES = {
    "03.1": Exercise("shapes", looks.items(looks.items(looks.number)), _shapes, _shapes_hint),
    "03.2": Exercise("bounds", looks.items(looks.items(looks.number)), _bounds, _bounds_hint),
    "03.3": Exercise("striped", looks.sharding, _striped, _striped_hint),
    "03.4": Exercise("kept", _look_kept, _kept, _kept_hint),
}

PREDICTIONS = {
    "03.a": Prediction(
        "how many rows and columns does each device hold, and which are those of `P2.1`?",
        {
            "2 rows and 4 columns; rows 4:6": None,
            "2 rows and 2 columns; rows 2:4, columns 0:2": None,
            "2 rows and 2 columns; rows 4:6, columns 2:4": r"2:4\n.*^4:6 │ P2\.0 │ P2\.1 │",
            "4 rows and 1 column; rows 4:8, column 2": r"^4:8 .*│ P2\.1 │",
        },
    ),
    "03.b": Prediction(
        "what shape do the shards have, and what does process 2 hold?",
        {
            "(4, 1); process 2 holds a column": r"│ P2\.0 │ P3\.0 │\n.*│ P2\.1 │ P3\.1 │.*\[4,1\]",
            "(4, 1); process 2 holds a row": None,
            "(2, 2); process 2 holds two rows": r"│ P2\.0 │ P2\.1 │.*\[2,2\]",
        },
    ),
    "03.c": Prediction(
        "What do the remaining four devices hold?",
        {
            "Nothing": r"On 4 devices",
            "Other columns of the four parts": None,
            "Copies of the four parts": r"│ P0\.0 P0\.1 │.*each part lies on 2 devices",
        },
    ),
    "03.d": Prediction(
        'do `P("a")` and `P("a", None)` place the array in the same way, and is `P("a") == '
        'P("a", None)`?',
        {
            "The same layout, and the specs are equal": "^[^\n]*True True$",
            "The same layout, but the specs are not equal": "^[^\n]*False True$",
            "Different layouts, and the specs are not equal": "^[^\n]*False False$",
        },
    ),
    "03.e": Prediction(
        "how many copies are there now, and on which processes?",
        {
            "Two, on each of two processes": "each part lies on 2 devices",
            "Four, one on each process": r"│ P0\.0 │ P0\.1 │\n│ P1\.0 │.*lies on 4 devices",
            "Four, all on one process": None,
            "Eight, one on each device": "each device holds all of it",
        },
    ),
    "03.f": Prediction(
        "How many does each device hold with an empty spec?", number=r"of (\d+) B on each"
    ),
    "03.g": Prediction(
        "which device holds row 1?",
        {
            "P0.0": r"^1:2 │ P0\.0 │",
            "P1.0": r"^1:2 │ P1\.0 │",
            "P0.1": r"^1:2 │ P0\.1 │",
            "P1.1": r"^1:2 │ P1\.1 │",
        },
    ),
    "03.h": Prediction(
        "do the four processes print the same numbers?",
        {
            "Yes": r"^\[all \d+\] \d+ \d+ ",
            "No: the number of addressable devices differs": r"^\[0\] \d+ \d+ ",
            "No: process 0 has all of the devices": None,
        },
    ),
    "03.i": Prediction(
        "how many pictures does the next cell draw?",
        {
            "One": r"^\[all \d+\]\s+float32",
            "Two": None,
            "Four": r"^\[0\]\s+float32.*^\[1\]\s+float32.*^\[2\]\s+float32.*^\[3\]\s+float32",
            "Eight": None,
        },
    ),
    "03.j": Prediction(
        "How many bytes do the shards of one process have together?",
        number=r"^\[all \d+\] \d+ (\d+)$",
    ),
    "03.k": Prediction(
        'from `P("a", "b")` to `P("b", "a")`, how many bytes stay on their devices?',
        number=r"; (\d+) B stay where they are",
    ),
    "03.l": Prediction(
        "**Predict** how many bytes are sent between processes.",
        number=r"(\d+) B have to go between processes",
    ),
}
