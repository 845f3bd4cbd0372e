"""A right program: before a process acts on what it knows alone, all agree on it.

https://github.com/ray-project/ray/issues/61630
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
state = jax.device_put(np.ones(12, np.float32), NamedSharding(mesh, PartitionSpec("data")))


def should_stop(step):
    local = jax.process_index() == 1 and step == 2  # only this process was told to stop
    return bool(multihost_utils.process_allgather(jnp.asarray(local)).any())


for step in range(5):
    state = jax.jit(lambda s: s / s.sum())(state)
    if should_stop(step):
        print("stopped after step", step)
        break
