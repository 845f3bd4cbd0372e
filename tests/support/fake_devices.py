"""Devices that exist on paper only, in any number, as JAX's meshes and shardings take them."""

from __future__ import annotations

from typing import Any

import numpy as np


class FakeMemory:
    kind = "device"


class FakeDevice:
    """What of a device meshes, shardings and pictures look at."""

    platform = "tpu"
    device_kind = "on paper"
    client = None

    def __init__(self, number: int, process_index: int) -> None:
        self.id = number
        self.process_index = process_index

    def default_memory(self) -> FakeMemory:
        return FakeMemory()


def fake_devices(count: int, per_process: int = 2) -> np.ndarray[Any, Any]:
    """Return devices, as many of each process."""
    return np.array([FakeDevice(i, i // per_process) for i in range(count)], dtype=object)
