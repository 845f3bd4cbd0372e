"""What pictures show, as plain data: nothing here knows JAX, or how anything is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mcnb.pictures.devices import Device


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
