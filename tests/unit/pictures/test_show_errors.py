"""What can't be drawn gets a sentence, not a trace."""

from __future__ import annotations

import re
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from tests.unit.pictures.test_show import mesh_of, struct

MESH8 = mesh_of((4, 2), "ab")
BAD: dict[str, tuple[Any, Any, str]] = {
    "a numpy array": (
        np.ones(3),
        None,
        "An ndarray is in host memory, not on a device. Move it to devices first: "
        "jax.device_put(x, sharding)",
    ),
    "a number": (
        3.0,
        None,
        "A float is in host memory, not on a device. Move it to devices first: jax.device_put(x, "
        "sharding)",
    ),
    "something else": (
        object(),
        None,
        "An object can't be drawn. What can: a Mesh, a Sharding with a shape, "
        "an array, a ShapeDtypeStruct, a PyTree of arrays, and a function with its arguments",
    ),
    "nothing": (
        {},
        None,
        "A dict can't be drawn, as there is no array in it. What can: a Mesh, a Sharding with a "
        "shape, an array, a ShapeDtypeStruct, a PyTree of arrays, and a function with its "
        "arguments",
    ),
    "no shape": (
        NamedSharding(MESH8, P("a")),
        None,
        "A sharding has no shape. Pass the array's shape, too: mcnb.show(sharding, (8, 4))",
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
        "An array of shape (8,) has 1 dimension, but P('a', 'b') has 2 entries",
    ),
    "no sharding": (
        jax.ShapeDtypeStruct((2, 3), np.float32),
        None,
        "A ShapeDtypeStruct of shape (2, 3) has no sharding, so its devices are unknown. Pass a "
        "sharding: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P('x')))",
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
        "mcnb.show does not accept a value of type tuple after a Mesh. Allowed: a shape after a "
        "sharding; an array or a sharding after an array; arguments after a function; a name after "
        "a cluster",
    ),
    "a name without a cluster": (
        np.ones(3),
        "x",
        "A name, 'x', can be given with a cluster only: mcnb.show(cluster, 'x')",
    ),
}


MORE_BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "a shape below 0": (
        (NamedSharding(MESH8, P("a")), (-8,)),
        {},
        "(-8,) is not a valid shape. A shape is a tuple of whole numbers, none of them below 0: "
        "mcnb.show(sharding, (8, 4))",
    ),
    "a shape with a fraction": (
        (NamedSharding(MESH8, P("a")), (8.0,)),
        {},
        "(8.0,) is not a valid shape. A shape is a tuple of whole numbers, none of them below 0: "
        "mcnb.show(sharding, (8, 4))",
    ),
    "two shapes": (
        (NamedSharding(MESH8, P("a")), 8, 4),
        {},
        "mcnb.show does not accept a value of type int after a NamedSharding. Allowed: a shape "
        "after a sharding; an array or a sharding after an array; arguments after a function; a "
        "name after a cluster",
    ),
    "a spec": (
        (struct((8,), MESH8, "a"), P("b")),
        {},
        "P('b') has no mesh. Give a sharding: NamedSharding(mesh, P('b'))",
    ),
    "an option that is not there": (
        (struct((8,), MESH8, "a"),),
        {"value": True},
        "mcnb.show has no option value. Options: name, bounds, values, ids, full; a function also "
        "takes its own keyword arguments",
    ),
    "too many dimensions in a change": (
        (struct((8, 4), MESH8, "a"), NamedSharding(MESH8, P(None, None, "a"))),
        {},
        "An array of shape (8, 4) has 2 dimensions, but P(None, None, 'a') has 3 entries",
    ),
    "an array with a shape": (
        (struct((8, 4), MESH8, "a"), NamedSharding(MESH8, P("b")), (4, 4)),
        {},
        "An array already has a shape, so the shape must be left out: mcnb.show(x, sharding)",
    ),
    "arguments of what is compiled": (
        (jax.jit(jax.numpy.sin).lower(1.0).compile(), 3),
        {},
        "A compiled function takes no further arguments: mcnb.show(compiled). To compile it for "
        "other arguments: mcnb.show(f, x)",
    ),
}


@pytest.mark.parametrize(("things", "keywords", "sentence"), MORE_BAD.values(), ids=MORE_BAD)
def test_what_stands_beside_it_gets_a_sentence(
    things: tuple[Any, ...], keywords: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(*things, **keywords)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(("thing", "shape", "sentence"), BAD.values(), ids=BAD)
def test_what_cannot_be_drawn_gets_a_sentence(thing: Any, shape: Any, sentence: str) -> None:
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(thing, *([] if shape is None else [shape]))
    assert str(caught.value).startswith(sentence)


def test_a_mesh_of_no_devices() -> None:
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(AbstractMesh((2, 0), ("x", "y")))
    assert str(caught.value) == (
        "The mesh has no devices, because its axis 'y' has size 0. Give every axis at least one "
        "device"
    )


def test_what_are_no_axes() -> None:
    drawn = mcnb.picture(AbstractMesh((2,), ("x",)))
    with pytest.raises(mcnb.PictureError) as caught:
        drawn.plot(3)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "ax takes matplotlib's Axes, not 3: picture.plot(ax=plt.subplots()[1])"
    )


def test_a_deleted_array_and_values_that_are_not_there() -> None:
    x = jax.numpy.ones((2, 3))
    x.delete()
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(x)
    assert str(caught.value) == (
        "The array of shape (2, 3) has been deleted or donated, so it is on no device. "
        "Show what was computed from it"
    )
    with pytest.raises(mcnb.PictureError, match="has been deleted or donated"):
        mcnb.picture(x, values=True)
    text = mcnb.picture({"x": x, "y": jax.numpy.ones(2)}).text()
    assert re.search(r"\['x'\] +deleted +nowhere any more", text)
    assert text.endswith("8 B in all. 1 leaf has been deleted or donated.")
    assert (
        mcnb.picture([np.ones(3), 3])
        .text()
        .endswith("No array in it. 2 leaves lie on the host, not counted here.")
    )
    with pytest.raises(mcnb.PictureError, match="An array of 257 elements is too large"):
        mcnb.picture(jax.numpy.ones(257), values=True)
    with pytest.raises(mcnb.PictureError, match="A ShapeDtypeStruct has no values to show"):
        mcnb.picture(struct((8,), MESH8, "a"), values=True)
    with pytest.raises(mcnb.PictureError, match="Random keys have no values to show"):
        mcnb.picture(jax.random.key(0), values=True)
