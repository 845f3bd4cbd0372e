"""How long a start, a restart, cells and collectives take: on one host, and on two by ssh.

    python tools/dev.py bench hosts

The hosts are network namespaces of this machine, so they share its cores. The notebook's host is a
third one. "1 ms" is what a message takes between it and another host, so it takes 2 ms between the
two, and an answer takes as long again. Each figure is the median of the rounds, in which the sides
take turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from tests.support import hosts
from tests.support.launchers import launcher_on_hosts

ROUNDS = 5
DELAY_S = 0.001
SIDES = ("one host", "two hosts", "two hosts, 1 ms")
ROWS = {
    "start": ("start", 1.0, "s"),
    "restart": ("restart", 1.0, "s"),
    "empty": ("empty cell", 1e3, "ms"),
    "sum": ("all-reduce, checked", 1e3, "ms"),
    "unchecked": ("all-reduce, unchecked", 1e3, "ms"),
}
# Measures on the notebook's host.
NOTEBOOK = """
import json, statistics, sys, time
import mcnb
more = json.loads(sys.argv[1])
SETUP = '''
import time, jax, jax.numpy as jnp, numpy as np
each = jax.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "a"), jax.P("a"))
x = jax.device_put(np.arange(8.0), each)
total = jax.jit(jnp.sum)
float(total(x))
'''
SUMS = '''
began = time.perf_counter()
for _ in range(100): total(x).block_until_ready()
taken = (time.perf_counter() - began) / 100
'''
def timed(action):
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
found = {}
cluster = mcnb.Cluster(4, 2, **more)
found["start"] = timed(cluster.start)
found["restart"] = timed(cluster.restart)
cluster.run(SETUP).raise_for_errors()
found["empty"] = statistics.median(timed(lambda: cluster.run("")) for _ in range(20))
for name, checked in (("sum", True), ("unchecked", False)):
    cluster.run(SUMS, checked=checked).raise_for_errors()
    cluster.run(SUMS, checked=checked).raise_for_errors()
    found[name] = max(cluster.pull("taken").values())
cluster.stop()
print(json.dumps(found))
"""


def measure(side: str) -> dict[str, float]:
    """Return one side's figures, in seconds."""
    delay_s = DELAY_S if side == SIDES[2] else 0.0
    with (
        tempfile.TemporaryDirectory() as home,
        launcher_on_hosts("ssh", Path(home), delay_s) as launcher,
    ):
        where = {"launcher": "ssh", "hosts": launcher.hosts, "launcher_options": launcher.options}
        words = json.dumps({} if side == SIDES[0] else where)
        done = hosts.on_the_notebooks(sys.executable, "-c", NOTEBOOK, words)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure, and print a table."""
    if not hosts.available():
        raise SystemExit(hosts.WHY_NOT)
    rounds = [{side: measure(side) for side in SIDES} for _ in range(ROUNDS)]
    print("| |", " | ".join(SIDES), "|")
    print("| --- |" + " --- |" * len(SIDES))
    for row, (name, scale, unit) in ROWS.items():
        medians = [statistics.median(one[side][row] for one in rounds) for side in SIDES]
        told = " | ".join(f"{scale * median:.3g} {unit}" for median in medians)
        print(f"| {name} | {told} |")


if __name__ == "__main__":
    main()
