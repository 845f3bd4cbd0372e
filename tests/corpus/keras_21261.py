"""Each process initializes the replicated weights with a seed of its own.

https://github.com/keras-team/keras/issues/21261: the processes train different models, and nothing
fails.
"""

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("batch",))
replicated = NamedSharding(mesh, PartitionSpec())


def initialize_weights():
    rng = np.random.default_rng()  # the seed is the system's
    weights = {"dense": {"kernel": rng.normal(size=(4, 2)), "bias": np.zeros(2)}}
    return jax.make_array_from_process_local_data(
        replicated, weights["dense"]["kernel"].astype(np.float32)
    )


kernel = initialize_weights()
images = jax.make_array_from_process_local_data(
    NamedSharding(mesh, PartitionSpec("batch")), np.ones((4, 4), np.float32)
)
predict = jax.jit(lambda kernel, x: (x @ kernel).sum())
print(float(predict(kernel, images)))
