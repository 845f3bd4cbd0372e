"""The exercises of lesson 08, Training a network.

The network is the lesson's, written here again: what is checked must not depend on what a learner
has made of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of, sharded
from mcnb.exercises.predictions import Prediction

SIZES = (16, 64, 64, 64, 4)
BIG_SIZES = (784, 8192, 8192, 8192, 10)
BIG_BATCH = 8192
ROWS = 16  # on each process
STEP = 0.005
KEEP = 0.9
BYTES = 4  # of a number
AXES = ("batch", "model")


def _layers(sizes: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the shapes of each layer's weights and biases."""
    return [((a, b), (b,)) for a, b in pairwise(sizes)]


def _loss(params: Any, batch: Any) -> Any:
    import jax.numpy as jnp

    rows, targets = batch
    *hidden, (last, bias) = params
    for weights, biases in hidden:
        rows = jnp.maximum(rows @ weights + biases, 0)
    return jnp.mean(jnp.sum((rows @ last + bias - targets) ** 2, axis=-1))


# 08.1: how many bytes.


@dataclass(frozen=True)
class SeenBytes:
    """Three numbers of bytes: what is predicted, or what is true, which is not told.

    Attributes:
        numbers: What each device sends in the gradients' all-reduce in the first layout and in the
            second, and in one of the activations'.
        right: Whether these are the true ones.
    """

    numbers: tuple[object, ...]
    right: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        if self.right:
            return "what the shapes of the layers tell"
        return ", ".join(f"{n:,}" if isinstance(n, int) else str(n) for n in self.numbers)


def _predicted(value: Any) -> object:
    numbers = looks.items(looks.number)(value)
    return SeenBytes(numbers) if isinstance(numbers, tuple) else numbers


