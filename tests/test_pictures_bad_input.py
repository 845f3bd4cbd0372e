"""What can't be drawn gets a sentence, not a trace."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb

from .test_pictures import mesh_of, struct

MESH8 = mesh_of((4, 2), "ab")
BAD: dict[str, tuple[Any, Any, str]] = {
    "a numpy array": (
        np.ones(3),
        None,
        "A ndarray lies in this process's own memory and on no device. "
        "Put it there first: jax.device_put(x, sharding)",
    ),
    "a number": (
        3.0,
        None,
        "A float lies in this process's own memory and on no device. "
        "Put it there first: jax.device_put(x, sharding)",
    ),
    "something else": (
        object(),
        None,
        "A object can't be drawn. What can: a Mesh, a Sharding with a shape, "
        "an array, a ShapeDtypeStruct, a PyTree of arrays, and a function with its arguments",
    ),
    "nothing": (
        {},
        None,
        "A dict can't be drawn. What can: a Mesh, a Sharding with a shape, "
        "an array, a ShapeDtypeStruct, a PyTree of arrays, and a function with its arguments",
    ),
    "no shape": (
        NamedSharding(MESH8, P("a")),
        None,
        "A sharding alone has no shape. Say which: mcnb.show(sharding, (8, 4))",
    ),
    "it does not divide": (
        NamedSharding(MESH8, P("a")),
        (6,),
        "An array of shape (6,) can't be split as P('a'): array axis 0 is partitioned 4 times, but "
        "the dimension size is 6",
    ),
    "too few dimensions": (
        NamedSharding(MESH8, P("a", "b")),
        (8,),
        "An array of shape (8,) can't be split as P('a', 'b'), which speaks of 2 dimensions",
    ),
    "no sharding": (
        jax.ShapeDtypeStruct((2, 3), np.float32),
        None,
        "A ShapeDtypeStruct of shape (2, 3) without a sharding does not say where it would lie. "
        "Give it one: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P('x')))",
    ),
    "no devices": (
        NamedSharding(AbstractMesh((2,), ("x",)), P("x")),
        (2,),
        "The sharding P('x') is over an abstract mesh, which has no devices yet. "
        "Show the mesh, or give the sharding a mesh of devices",
    ),
    "too much": (
        MESH8,
        (8, 4),
        "mcnb.show of a Mesh takes nothing more: only a sharding takes a shape, a function its "
        "arguments, and a cluster a name",
    ),
    "a name without a cluster": (
        np.ones(3),
        "x",
        "A name, 'x', can be given with a cluster only: mcnb.show(cluster, 'x')",
    ),
}


@pytest.mark.parametrize(("thing", "shape", "sentence"), BAD.values(), ids=BAD)
def test_what_cannot_be_drawn_gets_a_sentence(thing: Any, shape: Any, sentence: str) -> None:
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(thing, *([] if shape is None else [shape]))
    assert str(caught.value).startswith(sentence)


def test_a_deleted_array_and_values_that_are_not_there() -> None:
    x = jax.numpy.ones((2, 3))
    x.delete()
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(x)
    assert str(caught.value) == (
        "The array of shape (2, 3) has been deleted or donated, so it lies nowhere. "
        "Show what was computed from it"
    )
    assert "deleted" in mcnb.picture({"x": x, "y": jax.numpy.ones(2)}).text()
    with pytest.raises(mcnb.PictureError, match="An array of 257 elements is too large"):
        mcnb.picture(jax.numpy.ones(257), values=True)
    with pytest.raises(mcnb.PictureError, match="A ShapeDtypeStruct has no values to show"):
        mcnb.picture(struct((8,), MESH8, "a"), values=True)
    with pytest.raises(mcnb.PictureError, match="Random keys have no values to show"):
        mcnb.picture(jax.random.key(0), values=True)


LEFT = """
import jax, numpy as np, mcnb
from jax.extend import backend
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((1,), ("a",))
sharding = NamedSharding(mesh, P("a"))
x = jax.device_put(np.ones(4), sharding)
backend.clear_backends()
for given in ((mesh,), (x,), (sharding, (4,))):
    try:
        mcnb.show(*given)
    except mcnb.PictureError as error:
        print(error)
mcnb.show(jax.make_mesh((1,), ("a",)))
"""
SENTENCE = (
    "The {0} is of devices that are gone: this process has left the system that they belong to, "
    "and joined a new one. Make the {0} anew, on jax.devices()"
)


def test_devices_of_a_system_that_was_left() -> None:
    run = subprocess.run(
        [sys.executable, "-c", LEFT], capture_output=True, text=True, check=True, timeout=120
    )
    lines = run.stdout.splitlines()
    assert lines[:4] == [
        *(SENTENCE.format(what) for what in ("mesh", "array", "sharding")),
        "Mesh 'a': 1",
    ]
