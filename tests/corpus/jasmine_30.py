"""Images for the log are computed on process 0, from an array that all processes hold.

https://github.com/p-doom/jasmine/issues/30
"""

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
videos = jax.device_put(np.ones((12, 4, 4), np.float32), NamedSharding(mesh, PartitionSpec("data")))

train_step = jax.jit(lambda x: (x - x.mean(), (x**2).sum()))

LOG_IMAGE_INTERVAL = 2
for step in range(4):
    videos, loss = train_step(videos)
    if step % LOG_IMAGE_INTERVAL == 1:
        if jax.process_index() == 0:
            image = np.asarray(videos.mean(axis=0).clip(0, 1))
            print("image", image.shape)
print("done")