def _big(_: int, processes: int, devices: int) -> SeenBytes:
    layers = _layers(BIG_SIZES)
    whole = sum(math.prod(shape) for layer in layers for shape in layer)
    halves = (*layers[1], layers[2][0])
    split = whole - sum(math.prod(shape) * (devices - 1) // devices for shape in halves)
    activations = BIG_BATCH // processes * BIG_SIZES[3]
    counts = (whole, processes * devices), (split, processes), (activations, devices)
    return SeenBytes(tuple(_sent(BYTES * n, members) for n, members in counts), right=True)


def _sent(result: int, members: int) -> int:
    """Return the bytes that each member sends in an all-reduce, as `wire_bytes`."""
    return round(result * 2 * (members - 1) / members)


def _big_hint(seen: object, expected: SeenBytes, processes: int, devices: int) -> str:
    if not isinstance(seen, SeenBytes) or len(seen.numbers) != len(expected.numbers):
        return "bill is three whole numbers, in the order of the exercise."
    gradients, wanted = seen.numbers[0], expected.numbers[0]
    members = processes * devices
    if isinstance(gradients, int) and isinstance(wanted, int):
        if abs(gradients * BYTES - wanted) < BYTES:
            return "that counts numbers. How many bytes does a float32 take?"
        if _sent(gradients, members) == wanted:
            return f"that is the result. How much of it does one of {members} devices send?"
    thoughts = (
        "first: every device gets the gradient of each weight and each bias of all four layers.",
        "second: three of the eight arrays are split over 'model', and a device needs one of "
        f"{devices} parts of their gradients.",
        f"third: how many of {BIG_BATCH:,} rows are on one of {processes} processes, and how many "
        "numbers has a row between the hidden layers?",
    )
    same = [mine == right for mine, right in zip(seen.numbers, expected.numbers, strict=True)]
    return f"look again at the {thoughts[same.index(False)]}"


# 08.2: momentum, laid out as before.


@dataclass(frozen=True)
class SeenUpdate:
    """Whether a step with momentum returned the right numbers, and which arrays have moved."""

    params: bool
    velocity: bool
    moved: tuple[str, ...] = ()

    def __str__(self) -> str:
        numbers = (
            f"{'right' if self.params else 'wrong'} parameters, "
            f"{'right' if self.velocity else 'wrong'} velocity"
        )
        if not self.moved:
            return f"{numbers}, all laid out as before"
        return f"{numbers}, laid out otherwise: {', '.join(self.moved)}"


def _numbers() -> tuple[Any, Any, Any]:
    """Return parameters, a velocity and a batch."""
    import jax

    rng = np.random.default_rng(8)

    def draw(shape: Sequence[int]) -> Any:
        return rng.standard_normal(shape, np.float32) / 8

    layers = _layers(SIZES)
    params = [(draw(weights), draw(biases)) for weights, biases in layers]
    velocity = [(draw(weights), draw(biases)) for weights, biases in layers]
    count = ROWS * jax.process_count()
    return params, velocity, (draw((count, SIZES[0])), draw((count, SIZES[-1])))


@looks.function
def _tried(momentum: Any) -> object:
    import jax
    from jax.sharding import PartitionSpec as P

    mesh = mesh_of(AXES)
    # With the last layer split as well, XLA would lay out the third layer's bias otherwise.
    specs = [(P(), P()), (P(None, "model"), P("model")), (P("model"), P()), (P("model"), P())]

    def put(x: Any, spec: Any) -> Any:
        return sharded(x, mesh, *spec)

    params, velocity, batch = _numbers()
    given = jax.tree.map(put, (params, velocity), (specs, specs))
    got = momentum(*given, jax.tree.map(lambda x: put(x, P("batch")), batch))
    if jax.tree.structure(got) != jax.tree.structure(given):
        return "something that is no pair of parameters and velocity"
    for array in jax.tree.leaves(got):
        if not isinstance(array, jax.Array):
            return looks.kind(array, "jax.Array")

    grads = jax.grad(_loss)(params, batch)
    wanted = jax.tree.map(lambda v, g: KEEP * v + g, velocity, grads)
    stepped = jax.tree.map(lambda p, v: p - STEP * v, params, wanted)
    names = [
        f"{tree}[{k}][{i}]" for tree in ("params", "velocity") for k in range(4) for i in (0, 1)
    ]
    pairs = zip(names, jax.tree.leaves(given), jax.tree.leaves(got), strict=True)
    moved = [
        name
        for name, x, y in pairs
        if x.shape != y.shape or not y.sharding.is_equivalent_to(x.sharding, x.ndim)
    ]
    return SeenUpdate(_equal(got[0], stepped), _equal(got[1], wanted), tuple(moved))


def _equal(tree: Any, numbers: Any) -> bool:
    import jax

    return all(
        x.shape == y.shape
        and all(
            np.allclose(part.data, np.asarray(y)[part.index], rtol=1e-4, atol=1e-5)
            for part in x.addressable_shards
        )
        for x, y in zip(jax.tree.leaves(tree), jax.tree.leaves(numbers), strict=True)
    )


@hint_for(
    SeenUpdate, "write a function that returns new parameters and a new velocity, in that order."
)
def _momentum_hint(seen: SeenUpdate, *_: object) -> str:
    if not seen.velocity:
        return "the new velocity is 0.9 times the old one plus the gradient of loss."
    if not seen.params:
        return "the parameters go against the new velocity, STEP times as far."
    return (
        "the numbers are right, but XLA chose a layout. Each array that went in knows its "
        "sharding: jax.jit can be told what should come out."
    )


# 08.3: a leaner layout.


@dataclass(frozen=True)
class SeenLayout:
    """A layout of the parameters, and the step that was compiled for it.

    Attributes:
        lean: Whether the parameters take no more memory than wanted.
        quiet: Whether no more is communicated along 'model' than wanted.
        held: The bytes of parameters on each device.
        sent: The bytes that each device sends along 'model'.
    """

    lean: bool
    quiet: bool
    held: int = field(compare=False)
    sent: int = field(compare=False)

    def __str__(self) -> str:
        return (
            f"{self.held:,} bytes of parameters on each device, which sends {self.sent:,} bytes "
            "along 'model'"
        )


def _lean(_: int, __: int, devices: int) -> SeenLayout:
    (w1, b1), (w2, b2), (w3, b3), (w4, b4) = _layers(SIZES)
    held = sum(map(math.prod, (w1, b1, w2, w3, b3, w4))) // devices + math.prod(b2) + math.prod(b4)
    results = ROWS * (SIZES[2] + SIZES[4] + SIZES[2])
    sent = _sent(BYTES * results, devices)
    return SeenLayout(lean=True, quiet=True, held=BYTES * held, sent=sent)


def _laid_out(value: Any) -> object:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from mcnb.pictures.inspect import program_model
    from mcnb.pictures.program import axes_of, sent_bytes

    if not isinstance(value, (list, tuple)):
        return looks.kind(value, "list of pairs")
    layers = _layers(SIZES)
    if len(value) != len(layers):
        return f"{len(value)} layers"
    mesh = mesh_of(AXES)
    sizes = dict(zip(AXES, mesh.devices.shape, strict=True))

    def shaped(shape: Sequence[int], spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))

    params = []
    held = 0
    for number, (pair, shapes) in enumerate(zip(value, layers, strict=True), 1):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            return f"a layer {number} that is no pair"
        for spec, shape in zip(pair, shapes, strict=True):
            if not isinstance(spec, PartitionSpec):
                return looks.kind(spec, "P(...)")
            if "batch" in str(spec):
                return "a layout that splits parameters over 'batch'"
            try:
                shaped(shape, spec)
                held += BYTES * math.prod(NamedSharding(mesh, spec).shard_shape(shape))
            except Exception:  # an axis that is not there, or twice; a dimension that is not there
                return f"a layout with {spec} for the shape {shape}, which JAX refuses"
        params.append(tuple(map(shaped, shapes, pair)))

    count = ROWS * jax.process_count()
    batch = tuple(shaped((count, n), PartitionSpec("batch")) for n in (SIZES[0], SIZES[-1]))
    uses = program_model(jax.jit(_update).lower(params, batch).compile()).uses
    along = [use for use in uses if "model" in (axes_of(use.operation.groups or (), sizes) or AXES)]
    wanted = _lean(0, jax.process_count(), jax.local_device_count())
    sent = round(sent_bytes(along))
    return SeenLayout(held <= wanted.held, sent <= wanted.sent, held, sent)


