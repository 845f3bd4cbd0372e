"""The exercises of lesson 11, Leaving the laptop."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcnb._text import size
from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of, of_function
from mcnb.exercises.predictions import Prediction

# 11.1: tasks of Slurm's for hosts with several GPUs each.
HOSTS, GPUS = 3, 4
PER_GPU, PER_HOST = (GPUS, HOSTS * GPUS, 1), (1, HOSTS, GPUS)


@hint_for(
    ((int, int, int),) * 2,
    "two tuples of three whole numbers are wanted: first a process for each GPU.",
)
def _plans_hint(seen: tuple[tuple[int, int, int], tuple[int, int, int]], *_: object) -> str:
    first, second = seen
    if seen == (PER_HOST, PER_GPU):
        return "both are right, in the other order: first a process for each GPU."
    for plan, name in ((first, "first"), (second, "second")):
        tasks, processes, devices = plan
        if processes * devices != HOSTS * GPUS:
            return f"in the {name} plan, processes times devices are not all the GPUs there are."
        if tasks * HOSTS != processes:
            return (
                f"in the {name} plan, so many tasks on each host do not make so many processes. "
                "--ntasks-per-node counts those of one host."
            )
    if first[2] != 1:
        return "in the first plan, each process has one GPU."
    return "in the second plan, a process has all the GPUs of its host."


# 11.2: a launcher that JAX does not know.
_SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
_OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.0.0.1:1024",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
_TORCHRUN = {
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "WORLD_SIZE": "6",
    "RANK": "4",
    "LOCAL_RANK": "1",
}
UNDER = {"torchrun": _TORCHRUN, "Slurm": _SLURM, "Open MPI": _OPEN_MPI}
_PARAMETERS = ("coordinator_address", "num_processes", "process_id")


@dataclass(frozen=True)
class SeenJoin:
    """Arguments of a function's calls of `initialize`, by launcher."""

    calls: tuple[tuple[str, tuple[tuple[tuple[str, object], ...], ...]], ...]

    def __str__(self) -> str:
        return "; ".join(
            f"under {name} {' and '.join(map(_shown, calls)) or 'no call'}"
            for name, calls in self.calls
        )


def _shown(arguments: tuple[tuple[str, object], ...]) -> str:
    return f"initialize({', '.join(f'{name}={value!r}' for name, value in arguments)})"


@looks.function
def _join_look(join: Any) -> object:
    found = []
    for name, environment in UNDER.items():
        calls: list[tuple[tuple[str, object], ...]] = []
        join(dict(environment), _recorder(calls))
        found.append((name, tuple(calls)))
    return SeenJoin(tuple(found))


def _recorder(calls: list[tuple[tuple[str, object], ...]]) -> Callable[..., None]:
    def initialize(
        coordinator_address: Any = None,
        num_processes: Any = None,
        process_id: Any = None,
        local_device_ids: Any = None,
        **more: Any,
    ) -> None:
        given = (coordinator_address, num_processes, process_id)
        arguments = dict(zip(_PARAMETERS, given, strict=True))
        arguments |= {"local_device_ids": local_device_ids} | more
        calls.append(tuple((k, v) for k, v in arguments.items() if v is not None))

    return initialize


def _join(*_: int) -> SeenJoin:
    arguments = zip(_PARAMETERS, ("node1:29500", 6, 4), strict=True)
    return SeenJoin((("torchrun", (tuple(arguments),)), ("Slurm", ((),)), ("Open MPI", ((),))))


@of_function
@hint_for(SeenJoin, "define a function of two arguments.")
def _join_hint(seen: SeenJoin, expected: SeenJoin, *_: int) -> str:
    for (name, calls), (_name, wanted) in zip(seen.calls, expected.calls, strict=True):
        if len(calls) != 1:
            return f"under {name}, initialize is to be called once."
        if calls == wanted:
            continue
        if not wanted[0]:
            return f"JAX knows {name}: leave all arguments out there."
        return _of_torchrun(dict(calls[0]))
    return ""


def _of_torchrun(given: Mapping[str, object]) -> str:
    if not given:
        return "JAX does not know torchrun: there, it needs an address and two numbers."
    address, count, process = (given.get(name) for name in _PARAMETERS)
    if not isinstance(count, int) or not isinstance(process, int):
        return "environment variables are strings; convert the two numbers to whole numbers."
    if process == int(_TORCHRUN["LOCAL_RANK"]):
        return "LOCAL_RANK counts the processes of one host. Which one is it of all?"
    if address != "node1:29500":
        return "the address is a host and a port, with a colon between them."
    if set(given) != set(_PARAMETERS):
        return "three arguments are enough."
    return "the second argument is how many processes there are, the third which one this is."


