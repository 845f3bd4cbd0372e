"""Get the devices of a TPU pod from the compiler for TPUs, without the hardware.

`libtpu` contains the compiler, and describes a topology from its name alone
(`jax.experimental.topologies`).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcnb.errors import ClusterError

INSTALL = 'python -m pip install "mcnb[tpu]"'
MISSING = "mcnb.Pod needs the TPU compiler (libtpu), which is not installed. Install it: " + INSTALL
# Without these, libtpu queries the host, which has no TPU, and logs errors.
_SETTINGS = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}


def has_compiler() -> bool:
    """Return whether the compiler for TPUs is installed."""
    return importlib.util.find_spec("libtpu") is not None


def devices_of(name: str, slices: int) -> list[Any]:
    """Return the devices of a pod, in JAX's order.

    Args:
        name: Topology, such as `"v5e:4x4"`.
        slices: Number of slices of this topology.

    Raises:
        ClusterError: The topology does not exist, or libtpu is not installed.
    """
    if not has_compiler():
        raise ClusterError(MISSING)
    from jax.experimental import topologies

    several = {"num_slices": slices} if slices > 1 else {}
    with _settings():
        try:
            topology = topologies.get_topology_desc(platform="tpu", topology_name=name, **several)
        except Exception as error:
            why = str(error).strip().partition("\n")[0]
            raise ClusterError(
                f"Pod({name!r}): this TPU topology does not exist. A topology's name is the chip "
                "type and the number of chips along each dimension, such as v5e:4x4, v6e:16x16, "
                "v5p:8x8x8 or "
                f"v4:4x4x4. libtpu says: {why}"
            ) from None
    return list(topology.devices)


@contextmanager
def _settings() -> Iterator[None]:
    """Set the variables that libtpu reads when it is loaded, unless the user has set them."""
    fresh = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
    os.environ.update(fresh)
    try:
        yield
    finally:
        for name in fresh:
            del os.environ[name]
