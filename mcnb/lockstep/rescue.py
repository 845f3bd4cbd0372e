"""Getting processes out of a real hang, and their arrays into a new life.

On CPU, processes talk through Gloo, over TCP connections of each to each. When those are shut down,
every collective that waits on one fails at once, and Python goes on with all that it knows. The
communicators are dead then, so JAX is shut down and joined anew, in the same processes: arrays are
copied out and back in, and whatever refers to an old array, sharding, mesh or device is made to
refer to the new one.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import socket
import threading
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import psutil

from mcnb.lockstep import jax_hooks
from mcnb.lockstep.frames import current_frames
from mcnb.lockstep.names import names_of
from mcnb.lockstep.programs import device_names
from mcnb.lockstep.references import replace_references
from mcnb.lockstep.revive import (
    ArrayForm,
    MeshContext,
    copied,
    living,
    moved_mesh,
    moved_sharding,
)


@dataclass(frozen=True, slots=True)
class Healed:
    """What healing did in a process.

    Attributes:
        arrays: How many of the learner's arrays have their values back, bit for bit.
        bytes: How large this process's parts of them are.
        deleted: How many arrays had been deleted or donated before, and still are.
        lost: Names of arrays without a value: what was to compute them was ended.
        stale: Names of what could not be restored, with what to do.
    """

    arrays: int = 0
    bytes: int = 0
    deleted: int = 0
    lost: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


def listening_ports() -> set[int]:
    """Return the TCP ports at which this process listens."""
    return {
        connection.laddr.port
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }


def cut_connections(ports: Iterable[int]) -> int:
    """Shut down this process's connections from or to any of these ports.

    Args:
        ports: The ports at which the processes' communicators listen.

    Returns:
        How many connections that were.
    """
    ports = set(ports)
    cut = 0
    for connection in psutil.Process().net_connections("tcp"):
        ends = {connection.laddr.port, *([connection.raddr.port] if connection.raddr else [])}
        if connection.status == psutil.CONN_LISTEN or ends.isdisjoint(ports):
            continue
        try:
            with socket.socket(fileno=os.dup(connection.fd)) as end:
                end.shutdown(socket.SHUT_RDWR)
            cut += 1
        except OSError:  # closed meanwhile
            continue
    return cut


def callbacks(runs_learner: Callable[[FrameType], bool]) -> list[int]:
    """Return the threads in which JAX calls back into the learner's code."""
    own = {threading.get_ident(), threading.main_thread().ident}
    found = []
    with current_frames() as frames:
        for thread, frame in frames.items():
            stack = [frame]
            while (outer := stack[-1].f_back) is not None:
                stack.append(outer)
            started_by_python = stack[-1].f_globals.get("__name__") == "threading"
            if thread not in own and not started_by_python and any(map(runs_learner, stack)):
                found.append(thread)
    return found


def interrupt_callbacks(runs_learner: Callable[[FrameType], bool]) -> None:
    """Raise KeyboardInterrupt in callbacks: one that never returns keeps a computation alive."""
    for thread in callbacks(runs_learner):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt)
        )


def heal(
    namespace: MutableMapping[str, Any], rejoin: Callable[[], None], keep_client: bool = False
) -> Healed:
    """Shut JAX down in this process, join anew, and restore what the learner has.

    All processes have to do it at once, none of them inside a computation.

    Args:
        namespace: The learner's variables.
        rejoin: Initializes JAX's distributed system and its devices anew.
        keep_client: Whether computations may still be under way.

    Returns:
        What could be restored, and what could not.
    """
    import jax

    gc.unfreeze()  # what a forked process shares with its parent may refer to the learner's arrays
    gc.collect()  # what JAX computed on the way to something else, and nobody has any more
    saved = [_Saved(array) for array in jax_hooks.all_arrays()]
    names = names_of([one.array for one in saved], namespace)
    context = MeshContext.current()
    old_devices = jax.devices()
    names_of_devices = device_names(old_devices)
    compiled = _compiled(namespace)
    jax_hooks.shut_down(keep_client)
    rejoin()
    by_name = dict(zip(device_names(jax.devices()), jax.devices(), strict=True))
    new: dict[int, tuple[Any, Any]] = {
        id(old): (old, by_name[name])
        for old, name in zip(old_devices, names_of_devices, strict=True)
    }
    _restore_shardings(new)
    healed = [one for one in saved if one.restore(new)]
    context.restore(new)
    own = [saved, healed, new, context, old_devices, *saved, *(one.form for one in healed)]
    left = replace_references(new, [namespace], ignored=own)
    for one in saved:
        with contextlib.suppress(Exception):  # what was to compute it was ended
            one.array.delete()  # what still refers to it must not take it for a value
    kept = [one for one in healed if id(one.array) in names]
    lost = [names[id(one.array)] for one in saved if one.failed and id(one.array) in names]
    held = names_of([holder for holder, _ in left] + [old for _, old in left], namespace)
    stale = sorted({held[id(one)] for pair in left for one in pair if id(one) in held})
    return Healed(
        arrays=len(kept),
        bytes=sum(shard.nbytes for one in kept for shard in one.shards or ()),
        deleted=sum(one.deleted for one in saved if id(one.array) in names),
        lost=tuple(sorted(lost)),
        stale=tuple(f"{name}: make it anew" for name in stale) + tuple(compiled),
    )


def _compiled(namespace: MutableMapping[str, Any]) -> list[str]:
    import jax

    [found] = living(jax.stages.Compiled)
    named = names_of(found, namespace)
    return [f"{name}: compile it again" for name in sorted(named.values())]


def _restore_shardings(new: dict[int, tuple[Any, Any]]) -> None:
    """Add the meshes and shardings that are alive, on the new devices."""
    import jax

    meshes, shardings = living(jax.sharding.Mesh, jax.sharding.Sharding)
    for old in meshes:
        if id(old) not in new:
            made = moved_mesh(old, new)
            if made is not None:
                new[id(old)] = (old, made)
    for old in shardings:
        if id(old) not in new:
            made = moved_sharding(old, new)
            if made is not None:
                new[id(old)] = (old, made)


class _Saved:
    """An array's values, outside of JAX."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.deleted = array.is_deleted()
        self.failed = False
        self.shards: list[np.ndarray] | None = None
        if self.deleted:
            return
        self.form = ArrayForm.of(array)
        try:
            self.shards = [copied(shard.data) for shard in array.addressable_shards]
        except Exception:  # what was to compute it was ended
            self.failed = True

    def restore(self, new: dict[int, tuple[Any, Any]]) -> bool:
        """Make the array anew; return whether there was one."""
        if self.shards is None or id(self.array) in new:
            return False
        new[id(self.array)] = (self.array, self.form.build(self.shards, new))
        return True
