"""The exercises of lesson 07, Collectives.

Each is a function for `jax.shard_map`. It is tried out on numbers of our own, and judged by what it
gives back and by what its compiled program communicates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of, sharded
from mcnb.exercises.looks import SeenArray
from mcnb.exercises.predictions import Prediction

Values = np.ndarray[Any, Any]
# From the number of devices: a value, and which of its dimensions is split over all of them.
Given = Callable[[int], tuple[Values, int]]

_FLAT = ("d",)
_GRID = ("process", "local")
_NUMBER = 4  # bytes
_FUNCTION = "write a function that returns what a device should have afterwards, as an array."
_ALONE = "nothing is sent: a block gets to another device by a collective only."


@dataclass(frozen=True)
class SeenFunction:
    """What a function for `jax.shard_map` did.

    Attributes:
        result: What came out of it.
        axes: The axes of the mesh along which its program communicates.
        size: The bytes that each device sends in its collectives.
        by: Which collectives they are; empty where the exercise is to choose them.
    """

    result: SeenArray
    axes: tuple[str, ...]
    size: int
    by: str = ""

    def __str__(self) -> str:
        along = " and ".join(map(repr, self.axes))
        by = f" by {self.by}" if self.by else ""
        sent = (
            f"each device sends {self.size} bytes{by}, along {along}"
            if self.size
            else "nothing is sent"
        )
        return f"{self.result}; {sent}"


def _tried(
    axes: tuple[str, ...], *inputs: Given, prescribed: bool = False
) -> Callable[[Any], object]:
    """Return how a function is looked at: on a mesh with these axes, with these arguments.

    `prescribed` is whether the exercise says by which collectives.
    """

    @looks.function
    def look(function: Any) -> object:
        import jax
        from jax.sharding import PartitionSpec

        from mcnb.pictures.inspect import compiled, program_model
        from mcnb.pictures.program import axes_of, sent_bytes

        count, local = jax.device_count(), jax.local_device_count()
        sizes = (count,) if axes == _FLAT else (count // local, local)
        mesh = mesh_of(axes, sizes, explicit=True)
        values = [given(count) for given in inputs]
        specs = tuple(PartitionSpec(*(None,) * split, axes) for _, split in values)
        arrays = [
            sharded(value, mesh, *spec) for (value, _), spec in zip(values, specs, strict=True)
        ]
        program = jax.jit(
            jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(axes))
        )
        result = looks.array(program(*arrays))
        if not isinstance(result, SeenArray):
            return result
        uses = program_model(compiled(program, arrays)).uses
        named = dict(zip(axes, sizes, strict=True))
        along = {a for use in uses for a in axes_of(use.operation.groups or (), named) or ()}
        return SeenFunction(
            result,
            tuple(axis for axis in axes if axis in along),
            round(sent_bytes(uses)),
            " and ".join(sorted({use.operation.kind for use in uses})) if prescribed else "",
        )

    return look


def _dealt(
    value: Values, place: tuple[int, int, int], axes: tuple[str, ...], size: int
) -> SeenFunction:
    """Return the description of an array whose rows are dealt out to all devices in turn."""
    process, processes, devices = place
    each = len(value) // (processes * devices)
    starts = [each * (process * devices + d) for d in range(devices)]
    return SeenFunction(looks.rows(value, starts, each, processes), axes, size)


def _numbered(count: int) -> tuple[Values, int]:
    return np.arange(1, count + 1)[:, None] * 10 + np.arange(2), 0


def _swapped(process: int, processes: int, devices: int) -> SeenFunction:
    value = _numbered(processes * devices)[0].reshape(processes, devices, 2)[:, ::-1]
    return _dealt(value.reshape(-1, 2), (process, processes, devices), ("local",), 2 * _NUMBER)


@hint_for(SeenFunction, _FUNCTION)
def _swap_hint(seen: SeenFunction, expected: SeenFunction, *_: int) -> str:
    if not seen.size:
        return _ALONE
    if "process" in seen.axes:
        return "this sends between processes. The two devices of one process differ in 'local'."
    if seen.result == expected.result:
        return "right numbers, but more is sent than one block: which collective sends only that?"
    if any(not np.any(values) for _, values in seen.result.pieces):
        return "a device to which nobody sends has zeros: each of the two has to send to the other."
    return "each device should have the block of the other one, and nothing else."


# Multiples of the number of devices, so that the mean over some of them is a whole number.
def _uneven(count: int) -> tuple[Values, int]:
    return np.arange(count, dtype=np.float32)[:, None] ** 2 * count, 0


def _centred(process: int, processes: int, devices: int) -> SeenFunction:
    blocks = _uneven(processes * devices)[0].reshape(processes, devices, 1)
    value = (blocks - blocks.mean(axis=0)).reshape(-1, 1)
    all_reduce = 2 * (processes - 1) / processes
    sent = round(all_reduce * _NUMBER)
    return _dealt(value, (process, processes, devices), ("process",), sent)


@hint_for(SeenFunction, _FUNCTION)
def _centred_hint(seen: SeenFunction, expected: SeenFunction, *_: int) -> str:
    if not seen.size:
        return "nothing is sent: this is each block's own mean. It should be one over devices."
    if seen.result == expected.result:
        return "right numbers, but more is sent than a mean needs: which collective sends less?"
    if seen.axes == ("local",):
        return "this brings together the devices of one process. The mean is over processes."
    if seen.axes == _GRID:
        return "this brings together all devices. The mean is along one axis of the mesh only."
    return "the axis is right. From the block, subtract the mean, and return the difference."


def _matrix(count: int) -> tuple[Values, int]:
    return np.add.outer(np.arange(count), 2 * np.arange(2 * count)) % 7, 1


def _vector(count: int) -> tuple[Values, int]:
    return np.arange(2 * count), 0


def _product(process: int, processes: int, devices: int) -> SeenFunction:
    count = processes * devices
    value = _matrix(count)[0] @ _vector(count)[0]
    return _dealt(value, (process, processes, devices), _FLAT, (count - 1) * _NUMBER)


@hint_for(SeenFunction, _FUNCTION)
def _matvec_hint(seen: SeenFunction, expected: SeenFunction, *_: int) -> str:
    if not seen.size:
        return "nothing is sent: what a device can compute alone is one summand of the product."
    if seen.result.shape != expected.result.shape:
        return (
            f"together this has the shape {seen.result.shape}: a device should keep its own part "
            "of the sum, not all of it."
        )
    if seen.result != expected.result:
        return "each device multiplies what it has, and then all that they computed is added up."
    return "right numbers, but more is sent than needed: no device needs more than its own part."


def _tens(count: int) -> tuple[Values, int]:
    return 10 * np.arange(1, count + 1), 0


def _gathered(process: int, processes: int, devices: int) -> SeenFunction:
    count = processes * devices
    value = np.tile(_tens(count)[0], count)
    seen = _dealt(value, (process, processes, devices), _FLAT, (count - 1) * _NUMBER)
    return replace(seen, by="collective-permute" if count > 1 else "")


@hint_for(SeenFunction, _FUNCTION)
def _gather_hint(seen: SeenFunction, expected: SeenFunction, processes: int, devices: int) -> str:
    if not seen.size:
        return _ALONE
    if seen.by != expected.by:
        return "build it from jax.lax.ppermute and no other collective."
    if seen.result.shape != expected.result.shape:
        return f"each device should have {processes * devices} numbers, one from each device."
    if seen.result == expected.result:
        return "right numbers, but with more sending than needed: its own a device has already."
    if sorted(seen.result.pieces[0][1]) == sorted(expected.result.pieces[0][1]):
        return (
            "all are there, but not in the order of the devices: after s steps of the ring, whose "
            "number is it that comes to device jax.lax.axis_index('d')?"
        )
    return "every step of the ring brings another device's number: none is missing, none twice."


EXERCISES = {
    "07.1": Exercise("swap", _tried(_GRID, _numbered), _swapped, _swap_hint),
    "07.2": Exercise("centred", _tried(_GRID, _uneven), _centred, _centred_hint),
    "07.3": Exercise("matvec", _tried(_FLAT, _matrix, _vector), _product, _matvec_hint),
    "07.4": Exercise(
        "my_all_gather", _tried(_FLAT, _tens, prescribed=True), _gathered, _gather_hint
    ),
}

PREDICTIONS = {
    "07.a": Prediction(
        "What shape is printed, and how often on each process, which has two devices?",
        {
            "(8, 8), once": r"shape \(8, 8\)\n\Z",
            "(1, 8), once": r"\A[^\n]*shape \(1, 8\)\n\Z",
            "(1, 8), twice": r"shape \(1, 8\)\n[^\n]*shape \(1, 8\)\n\Z",
            "(2, 8), once": r"shape \(2, 8\)\n\Z",
        },
    ),
    "07.b": Prediction(
        "how many collectives has `ring_sum`, and which of the three sends the most?",
        {
            "1; psum sends the most": None,
            "7; ring_sum sends the most": r"ring_sum: 7 collectives, 224 B",
            "7; two_steps sends the most": None,
            "8; ring_sum sends the most": r"ring_sum: 8 collectives",
        },
    ),
    "07.c": Prediction(
        "which of the two sums sends data between processes?",
        {
            "in_process": r"in_process:[^:]*'local' +P0-3",
            "across": r"in_process:.*'local' +each process by itself.*across:.*'process' +P0-3",
            "Both": None,
            "None of them": r"across:.*'process' +each process by itself",
        },
    ),
    "07.d": Prediction("what is the sum of these ones?", number=r"Array\(\[(\d+)\."),
    "07.e": Prediction(
        "the rows differ; what happens with `out_specs=P()`?",
        {
            "The result is the first row": None,
            "The result differs between processes": None,
            "JAX raises an error before anything runs": "ValueError",
        },
    ),
    "07.f": Prediction(
        "what does device 0 get: its own number, a zero, or an error?",
        {
            "Its own number, 1": r"\[ *1 +1 ",
            "A zero": r"\[ *0 +1 ",
            "An error": "Error",
        },
    ),
    "07.g": Prediction(
        "only the first device reaches the sum. Does it wait?",
        {
            "Yes, until you stop the cell": "was interrupted",
            "Yes, until there is a verdict": "Processes diverged",
            "No: JAX raises an error while it traces the function": "TypeError",
            "No: it gets its own block": None,
        },
    ),
}
