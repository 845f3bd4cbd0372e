"""Each process draws the parameters from a seed of its own.

https://github.com/netket/netket/issues/1829
"""

import time

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("S",))


def seed():
    return int(time.time_ns() % 2**32)


key = jax.random.key(seed())
kernel = jax.random.normal(key, (2, 3))
parameters = {"Dense": {"kernel": jax.device_put(np.asarray(kernel), jax.local_devices()[0])}}
parameters = jax.tree.map(
    lambda leaf: jax.make_array_from_process_local_data(
        NamedSharding(mesh, PartitionSpec()), np.asarray(leaf)
    ),
    parameters,
)
samples = jax.device_put(np.ones((12, 2), np.float32), NamedSharding(mesh, PartitionSpec("S")))


@jax.jit
def log_value(parameters, samples):
    return (samples @ parameters["Dense"]["kernel"]).sum()


print(float(log_value(parameters, samples)))
