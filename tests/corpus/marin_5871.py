"""A background thread reads a metric from all devices while the main thread trains.

https://github.com/marin-community/marin/issues/5871: in which order a process launches
both depends on its threads.
"""

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
state = jax.device_put(np.ones(12, np.float32), NamedSharding(mesh, PartitionSpec("data")))


class BackgroundTracker:
    def log(self, values):
        self._thread = threading.Thread(target=self._write, args=(values,))
        self._thread.start()

    def _write(self, values):
        # Each process's file system takes its own time.
        time.sleep(1.0 * (jax.process_index() > 0))
        self.maximum = float(jnp.max(values))

    def finish(self):
        self._thread.join()


def load_batch():
    time.sleep(0.5)


tracker = BackgroundTracker()
train_step = jax.jit(lambda s: s - s.mean())
for step in range(2):
    tracker.log(state)
    load_batch()
    state = train_step(state)
    tracker.finish()
print("done")
