"""Assign GPUs to processes, each GPU to only one process."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from mcnb._text import plural
from mcnb.errors import ClusterError

VISIBLE = "CUDA_VISIBLE_DEVICES"
# GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-7d1c...)
_GPU = re.compile(r"^GPU \d+: .*\(UUID: (GPU-[^)]+)\)", re.MULTILINE)


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a process with this environment may use.

    NVIDIA's driver lists the GPUs; `CUDA_VISIBLE_DEVICES` selects from them, by number or UUID:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables

    Args:
        environment: The environment variables.
    """
    if shutil.which("nvidia-smi") is None:
        return ()
    asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return chosen(tuple(_GPU.findall(asked.stdout)), environment.get(VISIBLE))


def chosen(gpus: Sequence[str], choice: str | None) -> tuple[str, ...]:
    """Return the GPUs that `CUDA_VISIBLE_DEVICES` selects.

    Args:
        gpus: All UUIDs, in the driver's order.
        choice: The value of the variable; None if it is not set.

    Example:
        >>> chosen(["GPU-a", "GPU-b", "GPU-c"], "2,0"), chosen(["GPU-a", "GPU-b"], "GPU-b")
        (('GPU-c', 'GPU-a'), ('GPU-b',))
        >>> chosen(["GPU-a"], ""), chosen(["GPU-a", "GPU-b"], "0,-1,1")
        ((), ('GPU-a',))
    """
    if choice is None:
        return tuple(gpus)
    found: list[str] = []
    for word in filter(None, choice.replace(" ", "").split(",")):
        named = (
            gpus[int(word) : int(word) + 1]
            if word.isdigit()
            else [gpu for gpu in gpus if gpu.startswith(word)]
        )
        if len(named) != 1:
            break  # CUDA also ignores everything after an unknown GPU
        found += named
    return tuple(found)


def share(visible: Sequence[tuple[str, Sequence[str]]], each: int) -> list[tuple[str, ...]]:
    """Assign GPUs to each process.

    A process keeps the GPUs that a launcher gave to it alone. If the processes of a host see the
    same GPUs, neighbouring processes get neighbouring GPUs.

    Args:
        visible: The host of each process, and the GPUs that the process may use.
        each: The number of GPUs for each process.

    Raises:
        ClusterError: A host has too few GPUs, because two processes can't share one.

    Example:
        >>> share([("one", ["a", "b"]), ("one", ["a", "b"]), ("two", ["c"])], 1)
        [('a',), ('b',), ('c',)]
        >>> share([("one", ["a"]), ("one", ["a"])], 1)
        Traceback (most recent call last):
        mcnb.errors.ClusterError: 2 processes x 1 GPU need 2 GPUs on the host one, which has 1: \
two processes can't have the same one. Start fewer processes, or name more hosts
    """
    taken: set[str] = set()
    shares = []
    for host, gpus in visible:
        free = [gpu for gpu in gpus if gpu not in taken][:each]
        if len(free) < each:
            count = sum(other == host for other, _ in visible)
            there = len({gpu for other, seen in visible if other == host for gpu in seen})
            if not there:
                raise ClusterError(
                    f"No NVIDIA GPU is available on the host {host}: nvidia-smi -L lists none, or "
                    f"{VISIBLE} hides them. Without a GPU: --platform cpu"
                )
            size = plural(count, "process", "processes"), plural(each, "GPU", "GPUs")
            raise ClusterError(
                f"{size[0]} x {size[1]} need {plural(count * each, 'GPU', 'GPUs')} on the host "
                f"{host}, which has {there}: two processes can't have the same one. Start fewer "
                "processes, or name more hosts"
            )
        taken.update(free)
        shares.append(tuple(free))
    return shares
