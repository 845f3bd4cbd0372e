"""One process computes a value once more, and each later launch pairs off with another step.

https://github.com/netket/netket/issues/2275
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("S",))
samples = jax.device_put(np.arange(12.0), NamedSharding(mesh, PartitionSpec("S")))


@jax.jit
def mean(values):
    return jnp.mean(values)


def progress_bar(step):
    if jax.process_index() == 0:
        print(f"step {step}: {float(mean(samples)):.3f}")


def step_energy():
    return float(mean(samples))


for step in range(3):
    energy = step_energy()
    progress_bar(step)
    variance = float(mean((samples - energy) ** 2))
print("done")
