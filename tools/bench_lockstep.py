"""What being checked costs: a table of both sides, measured in one run.

    python tools/bench_lockstep.py [ROUNDS]

Plain functions are compiled while nobody looks, and so keep JAX's own fast path; checked ones are
the same functions, compiled afterwards. Both are called alternately, in the same processes.
"""

from __future__ import annotations

import ast
import statistics
import sys
import time

import mcnb

SETUP = """
import time, jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from mcnb.lockstep import _jax

mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
whole = NamedSharding(mesh, P())
split = NamedSharding(mesh, P(("a", "b")))
megabyte = jax.device_put(np.ones(2**18, np.float32), whole)
smallest = jax.device_put(np.ones(8, np.float32), split)
alone = jnp.ones(8)

def functions():
    reduce = lambda v: jax.lax.psum(v, ("a", "b"))
    return {
        "all-reduce of 1 MB": (
            jax.jit(jax.shard_map(reduce, mesh=mesh, in_specs=P(), out_specs=P())), megabyte),
        "all-reduce of 4 B": (jax.jit(lambda v: v.sum()), smallest),
        "elementwise, across processes": (jax.jit(lambda v: v + 1), smallest),
        "local": (jax.jit(lambda v: v + 1), alone),
    }

guard, gate = _jax._guard, _jax._before
_jax._guard = _jax._before = _jax._note = None
plain = functions()
for f, v in plain.values():
    f(v).block_until_ready()
_jax._guard, _jax._before = guard, gate
checked = functions()
for f, v in checked.values():
    f(v).block_until_ready()

def measure(side, name, times):
    f, v = side[name]
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        f(v).block_until_ready()
        taken.append(time.perf_counter() - begin)
    return taken

def measure_in_a_row(side, name, times):
    f, v = side[name]
    begin = time.perf_counter()
    for _ in range(times):
        last = f(v)
    last.block_until_ready()
    return [(time.perf_counter() - begin) / times]
"""
ROUND = """
taken = {name: ([], []) for name in plain}
for name in plain:
    for _ in range(10):
        for kind, side in enumerate((plain, checked)):
            taken[name][kind].extend(measure(side, name, 20))
for name in list(plain)[:2]:
    row = taken[name + ", 20 in a row"] = ([], [])
    for _ in range(10):
        for kind, side in enumerate((plain, checked)):
            row[kind].extend(measure_in_a_row(side, name, 20))
taken
"""
HUNDRED_MB = """
weights = [jax.device_put(np.full((64, 2**15), i, np.float32), split_rows) for i in range(12)]
jax.block_until_ready(weights);
"""


def median(values: list[float]) -> float:
    """Return the median in microseconds."""
    return statistics.median(values) * 1e6


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with mcnb.Cluster(processes=4, devices_per_process=2) as cluster:
        cluster.run(SETUP).raise_for_errors()
        print(
            f"{'launch, median of 200 on 4 processes':38} {'plain':>9} {'checked':>9} {'ratio':>6}"
        )
        for _ in range(rounds):
            result = cluster.run(ROUND)
            result.raise_for_errors()
            for name, (plain, checked) in ast.literal_eval(result.value[0] or "").items():
                a, b = median(plain), median(checked)
                print(f"{name:38} {a:6.0f} us {b:6.0f} us {b / a:6.2f}")
        cells(cluster, rounds)
        verdict(cluster)
        healing(cluster)


def cells(cluster: mcnb.Cluster, rounds: int) -> None:
    """Compare cells without launches with those of a cluster that nobody watches."""
    with mcnb.Cluster(processes=4, devices_per_process=2) as other:
        processes = other._lifetime.processes
        assert processes is not None
        for name in ("begin", "finish", "fail"):
            setattr(processes.referee, name, lambda *_, **__: 0)
        processes.referee.waits = dict  # type: ignore[method-assign, assignment]
        unchecked = "session = get_ipython().worker.session; session.client.close()"
        other.run(f"{unchecked}; session.client = None").raise_for_errors()
        for _ in range(rounds):
            taken: tuple[list[float], list[float]] = ([], [])
            for _ in range(50):
                for kind, one in enumerate((other, cluster)):
                    began = time.perf_counter()
                    one.run("pass")
                    taken[kind].append(time.perf_counter() - began)
            a, b = map(median, taken)
            print(f"{'empty cell':38} {a:6.0f} us {b:6.0f} us {b / a:6.2f}")


def verdict(cluster: mcnb.Cluster) -> None:
    """Measure how soon after the last process stands still the cell ends with its verdict."""
    taken = []
    for _ in range(10):
        result = cluster.run(
            "f, v = checked['all-reduce of 4 B']\n"
            "if jax.process_index():\n    time.sleep(0.3)\n    v = v[:4]\n"
            "f(v)"
        )
        ended = time.monotonic()
        assert result.verdict is not None
        taken.append(ended - max(launch.announced for launch in result.launches))
    spread("verdict, median and worst of 10", taken)


def healing(cluster: mcnb.Cluster) -> None:
    """Measure healing with 100 MB of arrays."""
    cluster.run("split_rows = NamedSharding(mesh, P(('a', 'b')))\n" + HUNDRED_MB).raise_for_errors()
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        cluster.heal()
        taken.append(time.perf_counter() - began)
    spread("healing 100 MB, median and worst of 5", taken)


def spread(name: str, taken: list[float]) -> None:
    """Print the median and the worst of some times."""
    print(f"{name:38} {median(taken):6.0f} us {max(taken) * 1e6:6.0f} us")


if __name__ == "__main__":
    main()
