"""Compute with all other processes: once when they have joined, and to see that they still can."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

POLL_S = 0.002

# The compiled gather of the devices that it was made for; JAX has new devices after a heal.
_gather: tuple[Any, Any, Any] | None = None


def meet() -> None:
    """Gather a number from every device of every process; return when all have taken part.

    The first computation that all make together has them connect to each other. Who waits for a
    connection that never comes can't be freed as reliably as who waits in a computation.

    Raises:
        RuntimeError: The numbers are wrong.
    """
    global _gather
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("device",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("device",), ()))
    _gather = mesh, split, jax.jit(_itself, out_shardings=whole)
    if not numbers_are_right(0, None):
        raise RuntimeError("the processes gathered wrong numbers from each other")


def numbers_are_right(salt: int, budget_s: float | None) -> bool:
    """Gather a known number from every device of every process, and compare.

    All processes have to call it with the same salt.

    Args:
        salt: Makes the numbers others than those of the last call.
        budget_s: For how many seconds to wait for the others at most; None for ever.

    Returns:
        Whether each number arrived in time, and is the right one.
    """
    import jax

    assert _gather is not None
    mesh, split, gather = _gather
    deadline = None if budget_s is None else time.monotonic() + budget_s
    expected = (np.arange(mesh.size) + 1) * 1009 + salt % 1000
    position = {device: i for i, device in enumerate(mesh.devices.flat)}
    with jax.set_mesh(mesh):
        own = [
            jax.device_put(np.array([expected[position[device]]], np.int32), device)
            for device in jax.local_devices()
        ]
        all_own = jax.make_array_from_single_device_arrays((mesh.size,), split, own)
        gathered = gather(all_own)
    while deadline is not None and not gathered.is_ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return [np.asarray(shard.data).tolist() for shard in gathered.addressable_shards] == [
        expected.tolist()
    ] * len(own)


def _itself(v: Any) -> Any:
    return v
