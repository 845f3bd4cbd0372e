"""Each process stops its loop by its own clock.

https://github.com/kousuke-nakano/jQMC/issues/59: a time limit for the job is compared with the time
that each process has measured.
"""

import time

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("walkers",))
walkers = jax.device_put(np.ones(12, np.float32), NamedSharding(mesh, PartitionSpec("walkers")))
# The clocks of processes differ a little; here, by so much that it does not take hours.
start = time.perf_counter() - 100.0 * jax.process_index()
MAX_TIME = 150.0

step = jax.jit(lambda w: w / w.sum())
for mcmc_step in range(10):
    walkers = step(walkers)
    if time.perf_counter() - start > MAX_TIME:
        print("max_time exceeded")
        break
print("done")
