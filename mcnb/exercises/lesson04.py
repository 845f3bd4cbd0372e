"""The exercises of lesson 04, Computation follows sharding.

What a learner wrote is compiled, and its collectives are counted, as `mcnb.show` does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of, sharded
from mcnb.exercises.predictions import Prediction

Split = tuple[tuple[str, ...], ...]

# What the learner predicts of each program: how the result is split, and the collectives.
_PREDICTED: tuple[tuple[Split, int], ...] = (
    ((("b",), ("a",)), 0),
    ((("b",),), 1),
    ((("a",),), 0),
    (((), ("b",)), 1),
)
_THOUGHTS = (
    "a function of each element keeps the layout; what does turning the array do to it?",
    "dimension 0 is summed up and disappears. Was it split, and what is left of the spec?",
    "dimension 1 disappears. Does one device hold all of a row?",
    "how is rows.T laid out? Is the dimension that is summed split, in both factors?",
)


@dataclass(frozen=True)
class SeenPrediction:
    """How each result is split, and its number of collectives; the right ones are not told."""

    answers: tuple[tuple[Split, int] | str, ...]

    def __str__(self) -> str:
        if self.answers == _PREDICTED:
            return f"{len(self.answers)} pairs, as mcnb.show of each tells them"
        return ", ".join(
            answer if isinstance(answer, str) else f"({_spelled(answer[0])}, {answer[1]})"
            for answer in self.answers
        )


@dataclass(frozen=True)
class SeenProduct:
    """A product: whether of the lesson's numbers, how it is split, and its collectives."""

    numbers: bool
    split: Split
    collectives: tuple[str, ...]

    def __str__(self) -> str:
        of = "numbers @ numbers" if self.numbers else "a product of other numbers"
        return f"{of}, laid out as {_spelled(self.split)}, {_counted(self.collectives)}"


@dataclass(frozen=True)
class SeenResult:
    """What a function gave, with 0 as its value if it is not one number."""

    shape: tuple[int, ...]
    value: object
    everywhere: bool
    collectives: tuple[str, ...]

    def __str__(self) -> str:
        what = f"{self.value}" if self.shape == () else f"an array of shape {self.shape}"
        where = "on every device" if self.everywhere else "in parts"
        return f"{what}, {where}, {_counted(self.collectives)}"


def _spelled(split: Split) -> str:
    names = [name if len(name) != 1 else name[0] for name in split]
    return f"P({', '.join(repr(name) if name else 'None' for name in names)})"


def _counted(collectives: tuple[str, ...]) -> str:
    if not collectives:
        return "no communication"
    return " and ".join(f"{collectives.count(kind)} {kind}" for kind in sorted(set(collectives)))


def _short(split: Split) -> Split:
    while split and not split[-1]:
        split = split[:-1]
    return split


def _prediction(value: Any) -> object:
    if not isinstance(value, (list, tuple)):
        return looks.kind(value, "list of pairs")
    return SeenPrediction(tuple(_answer(answer) for answer in value))


def _answer(value: Any) -> tuple[Split, int] | str:
    import jax

    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return "something that is no pair"
    spec, count = value
    if not isinstance(spec, jax.sharding.PartitionSpec):
        return looks.kind(spec, "P(...)")
    if not hasattr(count, "__index__"):
        return looks.kind(count, "whole number")
    split = tuple(
        tuple(map(str, part)) if isinstance(part, tuple) else () if part is None else (str(part),)
        for part in spec
    )
    return _short(split), int(count)


def _prediction_hint(seen: object, *_: object) -> str:
    if not isinstance(seen, SeenPrediction) or len(seen.answers) != len(_PREDICTED):
        return 'predicted is a list of four pairs, each such as (P("a", "b"), 3).'
    pairs = enumerate(zip(seen.answers, _PREDICTED, strict=True))
    wrong, mine, right = next((i, mine, right) for i, (mine, right) in pairs if mine != right)
    if isinstance(mine, str):
        return f"number {wrong + 1} is {mine}. It should be one such as (P('a', 'b'), 3)."
    what = "spec" if mine[0] != right[0] else "number of collectives"
    return f"look again at the {what} of number {wrong + 1}: {_THOUGHTS[wrong]}"


