"""The exercises of lesson 04, Computation follows sharding.

What a learner wrote is compiled, and its collectives are counted, as `mcnb.show` does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnb.exercises import looks
from mcnb.exercises.exercise import Exercise, hint_for, mesh_of, sharded

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
