"""Timelines of cells that really ran."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import mcnb
from mcnb.pictures.timeline import KINDS, Timeline, timeline
from tests.conftest import Notebook
from tests.support.clients import HANG_S

SETUP = """
import os, time, jax, jax.numpy as jnp, numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.device_put(np.ones((1024, 1024), np.float32), NamedSharding(mesh, P("a")))
f = jax.jit(lambda x: (x @ x.T).sum())
float(f(x))

def sampled(computes, line):
    "Return for how many seconds the cell's samples have shown that at a line."
    tracer = get_ipython().worker.session.tracer
    samples = list(tracer._samples)
    begins = [tracer._begin, *(s.at for s in samples)]
    which = computes, line
    return sum(s.at - b for s, b in zip(samples, begins) if (s.computes, s.line) == which)
"""


def test_a_real_straggler(cluster: mcnb.Cluster, tmp_path: Path) -> None:
    cluster.run(SETUP).raise_for_errors()
    go = tmp_path / "go"

    def watch(pending: Any) -> None:
        since = [pending.waits[k].since for k in (0, 1, 3) if k in pending.waits]
        if len(since) == 3 and time.monotonic() - max(since) > 1:
            go.touch()

    # Process 2 comes last, however slow the others are, and has been seen to be late.
    cell = cluster.run(
        f"if k == 2:\n    while sampled(False, 2) < 1 or not os.path.exists({str(go)!r}): "
        "time.sleep(0.1)\ny = f(x)",
        watcher=watch,
        timeout=HANG_S,
    )
    cell.raise_for_errors()
    lanes, [meeting] = spent(cell), cell_timeline(cell).meetings
    assert meeting.lines == dict.fromkeys(range(4), 3)
    assert lanes[2]["python"] > 0.95
    for k in (0, 1, 3):
        late_s = meeting.came[2] - meeting.came[k]
        assert late_s > 1
        assert lanes[k]["waits"] > late_s - 0.001, lanes
    assert lanes[2]["waits"] < meeting.went[2] - meeting.came[2] + 0.001, lanes
    assert re.search(
        r"\nAt line 3, others waited .* for P2, which was in Python at line 2\.\n",
        cell.timeline().text() + "\n",
    )


def test_all_processes_are_seen_to_compute(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    cell = cluster.run(
        "seen = False\nwhile not seen:\n    float(f(x))\n"
        "    seen = multihost_utils.process_allgather(sampled(True, 3) > 0).all()",
        timeout=HANG_S,
    )
    cell.raise_for_errors()
    assert all(lane["computes"] > 0 for lane in spent(cell).values())


def cell_timeline(cell: mcnb.Result) -> Timeline:
    return timeline({k: reply.trace for k, reply in cell.replies.items()}, cell.launches)


def spent(cell: mcnb.Result) -> dict[int, dict[str, float]]:
    """Return for how many seconds each process did what."""
    return {
        k: {kind: sum(s.end - s.begin for s in lane if s.kind == kind) for kind in KINDS}
        for k, lane in cell_timeline(cell).lanes.items()
    }


def test_compiling_and_computing_are_told_apart(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    # On two devices: the numbers of one are read by native code alone, which may compute itself.
    cell = cluster.run(
        "def deep(v):\n"
        "    for i in range(60): v = jnp.tanh(v @ v + i)\n"
        "    return v\n"
        "own = NamedSharding(jax.sharding.Mesh(jax.local_devices(), 'd'), P('d'))\n"
        "v = jax.device_put(np.ones((1200, 1200), np.float32), own); g = jax.jit(lambda v: v @ v)\n"
        "c = jax.jit(deep).lower(x[:64, :64]).compile()\n"
        "while sampled(True, 7) < 0.1: np.asarray(g(v))\n"
        "while sampled(False, 8) < 0.1: time.sleep(0.1)",
        timeout=HANG_S,
    )
    cell.raise_for_errors()
    lane = timeline({0: cell.replies[0].trace}, ()).lanes[0]
    at = {(s.kind, s.line) for s in lane if s.end - s.begin > 0.01}
    assert ("compiles", 6) in at
    assert ("computes", 7) in at
    assert ("python", 8) in at
    assert ("computes", 8) not in at


def test_the_magic(notebook: Notebook) -> None:
    notebook.run(f"%%mcjax\n{SETUP}")
    notebook.run("%%mcjax\nif k != 3:\n    y = f(x)")
    drawn = notebook.run("%mcjax timeline").stdout
    assert drawn.startswith("The cell took ")
    assert "P0-2 waited at line 3 in vain for P3." in drawn
    ordered = notebook.run("%mcjax timeline --order").stdout.splitlines()
    assert [line[3:].replace("─", "") for line in ordered[1:5]] == ["◇", "◇", "◇", "○"]
    assert notebook.run("%mcjax timeline --order").stdout.splitlines() == ordered
    notebook.run("%%mcjax\nfor step in range(40):\n    y = f(x)")
    loop = notebook.run("%mcjax timeline").stdout
    assert "; a step ends with jit(<lambda>) f32[1024,1024], line 3\n" in loop
    assert notebook.run("%mcjax timeline --step 20").stdout.startswith("Step 20 of 40 took ")
    assert notebook.run("%mcjax timeline --from 39").stdout.startswith("Steps 39 to 40 of 40 took ")
    assert notebook.error("%mcjax timeline --to 41") == (
        "PictureError: The cell has no steps 1 to 41: its steps are 1 to 40, each with "
        "jit(<lambda>) f32[1024,1024]"
    )
    assert notebook.error("%mcjax log --order") == (
        "OptionError: %mcjax log --order: --order is only accepted by %mcjax timeline. "
        "Help: %mcjax?"
    )
    assert notebook.error("%mcjax timeline --ordr") == (
        "OptionError: %mcjax timeline --ordr: there is no option --ordr. Options: --order, "
        "--step, --from, --to. Help: %mcjax?"
    )


def test_no_cell_has_run(empty_notebook: Notebook) -> None:
    empty_notebook.run("%mcjax start -n 1 -d 1")
    assert empty_notebook.error("%mcjax timeline") == (
        "ClusterError: No cell has run yet. First run a cell that begins with %%mcjax"
    )