def _numbers() -> np.ndarray[Any, Any]:
    return np.arange(-32, 32, dtype=np.float32).reshape(8, 8)


def _product(value: Any) -> object:
    import jax

    from mcnb.pictures.inspect import layout_of

    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return looks.kind(value, "pair of arrays")
    for factor in value:
        if not isinstance(factor, jax.Array):
            return looks.kind(factor, "jax.Array")
        if factor.shape != (8, 8):
            return f"an array of shape {factor.shape}, which is not (8, 8)"
    try:
        program = _compiled(lambda left, right: left @ right, *value)
    except Exception as error:  # ShardingTypeError is not public
        return f"two arrays that can't be multiplied as they are placed: {type(error).__name__}"
    same = all(
        np.array_equal(np.asarray(shard.data), _numbers()[shard.index])
        for factor in value
        for shard in factor.addressable_shards
    )
    return SeenProduct(same, _short(layout_of(program.out_info).split), _collectives(program))


def _numbers_squared(_process: int, processes: int, devices: int) -> SeenProduct:
    # XLA does not name an axis along which there is one device.
    split = ("b",) if devices > 1 else (), ("a",) if processes > 1 else ()
    return SeenProduct(True, _short(split), ())


def _product_hint(seen: object, *_: object) -> str:
    if not isinstance(seen, SeenProduct):
        return (
            "factors is a pair of arrays, left and right, each made by jax.device_put(numbers, "
            "P(...)), such that left @ right is possible without out_sharding."
        )
    if not seen.numbers:
        return "both factors hold numbers as they are. Lay them out, and change nothing in them."
    if seen.collectives:
        return (
            "XLA had to communicate. Which dimension of the left factor is summed with which of "
            "the right one, and are they whole on each device?"
        )
    return (
        "nothing is communicated, but the product lies otherwise. Its rows come from one factor, "
        "its columns from the other."
    )


def _matrix(processes: int) -> np.ndarray[Any, Any]:
    return (np.arange(16 * processes, dtype=np.float32) * 7 % 11).reshape(2 * processes, 8)


@looks.function
def _result(variance: Any) -> object:
    import jax

    mesh = mesh_of(("a", "b"), explicit=True)
    with jax.set_mesh(mesh):
        x = sharded(_matrix(jax.process_count()), mesh, "a", None)
        program = _compiled(variance, x)
        result = program(x)
    if not isinstance(result, jax.Array):
        return f"a function that returns {looks.kind(result, 'jax.Array')}"
    own = np.asarray(result.addressable_shards[0].data)
    return SeenResult(
        result.shape,
        looks.rounded(own) if result.shape == () else 0,
        result.sharding.is_fully_replicated,
        _collectives(program),
    )


def _variance(_process: int, processes: int, _devices: int) -> SeenResult:
    needed = ("all-reduce",) if processes > 1 else ()
    return SeenResult((), looks.rounded(np.var(_matrix(processes))), True, needed)


@hint_for(SeenResult, "variance is a function of one array, and returns one, made by jnp.")
def _variance_hint(seen: SeenResult, expected: SeenResult, *_: object) -> str:
    if seen.shape != ():
        return "the variance of all elements is one number: its shape is ()."
    if seen.value != expected.value:
        return "the number is another one. It was tried with a matrix that is not yours."
    if set(seen.collectives) == {"all-reduce"}:
        return (
            "one sum waits for the result of another. There is a formula for the variance with "
            "two sums that do not need each other: XLA makes one all-reduce of these."
        )
    return "only partial sums need to be sent. mcnb.show(variance, rows) shows it."


def _compiled(function: Any, *args: Any) -> Any:
    import jax

    return jax.jit(function).lower(*args).compile()


def _collectives(program: Any) -> tuple[str, ...]:
    from mcnb.pictures.inspect import program_model

    uses = program_model(program).uses
    return tuple(use.operation.kind for use in uses for _ in range(use.times or 1))


