"""Serializing a checkpoint fails on one process, in a thread, and the others wait in the next step.

https://github.com/apple/axlearn/issues/1185
"""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
params = jax.device_put(np.ones(12, np.float32), NamedSharding(mesh, PartitionSpec("data")))
executor = ThreadPoolExecutor(1)


def serialize(shards):
    if jax.process_index() == 2:
        raise RuntimeError("bucket quota exceeded")
    return [np.asarray(shard.data) for shard in shards]


saving = None
train_step = jax.jit(lambda p: p / p.sum())
for step in range(4):
    params = train_step(params)
    if saving is not None:
        saving.result()
    saving = executor.submit(serialize, params.addressable_shards)
print("done")
