"""Timelines of cells that really ran."""

from __future__ import annotations

import re

import mcnb
from mcnb.pictures.timeline import KINDS, timeline
from tests.conftest import Notebook

SETUP = """
import time, jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.device_put(np.ones((1024, 1024), np.float32), NamedSharding(mesh, P("a")))
f = jax.jit(lambda x: (x @ x.T).sum())
float(f(x))
"""


def test_a_real_straggler(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    cell = cluster.run("if k == 2:\n    time.sleep(1)\ny = f(x)\nprint(float(y))")
    cell.raise_for_errors()
    traces = {k: reply.trace for k, reply in cell.replies.items()}
    time = timeline(traces, cell.launches)
    spent = {
        k: {kind: sum(s.end - s.begin for s in lane if s.kind == kind) for kind in KINDS}
        for k, lane in time.lanes.items()
    }
    assert spent[2]["python"] > 0.95
    assert all(spent[k]["waits"] > spent[2]["waits"] for k in (0, 1, 3)), spent
    assert all(spent[k]["computes"] > 0 for k in range(4)), spent
    assert [m.lines for m in time.meetings] == [dict.fromkeys(range(4), 3)]
    said = cell.timeline().text().splitlines()[-2]
    assert re.fullmatch(
        r"At line 3, others waited .* for P2, which was in Python at line 2\.", said
    )


def test_compiling_and_computing_are_told_apart(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    # On two devices: the numbers of one are read by native code alone, which may compute itself.
    cell = cluster.run(
        "def deep(v):\n"
        "    for i in range(60): v = jnp.tanh(v @ v + i)\n"
        "    return v\n"
        "own = NamedSharding(jax.sharding.Mesh(jax.local_devices(), 'd'), P('d'))\n"
        "v = jax.device_put(np.ones((1200, 1200), np.float32), own)\n"
        "c = jax.jit(deep).lower(x[:64, :64]).compile()\n"
        "np.asarray(jax.jit(lambda v: v @ v @ v @ v)(v))\n"
        "time.sleep(0.1)"
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
    assert notebook.error("%mcjax log --order") == (
        "OptionError: %mcjax log --order: the option --order belongs to %mcjax timeline. "
        "Help: %mcjax?"
    )
    assert notebook.error("%mcjax timeline --ordr") == (
        "OptionError: %mcjax timeline --ordr: there is no option --ordr. Options: --order. "
        "Help: %mcjax?"
    )


def test_no_cell_has_run(empty_notebook: Notebook) -> None:
    empty_notebook.run("%mcjax start -n 1 -d 1")
    assert empty_notebook.error("%mcjax timeline") == (
        "ClusterError: No cell has run yet. First run a cell that begins with %%mcjax"
    )