# 11.3: parameters that have to fit into a chip.
MESH = (2, 4)
CHIP = 16e9
SHAPES = {
    "embed": (50257, 8192),
    "up": (48, 8192, 32768),
    "down": (48, 32768, 8192),
}
_BYTES = 2  # of a bfloat16


@dataclass(frozen=True)
class SeenPlaces:
    """By parameter, its bytes on a device and its copies, or why it can't be placed like that."""

    each: tuple[tuple[str, tuple[int, int] | str], ...]

    @property
    def total(self) -> int:
        """The bytes of all of them on a device."""
        return sum(told[0] for _, told in self.each if isinstance(told, tuple))

    def __str__(self) -> str:
        told = ", ".join(
            f"{name} {place}" if isinstance(place, str) else _copies(name, *place)
            for name, place in self.each
        )
        return f"{size(self.total)} on each device: {told}"


def _copies(name: str, count: int, copies: int) -> str:
    return f"{name} {size(count)}" + (f" ({copies} copies)" if copies > 1 else "")


@looks.function
def _place_look(place: Any) -> object:
    import jax

    mesh = mesh_of(("data", "model"), MESH)
    shapes = {name: jax.ShapeDtypeStruct(shape, "bfloat16") for name, shape in SHAPES.items()}
    places = place(shapes, mesh)
    if not isinstance(places, dict) or set(places) != set(SHAPES):
        return looks.kind(places, "dictionary with the names of shapes")
    return SeenPlaces(
        tuple((name, _place(places[name], shape, mesh.size)) for name, shape in SHAPES.items())
    )


def _place(place: Any, shape: tuple[int, ...], devices: int) -> tuple[int, int] | str:
    import jax

    if not isinstance(place, jax.sharding.Sharding):
        return f"has {looks.kind(place, 'sharding')}"
    if len(place.device_set) != devices:
        return f"lies on {len(place.device_set)} of {devices} devices"
    if len(getattr(place, "spec", ())) > len(shape):
        return f"has {len(shape)} dimensions, fewer than its spec names"
    try:
        own = math.prod(place.shard_shape(shape))
    except ValueError:
        return f"of shape {shape} can't be split evenly so"
    return own * _BYTES, round(own * devices / math.prod(shape))


def _places(*_: int) -> SeenPlaces:
    copies, parts = MESH
    return SeenPlaces(
        tuple((name, (math.prod(s) * _BYTES // parts, copies)) for name, s in SHAPES.items())
    )


@of_function
@hint_for(SeenPlaces, "return a dictionary with a NamedSharding for each name in shapes.")
def _place_hint(seen: SeenPlaces, *_: object) -> str:
    for name, told in seen.each:
        if isinstance(told, str):
            if "evenly" in told:
                rows = SHAPES[name][0]
                return (
                    f"{rows} can't be cut into 2 or 4 equal parts. Which dimension of {name} can?"
                )
            if "dimensions" in told:
                return f"{name} has fewer dimensions than others, so its spec is shorter."
            return f"{name}: a NamedSharding over the mesh that is given is wanted."
    if seen.total > CHIP:
        return (
            f"that is more than the {size(int(CHIP))} of a chip. Which axis cuts into more parts?"
        )
    if any(isinstance(told, tuple) and told[1] < MESH[0] for _, told in seen.each):
        return "it fits, but leave the axis 'data' to the batch: parameters are copied along it."
    return "it fits, but split every array, so that more is left for the rest."


EXERCISES = {
    "11.1": Exercise(
        "plans", looks.items(looks.items(looks.number)), lambda *_: (PER_GPU, PER_HOST), _plans_hint
    ),
    "11.2": Exercise("join", _join_look, _join, _join_hint),
    "11.3": Exercise("place", _place_look, _places, _place_hint),
}

PREDICTIONS = {
    "11.a": Prediction(
        "does the verdict depend on what started the processes?",
        {
            "Yes: with mpirun, the program hangs": "was interrupted",
            "Yes: it can't say the line any more": r"a participant is missing(?!.*line 3)",
            "No: it is the same": r"a participant is missing.*^\[3\] +is waiting in max, line 3",
        },
    ),
    "11.b": Prediction(
        "What shape does their mesh have?",
        {
            "1 by 8": r"'across': 1, 'inside': 8",
            "8 by 1": r"'across': 8, 'inside': 1",
            "4 by 2": r"'across': 4, 'inside': 2",
            "2 by 4": r"'across': 2, 'inside': 4",
        },
    ),
}
