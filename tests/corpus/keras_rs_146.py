"""The last batch of one process is shorter, so it compiles another program than the others.

https://github.com/keras-team/keras-rs/issues/146
"""

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("batch",))
sharding = NamedSharding(mesh, PartitionSpec("batch"))
train_step = jax.jit(lambda batch: (batch**2).mean())

# 22 examples do not divide among three processes: 8, 8 and 6.
whole = np.arange(22.0, dtype=np.float32)
examples = whole[8 * jax.process_index() :][:8]
for begin in range(0, len(examples), 4):
    local = examples[begin : begin + 4]
    batch = jax.make_array_from_process_local_data(
        sharding, local, (len(local) * jax.process_count(),)
    )
    print(float(train_step(batch)))
