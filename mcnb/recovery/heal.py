"""Heal a process in place: shut JAX down, reconnect, and restore the arrays.

The communicators do not work after an abort. JAX is therefore shut down and initialized again in
the same process: arrays are copied out and back in, and each reference to an old array, sharding,
mesh or device is replaced with a reference to the new one.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np

from mcnb.lockstep import _jax
from mcnb.lockstep.programs import device_names
from mcnb.messages import Healed
from mcnb.recovery.references import names_of, replace_references

_ALIGNMENT = 64  # bytes


def living(*kinds: type) -> list[list[Any]]:
    """Return all live instances of some classes, in one pass through the heap.

    Args:
        kinds: The classes; an object is listed under the first class that it is an instance of.

    Example:
        >>> class Mine: ...
        >>> one = Mine()
        >>> living(Mine) == [[one]]
        True
    """
    found: list[list[Any]] = [[] for _ in kinds]
    # A cache by class, because the heap has many objects of few classes.
    known: dict[type, list[Any] | None] = {}
    for one in gc.get_objects():
        kind = type(one)
        if kind not in known:
            known[kind] = next(
                (found[i] for i, wanted in enumerate(kinds) if issubclass(kind, wanted)), None
            )
        if (instances := known[kind]) is not None:
            instances.append(one)
    return found


def moved_mesh(old: Any, new: Mapping[int, tuple[Any, Any]]) -> Any:
    """Rebuild a mesh on the new devices; return None for anything but a mesh of old devices."""
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
    """Rebuild a sharding on the new devices; return None if it is not on old devices."""
    import jax

    mesh = getattr(old, "mesh", None)
    if isinstance(old, jax.sharding.NamedSharding):
        if id(mesh) not in new:
            return None
        return jax.sharding.NamedSharding(new[id(mesh)][1], old.spec, memory_kind=old.memory_kind)
    devices = _jax.devices_of_sharding(old)
    if not devices or not all(id(device) in new for device in devices):
        return None
    return _jax.moved_inner_sharding(old, [new[id(device)][1] for device in devices])


def copied(data: Any) -> np.ndarray:
    """Copy the values of a single-device array to memory that JAX does not own.

    The copy is aligned so that a new array can take over its memory, because touching fresh memory
    twice would be most of the cost of healing.
    """
    view = np.asarray(data)
    raw = np.empty(view.nbytes + _ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT
    copy = raw[begin : begin + view.nbytes].view(view.dtype).reshape(view.shape)
    copy[...] = view
    return copy


def heal(
    namespace: MutableMapping[str, Any], rejoin: Callable[[], None], keep_client: bool = False
) -> Healed:
    """Shut JAX down in this process, reconnect, and restore the learner's arrays.

    All processes must call `heal` at the same time, outside of any computation.

    Args:
        namespace: The learner's variables.
        rejoin: Initializes JAX's distributed system and its devices again.
        keep_client: Whether computations may still be running.

    Returns:
        The numbers and names of the objects that were restored, and of those that were not.
    """
    import jax

    gc.unfreeze()  # objects shared with the parent of a fork may refer to the learner's arrays
    gc.collect()  # frees intermediate arrays that are no longer reachable
    saved = [_Saved(array) for array in _jax.all_arrays()]
    names = names_of([one.array for one in saved], namespace)
    mesh, default_device = _jax.current_mesh(), jax.config.jax_default_device
    old_devices = jax.devices()
    names_of_devices = device_names(old_devices)
    compiled = names_of(living(jax.stages.Compiled)[0], namespace)
    _jax.shut_down(keep_client)
    rejoin()
    by_name = dict(zip(device_names(jax.devices()), jax.devices(), strict=True))
    new: dict[int, tuple[Any, Any]] = {
        id(old): (old, by_name[name])
        for old, name in zip(old_devices, names_of_devices, strict=True)
    }
    _restore_shardings(new)
    for one in saved:
        if not (one.deleted or one.failed):
            one.restore(new)
    healed = [one for one in saved if not (one.deleted or one.failed)]
    if id(mesh) in new:
        jax.set_mesh(new[id(mesh)][1])
    if id(default_device) in new:
        jax.config.update("jax_default_device", new[id(default_device)][1])
    own = [saved, healed, new, old_devices, *saved]
    left = replace_references(new, [namespace], ignored=own)
    for one in saved:
        with contextlib.suppress(Exception):  # its computation was aborted
            one.array.delete()  # a remaining reference must not be used as a value
    lost = [names[id(one.array)] for one in saved if one.failed and id(one.array) in names]
    held = names_of([holder for holder, _ in left] + [old for _, old in left], namespace)
    stale = sorted({held[id(one)] for pair in left for one in pair if id(one) in held})
    return Healed(
        arrays=sum(id(one.array) in names for one in healed),
        lost=tuple(sorted(lost)),
        stale=(
            *(f"{name}: create it again" for name in stale),
            *(f"{name}: compile it again" for name in sorted(compiled.values())),
        ),
    )


def _restore_shardings(new: dict[int, tuple[Any, Any]]) -> None:
    """Rebuild all live meshes and shardings on the new devices, and add them to `new`."""
    import jax

    meshes, shardings = living(jax.sharding.Mesh, jax.sharding.Sharding)
    for found, moved in ((meshes, moved_mesh), (shardings, moved_sharding)):
        for old in found:
            made = moved(old, new)
            if made is not None:
                new[id(old)] = (old, made)


class _Saved:
    """An array, with a copy of its values outside of JAX."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.deleted = array.is_deleted()
        self.failed = False
        self.shards: list[np.ndarray] = []
        if self.deleted:
            return
        self.devices = [shard.device for shard in array.addressable_shards]
        try:
            self.shards = [copied(shard.data) for shard in array.addressable_shards]
        except Exception:  # its computation was aborted
            self.failed = True

    def restore(self, new: dict[int, tuple[Any, Any]]) -> None:
        """Rebuild the array on the new devices, from the values that were saved."""
        import jax

        array, sharding = self.array, self.array.sharding
        if id(sharding) not in new:
            moved = moved_sharding(sharding, new)
            if moved is None:
                self.failed = True
                return
            new[id(sharding)] = (sharding, moved)
        parts = jax.device_put(self.shards, [new[id(device)][1] for device in self.devices])
        made = _jax.make_array(array.aval, new[id(sharding)][1], parts, array.committed)
        new[id(array)] = (array, made)
