# %% 04.1
from jax.sharding import PartitionSpec as P

predicted = [
    (P("b", "a"), 0),  # turning an array turns its layout, and nothing moves
    (P("b"), 1),  # an all-reduce along 'a', which cut the axis that is summed
    (P("a"), 0),  # each device holds whole rows
    (P(None, "b"), 1),  # P(None, 'a') @ P('a', 'b'): the summed axis is cut by 'a'
]

# %% 04.2
import jax
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
numbers = np.arange(-32, 32, dtype=np.float32).reshape(8, 8)
with jax.set_mesh(mesh):
    factors = jax.device_put(numbers, P("b", None)), jax.device_put(numbers, P(None, "a"))

# %% 04.3
import jax.numpy as jnp


def variance(x):
    # The two sums do not wait for each other, so XLA sends them in one all-reduce. The price: if
    # the mean is large, the difference of two large numbers has few digits left, or none. That is
    # why jnp.var computes the mean first.
    return jnp.mean(x * x) - jnp.mean(x) ** 2
