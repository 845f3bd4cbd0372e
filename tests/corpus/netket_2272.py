"""Writing a log gathers the variables, under a condition that holds on the master process only.

https://github.com/netket/netket/issues/2272: the collective is deep inside what serializes the
log.
"""

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("S",))


class RuntimeLog:
    @property
    def _is_master_process(self):
        return jax.process_index() == 0

    def flush(self, variables):
        if self._is_master_process:
            self._tree = jax.tree.map(self._to_host, variables)

    @staticmethod
    def _to_host(leaf):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


log = RuntimeLog()
variables = {
    "kernel": jax.device_put(np.ones(12, np.float32), NamedSharding(mesh, PartitionSpec("S")))
}
for step in range(3):
    variables = jax.tree.map(lambda leaf: leaf * 0.5, variables)
    log.flush(variables)
    energy = jax.jit(lambda tree: sum(leaf.sum() for leaf in jax.tree.leaves(tree)))(variables)
    print(step, float(energy))
