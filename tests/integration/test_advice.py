"""Code of other pages in a cell: what it raises here, and what does it today."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

import mcnb
from tests.support.command import MCNB

SETUP = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
auto = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
explicit = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
x = jax.device_put(np.arange(16.0), NamedSharding(auto, P("x")))
a = jax.device_put(np.ones((8, 8)), NamedSharding(explicit, P("x", "y")))
local = jax.device_put(np.arange(16.0), jax.local_devices()[0])
half = Mesh(np.array(jax.devices()[:4]), "x")
h = jax.device_put(np.arange(8.0), NamedSharding(half, P("x")))
"""
GATHER = "jax.experimental.multihost_utils.process_allgather(x, tiled=True)"
SHARDS = (
    f"the array has shards in other processes. {GATHER} returns all of it, if every process calls "
    "it; x.addressable_shards has the shards of this process"
)
NO_SHARD = (
    "this process has no shard of the array, whose devices belong to other processes. Only those "
    f"processes can read it: if x.sharding.addressable_devices: print({GATHER}). For an array with "
    "shards in every process, make a mesh of all devices"
)
FEWER = (
    "addressable_shards has a shard for each device of this process that holds a part of the "
    "array, so its length depends on the process, and may be 0. Go through them: for shard in "
    "x.addressable_shards: ..."
)
READ = "if h.sharding.addressable_devices: print(multihost_utils.process_allgather(h, tiled=True))"
AUTO = (
    "; or let the compiler choose, by a mesh with Auto axes (since JAX 0.9, make_mesh makes "
    "Explicit ones): jax.make_mesh(shape, names, axis_types=(jax.sharding.AxisType.Auto,) * "
    "len(names))"
)
DEVICES = (
    "all arguments have to be on the same devices, in the same order: jax.device_put(y, "
    "x.sharding). If y is on devices of this process alone: jax.device_put(numpy.asarray(y), "
    "x.sharding), with equal values on every process"
)
DEVICE_PUT = (
    "device_put takes the same values on every process, of a type that JAX keeps: float64 "
    "that is rounded to float32 counts as different. Make them from one seed, such as "
    "np.random.default_rng(0).random(8, np.float32), or send those of process 0 to the others: "
    "x = jax.experimental.multihost_utils.broadcast_one_to_all(x). If each process has its own "
    "part of the array: jax.make_array_from_process_local_data(sharding, part)"
)
READS = (
    "the cell reads other arguments than it was given. Above the first line that reads them: "
    "sys.argv[1:] = [{}]. Or, if the cell is to stay as it is, and the variables need not: %mcjax "
    "stop, and then %mcjax start -n 4 -d 2 --args '{}', where {{process}} stands for the index of "
    "each process, and {{processes}} for their number"
)
# A cell, the hint below its error, and a cell that does what the hint says.
CASES = {
    "the number of devices": (
        "jax.config.update('jax_num_cpu_devices', 4)",
        "mcnb starts the processes with their devices. Their number is an option: %mcjax start -n "
        "4 -d 8, or mcnb run -n 4 -d 8, gives each of 4 processes 8 devices",
        # The number of each process, and that of all.
        "jax.config.update('jax_num_cpu_devices', 2)\njax.config.update('jax_num_cpu_devices', 8)",
    ),
    "a value": ("np.asarray(x)", SHARDS, f"np.asarray({GATHER})"),
    "a spec for more dimensions": (
        "multihost_utils.host_local_array_to_global_array(np.ones(2), auto, P('x', 'y'))",
        "the spec has more entries than the array has dimensions. Name at most one entry for each "
        "dimension, such as jax.P('x') for an array of one dimension; or reshape the array before",
        "multihost_utils.host_local_array_to_global_array(np.ones(2), auto, P('x'))\n"
        "multihost_utils.host_local_array_to_global_array(np.ones((1, 2)), auto, P('x', 'y'))",
    ),
    "a name for each process": (
        "multihost_utils.sync_global_devices(f'saved by {jax.process_index()}')",
        "all processes must pass the same name, so it must not hold what differs between them, "
        "such as the process index",
        "multihost_utils.sync_global_devices('saved')",
    ),
    "a list": ("x.tolist()", SHARDS, "[shard.data.tolist() for shard in x.addressable_shards]"),
    "a loop": ("for v in x:\n    pass", SHARDS, f"for v in {GATHER}:\n    pass"),
    "a value in other processes": (
        "jax.device_put(h, NamedSharding(half, P())).tolist()",
        NO_SHARD,
        READ,
    ),
    "a gather of what is in other processes": (
        "multihost_utils.process_allgather(h, tiled=True)",
        NO_SHARD,
        READ,
    ),
    "a shard in other processes": (
        "h.addressable_shards[0].data",
        FEWER,
        "for shard in h.addressable_shards: shard.data",
    ),
    "more shards than this process has": (
        "x.addressable_shards[2].data",
        FEWER,
        "for shard in x.addressable_shards: shard.data",
    ),
    "one device": (
        "jax.device_put(x, jax.devices()[0])",
        "the array has shards in other processes. To have all of it on every device: "
        "jax.device_put(x, jax.NamedSharding(mesh, jax.P())). To have a copy on one device of each "
        f"process: jax.device_put({GATHER}, jax.local_devices()[0])",
        f"jax.device_put({GATHER}, jax.local_devices()[0])\n"
        "jax.device_put(x, jax.NamedSharding(auto, jax.P()))",
    ),
    "a gather": (
        "multihost_utils.process_allgather(x)",
        f"the array has shards in other processes: {GATHER} returns all of it",
        GATHER,
    ),
    "other processes' devices": (
        "halves = [Mesh(np.array(jax.devices()[i : i + 4]), 'x') for i in (0, 4)]\n"
        "y = jax.device_put(np.arange(8.0), NamedSharding(halves[0], P('x')))\n"
        "jax.device_put(y, NamedSharding(halves[1], P('x')))",
        "CPU devices of different processes do not copy arrays to each other by device_put, "
        "whatever option JAX's text names. On one process that has all devices, the program runs "
        "as it is: %mcjax stop, then %mcjax start -n 1 -d 8, and the cells above again. On "
        "several, let all devices hold one array, whose first dimension is the stage, with zeros "
        "where a stage has no data yet: mesh = jax.make_mesh((2, 4), ('stage', 'device')); spec = "
        "jax.P('stage', 'device'); x = jax.device_put(np.stack([data, 0 * data]), "
        "jax.NamedSharding(mesh, spec)). Then this passes the data to the other stage: y = "
        "jax.shard_map(lambda part: jax.lax.ppermute(part, 'stage', [(0, 1)]), mesh=mesh, "
        "in_specs=spec, out_specs=spec)(x)",
        "data = np.arange(64).reshape(8, 8)\n"
        "mesh = jax.make_mesh((2, 4), ('stage', 'device')); spec = jax.P('stage', 'device')\n"
        "x = jax.device_put(np.stack([data, 0 * data]), jax.NamedSharding(mesh, spec))\n"
        "y = jax.shard_map(lambda part: jax.lax.ppermute(part, 'stage', [(0, 1)]), mesh=mesh, "
        "in_specs=spec, out_specs=spec)(x)\n"
        "whole = multihost_utils.process_allgather(y, tiled=True)\n"
        "assert (whole == [0 * data, data]).all()\n"
        "assert all(shard.data.any() for shard in y.addressable_shards) == "
        "(jax.process_index() > 1)",
    ),
    "a hybrid mesh of one slice": (
        "import jax.experimental.mesh_utils\n"
        "jax.experimental.mesh_utils.create_hybrid_device_mesh((1, 2), (4, 1))",
        "the product of the second shape is the number of slices. CPU devices are one slice, and "
        "so may be the GPUs of several hosts; with process_is_granule=True, each process is one: "
        "jax.experimental.mesh_utils.create_hybrid_device_mesh((1, 2), (4, 1), "
        "process_is_granule=True), for 4 processes with 2 devices each",
        "jax.experimental.mesh_utils.create_hybrid_device_mesh((1, 2), (4, 1), "
        "process_is_granule=True)",
    ),
    "equal values of float64": (
        "jax.device_put(np.random.default_rng(0).random(8), NamedSharding(auto, P('x')))",
        DEVICE_PUT,
        "jax.device_put(np.random.default_rng(0).random(8, np.float32), "
        "NamedSharding(auto, P('x')))",
    ),
    "values of each process": (
        "jax.device_put(np.arange(8.0) + jax.process_index(), NamedSharding(auto, P('x')))",
        DEVICE_PUT,
        "own = np.random.default_rng().random(8)\n"
        "same = jax.experimental.multihost_utils.broadcast_one_to_all(own)\n"
        "jax.device_put(same, NamedSharding(auto, P('x')))\n"
        "jax.device_put(np.random.default_rng(0).random(8, np.float32), "
        "NamedSharding(auto, P('x')))\n"
        "jax.make_array_from_process_local_data(NamedSharding(auto, P('x')), own)",
    ),
    "two meshes": (
        "a + jax.device_put(np.ones((8, 8)), NamedSharding(jax.make_mesh((8,), ('x',), axis_types="
        "(AxisType.Explicit,)), P('x')))",
        "put the arrays on one mesh first: y = jax.device_put(y, x.sharding). Meshes also differ "
        "if their axes have other types: jax.make_mesh makes explicit axes since JAX 0.9, and "
        "jax.sharding.Mesh does not",
        "a + jax.device_put(np.ones((8, 8)), a.sharding)",
    ),
    "a reshard to other devices": (
        "jax.reshard(h, NamedSharding(explicit, P('x')))",
        "jax.reshard keeps the devices of an array, and changes only how it is split over them. "
        "Put the array on the devices of the other mesh when it is made: "
        "jax.device_put(numpy.arange(64), jax.NamedSharding(mesh, jax.P('x')))",
        "jax.device_put(np.arange(64), jax.NamedSharding(explicit, jax.P('x')))",
    ),
    "an array of this process": (
        "x + local",
        DEVICES,
        "x + jax.device_put(np.asarray(local), x.sharding)",
    ),
    "another order of devices": (
        "turned = Mesh(auto.devices[::-1], ('x', 'y'))\n"
        "y = jax.device_put(np.arange(16.0), NamedSharding(turned, P('x')))\n"
        "x + y",
        DEVICES,
        "x + jax.device_put(y, x.sharding)",
    ),
    "a product": (
        "a @ a.T",
        "with explicit axes, JAX does not choose how a product is sharded. Name it: jnp.matmul(a, "
        "a.T, out_sharding=jax.NamedSharding(jax.typeof(a).sharding.mesh, jax.P('x', None)))"
        f"{AUTO}",
        "jnp.matmul(a, a.T, out_sharding=jax.NamedSharding(jax.typeof(a).sharding.mesh, "
        "jax.P('x', None)))",
    ),
    "a product in a compiled function": (
        "step = jax.jit(lambda w, v: 1 + jnp.dot(w, v))\n"
        "w = jax.device_put(a, NamedSharding(explicit, P('y', 'x')))\n"
        "v = jax.device_put(a, NamedSharding(explicit, P('x')))\n"
        "step(w, v)",
        "with explicit axes, JAX does not choose how a product is sharded. Name it: jnp.matmul(w, "
        "v, out_sharding=jax.NamedSharding(jax.typeof(w).sharding.mesh, jax.P('y', None)))"
        f"{AUTO}",
        "step = jax.jit(lambda w, v: 1 + jnp.matmul(w, v, out_sharding=jax.NamedSharding("
        "jax.typeof(w).sharding.mesh, jax.P('y', None))))\nstep(w, v)",
    ),
    "two layouts": (
        "b = jax.device_put(np.ones((8, 8)), NamedSharding(explicit, P('y', 'x')))\na + b",
        "with explicit axes, JAX does not choose which array moves. Give both one sharding: "
        f"jax.reshard(b, jax.typeof(a).sharding){AUTO}",
        "a + jax.reshard(b, jax.typeof(a).sharding)",
    ),
    "a part of this process while a mesh is set": (
        "with jax.set_mesh(explicit):\n    a.addressable_shards[0].data + 1",
        "while a mesh is set, every computation runs on all its devices. For a part of this "
        "process, use NumPy: numpy.asarray(shard.data). For equal values on every process: "
        "jax.device_put(numpy.asarray(y), jax.P())",
        "np.asarray(a.addressable_shards[0].data) + 1\n"
        "with jax.set_mesh(explicit):\n    a + jax.device_put(np.asarray(local)[:8], jax.P())",
    ),
    "an index": (
        "a[jnp.array([0, 1])]",
        "with explicit axes, JAX does not choose how the result of indexing is sharded. Name it: "
        "x.at[i].get(out_sharding=jax.NamedSharding(mesh, jax.P())), or "
        f"x.at[i].set(v, out_sharding=jax.typeof(x).sharding){AUTO}",
        "i = jnp.array([0, 1])\n"
        "a.at[i].get(out_sharding=jax.NamedSharding(explicit, jax.P()))\n"
        "a.at[i].set(1.0, out_sharding=jax.typeof(a).sharding)",
    ),
    "a shape": (
        "a.reshape(4, 16)",
        "with explicit axes, JAX does not choose how the result is sharded. Name it: "
        "jax.lax.reshape(x, shape, out_sharding=jax.NamedSharding(mesh, jax.P('x', None)))"
        f"{AUTO}",
        "jax.lax.reshape(a, (4, 16), out_sharding=jax.NamedSharding(explicit, jax.P('x', None)))",
    ),
    "a constraint": (
        "jax.jit(lambda v: jax.lax.with_sharding_constraint(v, NamedSharding(explicit, "
        "P('y', 'x'))))(a)",
        "with explicit axes, the sharding belongs to the type, and jax.reshard changes it: "
        f"jax.reshard(x, jax.NamedSharding(mesh, jax.P('x', None))){AUTO}",
        "jax.jit(lambda v: jax.reshard(v, NamedSharding(explicit, P('y', 'x'))))(a)",
    ),
    "another mesh than the one that is set": (
        "line = jax.make_mesh((8,), ('x',), axis_types=(AxisType.Explicit,))\n"
        "with jax.set_mesh(line):\n    jnp.dot(a, a)",
        "the array is on another mesh than the one of jax.set_mesh. Compute on the array's own: "
        "with jax.set_mesh(x.sharding.mesh): ...; or put the array on the other first: "
        "x = jax.device_put(x, jax.NamedSharding(mesh, jax.P('x')))",
        "with jax.set_mesh(a.sharding.mesh):\n    jnp.sin(a)\n"
        "with jax.set_mesh(line):\n    jnp.sin(jax.device_put(a, NamedSharding(line, P('x'))))",
    ),
    "check_rep": (
        "jax.shard_map(lambda v: v, mesh=auto, in_specs=P('x'), out_specs=P('x'), check_rep=False)",
        "jax.shard_map calls it check_vma",
        "jax.shard_map(lambda v: v, mesh=auto, in_specs=P('x'), out_specs=P('x'), "
        "check_vma=False)(x)",
    ),
    "axis_shapes": (
        "import inspect\nnames = {'axis_shapes', 'axis_sizes'}\n"
        "[other] = names - {*inspect.signature(jax.make_mesh).parameters}\n"
        "jax.make_mesh(**{other: (8,)}, axis_names=('x',))",
        "newer versions of JAX call it axis_sizes, older ones axis_shapes. Pass it by its "
        "position: jax.make_mesh((4, 2), ('x', 'y'))",
        "jax.make_mesh((8,), ('x',))",
    ),
    "axis resources": (
        "jax.jit(lambda v: v, in_axis_resources=P('x'))",
        "they are called in_shardings and out_shardings since JAX 0.4.14: jax.jit(f, "
        "in_shardings=jax.NamedSharding(mesh, jax.P('x')))",
        "jax.jit(lambda v: v, in_shardings=jax.NamedSharding(auto, jax.P('x')))(x)",
    ),
    "a name that is imported": (
        "from jax.sharding import PositionalSharding",
        "jax.sharding.PositionalSharding was removed in JAX 0.7: use a mesh with named axes: "
        "jax.NamedSharding(jax.make_mesh((8,), ('x',)), jax.P('x'))",
        "jax.NamedSharding(jax.make_mesh((8,), ('x',)), jax.P('x'))",
    ),
    "the shape of an older sharding": (
        "x.sharding.reshape(2, 4)",
        "a PositionalSharding had a shape; now the mesh has it, and the spec names its axes: "
        "jax.NamedSharding(jax.make_mesh((4, 2), ('x', 'y')), jax.P('x', 'y')). To replicate over "
        "an axis, leave it out of the spec: jax.P('x')",
        "jax.device_put(np.ones((8, 8)), jax.NamedSharding(jax.make_mesh((4, 2), ('x', 'y')), "
        "jax.P('x', 'y')))\n"
        "jax.device_put(np.ones(8), jax.NamedSharding(jax.make_mesh((4, 2), ('x', 'y')), "
        "jax.P('x')))",
    ),
    "a module that is imported": (
        "from jax.experimental.maps import xmap",
        "jax.experimental.maps was removed in JAX 0.4.36: use jax.shard_map for xmap, and "
        "jax.make_mesh or jax.sharding.Mesh for Mesh",
        "jax.shard_map, jax.make_mesh, jax.sharding.Mesh",
    ),
    "a name that is used": (
        "jax.tree_map(lambda v: v, x)",
        "jax.tree_map was removed in JAX 0.6: use jax.tree.map",
        "jax.tree.map(lambda v: v, x)",
    ),
    "arguments": (
        "import sys\nn = int(sys.argv[1])",
        READS.format("str(jax.process_index())", "{process}"),
        # test_notebooks.py starts processes with arguments
        "import sys\nassert sys.argv == ['']\nsys.argv[1:] = [str(jax.process_index())]\n"
        "assert int(sys.argv[1]) == jax.process_index()\ndel sys.argv[1:]",
    ),
    "other arguments": (
        "import sys\nsys.argv[1:] = ['localhost:1234', '0', '4']\n"
        "proc_id = int(sys.argv[1])\nnum_procs = int(sys.argv[2])",
        READS.format("str(jax.process_index()), str(jax.process_count())", "{process} {processes}"),
        "sys.argv[1:] = [str(jax.process_index()), str(jax.process_count())]\n"
        "assert (int(sys.argv[1]), int(sys.argv[2])) == (jax.process_index(), 4)\ndel sys.argv[1:]",
    ),
    "arguments with an address": (
        "import sys\ncoordinator = sys.argv[1]\nrank = int(sys.argv[2])\n"
        "world_size = int(sys.argv[3])",
        READS.format(
            "'localhost:1234', str(jax.process_index()), str(jax.process_count())",
            "localhost:1234 {process} {processes}",
        ),
        "sys.argv[1:] = ['localhost:1234', str(jax.process_index()), str(jax.process_count())]\n"
        "coordinator = sys.argv[1]\nassert int(sys.argv[3]) == 4\ndel sys.argv[1:]",
    ),
    "a name that is not imported": (
        "del Mesh\nMesh",
        "import it first: from jax.sharding import Mesh; or run the cell that does",
        "from jax.sharding import Mesh",
    ),
    "modules that are not imported": (
        "warnings.warn(json.dumps(3))",
        "import them first: import json; import warnings; or run the cell that does",
        "import json, warnings\njson.dumps(3)",
    ),
    "names that are not imported": (
        "del Mesh, NamedSharding, P\n"
        "NamedSharding(Mesh(np.array(jax.devices()), 'd'), P('d'))\n"
        "lax = 3",
        "import them first: from jax.sharding import PartitionSpec as P; from jax.sharding import "
        "Mesh; from jax.sharding import NamedSharding; or run the cell that does",
        "from jax.sharding import PartitionSpec as P; from jax.sharding import Mesh; "
        "from jax.sharding import NamedSharding\n"
        "NamedSharding(Mesh(np.array(jax.devices()), 'd'), P('d'))",
    ),
    "a name of an older JAX that is not imported": (
        "PositionalSharding(jax.devices())",
        "jax.sharding.PositionalSharding was removed in JAX 0.7: use a mesh with named axes: "
        "jax.NamedSharding(jax.make_mesh((8,), ('x',)), jax.P('x'))",
        "jax.NamedSharding(jax.make_mesh((8,), ('x',)), jax.P('x'))",
    ),
    "MPI": (
        "from mpi4py import MPI",
        "mpi4py is not installed, and is not needed here: jax.process_index() is the rank, "
        "jax.process_count() is the size. With multihost_utils of jax.experimental, "
        "comm.bcast(x) is multihost_utils.broadcast_one_to_all(x), and comm.allgather(x) is "
        "multihost_utils.process_allgather(x). Instead of comm.scatter, make the array on every "
        "process, and take its part: np.array_split(x, jax.process_count())[jax.process_index()]",
        "x = np.arange(8)\nmultihost_utils.broadcast_one_to_all(x)\n"
        "multihost_utils.process_allgather(x)\n"
        "assert np.array_split(x, jax.process_count())[jax.process_index()].size == 2",
    ),
}


