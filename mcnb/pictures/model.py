"""What pictures show, as plain data: nothing here knows JAX, or how anything is drawn."""

from __future__ import annotations

import itertools
import math
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


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a mesh.

    Attributes:
        name: Its name.
        size: How many devices stand along it.
        kind: `"Auto"`, `"Explicit"` or `"Manual"`.
    """

    name: str
    size: int
    kind: str = "Auto"


@dataclass(frozen=True, slots=True)
class MeshModel:
    """A mesh.

    Attributes:
        axes: Its axes.
        devices: Its devices, the last axis running fastest; none where it is abstract.
        processes: How many processes there are, in it or not.
        all_devices: How many devices there are, in it or not.
    """

    axes: tuple[Axis, ...]
    devices: tuple[Device, ...]
    processes: int = 0
    all_devices: int = 0

    @property
    def size(self) -> int:
        """How many devices it has, or would have."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def members(self) -> tuple[int, ...]:
        """The processes that have devices in it."""
        return tuple(sorted({device.process for device in self.devices}))


@dataclass(frozen=True, slots=True)
class Region:
    """A part of an array, and who holds it.

    Attributes:
        bounds: Where it begins and ends, for each dimension.
        devices: The devices that hold a copy each.
    """

    bounds: tuple[tuple[int, int], ...]
    devices: tuple[Device, ...]

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(end - begin for begin, end in self.bounds)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where an array lies.

    Attributes:
        shape: Its global shape.
        dtype: The type of its elements; empty where only a sharding is known.
        item_bytes: The size of an element, in bytes; 0 where it is not known.
        regions: Its parts, ordered by where they begin.
        spec: How it is split, as JAX writes it; empty where there is no mesh.
        mesh: The mesh, or None.
        split: The names of the mesh's axes over which each dimension is split.
        unreduced: The names of the axes along which it still has to be summed up.
        memory: The kind of memory, where it is not the devices' usual one.
        processes: How many processes there are, holding parts or not.
        all_devices: How many devices there are, holding parts or not.
    """

    shape: tuple[int, ...]
    dtype: str
    item_bytes: int
    regions: tuple[Region, ...]
    spec: str = ""
    mesh: MeshModel | None = None
    split: tuple[tuple[str, ...], ...] = ()
    unreduced: tuple[str, ...] = ()
    memory: str = ""
    processes: int = 0
    all_devices: int = 0

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that hold a part of it."""
        return tuple(sorted({device for region in self.regions for device in region.devices}))

    @property
    def copies(self) -> int:
        """On how many devices each part lies; the most of them."""
        return max((len(region.devices) for region in self.regions), default=0)

    @property
    def bytes(self) -> int:
        """The size of the whole, in bytes, each element counted once."""
        return math.prod(self.shape) * self.item_bytes

    @property
    def device_bytes(self) -> dict[Device, int]:
        """How many bytes each device holds."""
        held: dict[Device, int] = {}
        for region in self.regions:
            for device in region.devices:
                held[device] = held.get(device, 0) + region.size * self.item_bytes
        return dict(sorted(held.items()))

    def replicated(self) -> tuple[str, ...]:
        """Return the names of the mesh's axes along which all devices hold the same."""
        if self.mesh is None:
            return ()
        used = {name for names in self.split for name in names} | set(self.unreduced)
        return tuple(a.name for a in self.mesh.axes if a.size > 1 and a.name not in used)

    def title(self) -> str:
        """Return what it is, in a line."""
        shape = f"[{','.join(map(str, self.shape))}]"
        return f"{self.dtype or 'an array'}{shape}" + (f"  {self.spec}" if self.spec else "")