EXERCISES = {
    "04.1": Exercise(
        "predicted", _prediction, lambda *_: SeenPrediction(_PREDICTED), _prediction_hint
    ),
    "04.2": Exercise("factors", _product, _numbers_squared, _product_hint),
    "04.3": Exercise("variance", _result, _variance, _variance_hint),
}

PREDICTIONS = {
    "04.a": Prediction(
        "which layout does `jnp.sin(x)` have, and what has to be communicated for it?",
        {
            "That of x, and nothing": r"sin: no communication.*P\('a', 'b'\)",
            "That of x, after an all-gather": r"collective.*P\('a', 'b'\)",
            "Every device has the whole array, after an all-gather": r"collective.*P\(\)",
        },
    ),
    "04.b": Prediction(
        "which device has both, and which layout does the result have?",
        {
            "None: the rows have to be gathered first": r"all-gather",
            "The device in row i and column j of the mesh; the result is whole": r"no comm.*P\(\)",
            "The device that is to hold the element; P('a', 'b')": r"no comm.*P\('a', 'b'\)",
        },
    ),
    "04.c": Prediction(
        "what has to be communicated, and among which devices?",
        {
            "An all-gather among all devices": r"all-gather +'[ab]' +P0-3",
            "An all-reduce among all devices": r"all-reduce +'[ab]' +P0-3",
            "An all-reduce between the two devices of each process": (
                "all-reduce +'b' +each process by itself"
            ),
            "Nothing": "no communication",
        },
    ),
    "04.d": Prediction(
        "Which layout does the product have, and is there communication?",
        {
            "Rows split over a, with an all-reduce": r"float32\[8@a,8\].*all-reduce",
            "Rows split over a, without communication": r"float32\[8@a,8\].*no communication",
            "JAX raises an error, because it can't choose": "ShardingTypeError",
        },
    ),
    "04.e": Prediction(
        "now the names of the axes are swapped. Which devices communicate?",
        {
            "The two devices of each process": "all-reduce +'[ab]' +each process by itself",
            "Devices of all four processes": "all-reduce +'a' +P0-3",
            "None: no device needs a part of another one": "no communication",
        },
    ),
    "04.f": Prediction(
        "How many of its 256 bytes can stay on their devices?",
        number=r"; (\d+) B stay where they are",
    ),
    "04.g": Prediction(
        "which collective does XLA insert, if each device keeps only a tile of the product?",
        {
            "An all-gather": r"all-gather +'",
            "A reduce-scatter": r"reduce-scatter +'",
            "An all-reduce, of which each device keeps a part": r"all-reduce +'",
            "An all-to-all": r"all-to-all +'",
        },
    ),
    "04.h": Prediction(
        "which spec does the relu have if the product before it must have `P('a', 'b')`?",
        {
            "P('a', 'b'), too": r"^\[all \d+\] P\('a', 'b'\)$",
            "P(), because nothing says otherwise": r"^\[all \d+\] P\(\)$",
            "P('a', None)": r"^\[all \d+\] P\('a',( None)?\)$",
        },
    ),
    "04.i": Prediction(
        "one array is on processes 0 and 1, and the other on 2 and 3. What is their sum?",
        {
            "An array on processes 0 and 1": r"^\[0,1\] ",
            "An array on all four processes": r"^\[all \d+\] Array",
            "An error, on every process": r"^\[all \d+\] ValueError",
            "A wait without end": "was interrupted",
        },
    ),
    "04.j": Prediction(
        "process 3 multiplies its factors in the wrong order, and all shapes fit. What happens?",
        {
            "The results differ between the processes": None,
            "JAX raises an error on process 3": r"^\[3\] \w+Error",
            "The cell stops before the launch: the layouts differ": "do not match.*sharding",
            "The program hangs": "was interrupted",
        },
    ),
    "04.k": Prediction(
        "what is the sum?",
        {
            "0 on all elements: the array of process 0 counts": r"\[0 0 0 0 0 0 0 0\]",
            "6 on all elements: the four arrays are added": r"\[6 6 6 6 6 6 6 6\]",
            "Each process adds its own array to its own part": r"\[0 0 1 1 2 2 3 3\]",
            "An error": r"Error",
        },
    ),
}
