"""A process becomes a JAX controller: one of n that know each other."""

from __future__ import annotations

import gc
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mcnb._system import local_end, reserve_port
from mcnb.errors import ClusterError
from mcnb.lockstep import _jax
from mcnb.lockstep.abort import listening_ports
from mcnb.lockstep.ranks import identify
from mcnb.lockstep.wire import Address
from mcnb.messages import Healed
from mcnb.recovery.heal import heal as heal_here
from mcnb.worker.gpus import VISIBLE, visible_gpus
from mcnb.worker.signals import forget, leave

if TYPE_CHECKING:
    from mcnb.worker.shell import WorkerShell

POLL_S = 0.002
# The compiled gather of the devices that it was made for; JAX has new devices after a heal.
_gather: tuple[Any, Any, Any] | None = None


def meet() -> None:
    """Gather a number from every device of every process; return when all have taken part.

    The first computation that all make together has them connect to each other. Who waits for a
    connection that never comes can't be freed as reliably as who waits in a computation.

    Raises:
        RuntimeError: The numbers are wrong.
    """
    global _gather
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("device",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("device",), ()))
    _gather = mesh, split, jax.jit(_itself, out_shardings=whole)
    if not numbers_are_right(0, None):
        raise RuntimeError("the processes gathered wrong numbers from each other")


def numbers_are_right(salt: int, budget_s: float | None) -> bool:
    """Gather a known number from every device of every process, and compare.

    All processes have to call it with the same salt.

    Args:
        salt: Makes the numbers others than those of the last call.
        budget_s: For how many seconds to wait for the others at most; None for ever.

    Returns:
        Whether each number arrived in time, and is the right one.
    """
    import jax

    assert _gather is not None
    mesh, split, gather = _gather
    deadline = None if budget_s is None else time.monotonic() + budget_s
    expected = (np.arange(mesh.size) + 1) * 1009 + salt % 1000
    position = {device: i for i, device in enumerate(mesh.devices.flat)}
    with jax.set_mesh(mesh):
        own = [
            jax.device_put(np.array([expected[position[device]]], np.int32), device)
            for device in jax.local_devices()
        ]
        all_own = jax.make_array_from_single_device_arrays((mesh.size,), split, own)
        gathered = gather(all_own)
    while deadline is not None and not gathered.is_ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return [np.asarray(shard.data).tolist() for shard in gathered.addressable_shards] == [
        expected.tolist()
    ] * len(own)


def _itself(v: Any) -> Any:
    return v


CONNECT_POLL_S = 0.005
CONNECT_TIMEOUT_S = 120.0
# How long callbacks that were interrupted have to end.
CALLBACKS_S = 0.3


@dataclass(frozen=True)
class Joined:
    """What a process reports when it has joined the others.

    Attributes:
        process_index: Its `jax.process_index()`.
        local_devices: How many devices it has itself.
        devices: How many all have together.
        communicator_port: The port at which its communicator listens; 0 if it has none.
        unchecked: Why its launches are not checked; empty if they are.
    """

    process_index: int
    local_devices: int
    devices: int
    communicator_port: int = 0
    unchecked: str = ""


@dataclass(frozen=True)
class Location:
    """Where a process is, and what it was given to know itself by.

    Attributes:
        host: Its host's name.
        address: Its host's address, as others reach it.
        rank: Which process its launcher says it is; None if it does not.
        output: The common path of its output files, on its host.
        gpus: The GPUs that it may use, by UUID.
    """

    host: str
    address: str
    rank: int | None
    output: str
    gpus: tuple[str, ...] = ()


def locate(shell: WorkerShell, notebook: str) -> Location:
    """Return where this process is.

    Args:
        shell: The process's shell.
        notebook: The notebook's address.
    """
    try:
        rank: int | None = identify(os.environ).process
    except ClusterError:
        rank = None
    return Location(
        socket.gethostname(),
        local_end(notebook),
        rank,
        shell.worker.output,
        visible_gpus(os.environ) if os.environ.get("JAX_PLATFORMS") == "cuda" else (),
    )


def in_order(found: Sequence[Location]) -> list[int]:
    """Return in which order processes are to have their indices.

    By their launcher's ranks, if it gave each one; otherwise those of a host are neighbours.

    Args:
        found: Where each is.

    Example:
        >>> a, b = (Location(f"node{i}", f"10.0.0.{i}", None, "") for i in (2, 10))
        >>> in_order([b, a, b])
        [1, 0, 2]
    """
    ranks = [one.rank for one in found]
    if sorted(rank for rank in ranks if rank is not None) == list(range(len(found))):
        return [ranks.index(k) for k in range(len(found))]
    return sorted(range(len(found)), key=lambda i: (_natural(found[i].host), found[i].address, i))


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what a name is sorted by, with the numbers in it as numbers."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


