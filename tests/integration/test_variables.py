"""`%mcjax vars` and `%mcjax compare` on real processes."""

from __future__ import annotations

import re

import pytest

import mcnb
from tests.conftest import Notebook

SETUP = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((4, 2), ("a", "b"))
x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("a", "b")))
columns = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P(None, "b")))
counted = np.arange(5000, dtype=np.float32)
counted[4500] += k == 2
biases = jax.make_array_from_callback((5000,), NamedSharding(mesh, P()), lambda i: counted[i])
params = {"w": x, "b": [biases, 3.0], "name": "net"}
rng = jax.random.key(k // 3)
host = np.ones(3) * k
def step(v): return v
class Model: pass
model = Model()
if k == 1: only = 1
"""
MESH = "Mesh(axis_sizes=(4, 2), axis_n… (cd760f61)"
# Other tests have left other variables.
NAMES = {
    *("name", "biases", "columns", "counted", "host", "k", "mesh"),
    *("model", "only", "params", "rng", "x"),
}


@pytest.fixture
def prepared_cluster(notebook: Notebook) -> mcnb.Cluster:
    cluster = mcnb.current_cluster()
    cluster.run(SETUP).raise_for_errors()
    return cluster


def test_an_array_without_its_elements_says_where_they_are(
    prepared_cluster: mcnb.Cluster, notebook: Notebook
) -> None:
    del prepared_cluster
    assert notebook.run("%%mcjax\nx").stdout == (
        "[all 4] Array(shape=(8, 4), dtype=float32)\n"
        "        Sharding: P('a', 'b') on the mesh a=4, b=2\n"
        "        Devices:  8, of 4 processes\n"
        "        Bytes:    128, of which 16 on each device\n"
    )
    assert notebook.run("%%mcjax\n[x, 1]").stdout == (
        "[all 4] [Array(shape=(8, 4), dtype=float32), 1]\n"
    )
    assert notebook.run("%%mcjax\njnp.sum(x)").stdout == "[all 4] Array(32., dtype=float32)\n"


def test_a_table_of_variables(prepared_cluster: mcnb.Cluster, notebook: Notebook) -> None:
    last = prepared_cluster.last
    lines = notebook.run("%mcjax vars").stdout.splitlines()
    rows = [re.split(" {2,}", line) for line in lines]
    assert [row for row in rows if row[0] in NAMES] == [
        ["name", "on the processes", "bytes per device", "what it is"],
        ["biases", "differs on 2", "20,000", "float32[5000], P() on the mesh a=4, b=2"],
        ["columns", "same on all 4", "64", "float32[8,4], P(None, 'b') on the mesh a=4, b=2"],
        ["counted", "differs on 2", "NumPy float32[5000]"],
        ["host", "different on each", "NumPy float64[3]"],
        ["k", "different on each", "int 0"],
        ["mesh", "same on all 4", MESH],
        ["model", "not compared", "Model"],
        ["only", "only on 1", "int 1"],
        ["params", "differs on 2", "20,016", "dict of 4 leaves"],
        ["rng", "differs on 3", "8", "key<fry>[]"],
        ["x", "parts of one array", "16", "float32[8,4], P('a', 'b') on the mesh a=4, b=2"],
    ]
    assert prepared_cluster.last is last
    table = prepared_cluster.variables("0,1").splitlines()
    assert [line.split()[0] for line in table if "different on each" in line] == [
        "host",
        "k",
    ]


def test_variables_are_copied(prepared_cluster: mcnb.Cluster, notebook: Notebook) -> None:
    notebook.run("batch = [1, 2]\n%mcjax push batch")
    assert notebook.run("%%mcjax\nbatch.append(k)").success
    said = (
        "batch: a dictionary with the value on each process, such as batch[0]. It replaces what it "
        "was here before\n"
    )
    assert notebook.run("%mcjax pull batch").stdout == said
    assert notebook.run("print(batch)").stdout == f"{ {k: [1, 2, k] for k in range(4)} }\n"
    given = notebook.run("copy = %mcjax pull batch\n%mcjax pull k\na, b = %mcjax pull k  batch")
    assert given.stdout == "k: a dictionary with the value on each process, such as k[0]\n"
    assert notebook.run("print(copy == b == batch, a == k)").stdout == "True True\n"
    notebook.run("%%mcjax\nprint('said once')")
    assert notebook.run("%mcjax last").stdout == "[all 4] said once\n"
    assert notebook.error("%mcjax pull nothing") == (
        "CellError: all 4 processes raised NameError: name 'nothing' is not defined"
    )


def test_where_variables_differ(prepared_cluster: mcnb.Cluster, notebook: Notebook) -> None:
    for name, said in {
        "params": "params['b'][0] at [4500] differs: 4500.0 on processes 0,1,3 and 4501.0 on "
        "process 2",
        "biases[:3]": "biases[:3] is the same on all 4 processes",
        "rng": "rng differs: [0 0] on processes 0-2 and [0 1] on process 3",
        "nothing": "nothing is not defined on any process",
        "params['w'], 2": "params['w'], 2 is the same on all 4 processes, but not all of it can be "
        "compared: [0], one array, of which no two processes have a part in common",
        "jnp.stack": "jnp.stack is function on all 4 processes; no more of it can be compared",
        "params['b'][1], host": "(params['b'][1], host)[1] at [0] differs: ",
        "only": "only is not defined on processes 0,2,3",
        "model": "model is Model on all 4 processes; no more of it can be compared",
        "x": "x is one array, of which no two processes have a part in common",
        "params['b'][1]": "params['b'][1] is the same on all 4 processes",
        "params['name'] + \"-1\"": "params['name'] + \"-1\" is the same on all 4 processes",
        "-biases[:2]": "-biases[:2] is the same on all 4 processes",
        "f'met at 0x{k}'": "f'met at 0x{k}' differs: 'met at 0x0' on process 0, 'met at 0x1' on "
        "process 1, 'met at 0x2' on process 2 and 'met at 0x3' on process 3",
        "set([8, 0][:: 1 - 2 * (k % 2)])": "set([8, 0][:: 1 - 2 * (k % 2)]) is the same on all 4 "
        "processes",
        "float(jnp.sum(x))": "float(jnp.sum(x)) is the same on all 4 processes",
        "jnp.sum(x) * jnp.ones(2)": "jnp.sum(x) * jnp.ones(2) is the same on all 4 processes",
    }.items():
        stdout = notebook.run(f"%mcjax compare {name}").stdout
        assert stdout == f"{said}\n" if not said.endswith(": ") else stdout.startswith(said)
    assert prepared_cluster.compare("k", "1,2") == "k differs: 1 on process 1 and 2 on process 2"
    assert notebook.error("%mcjax compare") == (
        "OptionError: %mcjax compare: the variable's name is missing. For example: %mcjax compare "
        "params"
    )
    assert notebook.error("%mcjax compare host columns") == (
        "OptionError: Can't compare host columns: it is neither a variable's name nor an "
        "expression of Python. One is compared at a time. For example: %mcjax compare params"
    )
    assert notebook.error("%mcjax compare nothing.x") == (
        "CellError: all 4 processes raised NameError: name 'nothing' is not defined"
    )
    assert prepared_cluster.run("k").text() == "[0] 0\n[1] 1\n[2] 2\n[3] 3\n"
