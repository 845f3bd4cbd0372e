"""The exercises of lesson 02, Meshes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for
from mcnb.exercises.predictions import Prediction

SCORES = "float32[8@row,8@col], here with the values 4.0"


def _company_look(value: Any) -> object:
    seen = looks.items(looks.number)(value)
    if isinstance(seen, tuple) and all(isinstance(item, int) for item in seen):
        return tuple(sorted(seen))
    return seen


def _company(process: int, processes: int, _: int) -> tuple[int, ...]:
    half = max(processes // 2, 1)
    return tuple(sorted({process % half, process % half + (processes > 1) * half}))


@hint_for(tuple, "company is a list of process indices.")
def _company_hint(seen: tuple[object, ...], _: object, processes: int, __: int) -> str:
    half = processes // 2
    if len(seen) == 1:
        return (
            "a process is in its own company, and along 'a' it is not alone. "
            "Which box of the mesh is one step further along 'a'?"
        )
    if seen == tuple(range(processes)):
        return "all of them meet in a sum along all axes. Along 'a', only the first index changes."
    if seen in (tuple(range(half)), tuple(range(half, processes))):
        return "those meet along 'b'. Along 'a', the position along 'b' and 'c' stays."
    return (
        "draw it with mcnb.show(cube), find this process's boxes, and go along 'a' from there: "
        "only the first index changes."
    )


@dataclass(frozen=True)
class SeenMesh:
    """A mesh: its axes' names and sizes, and its devices' names, in order."""

    axes: tuple[tuple[str, int], ...]
    devices: tuple[str, ...]

    def __str__(self) -> str:
        axes = ", ".join(f"'{name}': {size}" for name, size in self.axes)
        return f"Mesh {axes}, devices {' '.join(self.devices)}"


def _mesh_look(value: Any) -> object:
    import jax

    from mcnb.errors import PictureError
    from mcnb.pictures.inspect import mesh_model

    if not isinstance(value, jax.sharding.Mesh):
        return looks.kind(value, "Mesh")
    try:
        model = mesh_model(value)
    except PictureError as error:
        return str(error)
    axes = tuple((axis.name, axis.size) for axis in model.axes)
    return SeenMesh(axes, tuple(map(str, model.devices)))


def _backbone(_: int, processes: int, __: int) -> SeenMesh:
    return SeenMesh((("host", processes),), tuple(f"P{k}.0" for k in reversed(range(processes))))


@hint_for(SeenMesh, "Mesh takes an array of devices and a tuple of names.")
def _backbone_hint(seen: SeenMesh, expected: SeenMesh, processes: int, _: int) -> str:
    if len({device.partition(".")[0] for device in seen.devices}) == 1:
        return (
            "this mesh has devices of one process only. Take one of each process from "
            "jax.devices(), which is the same list everywhere."
        )
    if len(seen.devices) > processes:
        return "it has more than one device of a process. Take the first of each."
    if set(seen.devices) != set(expected.devices):
        return (
            "these are not the first devices of all processes. In jax.devices(), how far is it "
            "from a process's first device to the next one's?"
        )
    if seen.devices != expected.devices:
        return "the right devices, in another order: the last process comes first."
    return "the devices are right. The mesh has one axis, and the task says what it is called."


def _scores_look(value: Any) -> object:
    import jax

    if not isinstance(value, jax.Array):
        return looks.kind(value, "jax.Array")
    values = sorted({v for shard in value.addressable_shards for v in np.unique(shard.data)})
    here = ", ".join(str(looks.rounded(v)) for v in values)
    return f"{jax.typeof(value)}, here with the values {here}"


def _scores_hint(seen: object, *_: object) -> str:
    kind, found, _values = str(seen).partition(", here")
    if not found:
        return "scores is an array: the product of left and right."
    if "@" not in kind:
        return (
            "the type knows nothing of a layout: this array's axes are Auto. Use the factors that "
            "lie on typed."
        )
    if kind == SCORES.partition(", here")[0]:
        return "the layout is right, the numbers are not: take jnp.matmul(left, right, ...)."
    return (
        "out_sharding takes a NamedSharding. Which axis is each of the two dimensions split over?"
    )


# A mesh to try a function on: its devices, numbered process by process, and its axes' names.
Table = tuple["np.ndarray[Any, np.dtype[np.int64]]", tuple[str, ...]]


@dataclass(frozen=True)
class SeenAnswers:
    """What a function said of several meshes, by what each mesh is called."""

    answers: tuple[tuple[str, tuple[object, ...]], ...]

    def __str__(self) -> str:
        return ", ".join(f"{name} {list(said)}" for name, said in self.answers)


def _tables(processes: int, devices: int) -> dict[str, Table]:
    grid = np.arange(processes * devices).reshape(processes, devices)
    tables: dict[str, Table] = {
        "mesh": (grid, ("row", "col")),
        "tall": (grid.T, ("x", "y")),
        "flat": (grid.ravel(), ("i",)),
        "single": (grid[:1], ("p", "q")),
    }
    if processes > 2 and devices > 1:
        # Along "q", the first line stays within a process, and the second does not.
        uneven = np.array([[grid[0, 0], grid[0, 1]], [grid[1, 0], grid[2, 0]]])
        tables["uneven"] = (uneven, ("p", "q"))
    return tables


@looks.function
def _crossing_look(crossing: Any) -> object:
    import jax

    every = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    answers = []
    for called, (table, names) in _tables(jax.process_count(), jax.local_device_count()).items():
        devices = np.array(every, dtype=object)[table]
        said = looks.items(looks.text)(crossing(jax.sharding.Mesh(devices, names)))
        if not isinstance(said, tuple):
            return f"for the mesh '{called}' {said}"
        answers.append((called, said))
    return SeenAnswers(tuple(answers))


def _crossing(_: int, processes: int, devices: int) -> SeenAnswers:
    answers = []
    for called, (table, names) in _tables(processes, devices).items():
        owners = table // devices
        crossed = (n for axis, n in enumerate(names) if (owners != owners.take([0], axis)).any())
        answers.append((called, tuple(crossed)))
    return SeenAnswers(tuple(answers))


@hint_for(SeenAnswers, "crossing is a function that takes a mesh and returns a list of names.")
def _crossing_hint(seen: SeenAnswers, expected: SeenAnswers, *_: int) -> str:
    said, right = dict(seen.answers), dict(expected.answers)
    wrong = [name for name in right if said.get(name) != right[name]]
    if wrong == ["uneven"]:
        return (
            "an axis has many lines of devices along it. In the mesh 'uneven', the first line "
            "stays within a process, and another does not."
        )
    if said.get("single"):
        return "the mesh 'single' has the devices of one process: nobody else to talk to."
    return (
        "take the process_index of each device in mesh.devices. An axis crosses if, on going "
        "along it, that number changes."
    )


EXERCISES = {
    "02.1": Exercise("company", _company_look, _company, _company_hint),
    "02.2": Exercise("backbone", _mesh_look, _backbone, _backbone_hint),
    "02.3": Exercise("scores", _scores_look, lambda *_: SCORES, _scores_hint),
    "02.4": Exercise("crossing", _crossing_look, _crossing, _crossing_hint),
}

PREDICTIONS = {
    "02.a": Prediction(
        "Which processes hold the array's first row?",
        {
            "Process 0": None,
            "Processes 0 and 1": r"┐\n│ P0\.0 │ P0\.1 │ P1\.0 │ P1\.1 │\n",
            "Processes 0 and 2": r"┐\n│ P0\.0 │ P0\.1 │ P2\.0 │ P2\.1 │\n",
            "All four": r"┐\n│ P0\.0 │ P1\.0 │ P2\.0 │ P3\.0 │\n",
        },
    ),
    "02.b": Prediction(
        "How many different pictures does it draw?",
        {
            "One": r"^\[all \d+\]\s+Mesh",
            "Two": None,
            "Four": r"^\[0\]\s+Mesh.*^\[1\]\s+Mesh.*^\[2\]\s+Mesh.*^\[3\]\s+Mesh",
            "Eight": None,
        },
    ),
    "02.c": Prediction(
        "all four processes run the first cell below, but only three get the second one, which "
        "adds the elements of the array. What happens?",
        {
            "The three processes wait for process 3": "Processes diverged|was interrupted",
            "The three processes print the sum": r"^\[0-2\] \d+$",
            "Each of the three prints the sum of its own elements": r"^\[0\] .*^\[1\] ",
        },
    ),
    "02.d": Prediction(
        "Which two does process 0 hold on `wide`, and which on `tall`?",
        {
            "0 and 1 on both": r"^\[0\] wide \[0, 1\]\n +tall \[0, 1\]",
            "0 and 4 on both": r"^\[0\] wide \[0, 4\]\n +tall \[0, 4\]",
            "0 and 4 on wide, 0 and 1 on tall": r"^\[0\] wide \[0, 4\]\n +tall \[0, 1\]",
            "0 and 1 on wide, 0 and 4 on tall": r"^\[0\] wide \[0, 1\]\n +tall \[0, 4\]",
        },
    ),
    "02.e": Prediction(
        "**Predict** which processes communicate, first on `wide`, then on `tall`:",
        {
            "All four with each other, on both": None,
            "Two pairs of processes on wide; on tall, none with another": (
                r"'x' +P0 P2; P1 P3 .*'x' +each process by itself"
            ),
            "On wide, none with another; two pairs of processes on tall": (
                r"'x' +each process by itself .*'x' +P\d P\d; P\d P\d"
            ),
        },
    ),
    "02.f": Prediction(
        "Which does JAX choose, or does it choose none?",
        {
            "It leaves the columns whole": None,
            "It splits the columns over col": None,
            "It chooses none, and raises an error": "ShardingTypeError",
        },
    ),
    "02.g": Prediction(
        "what happens if it runs the computation, too?",
        {
            "All four print the sum": r"^\[all \d+\] the sum",
            "Three print the sum, and process 3 raises an error": (
                r"^\[0-2\] the sum.*^\[3\] RuntimeError"
            ),
            "The processes diverge": "Processes diverged",
        },
    ),
}