@pytest.mark.parametrize(("cell", "hint", "then"), CASES.values(), ids=CASES)
def test_a_hint_and_what_it_says(cluster: mcnb.Cluster, cell: str, hint: str, then: str) -> None:
    if "mpi4py" in cell and importlib.util.find_spec("mpi4py") is not None:
        pytest.skip("mpi4py is installed")
    cluster.run(SETUP).raise_for_errors()
    # With the check, different names of a barrier are a divergence, with a hint of its own.
    result = cluster.run(cell, checked="sync_global_devices" not in cell)
    assert not result.ok
    for error in result.errors.values():
        assert error.traceback.splitlines()[-1] == f"Hint: {hint}"
    cluster.run(then).raise_for_errors()


def test_a_program_catches_what_jax_raises(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    result = cluster.run(
        "try:\n    np.asarray(x)\nexcept RuntimeError as error:\n"
        "    print(type(error).__name__, 'Hint' in str(error), hasattr(error, '__notes__'))"
    )
    assert result.text() == "[all 4] RuntimeError False False\n"


def test_joining_again_changes_nothing(cluster: mcnb.Cluster) -> None:
    program = (
        "import jax, sys\njax.distributed.initialize({})\nprint(len(sys.argv), jax.process_count())"
    )
    said = (
        "[all 4] jax.distributed.initialize: the 4 processes of this cluster have joined already, "
        "so the call changes nothing\n        1 4\n"
    )
    for arguments in ("", "'localhost:1234', 4, jax.process_index()"):
        result = cluster.run(program.format(arguments))
        assert (result.ok, result.text()) == (True, said)
    errors = cluster.run(program.format("num_processes=2, process_id=jax.process_index()")).errors
    assert errors[1].message == (
        "jax.distributed.initialize was called with num_processes=2, process_id=1 in process 1 of "
        "4, which has joined the others already. Leave the call out, or pass jax.process_index() "
        "and jax.process_count(). For a cluster of another size: %mcjax stop, then %mcjax start -n "
        "N"
    )
    assert cluster.run("jax.device_count()").ok


def test_a_shutdown_changes_nothing(cluster: mcnb.Cluster) -> None:
    """Programs end with it; later cells need the other processes."""
    cluster.run(SETUP).raise_for_errors()
    assert cluster.run("import jax\njax.distributed.shutdown()").text() == (
        "[all 4] jax.distributed.shutdown: the processes stay joined until the cluster ends, so "
        "the call changes nothing. To end it: %mcjax stop\n"
    )
    gathers = (
        "from jax.experimental import multihost_utils as mu\nmu.process_allgather(np.ones(3)).sum()"
    )
    assert cluster.run(f"import numpy as np\n{gathers}").ok  # by a new connection
    assert cluster.run("jax.distributed.initialize()").ok
    cluster.heal()  # for which mcnb leaves and joins again
    assert cluster.run(gathers).ok


def test_each_process_prints_its_own_blocks(cluster: mcnb.Cluster) -> None:
    cluster.run(SETUP).raise_for_errors()
    show = "def show(v):\n    print(v, v.shape)\n    return v\n"
    call = "jax.shard_map(show, mesh=auto, in_specs=P{0}, out_specs=P{0})(x)\nprint('end')"
    said = cluster.run(show + call.format("('x')")).stdout
    for k in range(4):
        own = [line for line in said[k].splitlines() if not line.startswith("On ")]
        block = f"[{4 * k}. {4 * k + 1}. {4 * k + 2}. {4 * k + 3}.]"
        assert " ".join(" ".join(own).replace("[ ", "[").split()) == f"{block} {block} (4,) end"
        assert said[k].count(f"at mesh coordinates (x, y,) = ({k}, ") == 2


def test_a_hint_below_the_error_of_a_program(tmp_path: Path) -> None:
    program = (
        "import jax, jax.numpy as jnp\njax.distributed.initialize()\n"
        "mesh = jax.sharding.Mesh(jax.devices(), 'x')\n"
        "x = jax.device_put(jnp.arange(4.0), jax.NamedSharding(mesh, jax.P('x')))\n"
        "print(x.tolist())\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [*MCNB, "run", "program.py", "-n", "2", "-d", "1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = done.stderr.splitlines()
    assert lines.count(f"[all 2] Hint: {SHARDS}") == 1
    assert lines[-1].startswith("mcnb run: both processes raised RuntimeError: Fetching value")
