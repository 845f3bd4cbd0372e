"""A profiler that only process 0 has makes that process synchronize in its loop.

https://github.com/AI-Hypercomputer/maxdiffusion/issues/435: the condition is in a helper of another
name, so the loop itself looks the same to all processes.
"""

from dataclasses import dataclass

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()


@dataclass
class Config:
    steps: int = 4
    enable_profiler: bool = True


def profiler_enabled(config):
    return config.enable_profiler and jax.process_index() == 0


def train(config):
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    state = jax.device_put(np.ones(12, np.float32), NamedSharding(mesh, PartitionSpec("data")))
    train_step = jax.jit(lambda state: state - state.mean())
    for step in range(config.steps):
        state = train_step(state)
        if profiler_enabled(config):
            multihost_utils.sync_global_devices("profiler")
    return state


train(Config())
