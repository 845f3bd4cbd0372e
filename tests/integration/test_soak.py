"""Many processes, and many cells in a row."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import statistics
import subprocess
import sys
import threading
import time

import psutil
import pytest

import mcnb
from tests.conftest import descendants, once, wait_until
from tests.integration.test_cycles import FORKSERVER, imported_all
from tests.support.healing import SETUP
from tests.support.stopping import HUNG_S, KINDS, fate_of, lies

pytestmark = pytest.mark.thorough("many processes or many cells")


def test_thirty_two_processes() -> None:
    with mcnb.Cluster(processes=32, devices_per_process=1) as cluster:
        result = cluster.run("""
import jax, numpy as np, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((32,), ("i",))
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("i")), np.ones(1))
print(int(jnp.sum(x)))
""")
        assert result.text() == "[all 32] 32\n"


# A notebook kernel that runs a cell for each line that it reads, and writes how long it took.
KERNEL = """
import sys, time, mcnb
with mcnb.Cluster(4, 2) as cluster:
    for number, _ in enumerate(sys.stdin):
        began = time.perf_counter()
        assert cluster.run(f"print('a line')\\nx = list(range(1000))\\nx[{number}]").ok
        print(time.perf_counter() - began, flush=True)
"""


class _Kernel(subprocess.Popen[str]):
    def __init__(self) -> None:
        command = [sys.executable, "-c", KERNEL]
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def cell(self) -> float:
        """Run a cell, and return how long it took, in seconds."""
        assert self.stdin
        assert self.stdout
        print(file=self.stdin, flush=True)
        return float(self.stdout.readline())

    def memory(self) -> int:
        """Return how many bytes the kernel and its processes have, when they have their modules."""
        processes = psutil.Process(self.pid).children(recursive=True)
        [forkserver] = [one for one in processes if one.name() == FORKSERVER]
        assert wait_until(lambda: imported_all(forkserver), HUNG_S)
        processes.append(psutil.Process(self.pid))
        return sum(process.memory_full_info().uss for process in processes)


@once
def test_two_hundred_cells_neither_slow_down_nor_grow() -> None:
    """They are as quick as the first cells of another kernel, with which they take turns."""
    with _Kernel() as old, _Kernel() as new:
        for _ in range(50):
            old.cell()
        before = old.memory()
        for _ in range(150):
            old.cell()
        for _ in range(50):
            new.cell()
        pairs = [(new.cell(), old.cell()) for _ in range(150)]
        after = old.memory()
    first, last = map(statistics.median, zip(*pairs, strict=True))
    print(f"first: {first * 1e3:.1f} ms, last: {last * 1e3:.1f} ms, {after - before:+} bytes")
    assert last < 1.5 * first
    assert after - before < 16 << 20


STOPS = int(os.environ.get("MCNB_STOPS", "12"))
# Cells that end by themselves, beside those that have to be stopped.
QUICK = ["y = jnp.sum(x)", "print(float(jnp.sum(x)))", "time.sleep(0.2)", "y = [x + 1] * 3"]


class _Mallinfo2(ctypes.Structure):
    """What mallinfo2(3) returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


def allocated() -> int:
    """Return how many bytes of this process are in use, at most.

    The memory that the system counts would not do: ZeroMQ's threads allocate in arenas of their
    own, whose upper ends glibc keeps for later when they are free (nor does malloc_trim(3) return
    them). After output of many megabytes they are as large as that output was.
    """
    mallinfo2 = ctypes.CDLL("libc.so.6").mallinfo2
    mallinfo2.restype = _Mallinfo2
    gc.collect()
    info = mallinfo2()
    # Python's own blocks, of 512 bytes at most, are not from malloc.
    return int(info.uordblks + info.hblkhd + 512 * sys.getallocatedblocks())


def press(cluster: mcnb.Cluster, waits_s: list[float]) -> None:
    """Stop the next cell, some seconds after it has begun; then, perhaps, once more."""
    wait_until(lambda: cluster._execution is not None, HUNG_S)
    for wait_s in waits_s:
        time.sleep(wait_s)
        if cluster._execution is not None:
            cluster.interrupt()


@once
def test_random_cells_with_stops_at_random_times() -> None:
    """After each, what is said is true; at the end, there is no more than at the beginning."""
    chance = random.Random(STOPS)

    def held() -> tuple[int, int, int]:
        own = psutil.Process()
        return len(descendants()), own.num_fds(), own.num_threads()

    with mcnb.Cluster(processes=4, devices_per_process=2) as cluster:
        cluster.run(SETUP).raise_for_errors()
        before, memory = held(), allocated()
        for number in range(STOPS):
            name = chance.choice(sorted(KINDS))
            source = KINDS[name].cell(
                "one" if KINDS[name].alone and chance.random() < 0.5 else "all"
            )
            source = source if chance.random() < 0.8 else chance.choice(QUICK)
            pids = list(cluster.pull("pid").values())
            presses = [chance.uniform(0, 1.5)]
            if chance.random() < 0.2:
                presses.append(chance.uniform(0, 1.5))
            thread = threading.Thread(target=press, args=(cluster, presses))
            thread.start()
            result = cluster.run(f"import time\n{source}")
            thread.join()
            # Of a cell that ended by itself, nothing is said.
            fate = fate_of(result.aftermath) if result.aftermath else "told"
            wrong = lies(cluster, fate, pids)
            assert wrong == [], (number, source, presses, result.aftermath)
        assert wait_until(lambda: held() <= before, HUNG_S), (held(), before)
        cluster.run("pass").raise_for_errors()  # in place of the last result, which is kept
        del result
        grown = allocated() - memory
        print(f"{STOPS} cells: {grown / 1e6:+.1f} MB")
        assert grown < 16 << 20
