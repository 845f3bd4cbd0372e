"""Plausible wrong answers to the exercises of lesson 09, each with the hint that it gets."""

from __future__ import annotations

# What the answers to 09.2 begin with.
_MESHES = """
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
auto = (AxisType.Auto,) * 2
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=auto)
wide = jax.make_mesh((2, 4), ("data", "model"), axis_types=auto)
k = jax.process_index()
def put(mask, mesh=mesh, axis="data"):
    sharding = NamedSharding(mesh, P(axis))
    return jax.make_array_from_callback(mask.shape, sharding, lambda index: mask[index])
"""

# What the answers to 09.3 begin with.
_DRAW = """
import jax, numpy as np
from numpy.random import default_rng
k = jax.process_index()
def deal(order):
    return order[: len(order) // 8 * 8].reshape(-1, 8)[:, 2 * k : 2 * k + 2]
"""

# What the answers to 09.4 begin with.
_LOAD = """
import jax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec as P
def want(like, mesh, spec):
    sharding = NamedSharding(mesh, spec)
    struct = jax.ShapeDtypeStruct
    return jax.tree.map(lambda x: struct(x.shape, x.dtype, sharding=sharding), like)
"""

WRONG = {
    "09.1": {
        "import jax\nk = jax.process_index()\nreads = (16 + 2 * k, 18 + 2 * k)": (
            "that many rows would be right if the batch were split over all processes. On wide, "
            'into how many parts does "data" split it?'
        ),
        "import jax\npart = 4 * (jax.process_index() // 2)\nreads = (part, part + 4)": (
            "those are places in a batch. At which row of the file does the batch begin?"
        ),
        "import jax\npart = 8 + 4 * (jax.process_index() // 2)\nreads = (part, part + 4)": (
            "that is another step's batch. The first step is 0."
        ),
        "import jax\npart = 16 + 4 * (jax.process_index() // 2)\nreads = (part, part + 3)": (
            "the second number is the row after the last, as in a slice."
        ),
        "import jax\npart = 16 + 4 * (jax.process_index() % 2)\nreads = (part, part + 4)": (
            "as many rows as needed, but others. Which processes stand in the same row of wide? "
            "They read the same."
        ),
        "reads = (16, 24)": (
            "mcnb.show(NamedSharding(wide, P('data')), (8, 2), bounds=True) draws who holds what."
        ),
        "reads = slice(16, 20)": (
            "two whole numbers are wanted: the first row, and the row after the last."
        ),
        "reads = ('16', '20')": (
            "two whole numbers are wanted: the first row, and the row after the last."
        ),
    },
    "09.2": {
        # The mask of this process's rows alone, as if each had the last batch for itself.
        _MESHES
        + "own = np.arange(2) < 45 % 2\n"
        + "real = jax.make_array_from_process_local_data(NamedSharding(mesh, P('data')), own)": (
            "how many rows are left for the last batch? Compare with each row's place in the "
            "whole batch, not in the part of this process."
        ),
        _MESHES + "real = put(np.arange(8) < 45)": (
            "how many rows are left for the last batch? Compare with each row's place in the "
            "whole batch, not in the part of this process."
        ),
        _MESHES + "real = put(np.arange(8) >= 5)": (
            "the other way round: True where a row counts, False where it is padding."
        ),
        _MESHES + "real = put((np.arange(8) < 5).astype(np.int32))": (
            "a mask of booleans is wanted: True or False for each row."
        ),
        _MESHES + "real = put(np.arange(8) < 5, wide)": (
            "the parts lie elsewhere: lay it out over the axis 'data', as the rows are."
        ),
        _MESHES + "real = put(np.arange(48) < 45)": (
            "the last batch has 8 places, padding included."
        ),
        "import jax.numpy as jnp\nreal = jnp.arange(8) < 5": (
            "this array lies on one process alone. Every process has its part of the mask."
        ),
        "import numpy as np\nreal = np.arange(8) < 5": (
            "real is a global array; make it as the batches were made."
        ),
    },
    "09.3": {
        _DRAW
        + "def my_rows(epoch, rows): return deal(default_rng((k, epoch)).permutation(rows))": (
            "rows were taken twice, others never. Do all processes draw the same order?"
        ),
        _DRAW + "def my_rows(epoch, rows): return deal(default_rng().permutation(rows))": (
            "the same epoch came out differently. From what does the chance come?"
        ),
        _DRAW + "def my_rows(epoch, rows): return deal(default_rng(7).permutation(rows))": (
            "the other epoch had the same order. What is the order made from?"
        ),
        _DRAW + "def my_rows(epoch, rows): return deal(np.arange(rows))": (
            "the rows come in the file's order. Shuffle them."
        ),
        _DRAW
        + "def my_rows(epoch, rows):\n"
        + "    return default_rng(epoch).permutation(rows)[:6].reshape(3, 2)": (
            "all processes take the same rows. Draw one order, and take this process's part."
        ),
        _DRAW
        + "def my_rows(epoch, rows):\n"
        + "    order = np.resize(default_rng(epoch).permutation(rows), 32)\n"
        + "    return deal(order)": "of 26 rows, the last uneven batch is to be dropped.",
        # All of the epoch, on every process.
        _DRAW
        + "def my_rows(epoch, rows):\n"
        + "    return default_rng(epoch).permutation(rows)[:24].reshape(3, 8)": (
            "26 rows make 3 steps of 8, two of them on each process."
        ),
        # Split first, then made to batches: 7, 7, 6 and 6 rows, and only two processes notice.
        _DRAW
        + "def my_rows(epoch, rows):\n"
        + "    share = np.array_split(default_rng(epoch).permutation(rows), 4)[k]\n"
        + "    return share.reshape(-1, 2) if len(share) % 2 == 0 else share": (
            "26 rows make 3 steps of 8, two of them on each process."
        ),
        "my_rows = [[0, 1]]": "define a function, with def.",
        "def my_rows(epoch, rows): return [[0.5, 1.5]]": (
            "return an array of row numbers: a row of it for each step, two numbers in each."
        ),
        "def my_rows(epoch, rows): return [[0, 1], [2]]": (
            "return an array of row numbers: a row of it for each step, two numbers in each."
        ),
    },
    "09.4": {
        _LOAD
        + "def load(path, like, mesh, spec):\n"
        + "    return ocp.StandardCheckpointer().restore(path)": (
            "the parts lie elsewhere than spec and mesh say. A jax.ShapeDtypeStruct can carry a "
            "sharding; without one, an array is laid out as it was saved."
        ),
        _LOAD
        + "def load(path, like, mesh, spec):\n"
        + "    return ocp.StandardCheckpointer().restore(path, like)": (
            "the parts lie elsewhere than spec and mesh say. A jax.ShapeDtypeStruct can carry a "
            "sharding; without one, an array is laid out as it was saved."
        ),
        _LOAD
        + "def load(path, like, mesh, spec):\n"
        + "    return ocp.StandardCheckpointer().restore(path, want(like, mesh, P()))": (
            "the parts lie elsewhere than spec and mesh say. A jax.ShapeDtypeStruct can carry a "
            "sharding; without one, an array is laid out as it was saved."
        ),
        # One process loads for all.
        _LOAD
        + "def load(path, like, mesh, spec):\n"
        + "    if jax.process_index() == 0:\n"
        + "        return ocp.StandardCheckpointer().restore(path, want(like, mesh, spec))": (
            "mcnb used load to check it, with the result above."
        ),
        _LOAD + "def load(path, like, mesh, spec): return want(like, mesh, spec)": (
            "the leaves have to be arrays, with data: restore them."
        ),
        _LOAD
        + "def load(path, like, mesh, spec):\n"
        + "    return ocp.StandardCheckpointer().restore(path, want(like, mesh, spec))['w']": (
            "return what the checkpointer restored: a PyTree like the one that was saved."
        ),
        _LOAD
        + "def load(path, like, mesh, spec):\n"
        + "    found = ocp.StandardCheckpointer().restore(path, want(like, mesh, spec))\n"
        + "    return {'w': found['w']}": "the PyTree has the same names as like.",
        _LOAD
        + "def load(path, like, mesh, spec):\n"
        + "    zeros = jax.numpy.zeros\n"
        + "    place = NamedSharding(mesh, spec)\n"
        + "    return jax.tree.map(lambda x: zeros(x.shape, x.dtype, device=place), like)": (
            "the layout is right, the values are not those of the checkpoint."
        ),
        "import jax.numpy as jnp\n"
        "def load(path, like, mesh, spec): return {'w': jnp.ones((8, 2)), 'b': jnp.ones(8)}": (
            "an array lies on one process alone. Lay it out on the mesh given."
        ),
        "load = 'first'": "define a function, with def.",
    },
}
