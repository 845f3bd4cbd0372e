"""The exercises of lesson 09, Data in, checkpoints out."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of, of_function, sharded, shared_folder
from mcnb.exercises.looks import SeenArray
from mcnb.exercises.predictions import Prediction

# 09.1: the rows of step 2, with batches of one row for each device, on a mesh of two rows.
STEP = 2


def _reads(process: int, processes: int, devices: int) -> tuple[int, int]:
    batch = processes * devices
    half = max(batch // 2, 1)
    begin, end = process * devices // half, -(-(process + 1) * devices // half)
    return STEP * batch + begin * half, STEP * batch + end * half


@hint_for((int, int), "two whole numbers are wanted: the first row, and the row after the last.")
def _reads_hint(
    seen: tuple[int, int], expected: tuple[int, int], processes: int, devices: int
) -> str:
    begin, end = seen
    wanted = expected[1] - expected[0]
    batch = processes * devices
    if end - begin == wanted - 1:
        return "the second number is the row after the last, as in a slice."
    if end - begin == batch // processes:
        return (
            "that many rows would be right if the batch were split over all processes. On wide, "
            'into how many parts does "data" split it?'
        )
    if end - begin == wanted and end <= batch:
        return "those are places in a batch. At which row of the file does the batch begin?"
    if end - begin == wanted and begin % wanted == 0 and begin // batch in (STEP - 1, STEP + 1):
        return "that is another step's batch. The first step is 0."
    if end - begin == wanted:
        return (
            "as many rows as needed, but others. Which processes stand in the same row of wide? "
            "They read the same."
        )
    return "mcnb.show(NamedSharding(wide, P('data')), (8, 2), bounds=True) draws who holds what."


# 09.2: the mask of the last batch; a batch has two rows for each process.


def _rows(processes: int) -> int:
    return 11 * processes + 1


def _mask(process: int, processes: int, devices: int) -> SeenArray:
    batch = 2 * processes
    left = _rows(processes) % batch or batch
    return looks.rows(np.arange(batch) < left, [2 * process] * devices, 2, processes)


def _mask_look(value: Any) -> object:
    seen = looks.array(value)
    if isinstance(seen, SeenArray) and value.dtype != bool:
        return f"an array of {value.dtype}"  # whose 0 and 1 would equal False and True
    return seen


def _mask_hint(seen: object, expected: SeenArray, processes: int, _: int) -> str:
    if isinstance(seen, str) and seen.startswith("an array of"):
        return "a mask of booleans is wanted: True or False for each row."
    if not isinstance(seen, SeenArray):
        return "real is a global array; make it as the batches were made."
    if seen.shape != expected.shape:
        return f"the last batch has {2 * processes} places, padding included."
    if not seen.spans:
        return "this array lies on one process alone. Every process has its part of the mask."
    if _places(seen) != _places(expected):
        return "the parts lie elsewhere: lay it out over the axis 'data', as the rows are."
    values, wanted = ([v for _, own in one.pieces for v in own] for one in (seen, expected))
    if [not value for value in values] == wanted:
        return "the other way round: True where a row counts, False where it is padding."
    return (
        "how many rows are left for the last batch? Compare with each row's place in the whole "
        "batch, not in the part of this process."
    )


def _places(array: SeenArray) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(start, np.shape(own)) for start, own in array.pieces]


# 09.3: what the processes take in an epoch.


@dataclass(frozen=True)
class SeenEpochs:
    """What all processes took in two epochs, of which the first was asked for twice.

    Attributes:
        shape: The shape of this process's rows.
        different: How many different rows were taken; none where the shapes do not fit.
        wrong: How many rows were taken more than once, or do not exist.
        mixed: Whether they were out of order.
        repeatable: Whether the same epoch came out alike.
        fresh: Whether the other epoch came out differently.
    """

    shape: tuple[int, ...]
    different: int
    wrong: int
    mixed: bool
    repeatable: bool
    fresh: bool

    def __str__(self) -> str:
        if not self.different:
            return f"shape {self.shape}"
        order = "shuffled" if self.mixed else "not shuffled"
        again = "the same" if self.repeatable else "another order"
        other = "another order" if self.fresh else "the same"
        return (
            f"shape {self.shape}; all processes: {self.different} different rows, {self.wrong} "
            f"taken twice or not in the file; {order}; asked again: {again}; other epoch: {other}"
        )


def _epoch_rows(processes: int) -> int:
    # Three batches of two rows for each process, and a rest.
    return 6 * processes + 2


@looks.function
def _my_rows_look(my_rows: Any) -> object:
    import jax
    from jax.experimental import multihost_utils

    processes = jax.process_count()
    rows = _epoch_rows(processes)
    found = [_table(my_rows(epoch, rows)) for epoch in (0, 1, 0)]
    # All have to gather alike, so what does not fit is told by all, and to all.
    wrong = next((one for one in found if isinstance(one, str)), None)
    shape = () if wrong else found[0].shape
    fits = wrong is None and shape == (3, 2) and all(one.shape == (3, 2) for one in found)
    if not multihost_utils.process_allgather(np.array(fits)).all():
        return wrong or SeenEpochs(shape, 0, 0, False, False, False)
    taken = multihost_utils.process_allgather(np.stack(found)).reshape(processes, 3, 6)
    first, other, again = (taken[:, epoch].ravel() for epoch in range(3))
    # Step by step, and process by process in each step.
    in_turn = taken[:, 0].reshape(processes, 3, 2).swapaxes(0, 1).ravel()
    exist = first[(first >= 0) & (first < rows)]
    return SeenEpochs(
        shape,
        len(set(first.tolist())),
        int((np.bincount(exist, minlength=rows) > 1).sum()) + len(first) - len(exist),
        bool((np.diff(in_turn) < 0).any()),
        bool((first == again).all()),
        bool((first != other).any()),
    )


def _table(value: Any) -> Any:
    """Return whole numbers as an array, or say what else they are."""
    try:
        found = np.asarray(value)
    except (RuntimeError, TypeError, ValueError):  # a global array, or rows of different lengths
        return looks.kind(value, "array of whole numbers")
    if found.dtype.kind not in "iu":
        return looks.kind(value, "array of whole numbers")
    return found.astype(np.int32)


def _epochs(_: int, processes: int, __: int) -> SeenEpochs:
    return SeenEpochs((3, 2), 6 * processes, 0, True, True, True)


@of_function
@hint_for(
    SeenEpochs, "return an array of row numbers: a row of it for each step, two numbers in each."
)
def _my_rows_hint(seen: SeenEpochs, expected: SeenEpochs, processes: int, _: int) -> str:
    rows, batch = _epoch_rows(processes), 2 * processes
    if seen.shape == expected.shape and not seen.different:
        return "another process returned something else. All take the same number of steps."
    if seen.shape == (-(-rows // batch), 2):
        return f"of {rows} rows, the last uneven batch is to be dropped."
    if seen.shape != expected.shape:
        return f"{rows} rows make {rows // batch} steps of {batch}, two of them on each process."
    if not seen.repeatable:
        return "the same epoch came out differently. From what does the chance come?"
    if seen.wrong or seen.different != expected.different:
        if seen.different == seen.wrong == expected.different // processes:
            return "all processes take the same rows. Draw one order, and take this process's part."
        return "rows were taken twice, others never. Do all processes draw the same order?"
    if not seen.mixed:
        return "the rows come in the file's order. Shuffle them."
    return "the other epoch had the same order. What is the order made from?"


# 09.4: a checkpoint, loaded on another mesh.


@dataclass(frozen=True)
class SeenTree:
    """What is seen of the arrays of a PyTree, by their names."""

    leaves: tuple[tuple[str, object], ...]

    def __str__(self) -> str:
        return "; ".join(f"{name}: {leaf}" for name, leaf in self.leaves)


def _saved(count: int) -> dict[str, Any]:
    w = np.arange(2 * count, dtype=np.float32).reshape(count, 2)
    return {"b": np.arange(count, dtype=np.int32), "w": w}


@looks.function
def _load_look(load: Any) -> object:
    import jax
    from jax.experimental import multihost_utils

    count = jax.device_count()
    axes = ("data", "model")
    before = mesh_of(axes, (count, 1), explicit=True)
    state = {name: sharded(whole, before, "data") for name, whole in _saved(count).items()}
    like = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in state.items()}
    mesh = mesh_of(axes, (2, count // 2) if count % 2 == 0 else (1, count), explicit=True)
    ocp = importlib.import_module("orbax.checkpoint")  # it brings no types
    with shared_folder() as folder:
        with ocp.StandardCheckpointer() as saver:
            saver.save(folder / "saved", state)
        found = load(folder / "saved", like, mesh, jax.sharding.PartitionSpec("model"))
        multihost_utils.sync_global_devices("loaded")
    if not isinstance(found, dict):
        return looks.kind(found, "PyTree like the one that was saved")
    return SeenTree(tuple((str(name), looks.array(found[name])) for name in sorted(found, key=str)))


def _loaded(process: int, processes: int, devices: int) -> SeenTree:
    count = processes * devices
    parts = count // 2 if count % 2 == 0 else count
    size = count // parts

    starts = [size * (device % parts) for device in range(process * devices, count)][:devices]
    saved = _saved(count).items()
    return SeenTree(tuple((name, looks.rows(w, starts, size, processes)) for name, w in saved))


@of_function
@hint_for(SeenTree, "return what the checkpointer restored: a PyTree like the one that was saved.")
def _load_hint(seen: SeenTree, expected: SeenTree, *_: int) -> str:
    if [name for name, _ in seen.leaves] != [name for name, _ in expected.leaves]:
        return "the PyTree has the same names as like."
    for (_name, leaf), (_same, wanted) in zip(seen.leaves, expected.leaves, strict=True):
        if not isinstance(leaf, SeenArray) or not isinstance(wanted, SeenArray):
            return "the leaves have to be arrays, with data: restore them."
        if not leaf.spans and wanted.spans:
            return "an array lies on one process alone. Lay it out on the mesh given."
        if _places(leaf) != _places(wanted):
            return (
                "the parts lie elsewhere than spec and mesh say. A jax.ShapeDtypeStruct can carry "
                "a sharding; without one, an array is laid out as it was saved."
            )
    return "the layout is right, the values are not those of the checkpoint."


EXERCISES = {
    "09.1": Exercise("reads", looks.items(looks.number), _reads, _reads_hint),
    "09.2": Exercise("real", _mask_look, _mask, _mask_hint),
    "09.3": Exercise("my_rows", _my_rows_look, _epochs, _my_rows_hint),
    "09.4": Exercise("load", _load_look, _loaded, _load_hint),
}

PREDICTIONS = {
    "09.a": Prediction(
        "which rows does process 1 need if the mesh is 2 by 4?",
        {
            "2:4": r"^\[1\] \{\(2, 4\)\}",
            "0:4, as process 0 does": r"^\[0,1\] \{\(0, 4\)\}",
            "4:8": r"^\[1[^\n]*\] \{\(4, 8\)\}",
            "All eight": r"^\[all \d+\] \{\(0, 8\)\}",
        },
    ),
    "09.b": Prediction(
        "is there an error, a verdict, or neither?",
        {
            "An error": r"Error in line",
            "A verdict": "Processes diverged",
            "Neither: some rows are used twice, and some never": "never: ",
        },
    ),
    "09.c": Prediction(
        "**Predict** the verdict.",
        {
            "The launches do not match": "their launches do not match",
            "A participant is missing, in the second round": "missing.*the 2nd time",
            "A participant is missing, in the third round": "missing.*the 3rd time",
            "None: all processes have as many rows": None,
        },
    ),
    "09.d": Prediction(
        "how many rows does one epoch use, and how many do two epochs use together?",
        {
            "22, and 44": r"22 rows: 22 used.*44 rows: 44 used",
            "16, and 32": r"22 rows: 16 used.*44 rows: 32 used",
            "16, and 40": r"22 rows: 16 used.*44 rows: 40 used",
        },
    ),
    "09.e": Prediction(
        "does the sum over all rows, divided by 24, give that mean?",
        {
            "Yes": None,
            "No: the padding counts, too": r"without the mask ([\d.]+), with it (?!\1)",
        },
    ),
    "09.f": Prediction(
        "how much more memory does that take, and on which processes?",
        {
            "Four times as much, on process 0": None,
            "Four times as much, on every process": r"^\[all \d+\] 131072 bytes.* 524288 were",
            "Twice as much, on every process": r"^\[all \d+\] 262144 bytes.* 524288 were",
        },
    ),
    "09.g": Prediction(
        "can the checkpoint be loaded without a layout?",
        {
            "Yes, with the layout that it was saved with": r"\A\Z",
            "Yes, as NumPy arrays": None,
            "No: the devices are not those that saved it": "refused: ",
        },
    ),
}
