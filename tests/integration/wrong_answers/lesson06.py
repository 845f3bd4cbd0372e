"""Plausible wrong answers to the exercises of lesson 06, each with the hint that it gets."""

from __future__ import annotations

WRONG = {
    "06.1": {
        "import jax\nk = jax.process_index()\nheld = ((2 * k, 2 * k + 2), (0, 2))": (
            'that is a piece of P("a", "b"). Here the rows are cut by the other axis.'
        ),
        "import jax\nk = jax.process_index()\nheld = ((0, 4), (0, 1))": (
            "columns are cut along 'a', which counts the processes: which of them is this one?"
        ),
        "import jax\nk = jax.process_index()\nr = 4 * (k % 2)\nheld = ((r, r + 4), (k, k + 1))": (
            "rows are cut along 'b', which counts the devices of one process."
        ),
        "held = (slice(0, 4), slice(0, 1))": (
            "two pairs of whole numbers are wanted: rows, then columns."
        ),
        "held = (('a', 'b'), None)": "two pairs of whole numbers are wanted: rows, then columns.",
    },
    "06.2": {
        # The rows that lie one below the other.
        """
import jax, numpy as np
k = jax.process_index()
feed = np.arange(32, dtype=np.int32).reshape(8, 4)[2 * k : 2 * k + 2]
""": (
            'mcnb.show(NamedSharding(mesh, P(("b", "a"))), (8, 4)) draws which rows lie here: '
            "they are no neighbours."
        ),
        """
import jax, numpy as np
k = jax.process_index()
feed = np.arange(32, dtype=np.int32).reshape(8, 4)[[k + 4, k]]
""": "these rows are the right ones, in the wrong order.",
        "import numpy as np\nfeed = np.arange(32, dtype=np.int32).reshape(8, 4)": (
            "2 devices with one row each: 2 rows from this process."
        ),
        # The numbers of the rows, and not the rows.
        "import jax\nfeed = [[jax.process_index()], [jax.process_index() + 4]]": (
            "each row has to be a row of whole, with all its columns."
        ),
        "import jax\nfeed = [jax.process_index(), jax.process_index() + 4]": (
            "an array of rows of whole is wanted."
        ),
        "feed = [[1], [2, 3]]": "an array of rows of whole is wanted.",
    },
    "06.3": {
        # Each process puts in its own numbers.
        """
import jax
def spread(x, sharding):
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
""": "here are numbers that this process was given, not those of process 0.",
        # The values differ, and device_put says so.
        "import jax\ndef spread(x, sharding):\n    return jax.device_put(x, sharding)": (
            "mcnb used spread to check it, with the result above."
        ),
        """
from jax.experimental import multihost_utils
def spread(x, sharding):
    return multihost_utils.broadcast_one_to_all(x)
""": "the function has to return a global array.",
        """
import jax
from jax.experimental import multihost_utils
def spread(x, sharding):
    return jax.device_put(multihost_utils.broadcast_one_to_all(x), jax.local_devices()[0])
""": "this array lies on one process alone. Is it laid out with the sharding given?",
        # The whole of process 0 is taken for each process's part.
        """
import jax
from jax.experimental import multihost_utils
def spread(x, sharding):
    return jax.make_array_from_process_local_data(
        sharding, multihost_utils.broadcast_one_to_all(x))
""": "the global array has the shape of the whole, on every process.",
        "import jax\nspread = jax.numpy.ones(3)": "the function has to return a global array.",
        """
import jax
from jax.sharding import NamedSharding, PartitionSpec as P
from jax.experimental import multihost_utils
def spread(x, sharding):
    x = multihost_utils.broadcast_one_to_all(x)
    return jax.device_put(x, NamedSharding(sharding.mesh, P("b")))
""": "the pieces lie elsewhere than the sharding says.",
        # Of one dimension.
        """
import jax
def spread(x, sharding):
    return jax.make_array_from_process_local_data(sharding, x[0, :2])
""": "the global array has the shape of the whole, on every process.",
    },
    "06.4": {
        """
import jax
def assemble(load, shape, sharding):
    return jax.make_array_from_callback(shape, sharding, load)
""": (
            "a callback is called once for each device, though here both ask for the same. "
            "Keep what you have read; slices have .start and .stop."
        ),
        """
import jax
def assemble(load, shape, sharding):
    return jax.device_put(load((slice(None), slice(None))), sharding)
""": "this process has read the whole, and its devices hold only a part of it.",
        # The first answer is given to every question, on all processes alike.
        """
import jax
def assemble(load, shape, sharding):
    first = load((slice(0, 2), slice(0, 4)))
    return jax.make_array_from_callback(shape, sharding, lambda index: first)
""": "a shard does not hold what its index says.",
        """
import jax
def assemble(load, shape, sharding):
    known = {}
    def once(index):
        known[index[0].start] = [load((row, index[1])) for row in (index[0], slice(0, 1))][0]
        return known[index[0].start]
    return jax.make_array_from_callback(shape, sharding, once)
""": "count what load is asked for on this process: each number once.",
        "assemble = 'load'": "define a function, assemble(load, shape, sharding).",
    },
}
