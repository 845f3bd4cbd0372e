"""The exercises of lesson 05, Lockstep: functions that communicate, called on all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of, of_function, sharded
from mcnb.exercises.predictions import Prediction

NOTHING = "nothing"

_Numbers: TypeAlias = list[Any]
_AXES = ("process", "local")


def _numbers(value: Any) -> object:
    """Describe an array, a list or nothing, whatever is at hand of it without communication."""
    import jax

    if value is None:
        return NOTHING
    if not isinstance(value, (jax.Array, np.ndarray, list, tuple)):
        return looks.kind(value, "array")
    if isinstance(value, jax.Array) and not (
        value.is_fully_addressable or value.is_fully_replicated
    ):
        return "an array of which this process has only a part"
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.array("ragged")
    if array.dtype.kind not in "biuf":
        return looks.kind(value, "array of numbers")
    return array.tolist()


# 05.1: all communicate, process 0 returns.


def _rows(processes: int, devices: int) -> np.ndarray[Any, Any]:
    return np.arange(processes * devices).reshape(processes, devices)


@looks.function
def _report(report: Callable[..., Any]) -> object:
    import jax

    whole = _rows(jax.process_count(), jax.local_device_count())
    return _numbers(report(sharded(whole, mesh_of(_AXES), *_AXES)))


def _reported(process: int, processes: int, devices: int) -> object:
    return NOTHING if process else _rows(processes, devices).tolist()


@of_function
def _report_hint(seen: object, expected: object, processes: int, devices: int) -> str:
    if expected == NOTHING:
        return "only process 0 is to return the numbers, although all have to help it get them."
    if seen == NOTHING:
        return "process 0 is to return the numbers. All processes have to help it get them."
    if isinstance(seen, list) and np.size(seen) < processes * devices:
        return "these are this process's own numbers. The others have to send theirs."
    if isinstance(seen, list):
        return f"the array has shape ({processes}, {devices}), and so should what you return."
    return "three ways of seeing a global array are in the lesson. Two of them give all of it."


# 05.2: one order for all.


def _mine(process: int) -> dict[str, np.float32]:
    """Return a process's numbers; every other process has them in another order."""
    stats = {"loss": np.float32(process + 1), "norm": np.float32(10 * (process + 1))}
    return dict(reversed(stats.items())) if process % 2 else stats


@looks.function
def _means(means: Callable[..., Any]) -> object:
    import jax

    found = means(_mine(jax.process_index()))
    if not isinstance(found, dict):
        return looks.kind(found, "dictionary")
    return {str(name): looks.rounded(found[name]) for name in sorted(found, key=str)}


def _true_means(_: int, processes: int, __: int) -> object:
    mean = (processes + 1) / 2
    return {"loss": mean, "norm": 10 * mean}


@of_function
@hint_for(dict, "return a dictionary with the same names.")
def _means_hint(
    seen: dict[str, object], expected: dict[str, object], processes: int, _: int
) -> str:
    if set(seen) != set(expected):
        return f"the names are {' and '.join(expected)}."
    if any(isinstance(value, str) for value in seen.values()):
        return "one number for each name: the mean of what was gathered."
    if seen in [_mine(k) for k in range(processes)]:
        return "these are one process's own numbers; take the mean over all processes."
    return (
        "what was gathered under one name came from both. Does every process come to the names in "
        "the same order?"
    )


# 05.3: one shape for all.


def _tokens(process: int) -> list[int]:
    """Return a process's tokens, of which the first is 0: 2, 4, 6, 3 of them, and so on."""
    return [10 * process + i if i else 0 for i in range(2 + 2 * process % 5)]


@looks.function
def _together(together: Callable[..., Any]) -> object:
    import jax

    return _numbers(together(np.array(_tokens(jax.process_index()))))


def _all_tokens(_: int, processes: int, __: int) -> object:
    return [token for k in range(processes) for token in _tokens(k)]


@of_function
@hint_for(list, "return an array of numbers.")
def _together_hint(seen: _Numbers, expected: _Numbers, processes: int, _: int) -> str:
    if np.ndim(seen) != 1:
        return "join the rows to one, each without its padding."
    if sorted(seen) == sorted(expected):
        return "these are the right tokens. Begin with those of process 0."
    if seen == [token for token in expected if token]:
        return "a 0 may be a token, so it can't tell you what is padding. What can?"
    if len(seen) < len(expected):
        return f"some tokens are lost. All that the {processes} processes have are to be there."
    return "what was added to make the shapes equal has to go again. How much was it on each?"


# 05.4: one number of steps for all.


def _batches(process: int) -> list[int]:
    """Return a process's batches: 5, 4, 3, 6 of them, and so on."""
    return [(process + 1) * (i + 1) for i in range(3 + (2 - process) % 4)]


@looks.function
def _train(train: Callable[..., Any]) -> object:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    shape = (jax.process_count(),)
    sharding = NamedSharding(mesh_of(_AXES), PartitionSpec("process"))

    @jax.jit
    def step(parts: jax.Array) -> jax.Array:
        return parts.sum()

    def take(batch: int) -> int:
        mine = np.array([batch])
        return int(step(jax.make_array_from_callback(shape, sharding, lambda _: mine)))

    return _numbers(train(take, iter(_batches(jax.process_index()))))


def _trained(_: int, processes: int, __: int) -> object:
    return [sum(batch) for batch in zip(*map(_batches, range(processes)), strict=False)]


@of_function
@hint_for(list, "return a list with the result of each step.")
def _train_hint(seen: _Numbers, expected: _Numbers, *_: int) -> str:
    if len(seen) > len(expected):
        return "stop when the first process has no batch left; there is nothing to make up for it."
    if len(seen) < len(expected):
        return "every process has a batch for one step more. None may be lost."
    return "in each step, every process passes on its next batch, beginning with its first."


EXERCISES = {
    "05.1": Exercise("report", _report, _reported, _report_hint),
    "05.2": Exercise("means", _means, _true_means, _means_hint),
    "05.3": Exercise("together", _together, _all_tokens, _together_hint),
    "05.4": Exercise("train", _train, _trained, _train_hint),
}

PREDICTIONS = {
    "05.a": Prediction(
        "what happens after the same mistake without a check?",
        {
            "Process 0 prints the sum": r"^\[0\] \d",
            "Process 0 waits until mcnb aborts the computation": "the processes hung until",
            "JAX raises an error at once": r"^\[0\] \w+Error",
        },
    ),
    "05.b": Prediction(
        "what does this cell show?",
        {
            "All numbers, because print gathers them": r"\[\[",
            "An error, because no process has all numbers": "Error",
            "Only the shape and the type": r"Array\(shape=",
        },
    ),
    "05.c": Prediction(
        "does the cell hang or crash, or does it print numbers, and are they right?",
        {
            "It hangs": "processes hung until mcnb aborted",
            "A process crashes": "was killed by",
            "It prints numbers, which may be wrong": "they ran and",
            "It prints the right numbers": None,
        },
    ),
    "05.d": Prediction(
        "which verdict do you get for a loop over this set that gathers one number for each layer?",
        {
            "The launches do not match": "their launches do not match",
            "A participant is missing": "a participant is missing",
            "None, and the numbers are wrong": r"8 \[8\. 0\. 0\. 0\.\]",
        },
    ),
    "05.e": Prediction(
        "which process diverges?",
        {
            "Process 0, with the fewest tokens": r"^\[0\] +is waiting",
            "Process 3, because of its padding": r"^\[3\] +is waiting",
            "All, because all have different numbers of tokens": r"^\[1\] +is waiting",
            "None, because all numbers are padded": r"^\[all",
        },
    ),
}
