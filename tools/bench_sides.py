"""One side of `bench_start.py`, measured in a process of its own.

    python tools/bench_sides.py {mcnb,ipyparallel,jupyter_distributed,loop} PROCESSES CELLS

It prints one line of JSON, with times in seconds, sizes in MB, and of what it did not do nothing:
`value`, the time of day at which the first collective's value was there; `start` and `restart`, how
long it takes from there to that value again; `empty`, `line`, cells; `pull`, 10 MB from a process;
`memory`, the largest of a process's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

DEVICES = 2
PROGRAM = """
import jax, numpy as np, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("a",))
own = np.ones(jax.local_device_count())
x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("a")), own)
value = float(jnp.sum(x))
"""
TEN_MB = "import numpy; ten = numpy.ones(10_000_000 // 8)"
LINE = "print('a line')"
Report = dict[str, float]


def timed(action: Callable[[], Any]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def median(action: Callable[[], Any], times: int) -> float:
    """Return how long something takes in the middle case; the first few do not count."""
    taken = [timed(action) for _ in range(times + 3)]
    return statistics.median(taken[3:])


def own_memory(pids: list[int]) -> float:
    """Return the largest memory of one's own among processes."""
    import psutil

    return max(psutil.Process(pid).memory_full_info().uss for pid in pids) / 1e6


def settings() -> tuple[int, dict[str, str]]:
    """Return a free port, and what JAX's processes need in their environment."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return port, {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(DEVICES)}


def initialize(port: int, count: int, index: str) -> str:
    """Return the code that joins the other processes."""
    return f"import jax; jax.distributed.initialize('127.0.0.1:{port}', {count}, {index})\n"


def mcnb(count: int, cells: int) -> Report:
    """Measure mcnb."""
    import mcnb

    with mcnb.Cluster(processes=count, devices_per_process=DEVICES) as cluster:

        def compute() -> None:
            cluster.run(PROGRAM).raise_for_errors()

        compute()
        report = {"value": time.time()}
        assert set(cluster.pull("value").values()) == {float(count * DEVICES)}
        if cells:
            pids = list(cluster.pull("__import__('os').getpid()").values())
            report["memory"] = own_memory(pids)
            report["empty"] = median(lambda: cluster.run("pass"), cells)
            report["line"] = median(lambda: cluster.run(LINE), cells)
            cluster.run(TEN_MB)
            report["pull"] = timed(lambda: cluster.pull("ten", processes=[0]))
            report["restart"] = timed(lambda: (cluster.restart(), compute()))
            cluster.stop()
            report["start"] = timed(lambda: (cluster.start(), compute()))
    return report


def ipyparallel(count: int, cells: int) -> Report:
    """Measure ipyparallel, set up as its documentation says, with `%%px`'s blocking execute."""
    import ipyparallel as ipp

    port, env = settings()
    os.environ.update(env)
    with ipp.Cluster(n=count, log_level=40) as client:
        view = client[:]
        view.block = True

        def compute(port: int) -> None:
            view.scatter("index", range(count), flatten=True)
            view.execute(initialize(port, count, "index"))
            view.execute(PROGRAM)

        compute(port)
        report = {"value": time.time()}
        assert view["value"] == [float(count * DEVICES)] * count
        if cells:
            report["memory"] = own_memory(view.apply_sync(os.getpid))
            report["empty"] = median(lambda: view.execute("pass"), cells)
            report["line"] = median(lambda: view.execute(LINE), cells)
            view.execute(TEN_MB)
            report["pull"] = timed(lambda: client[0].pull("ten", block=True))
    return report


def jupyter_distributed(count: int, cells: int) -> Report:
    """Measure jupyter-distributed's group of kernels."""
    from jupyter_distributed.kernel_group import DistributedKernelGroup

    async def measure() -> Report:
        port, env = settings()
        group = DistributedKernelGroup(count, env=env)
        await group.start()

        async def run(code: str) -> None:
            execution = await group.execute(code)
            assert all(rank.status == "ok" for rank in execution.ranks), execution

        async def median_of(code: str) -> float:
            taken = []
            for _ in range(cells + 3):
                began = time.perf_counter()
                await run(code)
                taken.append(time.perf_counter() - began)
            return statistics.median(taken[3:])

        async def compute(port: int) -> None:
            await run("import os\n" + initialize(port, count, "int(os.environ['RANK'])"))
            await run(PROGRAM)

        try:
            await compute(port)
            report = {"value": time.time()}
            await run(f"assert value == {count * DEVICES}")
            if cells:
                import psutil

                pids = [child.pid for child in psutil.Process().children(recursive=True)]
                report["memory"] = own_memory(pids)
                report["empty"] = await median_of("pass")
                report["line"] = await median_of(LINE)
                began = time.perf_counter()
                await group.restart()
                await compute(settings()[0])
                report["restart"] = time.perf_counter() - began
            return report
        finally:
            await group.shutdown(now=True)

    return asyncio.run(measure())


def loop(count: int, cells: int) -> Report:
    """Measure the same program, each process started by itself."""
    del cells
    port, env = settings()
    source = "import os\n" + initialize(port, count, "int(os.environ['INDEX'])") + PROGRAM
    source += f"import time\nassert value == {count * DEVICES}\nprint(time.time(), flush=True)"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", source],
            env={**os.environ, **env, "INDEX": str(k)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for k in range(count)
    ]
    return {"value": max(float(process.communicate()[0].split()[-1]) for process in running)}


SIDES = {side.__name__: side for side in (mcnb, ipyparallel, jupyter_distributed, loop)}

if __name__ == "__main__":
    print(json.dumps(SIDES[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))), flush=True)