def _update(params: Any, batch: Any) -> Any:
    import jax

    grads = jax.grad(_loss)(params, batch)
    return jax.tree.map(lambda p, g: p - STEP * g, params, grads)


def _lean_hint(seen: object, *_: object) -> str:
    if isinstance(seen, str) and "over 'batch'" in seen:
        return "use the axis 'model' alone: along 'batch', only gradients are to travel."
    if isinstance(seen, str) and "refuses" in seen:
        return "name an axis of the mesh at most once in a spec, and no more axes than dimensions."
    if not isinstance(seen, SeenLayout):
        return (
            "set leaner to a list of four pairs, (P(...), P(...)), one for each layer, like specs."
        )
    if not seen.lean:
        return "each device still holds too much. Which weights are on both devices of a process?"
    return (
        "small enough, but more is sent. Columns, then rows, is a pair that sums up once. Which "
        "layers make two such pairs, and which biases are split with their columns?"
    )


EXERCISES = {
    "08.1": Exercise("bill", _predicted, _big, _big_hint),
    "08.2": Exercise(
        "momentum", _tried, lambda *_: SeenUpdate(params=True, velocity=True), _momentum_hint
    ),
    "08.3": Exercise("leaner", _laid_out, _lean, _lean_hint),
}

PREDICTIONS = {
    "08.a": Prediction(
        "is W2 still split by columns, and W3 by rows?",
        {
            "Yes, both": r"W2:[^\n]*P\(None, 'model'\).*W3:[^\n]*P\('model'",
            "No: both are whole on every device": r"W2:[^\n]*P\(\).*W3:[^\n]*P\(\)",
            "Only W2": r"W2:[^\n]*P\(None, 'model'\).*W3:[^\n]*P\(\)",
            "Only W3": r"W2:[^\n]*P\(\).*W3:[^\n]*P\('model'",
        },
    ),
    "08.b": Prediction(
        "what has to be sent in a step now, besides the gradients?",
        {
            "Nothing": r"'all-gather': 0",
            "The parameters: a device gathers those that it needs": r"'all-gather': [1-9]",
            "The rows of the batch": None,
        },
    ),
    "08.c": Prediction(
        "is it an eighth?",
        {
            "Yes, exactly": r"8-way: 8\.0 times less",
            "No, a bit more": r"8-way: [4-7]\.\d times less",
            "No, a bit less": r"8-way: (8\.[1-9]|9\.\d) times less",
            "No, about half": r"8-way: [1-3]\.\d times less",
        },
    ),
    "08.d": Prediction(
        "is there an error, or do the processes have different losses?",
        {
            "The losses differ between the processes": r"^\[0,1,3\] +from",
            "There is a verdict": "Processes diverged",
            "Neither: the losses are equal, but of another batch": r"^\[all \d+\] from.*Assertion",
        },
    ),
    "08.e": Prediction(
        "which processes wait, and at which step?",
        {
            "Process 2, at the second step": r"^\[2\] +is waiting",
            "Processes 0, 1 and 3, at the second step": r"^\[0,1,3\] are waiting.*the 2nd time",
            "Processes 0, 1 and 3, at the third step": r"^\[0,1,3\] are waiting.*the 3rd time",
            "None: process 2 only makes a step less": None,
        },
    ),
    "08.f": Prediction(
        "after one step, does every array still have its layout?",
        {
            "Yes": None,
            "No: W4 becomes whole": r"W4: ",
            "No: another array is split after the step": r"b3: P\(\) became P\('model',\)",
        },
    ),
}
