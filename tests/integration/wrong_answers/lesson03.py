"""Plausible wrong answers to the exercises of lesson 03, each with the hint that it gets."""

from __future__ import annotations

_LAID = """
import jax, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
def put(shape, *spec, dtype=np.float32):
    return jax.device_put(np.zeros(shape, dtype), NamedSharding(mesh, P(*spec)))
"""

WRONG = {
    "03.1": {
        "shapes = [(8, 6), (16, 6), (2, 24), (16, 24)]": (
            "look at number 1 again: the first entry of a spec is about dimension 0, the second "
            "about dimension 1."
        ),
        "shapes = [(4, 12), (4, 24), (2, 24), (16, 24)]": (
            "look at number 2 again: None leaves a dimension whole, and the other is split over "
            "'a'."
        ),
        "shapes = [(4, 12), (16, 6), (8, 6), (16, 24)]": (
            "look at number 3 again: a dimension that is split over two axes is in as many parts "
            "as both make together."
        ),
        "shapes = [(4, 12), (16, 6), (2, 24), (2, 24)]": (
            "look at number 4 again: an axis that is not named splits nothing."
        ),
        "shapes = [(4, 12), (16, 6), (2, 24)]": "there are four layouts, so it takes four shapes.",
        "shapes = 'small'": "set it to a list of four shapes, each a tuple of two numbers.",
        "shapes = [4, 12, 16, 6]": (
            "look at number 1 again: the first entry of a spec is about dimension 0, the second "
            "about dimension 1."
        ),
    },
    "03.2": {
        "import jax\nk = jax.process_index()\nbounds = ((6 * k, 6 * k + 6), (6, 12))": (
            "that is P('a', 'b'). Here 'b' splits the rows, and 'a' the columns."
        ),
        "bounds = ((12, 24), (0, 3))": (
            "that is right for another process: jax.process_index() says which this is."
        ),
        "import jax\nk = jax.process_index()\nbounds = ((0, 12), (3 * k, 3 * k + 3))": (
            "the columns are right. The last device is the last along 'b': which rows are those?"
        ),
        "bounds = ((0, 24), (0, 12))": (
            "along 'b' stand the devices of one process, along 'a' the processes."
        ),
        "bounds = (12, 24)": "set it to two pairs, (first row, end) and (first column, end).",
        "bounds = 12": "set it to two pairs, (first row, end) and (first column, end).",
    },
    "03.3": {
        f"{_LAID}striped = put((4, 16), None, ('a', 'b'))": (
            "the parts are right, their order is not. From left to right, does the process change "
            "faster in the picture, or the device of a process?"
        ),
        f"{_LAID}striped = put((4, 16), None, 'a')": (
            "no part of the picture lies on two devices: which axis is missing in the spec?"
        ),
        f"{_LAID}striped = put((4, 16), 'b', 'a')": (
            "dimension 0 is whole in the picture: what does a spec say for that?"
        ),
        f"{_LAID}striped = put((16, 8), ('b', 'a'))": "the whole array has 4 rows and 16 columns.",
        "import jax.numpy as jnp\nstriped = jnp.zeros((4, 16))": (
            "the columns are in as many parts as there are devices: both axes split them."
        ),
        f"{_LAID}striped = NamedSharding(mesh, P(None, ('b', 'a')))": (
            "make an array, for instance with jax.device_put of a NumPy array and a sharding."
        ),
    },
    "03.4": {
        f"{_LAID}kept = (put((16, 8), 'b'), 512)": (
            "the layout is right. That is nbytes, which counts each element once; copies count."
        ),
        f"{_LAID}kept = (put((16, 8), None, 'b'), 4096)": (
            "the layout is right. How many bytes lie on one device, and on how many devices?"
        ),
        f"{_LAID}kept = (put((16, 8), 'b'), '2 KiB')": (
            "the layout is right. How many bytes lie on one device, and on how many devices?"
        ),
        f"{_LAID}kept = (put((16, 8)), 4096)": (
            "a device holds too much: split a dimension over the devices of a process."
        ),
        f"{_LAID}kept = (put((16, 8), 'a', 'b'), 512)": (
            "a process lacks a part: do not split over the axis that the processes stand along."
        ),
        f"{_LAID}kept = (put((8, 16), 'b'), 2048)": (
            "the array is to be float32 of shape (16, 8)."
        ),
        f"{_LAID}kept = (put((16, 8), 'b', dtype=np.int32), 2048)": (
            "the array is to be float32 of shape (16, 8)."
        ),
        # Each process for itself.
        f"""{_LAID}
own = NamedSharding(jax.make_mesh((2,), ("b",), devices=jax.local_devices()), P("b"))
kept = (jax.device_put(np.zeros((16, 8), np.float32), own), 2048)
""": ("place it on all devices: use a mesh of all of them."),
        f"{_LAID}kept = put((16, 8), 'b')": (
            "set it to a pair: the array first, then the number of bytes."
        ),
        f"{_LAID}kept = (2048, put((16, 8), 'b'))": (
            "set it to a pair: the array first, then the number of bytes."
        ),
        "kept = 2048": "set it to a pair: the array first, then the number of bytes.",
    },
}
