"""A function returns early on all processes but the master, and then gathers.

https://github.com/netket/netket/issues/2274
"""

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("S",))


class StateLog:
    def __init__(self):
        self._is_master_process = jax.process_index() == 0
        self.saved = {}

    def _save_variables(self, step, variables):
        if not self._is_master_process:
            return
        self.saved[step] = jax.tree.map(
            lambda leaf: multihost_utils.process_allgather(leaf, tiled=True), variables
        )


log = StateLog()
kernel = jax.device_put(np.ones(12, np.float32), NamedSharding(mesh, PartitionSpec("S")))
for step in range(3):
    kernel = kernel - 0.1 * jax.jit(lambda v: v / jax.numpy.linalg.norm(v))(kernel)
    log._save_variables(step, {"kernel": kernel})
print("done")
