"""Find the computations, threads and child processes that a cell left running.

JAX launches computations asynchronously, so a computation may still run after Python has finished
the cell, and no interrupt reaches it. JAX does not report what a device is doing either. Three
signs together show that nothing runs any more:

- all live arrays have their values;
- a computation that is queued behind all others, on each device, finishes. XLA keeps one queue for
  computations on a single device, by device and launching thread, and another one for those on
  several devices at once: a computation is queued behind each;
- no native thread uses the processor.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from mcnb._system import BRIEFLY_S, RunningClock
from mcnb.messages import Unfinished
from mcnb.recovery.references import names_of
from mcnb.worker import signals
from mcnb.worker.monitor import native_busy_s, native_ready

if TYPE_CHECKING:
    from mcnb.worker.shell import WorkerShell

POLL_S = 0.005
# How long interrupted threads have to end before they are reported as running.
THREADS_S = 0.4
# The period in which processor use is measured, and the share of it that counts as use: threads of
# BLAS and of XLA look for new work for some milliseconds before they sleep.
WINDOW_S, BUSY_SHARE = 0.02, 0.25
# A computation for a device takes some milliseconds to compile. With more devices than these, only
# the computation on all of them at once is queued behind the others.
MOST_SINGLE = 32
# How long the queued computations have to finish, if native code uses the processor and if it does
# not. On an idle device they take microseconds, unless the machine is busy.
BUSY_S, IDLE_S = 0.6, 1.0
# If the cell need not end, its computations have this time, unless native code of the process has
# run for so long: on a busy machine they, or those of other processes that they wait for, may get
# no core, and those that wait use the processor, too.
STARVED_S, STARVED_RUN_S = 6.0, 2.0
# They are launched after this time without pending arrays, but with native code at work.
MARK_AFTER_S = 0.15
MOST_NAMES = 5
# The name of the threads in which XLA compiles, from jaxlib 0.12 on.
COMPILERS = "tf_XLACompile"
# The results of the queued computations, until they are ready.
_marks: list[Any] = []


def wind_down(shell: WorkerShell, ends: bool, heals: bool, budget_s: float) -> Unfinished:
    """Wait until nothing of the last cell runs in this process any more.

    Args:
        shell: The process's shell.
        ends: Whether the cell has to end: then its threads are interrupted.
        heals: Whether the process heals next. Then a computation is queued behind the others only
            if native code uses the processor, because compiling it takes time.
        budget_s: The most seconds to wait. If the cell need not end, the wait is longer on a busy
            machine.

    Returns:
        The computations, threads and processes that still run.
    """
    import jax

    clock = RunningClock(BRIEFLY_S)
    deadline = budget_s
    session = shell.worker.session
    # Not armed: an interrupt of the cell may arrive late, and would hide what still runs.
    with shell.worker.monitor.watching(), session.suspended():
        if ends:
            for thread in session.threads_of_the_cell():
                signals.raise_in(thread)
        native, at, ran = native_busy_s(), clock(), native_busy_s(queued=False)

        def may_be_starved() -> bool:
            ran_s = _used(ran, native_busy_s(queued=False))
            return not ends and ran_s < STARVED_RUN_S and clock() < STARVED_S

        compiled, marked = native, 0.0
        used = busy = True
        while True:
            devices = _pending_devices(jax.live_arrays())
            now = clock()
            if now - at >= WINDOW_S:
                last, native = native, native_busy_s()
                used = _used(last, native) > BUSY_SHARE * (now - at)
                # The system counts the time in the queue for a core only at its end.
                busy, at = used or native_ready(), now
            threads = ends and now < THREADS_S and session.threads_of_the_cell()
            idle = not (devices or busy or threads)
            if idle or (now > deadline and not may_be_starved()):
                break
            if ends and not marked and not devices and now > MARK_AFTER_S:
                # A computation may run of which no array is alive.
                compiled, marked = native_busy_s(COMPILERS), now
                _launch_behind_all_others()
                deadline = max(deadline, clock() + BUSY_S)
            time.sleep(POLL_S)
        if not devices and (busy or not heals):
            compiled, marked = native_busy_s(COMPILERS), clock()
            _launch_behind_all_others()
            deadline = clock() + (BUSY_S if busy else IDLE_S)
            while (devices := _pending_devices(_marks)) and (
                clock() <= deadline or may_be_starved()
            ):
                time.sleep(POLL_S)
        compiles = _used(compiled, native_busy_s(COMPILERS))
        if marked and compiles > BUSY_SHARE * (clock() - marked):
            # Newer XLA compiles in threads of its own, and a launch waits for a free one.
            devices, used = set(), True
        if not devices:
            _marks.clear()
        return _described(shell, devices, used)


def _used(before: dict[int, float], now: dict[int, float]) -> float:
    """Return the processor time that threads used in between, in seconds."""
    return sum(now[task] - before.get(task, now[task]) for task in now)


def _described(shell: WorkerShell, devices: set[int], native: bool) -> Unfinished:
    import jax

    session = shell.worker.session
    arrays = [one for one in jax.live_arrays() if not one.is_deleted()]
    unready = [one for one in arrays if not one.is_ready()] if devices else []
    return Unfinished(
        tuple(sorted(devices)),
        session.newest_launch if devices else "",
        tuple(sorted(names_of(unready, shell.user_ns).values())[:MOST_NAMES]),
        tuple(sorted(session.threads_of_the_cell().values(), key=lambda line: line or 0)),
        native,
        tuple(sorted(child.name() for child in signals.children())),
        sum(shard.data.nbytes for one in arrays for shard in one.addressable_shards),
        session.newest_cell if devices else "",
        jax.default_backend() == "gpu",
    )


def _pending_devices(arrays: Iterable[Any]) -> set[int]:
    """Return the local positions of the devices on which arrays are pending."""
    import jax

    pending = [one for one in arrays if not one.is_deleted() and not one.is_ready()]
    positions = {device: i for i, device in enumerate(jax.local_devices())}
    return {
        positions[shard.device]
        for one in pending
        for shard in one.addressable_shards
        if shard.device in positions and not shard.data.is_ready()
    }


def _launch_behind_all_others() -> None:
    """Launch a computation behind all others on each local device, with its result in `_marks`."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    local = jax.local_devices()
    groups = [[device] for device in local[:MOST_SINGLE]]
    if len(local) > 1:
        groups.append(local)
    marks = []
    for devices in groups:
        mesh = Mesh(np.array(devices), ("device",))
        with jax.set_mesh(mesh):
            sharding = NamedSharding(mesh, PartitionSpec("device"))
            mark = jax.device_put(np.ones(len(devices), np.int32), sharding)
            marks.append(jax.jit(_next)(mark))
    _marks[:] = marks


def _next(v: Any) -> Any:
    return v + 1
