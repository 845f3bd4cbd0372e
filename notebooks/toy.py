"""The program of lesson 01 without a notebook: run it once for each process, all at the same time.

    python toy.py PROCESS PROCESSES [PORT]
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

process, processes = int(sys.argv[1]), int(sys.argv[2])
port = sys.argv[3] if len(sys.argv) > 3 else "10000"
address = f"localhost:{port}"
jax.distributed.initialize(address, processes, process, coordinator_bind_address=address)

devices = jax.local_devices()
mesh = Mesh(np.reshape(jax.devices(), (processes, -1)), ("process", "local"))
pieces = [
    jax.device_put(jnp.array([[process * len(devices) + i]]), device)
    for i, device in enumerate(devices)
]
whole = jax.make_array_from_single_device_arrays(
    (processes, len(devices)), NamedSharding(mesh, P("process", "local")), pieces
)
# Wait for the result here, so that messages of Gloo are printed before ours.
total = jax.block_until_ready(jnp.sum(jnp.sin(whole)))
print(f"process {process}: the sum of all sines is {total:.6f}")
