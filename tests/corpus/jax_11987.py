"""`jax_debug_nans` raises on the process that has the NaN; the others wait for its sum.

https://github.com/jax-ml/jax/issues/11987
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
jax.config.update("jax_debug_nans", True)
mesh = jax.make_mesh((jax.device_count(),), ("batch",))


def load_batch():
    # One shard of the data set holds a negative number.
    low = -1.0 if jax.process_index() == 1 else 1.0
    return jnp.full((4,), low)


features = jnp.log(load_batch())
batch = jax.make_array_from_process_local_data(
    NamedSharding(mesh, PartitionSpec("batch")), np.asarray(features)
)
print(float(jnp.sum(batch)))
