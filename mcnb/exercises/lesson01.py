"""The exercises of lesson 01, Hello, controllers."""

from __future__ import annotations

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for
from mcnb.exercises.looks import SeenArray


def _foreign_hint(seen: object, _: object, processes: int, devices: int) -> str:
    if seen == processes * devices:
        return "that is how many devices there are in all. Leave out those of this process."
    if seen == devices:
        return "those are the devices of this process. Count the others."
    return "jax.devices() lists all devices, jax.local_devices() those of this process."


def _squares(process: int, processes: int, devices: int) -> SeenArray:
    pieces = [((process, d), [[(process * devices + d) ** 2]]) for d in range(devices)]
    return SeenArray((processes, devices), processes > 1, tuple(pieces))


@hint_for(SeenArray, "build it with jax.make_array_from_single_device_arrays.")
def _squares_hint(seen: SeenArray, expected: SeenArray, processes: int, devices: int) -> str:
    if not seen.spans:
        return (
            "this array lies on one process alone. A global array is put together from the "
            "pieces of all processes: jax.make_array_from_single_device_arrays."
        )
    if seen.shape != expected.shape:
        return f"one element for each device makes an array of shape ({processes}, {devices})."
    return "a piece's value depends on which device it lies on, counted over all processes."


def _own_sum_hint(seen: object, _: object, processes: int, devices: int) -> str:
    count = processes * devices
    if seen == count * (count - 1) // 2:
        return "that is the sum of all elements. Add up those that lie on this process's devices."
    if isinstance(seen, str):
        return f"own_sum is one whole number on each process; here it is {seen}."
    return "whole.addressable_shards has the parts on this process's devices; part.data is one."


EXERCISES = {
    "01.1": Exercise(
        "foreign",
        looks.number,
        lambda _, processes, devices: (processes - 1) * devices,
        _foreign_hint,
    ),
    "01.2": Exercise("squares", looks.array, _squares, _squares_hint),
    "01.3": Exercise(
        "own_sum",
        looks.number,
        lambda k, _, devices: sum(range(k * devices, (k + 1) * devices)),
        _own_sum_hint,
    ),
}
