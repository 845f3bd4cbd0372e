"""Plausible wrong answers to the exercises of lesson 04, each with the hint that it gets."""

from __future__ import annotations

_SPEC = "from jax.sharding import PartitionSpec as P\n"
_PUT = """
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
numbers = np.arange(-32, 32, dtype=np.float32).reshape(8, 8)
def put(x, *spec):
    return jax.device_put(x, NamedSharding(mesh, P(*spec)))
"""
_FOUR = 'predicted is a list of four pairs, each such as (P("a", "b"), 3).'
_PAIR = (
    "factors is a pair of arrays, left and right, each made by jax.device_put(numbers, P(...)), "
    "such that left @ right is possible without out_sharding."
)
_FUNCTION = "variance is a function of one array, and returns one, made by jnp."
_ONE_SUM_WAITS = (
    "one sum waits for the result of another. There is a formula for the variance with two sums "
    "that do not need each other: XLA makes one all-reduce of these."
)

WRONG = {
    "04.1": {
        # The layout is not turned with the array.
        f"{_SPEC}predicted = [(P('a', 'b'), 0), (P('b'), 1), (P('a'), 0), (P(None, 'b'), 1)]": (
            "look again at the spec of number 1: a function of each element keeps the layout; "
            "what does turning the array do to it?"
        ),
        # The dimension that is left is taken for the one that is summed.
        f"{_SPEC}predicted = [(P('b', 'a'), 0), (P('a'), 1), (P('a'), 0), (P(None, 'b'), 1)]": (
            "look again at the spec of number 2: dimension 0 is summed up and disappears. "
            "Was it split, and what is left of the spec?"
        ),
        f"{_SPEC}predicted = [(P('b', 'a'), 0), (P('b'), 1), (P('a'), 1), (P(None, 'b'), 1)]": (
            "look again at the number of collectives of number 3: dimension 1 disappears. Does one "
            "device hold all of a row?"
        ),
        # rows.T @ x is taken for rows @ columns.
        f"{_SPEC}predicted = [(P('b', 'a'), 0), (P('b'), 1), (P('a'), 0), (P('a', 'b'), 0)]": (
            "look again at the spec of number 4: how is rows.T laid out? Is the dimension that "
            "is summed split, in both factors?"
        ),
        f"{_SPEC}predicted = [P('b', 'a'), P('b'), P('a'), P(None, 'b')]": (
            "number 1 is something that is no pair. It should be one such as (P('a', 'b'), 3)."
        ),
        "predicted = [(('b', 'a'), 0), (('b',), 1), (('a',), 0), ((None, 'b'), 1)]": (
            "number 1 is a tuple, which is no P(...). It should be one such as (P('a', 'b'), 3)."
        ),
        f"{_SPEC}predicted = [(P('b', 'a'), 'none')] * 4": (
            "number 1 is a str, which is no whole number. It should be one such as "
            "(P('a', 'b'), 3)."
        ),
        f"{_SPEC}predicted = [(P(('b', 'a')), 0)]": _FOUR,
        "predicted = 2": _FOUR,
    },
    "04.2": {
        f"{_PUT}factors = put(numbers, 'a', None), put(numbers, None, 'b')": (
            "nothing is communicated, but the product lies otherwise. Its rows come from one "
            "factor, its columns from the other."
        ),
        f"{_PUT}factors = put(numbers), put(numbers)": (
            "nothing is communicated, but the product lies otherwise. Its rows come from one "
            "factor, its columns from the other."
        ),
        f"{_PUT}factors = put(numbers, 'b', 'a'), put(numbers)": (
            "XLA had to communicate. Which dimension of the left factor is summed with which of "
            "the right one, and are they whole on each device?"
        ),
        f"{_PUT}factors = put(numbers, 'b', None), put(numbers.T, None, 'a')": (
            "both factors hold numbers as they are. Lay them out, and change nothing in them."
        ),
        f"{_PUT}factors = put(numbers, 'b', 'a')": _PAIR,
        # JAX does not choose how a sum over 'a' is split.
        f"{_PUT}factors = put(numbers, 'b', 'a'), put(numbers, 'a', None)": _PAIR,
        f"{_PUT}factors = P('b', None), P(None, 'a')": _PAIR,
        f"{_PUT}factors = put(numbers[:4], None, None), put(numbers, None, 'a')": _PAIR,
        # Each on a mesh of its own, in another order.
        f"""{_PUT}
swapped = jax.make_mesh((2, 4), ("a", "b"), devices=jax.devices()[::-1], axis_types=mesh.axis_types)
factors = put(numbers, "b", None), jax.device_put(numbers, NamedSharding(swapped, P(None, "b")))
""": _PAIR,
    },
    "04.3": {
        "import jax.numpy as jnp\nvariance = jnp.var": _ONE_SUM_WAITS,
        """
import jax.numpy as jnp
def variance(x):
    return jnp.mean((x - jnp.mean(x)) ** 2)
""": _ONE_SUM_WAITS,
        # All elements go to every device first.
        f"""{_PUT}
import jax.numpy as jnp
def variance(x):
    return jnp.var(jax.reshard(x, P()))
""": "only partial sums need to be sent. mcnb.show(variance, rows) shows it.",
        """
import jax.numpy as jnp
def variance(x):
    return jnp.mean(x * x) - jnp.mean(x)
""": "the number is another one. It was tried with a matrix that is not yours.",
        "import jax.numpy as jnp\ndef variance(x): return jnp.var(x, axis=0)": (
            "the variance of all elements is one number: its shape is ()."
        ),
        "def variance(x):\n    x.var()": _FUNCTION,
        "variance = 341.25": _FUNCTION,
    },
}
