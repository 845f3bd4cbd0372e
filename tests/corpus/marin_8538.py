"""The name of a barrier counts the saves of each process, and one process has saved once more.

https://github.com/marin-community/marin/issues/8538
"""

import itertools

import jax
from jax._src import distributed

jax.distributed.initialize()
_saves = itertools.count()


def barrier(name):
    client = distributed.global_state.client
    client.wait_at_barrier(f"{name}-{next(_saves)}", timeout_in_ms=600_000)


def export(path):
    next(_saves)  # local, and needs no barrier


if jax.process_index() == 0:
    export("model")
barrier("checkpoint")
print("saved")
