"""Connect a process to the others as a JAX controller, and reconnect it when it heals."""

from __future__ import annotations

import gc
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mcnb._system import BRIEFLY_S, RunningClock, local_end, reserve_port
from mcnb._text import filled, plural
from mcnb.lockstep import _jax
from mcnb.lockstep.abort import listening_ports
from mcnb.lockstep.compiling import compile_alone
from mcnb.lockstep.network import SILENCE_S, address_for_gloo, bypass_proxy, host_of
from mcnb.lockstep.wire import Address
from mcnb.messages import Healed
from mcnb.recovery.heal import heal as heal_here
from mcnb.worker.devices import accept_device_count, allow_cpu_hosts
from mcnb.worker.gpus import VISIBLE, visible_gpus
from mcnb.worker.settings import protection
from mcnb.worker.signals import forget, leave

if TYPE_CHECKING:
    from mcnb.worker.shell import WorkerShell

POLL_S = 0.002
# The compiled gather for the current devices, which a heal replaces.
_gather: tuple[Any, Any, Any] | None = None
CONNECT_POLL_S = 0.005
CONNECT_TIMEOUT_S = 120.0
# How long interrupted callbacks have to end.
CALLBACKS_S = 0.3
# Reserves the port of JAX's coordinator until the coordinator listens.
_held: socket.socket | None = None


def meet() -> None:
    """Gather a number from every device of every process, when all processes take part.

    The first joint computation makes the processes connect to each other. A process that waits for
    a missing connection can't be freed as reliably as one that waits in a computation.

    Raises:
        RuntimeError: The processes can't communicate, or the gathered numbers are wrong.
    """
    global _gather
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("device",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("device",), ()))
    _gather = mesh, split, jax.jit(_itself, out_shardings=whole)
    if not numbers_are_right(0, None):
        raise RuntimeError(
            "the processes received wrong values in a test collective, so they can't communicate "
            "correctly"
        )


def numbers_are_right(salt: int, budget_s: float | None) -> bool:
    """Gather a known number from every device of every process, and compare.

    All processes must call it with the same salt.

    Args:
        salt: Changes the numbers from call to call.
        budget_s: The most seconds to wait for the other processes; None to wait for ever.

    Returns:
        Whether every number arrived in time and is right.

    Raises:
        RuntimeError: The processes can't communicate; JAX raises it, and says why.
    """
    import jax

    assert _gather is not None
    mesh, split, gather = _gather
    clock = RunningClock(BRIEFLY_S)
    expected = np.arange(1, mesh.size + 1, dtype=np.int32) * 1009 + salt % 1000
    with jax.set_mesh(mesh):
        own = jax.make_array_from_callback((mesh.size,), split, expected.__getitem__)
        gathered = gather(own)
    while budget_s is not None and not gathered.is_ready():
        if clock() > budget_s:
            return False
        time.sleep(POLL_S)
    # Fetched before they are compared, because numpy.array_equal takes an error for a difference.
    values = [np.asarray(shard.data) for shard in gathered.addressable_shards]
    return all(np.array_equal(one, expected) for one in values)


def _itself(v: Any) -> Any:
    return v


@dataclass(frozen=True)
class Location:
    """The location of a process, and its rank if it has one.

    Attributes:
        host: The name of its host.
        address: The address of its host, as others reach it.
        rank: The process index that its launcher gave it; None if it gave none.
        output: The common path of its output files, on its host.
        gpus: The UUIDs of the GPUs that it may use.
    """

    host: str
    address: str
    rank: int | None
    output: str
    gpus: tuple[str, ...] = ()


def locate(shell: WorkerShell, notebook: str, rank_variables: Sequence[str]) -> Location:
    """Return the location of this process.

    Args:
        shell: The process's shell.
        notebook: The notebook kernel's address.
        rank_variables: The environment variables of which the first that is set contains the rank.
    """
    rank = next((os.environ[name] for name in rank_variables if name in os.environ), "")
    platforms = os.environ.get("JAX_PLATFORMS", "").split(",")
    return Location(
        socket.gethostname(),
        local_end(notebook),
        int(rank) if rank.isdecimal() else None,
        shell.worker.output,
        visible_gpus(os.environ) if "cuda" in platforms else (),
    )


