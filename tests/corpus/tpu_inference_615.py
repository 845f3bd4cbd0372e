"""Requests are computed by a pool of threads, so each process launches them in an order of its own.

https://github.com/vllm-project/tpu-inference/issues/615
"""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("model",))
cache = jax.device_put(np.arange(12.0), NamedSharding(mesh, PartitionSpec("model")))


@jax.jit
def prefill(cache):
    return jnp.sum(cache)


@jax.jit
def decode(cache):
    return jnp.max(cache)


def execute(step, arrives):
    time.sleep(arrives)
    return float(step(cache))


# Requests reach the hosts at different times.
late = float(jax.process_index() == 1)
with ThreadPoolExecutor(2) as pool:
    answers = pool.submit(execute, prefill, late), pool.submit(execute, decode, 0.5)
    print(*(answer.result() for answer in answers))
