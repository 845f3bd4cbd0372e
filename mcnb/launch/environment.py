"""The environment of a cluster's processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcnb.options import Options

THREADS_FOR_EACH, MOST_THREADS = 8, 64


def process_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the cluster's processes.

    What would fight with the number of devices or with `jax.distributed.initialize` is left out.

    Args:
        options: Platform, number of devices and the user's own settings, which win.
        inherited: The notebook's environment.

    Example:
        >>> env = process_environment(
        ...     Options(devices_per_process=2),
        ...     {"XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_dump_to=d"},
        ... )
        >>> env["XLA_FLAGS"], env["JAX_NUM_CPU_DEVICES"]
        ('--xla_dump_to=d', '2')
    """
    env = {
        name: value
        for name, value in inherited.items()
        if name not in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    }
    flags = env.get("XLA_FLAGS", "").split()
    flags = [f for f in flags if not f.startswith("--xla_force_host_platform_device_count")]
    env["XLA_FLAGS"] = " ".join(flags)
    env["JAX_PLATFORMS"] = options.platform
    env["JAX_NUM_CPU_DEVICES"] = str(options.devices_per_process)
    env.setdefault("NPROC", str(threads_for(options.devices_per_process)))
    # Plots are drawn into the notebook: no process needs a display.
    env["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    env["PYTHONIOENCODING"] = "utf-8"
    env.update(options.env)
    return env


def threads_for(devices: int) -> int:
    """Return how many threads XLA is to have for a process's CPU devices.

    By default it has as many as there are cores. On a laptop these are all taken by collectives of
    launches that nobody has waited for, each of which waits for another that finds none: a few
    dozen launches without a wait can hang for ever. XLA takes `NPROC` for the number of cores:
    DefaultThreadPoolSize in https://github.com/openxla/xla/blob/main/xla/pjrt/utils.cc
    """
    return max(os.cpu_count() or 1, min(THREADS_FOR_EACH * devices, MOST_THREADS))