def in_order(found: Sequence[Location]) -> list[int]:
    """Return the order in which processes get their indices.

    The launcher's ranks decide, if every process has one. Otherwise, processes of a host are
    neighbours.

    Args:
        found: The location of each process.

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
    """Return a sort key for a name, with the numbers in it as numbers."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def hold_port(shell: WorkerShell, host: str) -> int:
    """Reserve a port until JAX's coordinator listens on it in this process; return the port.

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
    arguments: Sequence[str] = (),
) -> tuple[int, str]:
    """Import JAX and connect to the other processes; return when all have connected.

    Args:
        shell: The process's shell.
        address: The host and port of JAX's coordinator, in process 0.
        processes: The number of processes.
        referee: The address of the referee, which checks the launches.
        indices: The process indices, by engine id.
        alone: The reaction to the end of the notebook kernel: `""` leaves it to other programs,
            `"leaves"` ends this process, `"forgets"` removes the files that the kernel left.
        gpus: The GPUs of each process; empty for CPU devices.
        arguments: The arguments of a cell's program.

    Returns:
        The port on which the process's communicator listens, 0 if it has none; and why its launches
        are not checked, empty if they are.

    Raises:
        RuntimeError: JAX could not connect, or gave this process another index or device count.
    """
    process_index = shell.worker.process_index = indices[int(shell.kernel.engine_id)]
    # Python's own prompt has an empty name there, too.
    sys.argv = ["", *(filled(word, process_index, processes) for word in arguments)]
    expected = int(os.environ.get("JAX_NUM_CPU_DEVICES", 1))
    if gpus:
        os.environ[VISIBLE] = ",".join(gpus[process_index])  # CUDA reads it when JAX starts it
        expected = len(gpus[process_index])
    compile_alone(os.environ, os.environ.get("JAX_PLATFORMS"))
    port = _connect(address, processes, process_index)
    import jax

    index, devices = jax.process_index(), jax.local_device_count()
    if (index, devices) != (process_index, expected):
        raise RuntimeError(
            f"JAX started this process with index {index} and "
            f"{plural(devices, 'device', 'devices')}; index {process_index} and "
            f"{plural(expected, 'device', 'devices')} were expected. Check the JAX_* variables and "
            "XLA_FLAGS in the environment"
        )
    allow_cpu_hosts()
    accept_device_count()
    _jax.print_own_blocks()
    _jax.answer_initialize(partial(_answer_initialize, processes, process_index))
    jax.distributed.shutdown = _answer_shutdown  # JAX itself calls its own, at the end
    gone = {"": None, "leaves": leave, "forgets": lambda: forget(shell.worker.output)}[alone]
    return port, shell.worker.session.enter(referee, process_index, gone)


def _answer_shutdown() -> None:
    """Answer a call of `jax.distributed.shutdown` in a cell: later cells need the others."""
    print(
        "jax.distributed.shutdown: the processes stay joined until the cluster ends, so the call "
        "changes nothing. To end it: %mcjax stop"
    )


def _answer_initialize(processes: int, process_index: int, given: dict[str, Any]) -> None:
    """Answer a call of `jax.distributed.initialize` in a cell, where the process has joined.

    Raises:
        RuntimeError: The arguments contradict the cluster.
    """
    own = {"num_processes": processes, "process_id": process_index}
    if all(given.get(name) in (None, value) for name, value in own.items()):
        many = f"{processes} processes of this cluster have"
        joined = "process of this cluster has" if processes == 1 else many
        print(
            f"jax.distributed.initialize: the {joined} joined already, so the call changes nothing"
        )
        return
    asked = ", ".join(f"{name}={given[name]}" for name in own if given.get(name) is not None)
    raise RuntimeError(
        f"jax.distributed.initialize was called with {asked} in process {process_index} of "
        f"{processes}, which has joined the others already. Leave the call out, or pass "
        "jax.process_index() and jax.process_count(). For a cluster of another size: %mcjax stop, "
        "then %mcjax start -n N"
    )


def heal(shell: WorkerShell, address: str, processes: int) -> tuple[Healed, int]:
    """Disconnect from the other processes, reconnect, and restore the learner's arrays.

    Args:
        shell: The process's shell.
        address: The host and port of JAX's new coordinator, in process 0.
        processes: The number of processes.

    Returns:
        The restored arrays, and the port on which the process's communicator listens now.
    """
    session = shell.worker.session
    shell.worker.forget_failure()  # its frames hold arrays of the devices that are given up
    ports: list[int] = []

    def rejoin() -> None:
        ports.append(_connect(address, processes, shell.worker.process_index))

    clock = RunningClock(BRIEFLY_S)
    while session.callbacks_run() and clock() < CALLBACKS_S:
        time.sleep(CONNECT_POLL_S)
    try:
        with shell.worker.monitor.watching():
            with session.suspended():
                healed = heal_here(shell.user_ns, rejoin, keep_client=session.callbacks_run())
            gc.collect()  # frees the old devices, with their threads and connections
    finally:
        shell.worker.record.take()  # messages of aborted computations belong to no cell
    return healed, ports[0]


def _connect(address: str, processes: int, process_index: int) -> int:
    """Connect to the others; return the port on which this process's communicator listens."""
    import jax

    bypass_proxy(address, os.environ)
    _jax.connect_directly(address_for_gloo(address))
    if process_index > 0:
        # JAX's own client would wait a second after a first attempt that is too early.
        _wait_for_listener(address)
    initialize = _jax.original_initialize()
    initialize(
        coordinator_address=address,
        coordinator_bind_address=address,
        num_processes=processes,
        process_id=process_index,
        cluster_detection_method="deactivate",
        # The notebook kernel has limits of its own, in which a pause of the machine doesn't count.
        initialization_timeout=SILENCE_S,
        heartbeat_timeout_seconds=SILENCE_S,
        **protection(initialize),
    )
    if _held is not None:
        _held.close()  # JAX's coordinator listens on the port in its own process
    before = listening_ports()
    jax.devices()
    # Gloo opens the only port that appears with the devices.
    ports = listening_ports() - before
    _jax.make_waits_interruptible()
    if processes > 1:
        meet()
    return ports.pop() if len(ports) == 1 else 0


def _wait_for_listener(address: str) -> None:
    host, port = host_of(address), int(address.rpartition(":")[2])
    clock = RunningClock(BRIEFLY_S)
    while True:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except ConnectionRefusedError:
            if clock() > CONNECT_TIMEOUT_S:
                raise
            time.sleep(CONNECT_POLL_S)
        else:
            return
