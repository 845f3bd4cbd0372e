"""The exercises of lesson 01, Hello, controllers."""

from __future__ import annotations

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for
from mcnb.exercises.looks import SeenArray
from mcnb.exercises.predictions import Prediction


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

PREDICTIONS = {
    "01.a": Prediction(
        "How many lines will you see?",
        {
            "Four: each process prints one": r"^\[0\] there are",
            "One: identical output is shown once": r"^\[all \d+\] there are",
            "None: only the notebook kernel can print": None,
        },
    ),
    "01.b": Prediction(
        "what are the two numbers, and is each of them the same on every process?",
        {
            "2 and 2, on every process": r"^\[all \d+\] \(2, 2\)",
            "2 and 8, on every process": r"^\[all \d+\] \(2, 8\)",
            "8 and 8, on every process": r"^\[all \d+\] \(8, 8\)",
            "The first one differs between processes": r"^\[0\] \(",
        },
    ),
    "01.c": Prediction(
        "which numbers does process 1 see?",
        {
            "All eight": r"│ +0 +│ +1 +│",
            "The 0 and the 1": None,
            "The 2 and the 3, on its own devices": r"│ elsewhere │.*│ +2 +│ +3 +│",
            "None of them": None,
        },
    ),
    "01.d": Prediction(
        "Does each process print the sum of its own two, or does only one process know the total, "
        "or do all of them?",
        {
            "Each prints the sum of its own two": r"^\[0\] the sum.*^\[1\] the sum",
            "Only one process knows the total": r"\A\[\d\] the sum[^\n]*\n\Z",
            "All processes print the total": r"^\[all \d+\] the sum",
        },
    ),
    "01.e": Prediction(
        "What happens if only process 0 reaches that line, because one printed line is enough?",
        {
            "Process 0 prints the sum": r"^\[0\] \d",
            "The cell hangs until you stop it": "The cell was interrupted",
            "Process 0 prints the sum of its own two numbers": None,
            "The cell fails, and says which process waits for which others": "is missing.*waiting",
        },
    ),
}
