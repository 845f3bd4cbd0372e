"""Many processes, and many cells in a row."""

from __future__ import annotations

import statistics
import time

import psutil
import pytest

import mcnb


@pytest.mark.slow
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


@pytest.mark.slow
def test_two_hundred_cells_neither_slow_down_nor_grow(cluster: mcnb.Cluster) -> None:
    def memory() -> int:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        return sum(process.memory_full_info().uss for process in processes)

    def cells(count: int) -> float:
        times = []
        for number in range(count):
            began = time.perf_counter()
            result = cluster.run(f"print('a line')\nx = list(range(1000))\nx[{number}]")
            times.append(time.perf_counter() - began)
            assert result.ok
        return statistics.median(times)

    cells(50)
    before, first = memory(), cells(50)
    cells(100)
    last, after = cells(50), memory()
    print(f"first 50: {first * 1e3:.1f} ms, last 50: {last * 1e3:.1f} ms, {after - before:+} bytes")
    assert last < 1.5 * first
    assert after - before < 16 << 20
