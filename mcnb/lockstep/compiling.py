"""Choose the flags of XLA in `XLA_FLAGS`, which each process reads when JAX starts it."""

from __future__ import annotations

import pkgutil
from collections.abc import MutableMapping
from importlib import import_module

# Of https://github.com/openxla/xla/blob/main/xla/xla.proto
_DIVIDED = "xla_gpu_shard_autotuning"
_DEVICE_COUNT = "--xla_force_host_platform_device_count"
_GPUS = ("cuda", "rocm", "gpu")


def without_device_count(flags: str) -> str:
    """Return the value of `XLA_FLAGS` without the flag that sets the number of CPU devices.

    Example:
        >>> without_device_count("--xla_force_host_platform_device_count=8 --xla_dump_to=d")
        '--xla_dump_to=d'
    """
    return " ".join(flag for flag in flags.split() if not flag.startswith(_DEVICE_COUNT))


def compile_alone(environment: MutableMapping[str, str], platforms: str | None) -> None:
    """Have XLA compile for GPUs without waiting for other processes.

    By default, the processes of a job divide the measurements by which XLA chooses kernels, and
    each waits for the results of the others: https://github.com/openxla/xla/pull/13108. A process
    that compiles what another one does not compile would wait forever, before it has launched
    anything that could be compared. So each process measures everything, unless the user has set
    the flag. Call it before JAX makes its devices, because XLA reads its flags only once.

    Args:
        environment: The environment variables, of which `XLA_FLAGS` may be changed.
        platforms: The platforms that JAX is told to use; empty or None if it chooses.

    Example:
        >>> environment = {"XLA_FLAGS": "--xla_dump_to=d"}
        >>> compile_alone(environment, "cpu")
        >>> environment["XLA_FLAGS"]
        '--xla_dump_to=d'
        >>> compile_alone(environment, "cuda,cpu")
        >>> environment["XLA_FLAGS"]
        '--xla_dump_to=d --xla_gpu_shard_autotuning=false'
    """
    flags = environment.get("XLA_FLAGS", "")
    if _DIVIDED not in flags and _names_gpus([platforms] if platforms else _plugins()):
        environment["XLA_FLAGS"] = f"{flags} --{_DIVIDED}=false".strip()


def _names_gpus(names: list[str]) -> bool:
    return any(platform in name for name in names for platform in _GPUS)


def _plugins() -> list[str]:
    """Return the names of JAX's plugins for devices, of which it has none for CPUs."""
    try:
        folder = import_module("jax_plugins")
    except ImportError:
        return []
    return [one.name for one in pkgutil.iter_modules(folder.__path__)]
