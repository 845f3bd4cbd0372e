"""Devices as pictures name them: by their process, and their position among its devices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MOST_IDS = 8  # more are told as ranges


@dataclass(frozen=True, order=True, slots=True)
class Device:
    """A device of a process.

    Attributes:
        process: The process's index.
        position: The device's position among those of its process, from 0.
        id: JAX's number for it, which on CPU says nothing about its place.
        platform: What JAX calls its kind, such as `"tpu"`.

    Example:
        >>> str(Device(3, 1))
        'P3.1'
    """

    process: int
    position: int
    id: int = 0
    platform: str = ""

    def __str__(self) -> str:
        return f"P{self.process}.{self.position}"


def named(devices: Iterable[Any]) -> dict[Any, Device]:
    """Return what JAX's devices are called, in their order.

    Args:
        devices: Devices of one backend; all of it, or some.
    """
    given = list(devices)
    try:  # the others count, too: a mesh may take a process's second device only
        every = list(given[0].client.devices())
    except (AttributeError, IndexError, TypeError):
        every = []
    ids: dict[int, set[int]] = {}
    for device in itertools.chain(every, given):
        ids.setdefault(device.process_index, set()).add(device.id)
    position = {
        (process, number): position
        for process, numbers in ids.items()
        for position, number in enumerate(sorted(numbers))
    }
    return {
        device: Device(
            device.process_index,
            position[device.process_index, device.id],
            device.id,
            str(getattr(device, "platform", "")),
        )
        for device in given
    }


def process_count(devices: Sequence[Any]) -> int:
    """Return how many processes the devices' backend has, as far as they show."""
    try:
        return len({device.process_index for device in devices[0].client.devices()})
    except (AttributeError, IndexError, TypeError):
        return len({device.process_index for device in devices})


def device_count(devices: Sequence[Any]) -> int:
    """Return how many devices the devices' backend has, as far as they show."""
    try:
        return len(devices[0].client.devices())
    except (AttributeError, IndexError, TypeError):
        return len(devices)


def ranges(devices: Iterable[Device]) -> str:
    """Return devices in few words: those of a process together, and like processes too.

    Example:
        >>> ranges([Device(0, 0), Device(0, 1), Device(1, 0), Device(1, 1), Device(2, 1)])
        'P0-1.0-1 P2.1'
    """
    positions: dict[int, list[int]] = {}
    for device in sorted(set(devices)):
        positions.setdefault(device.process, []).append(device.position)
    alike: dict[tuple[int, ...], list[int]] = {}
    for process, own in positions.items():
        alike.setdefault(tuple(own), []).append(process)
    return " ".join(
        f"P{run}.{part}"
        for own, processes in alike.items()
        for run in _runs(processes)
        for part in _runs(own)
    )


def by_id(devices: Iterable[Device]) -> str:
    """Return devices by JAX's numbers for them, with their processes.

    Example:
        >>> by_id([Device(2, 0, 12, "tpu"), Device(2, 1, 13, "tpu")])
        'TPU 12,13 · P2'
    """
    given = sorted(set(devices))
    numbers = sorted(device.id for device in given)
    said = ",".join(map(str, numbers)) if len(numbers) <= MOST_IDS else ",".join(_runs(numbers))
    return f"{given[0].platform.upper()} {said} · {process_ranges(d.process for d in given)}"


def process_ranges(processes: Iterable[int]) -> str:
    """Return processes in few words.

    Example:
        >>> process_ranges([0, 1, 2, 5])
        'P0-2 P5'
    """
    return " ".join(f"P{run}" for run in _runs(sorted(set(processes))))


def _runs(numbers: Sequence[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