_held: socket.socket | None = None


def hold_port(shell: WorkerShell, host: str) -> int:
    """Hold a port until JAX's coordinator listens there, in this process; return it.

    Args:
        shell: The process's shell.
        host: This host's address, as the other processes reach it.
    """
    global _held
    del shell
    _held, port = reserve_port(host)
    return port


def join(
    shell: WorkerShell,
    address: str,
    processes: int,
    referee: Address,
    indices: Mapping[int, int],
    alone: Literal["", "leaves", "forgets"],
    gpus: Sequence[Sequence[str]] = (),
) -> Joined:
    """Import JAX and connect to the other processes; return when all have.

    Args:
        shell: The process's shell.
        address: Where JAX's coordinator listens, in process 0: host and port.
        processes: How many processes there are.
        referee: Where the referee listens, who checks their launches.
        indices: The processes' indices by the ids of their engines.
        alone: What this process does when the notebook is gone: somebody else sees to it, or it
            ends, or it removes what the notebook has left.
        gpus: The GPUs of each process, if they compute on GPUs.

    Raises:
        RuntimeError: JAX could not connect, or this is not the process it should be.
    """
    process_index = shell.worker.process_index = indices[int(shell.kernel.engine_id)]
    expected = int(os.environ.get("JAX_NUM_CPU_DEVICES", 1))
    if gpus:
        os.environ[VISIBLE] = ",".join(gpus[process_index])  # CUDA reads it when JAX begins to
        expected = len(gpus[process_index])
    port = _connect(address, processes, process_index)
    import jax

    joined = Joined(jax.process_index(), jax.local_device_count(), jax.device_count(), port)
    if joined.process_index != process_index or joined.local_devices != expected:
        raise RuntimeError(
            f"JAX made this process {joined.process_index} with {joined.local_devices} devices, "
            f"where process {process_index} with {expected} was asked for. Look for settings of "
            "JAX or XLA in the environment"
        )
    gone = {"": None, "leaves": leave, "forgets": lambda: forget(shell.worker.output)}[alone]
    return replace(joined, unchecked=shell.worker.session.enter(referee, process_index, gone))


def heal(shell: WorkerShell, address: str, processes: int) -> tuple[Healed, int]:
    """Leave the other processes, join them anew, and restore the learner's arrays.

    Args:
        shell: The process's shell.
        address: Where JAX's new coordinator listens, in process 0: host and port.
        processes: How many processes there are.

    Returns:
        What was restored, and the port at which the process's communicator listens now.
    """
    port = 0

    def rejoin() -> None:
        nonlocal port
        port = _connect(address, processes, shell.worker.process_index)

    deadline = time.monotonic() + CALLBACKS_S
    while shell.worker.session.callbacks_run() and time.monotonic() < deadline:
        time.sleep(CONNECT_POLL_S)
    shell.worker.monitor.begin("")
    try:
        with shell.worker.session.unseen():
            healed = heal_here(
                shell.user_ns, rejoin, keep_client=shell.worker.session.callbacks_run()
            )
        gc.collect()  # the old devices, with their threads and connections
    finally:
        shell.worker.monitor.end()
        shell.worker.record.take()  # what was cut off complains, and belongs to no cell
    return healed, port


def _connect(address: str, processes: int, process_index: int) -> int:
    """Join the others; return the port at which this process's communicator listens."""
    import jax

    if process_index > 0:
        # JAX's own client would wait a second after a first attempt that came too early.
        _wait_for_listener(address)
    jax.distributed.initialize(
        coordinator_address=address,
        coordinator_bind_address=address,
        num_processes=processes,
        process_id=process_index,
        cluster_detection_method="deactivate",
    )
    _let_go()
    before = listening_ports()
    jax.devices()
    # Gloo's is the one port that comes with the devices.
    ports = listening_ports() - before
    _jax.make_waits_interruptible()
    if processes > 1:
        meet()
    return ports.pop() if len(ports) == 1 else 0


def _let_go() -> None:
    """Hold JAX's port no longer: its coordinator does, if this is its process."""
    global _held
    if _held is not None:
        _held.close()
        _held = None


def _wait_for_listener(address: str) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(CONNECT_POLL_S)
        else:
            return
