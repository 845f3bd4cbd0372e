"""Let code that was written for one process, or for one host, use the cluster's devices.

JAX's own functions are wrapped; what they refuse elsewhere, they refuse here, too.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np

_DEVICE_COUNT = "jax_num_cpu_devices"
# The error of JAX 0.10.2 and newer, in `jax/_src/sharding_impls.py`.
_REFUSAL = "does not support multi-slice topologies"


def allow_cpu_hosts() -> None:
    """Have `jax.make_mesh` accept CPU devices of several hosts, in JAX's order of devices.

    JAX takes each host for a slice, on CPUs as well, and refuses a mesh over several slices: on
    TPUs and GPUs, the links between slices are slower, so the order of the devices matters. CPUs
    have no such links, and stand here for the devices of one slice.
    """
    import jax

    if hasattr(jax.make_mesh, "original"):
        return
    original = jax.make_mesh
    signature = inspect.signature(original)
    # Newer versions have other names for the sizes of the axes.
    sizes, names = list(signature.parameters)[:2]

    @functools.wraps(original)
    def make_mesh(*args: Any, **kwargs: Any) -> jax.sharding.Mesh:
        try:
            return original(*args, **kwargs)
        except ValueError as error:
            if _REFUSAL not in str(error):
                raise
            given = signature.bind(*args, **kwargs).arguments
            devices = list(given.get("devices") or jax.devices())
            if {device.platform for device in devices} != {"cpu"}:
                raise
        shape = tuple(given[sizes])
        chosen = np.array(devices[: int(np.prod(shape))]).reshape(shape)
        # The default of all versions that refuse.
        types = given.get("axis_types") or (jax.sharding.AxisType.Explicit,) * len(shape)
        return jax.sharding.Mesh(chosen, given[names], axis_types=types)

    make_mesh.original = original  # type: ignore[attr-defined]
    jax.make_mesh = make_mesh


def accept_device_count() -> None:
    """Have `jax.config.update` accept the number of CPU devices that the cluster has.

    Pages for one process begin with it, where JAX has not started yet. Here, the processes have
    their devices, and JAX refuses every other number than that of this process.
    """
    import jax

    if hasattr(jax.config.update, "original"):
        return
    original = jax.config.update

    @functools.wraps(original)
    def update(name: str, val: Any) -> None:
        if not (name == _DEVICE_COUNT and val == jax.device_count()):
            original(name, val)

    update.original = original  # type: ignore[attr-defined]
    jax.config.update = update
