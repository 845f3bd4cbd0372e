"""Arrays for processes that are healed, and how they are found afterwards."""

from __future__ import annotations

import mcnb

SETUP = """
import collections, dataclasses, functools, os, types
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
big = jax.device_put(np.arange(512 * 256.0).reshape(512, 256), NamedSharding(mesh, P("a", "b")))
x = jax.device_put(np.arange(32.0).reshape(8, 4), NamedSharding(mesh, P("a", "b")))
parts = [np.array(shard.data) for shard in big.addressable_shards]
k, pid = jax.process_index(), os.getpid()
float(jnp.sum(x))
"""
SAME = """
assert os.getpid() == pid
found = [np.asarray(shard.data) for shard in big.addressable_shards]
assert all(map(np.array_equal, found, parts))
assert big.sharding == NamedSharding(mesh, P("a", "b")) and list(mesh.devices.flat) == jax.devices()
float(jnp.sum(x))
"""
HEALED = (
    "The cluster was healed: the same processes reconnected, and their variables are kept "
    "(2 arrays)"
)
# After a time limit or Ctrl-C, until the cluster is healed.
ENDED_S = 3.5
CUT_OFF = "What happened: the processes hung until mcnb aborted the computations"


def assert_same(cluster: mcnb.Cluster) -> None:
    assert cluster.run(SAME).text() == "[all 4] 496.0\n"
