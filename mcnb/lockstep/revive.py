"""Arrays, shardings, meshes and settings, made anew on new devices."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnb.lockstep import jax_hooks

_ALIGNMENT = 64  # bytes


def living(*kinds: type) -> list[list[Any]]:
    """Return all objects of some classes that are alive, in one pass through the heap.

    Args:
        kinds: The classes; an object is listed under the first one of which it is an instance.

    Example:
        >>> class Mine: ...
        >>> one = Mine()
        >>> living(Mine) == [[one]]
        True
    """
    found: list[list[Any]] = [[] for _ in kinds]
    # The heap has many objects of few classes.
    known: dict[type, list[Any] | None] = {}
    for one in gc.get_objects():
        kind = type(one)
        if kind not in known:
            known[kind] = next(
                (found[i] for i, wanted in enumerate(kinds) if issubclass(kind, wanted)), None
            )
        place = known[kind]
        if place is not None:
            place.append(one)
    return found


def moved_mesh(old: Any, new: Mapping[int, tuple[Any, Any]]) -> Any:
    """Return a mesh on new devices; None for what is no mesh of old ones."""
    import jax

    if not isinstance(old, jax.sharding.Mesh) or old.empty:
        return None
    if not all(id(device) in new for device in old.devices.flat):
        return None
    devices = np.array([new[id(device)][1] for device in old.devices.flat])
    return jax.sharding.Mesh(
        devices.reshape(old.devices.shape), old.axis_names, axis_types=old.axis_types
    )


def moved_sharding(old: Any, new: Mapping[int, tuple[Any, Any]]) -> Any:
    """Return a sharding on new devices; None for what is not on old ones."""
    import jax

    mesh = getattr(old, "mesh", None)
    if isinstance(old, jax.sharding.NamedSharding):
        if id(mesh) not in new:
            return None
        return jax.sharding.NamedSharding(new[id(mesh)][1], old.spec, memory_kind=old.memory_kind)
    devices = tuple(getattr(old, "_device_assignment", None) or ())
    if not devices or not all(id(device) in new for device in devices):
        return None
    return jax_hooks.moved_inner_sharding(old, [new[id(device)][1] for device in devices])


def copied(data: Any) -> np.ndarray:
    """Return the values of an array of one device, out of JAX's hands.

    They are aligned as JAX wants it, so that a new array can take this memory over: to touch fresh
    memory twice would be most of what healing costs.
    """
    view = np.asarray(data)
    raw = np.empty(view.nbytes + _ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT
    copy = raw[begin : begin + view.nbytes].view(view.dtype).reshape(view.shape)
    copy[...] = view
    return copy


@dataclass(frozen=True)
class ArrayForm:
    """All of an array but its values.

    Attributes:
        aval: Its type.
        sharding: Its sharding.
        committed: Whether it is bound to its devices.
        devices: The devices of its addressable shards, in order.
    """

    aval: Any
    sharding: Any
    committed: bool
    devices: tuple[Any, ...]

    @classmethod
    def of(cls, array: Any) -> ArrayForm:
        """Return an array's form."""
        devices = tuple(shard.device for shard in array.addressable_shards)
        return cls(array.aval, array.sharding, array._committed, devices)

    def build(self, shards: Sequence[np.ndarray], new: dict[int, tuple[Any, Any]]) -> Any:
        """Return an array of that form on new devices, with these values."""
        import jax

        if id(self.sharding) not in new:
            new[id(self.sharding)] = (self.sharding, moved_sharding(self.sharding, new))
        sharding = new[id(self.sharding)][1]
        places = [new[id(device)][1] for device in self.devices]
        parts = jax.device_put(list(shards), places)
        return jax_hooks.make_array(self.aval, sharding, parts, self.committed)


@dataclass(frozen=True)
class MeshContext:
    """What `jax.set_mesh` and `jax_default_device` are set to.

    Attributes:
        mesh: The mesh, or None.
        device: The device, or None.
    """

    mesh: Any
    device: Any

    @classmethod
    def current(cls) -> MeshContext:
        """Return what they are set to in this thread."""
        import jax

        return cls(jax_hooks.current_mesh(), jax.config.jax_default_device)

    def restore(self, new: Mapping[int, tuple[Any, Any]]) -> None:
        """Set them to the same on new devices."""
        import jax

        if id(self.mesh) in new:
            jax.set_mesh(new[id(self.mesh)][1])
        if id(self.device) in new:
            jax.config.update("jax_default_device", new[id(self.device)][1])
