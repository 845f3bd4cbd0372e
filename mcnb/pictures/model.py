"""Model devices, meshes and layouts as plain data, independent of JAX and of drawing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mcnb._text import array_type

K = TypeVar("K")
T = TypeVar("T")
MOST_IDS = 8  # more ids are written as ranges


@dataclass(frozen=True, order=True, slots=True)
class Device:
    """Device of a process.

    Attributes:
        process: Index of the process.
        position: Position among the devices of the process, from 0.
        id: JAX's device id, which on CPU is unrelated to the position.
        platform: JAX's name of the platform, such as `"tpu"`.

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
    """Return the model of each JAX device, in the order given.

    Args:
        devices: All or some devices of one backend.
    """
    given = list(devices)
    # Positions count all devices: a mesh may have only the second one of a process.
    every = {(d.process_index, d.id) for d in (*_backend(given), *given)}
    position = {
        key: position
        for own in grouped(sorted(every), lambda key: key[0]).values()
        for position, key in enumerate(own)
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


def counts(devices: Sequence[Any]) -> tuple[int, int]:
    """Return the numbers of processes and devices of the devices' backend.

    Devices without a backend, such as those of a pod without the hardware, are counted alone.
    """
    every = _backend(devices)
    return len({device.process_index for device in every}), len(every)


def _backend(devices: Sequence[Any]) -> Sequence[Any]:
    """Return all devices of the devices' backend, or else the devices given."""
    try:
        return list(devices[0].client.devices())
    except (AttributeError, IndexError, TypeError):
        return devices


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group things by a key, in the order in which each key first occurs.

    Example:
        >>> grouped(["b1", "a1", "b2"], lambda thing: thing[0])
        {'b': ['b1', 'b2'], 'a': ['a1']}
    """
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


def ranges(devices: Iterable[Device]) -> str:
    """Abbreviate devices to ranges of positions and of processes.

    Example:
        >>> ranges([Device(0, 0), Device(0, 1), Device(1, 0), Device(1, 1), Device(2, 1)])
        'P0-1.0-1 P2.1'
    """
    by_process = grouped(sorted(set(devices)), lambda device: device.process)
    positions = {k: tuple(device.position for device in own) for k, own in by_process.items()}
    return " ".join(
        f"P{run}.{part}"
        for own, processes in grouped(positions, lambda k: positions[k]).items()
        for run in _runs(processes)
        for part in _runs(own)
    )


def by_id(devices: Iterable[Device]) -> str:
    """Format devices by JAX's device ids, with their processes.

    Example:
        >>> by_id([Device(2, 0, 12, "tpu"), Device(2, 1, 13, "tpu")])
        'TPU 12,13 · P2'
    """
    given = sorted(set(devices))
    numbers = sorted(device.id for device in given)
    said = ",".join(map(str, numbers)) if len(numbers) <= MOST_IDS else ",".join(_runs(numbers))
    return f"{given[0].platform.upper()} {said} · {process_ranges(d.process for d in given)}"


def process_ranges(processes: Iterable[int]) -> str:
    """Abbreviate processes to ranges.

    Example:
        >>> process_ranges([0, 1, 2, 5])
        'P0-2 P5'
    """
    return " ".join(f"P{run}" for run in _runs(sorted(set(processes))))


def _runs(numbers: Sequence[int]) -> list[str]:
    # In ascending numbers, those of a run differ from their places by the same amount.
    runs = grouped(enumerate(numbers), lambda pair: pair[1] - pair[0]).values()
    ends = [(run[0][1], run[-1][1]) for run in runs]
    return [str(first) if first == last else f"{first}-{last}" for first, last in ends]


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis of a mesh; its kind is JAX's axis type, `"Auto"`, `"Explicit"` or `"Manual"`."""

    name: str
    size: int
    kind: str = "Auto"


@dataclass(frozen=True, slots=True)
class MeshModel:
    """Mesh of devices.

    Attributes:
        axes: Axes of the mesh.
        devices: Devices, with the last axis varying fastest; empty for an abstract mesh.
        processes: Number of all processes, in the mesh or not.
        all_devices: Number of all devices, in the mesh or not.
    """

    axes: tuple[Axis, ...]
    devices: tuple[Device, ...]
    processes: int = 0
    all_devices: int = 0

    @property
    def size(self) -> int:
        """Number of devices in the mesh; for an abstract mesh, number of positions."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def members(self) -> tuple[int, ...]:
        """Indices of the processes with devices in the mesh."""
        return tuple(sorted({device.process for device in self.devices}))


@dataclass(frozen=True, slots=True)
class Region:
    """Part of an array, from begin to end in each dimension, and devices that each hold a copy."""

    bounds: tuple[tuple[int, int], ...]
    devices: tuple[Device, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(end - begin for begin, end in self.bounds)


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of an array over devices.

    Attributes:
        shape: Global shape.
        dtype: Type of the elements; empty if only a sharding is known.
        item_bytes: Size of an element in bytes; 0 if unknown.
        regions: Parts of the array, ordered by their bounds.
        spec: Partition spec, as JAX writes it; empty without a mesh.
        mesh: Mesh of the sharding, or None.
        split: Names of the mesh axes over which each dimension is split.
        unreduced: Names of the mesh axes over which the array is not yet summed.
        memory: Memory kind, if it is not the default of the devices.
        processes: Number of all processes, holding parts or not.
        all_devices: Number of all devices, holding parts or not.
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
        """Devices that hold a part of the array."""
        return tuple(sorted({device for region in self.regions for device in region.devices}))

    @property
    def copies(self) -> int:
        """Number of devices that hold the same part; the maximum over all parts."""
        return max((len(region.devices) for region in self.regions), default=0)

    @property
    def bytes(self) -> int:
        """Size of the global array in bytes, with each element counted once."""
        return math.prod(self.shape) * self.item_bytes

    @property
    def device_bytes(self) -> dict[Device, int]:
        """Number of bytes that each device holds."""
        held: Counter[Device] = Counter()
        for region in self.regions:
            for device in region.devices:
                held[device] += region.size * self.item_bytes
        return dict(sorted(held.items()))

    def replicated(self) -> tuple[str, ...]:
        """Return the names of the mesh axes over which the array is replicated."""
        if self.mesh is None:
            return ()
        used = {name for names in self.split for name in names} | set(self.unreduced)
        return tuple(a.name for a in self.mesh.axes if a.size > 1 and a.name not in used)

    @property
    def kind(self) -> str:
        """Element type and shape, such as `float32[8,4]`."""
        return array_type(self.dtype or "an array", self.shape)

    def title(self) -> str:
        """Return the element type, shape and partition spec on one line."""
        return f"{self.kind}  {self.spec}" if self.spec else self.kind
