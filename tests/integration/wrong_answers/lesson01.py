"""Plausible wrong answers to the exercises of lesson 01, each with the hint that it gets."""

from __future__ import annotations

WRONG = {
    "01.1": {
        "import jax\nforeign = jax.device_count()": (
            "that is how many devices there are in all. Leave out those of this process."
        ),
        "import jax\nforeign = jax.local_device_count()": (
            "those are the devices of this process. Count the others."
        ),
        "foreign = 'six'": (
            "jax.devices() lists all devices, jax.local_devices() those of this process."
        ),
    },
    "01.2": {
        "import jax.numpy as jnp\nsquares = jnp.arange(8).reshape(4, 2) ** 2": (
            "this array lies on one process alone. A global array is put together from the pieces "
            "of all processes: jax.make_array_from_single_device_arrays."
        ),
        # Numbered within each process only.
        """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
sharding = NamedSharding(jax.make_mesh((4, 2), ("process", "local")), P("process", "local"))
pieces = [jax.device_put(jnp.array([[i**2]]), d) for i, d in enumerate(jax.local_devices())]
squares = jax.make_array_from_single_device_arrays((4, 2), sharding, pieces)
""": "a piece's value depends on which device it lies on, counted over all processes.",
        "squares = [0, 1]": "build it with jax.make_array_from_single_device_arrays.",
    },
    "01.3": {
        "own_sum = 28": (
            "that is the sum of all elements. Add up those that lie on this process's devices."
        ),
        "import jax\nown_sum = jax.process_index()": (
            "whole.addressable_shards has the parts on this process's devices; part.data is one."
        ),
        "own_sum = 0.5": (
            "own_sum is one whole number on each process; here it is 0.5, which is no whole number."
        ),
    },
}
