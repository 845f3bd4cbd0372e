"""From two layouts of an array, as they are given, to a scene of what has to move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from mcnb.errors import PictureError
from mcnb.pictures.change import DeviceOrder, change_scene
from mcnb.pictures.observe import layout_of, shape_of
from mcnb.pictures.observe_program import moving
from mcnb.pictures.scene import Scene


def change_of(before: Any, after: Any, more: Sequence[Any], **options: Any) -> Scene:
    """Return the scene of an array before and after a move.

    Args:
        before: An array, a `ShapeDtypeStruct`, or a sharding.
        after: The same.
        more: A shape, or what has one, if both are shardings.
        options: Those of `change_scene`.

    Raises:
        PictureError: There is no shape, there are two, or it can't be laid out like that.
    """
    arrays = [one for one in (before, after) if not isinstance(one, jax.sharding.Sharding)]
    if arrays and more:
        raise PictureError(
            "An array has a shape of its own, so there is nothing more to say: "
            "mcnb.show(x, sharding)"
        )
    if not arrays and not more:
        raise PictureError(
            "Two shardings alone have no shape. Say which: mcnb.show(before, after, (8, 4))"
        )
    if len(more) > 1:
        raise PictureError("Two shardings take one shape: mcnb.show(before, after, (8, 4))")
    given = arrays[0] if arrays else more[0]
    shape = shape_of(given)
    dtype = getattr(given, "dtype", None)
    if len(arrays) == 2 and arrays[1].shape != shape:
        raise PictureError(
            f"What moves keeps its shape, and these have two: {shape} and {arrays[1].shape}"
        )
    layouts = [
        layout_of(one, shape, dtype) if isinstance(one, jax.sharding.Sharding) else layout_of(one)
        for one in (before, after)
    ]
    old, new = (getattr(one, "sharding", one) for one in (before, after))
    uses = moving(jax.ShapeDtypeStruct(shape, dtype or "float32", sharding=old), new)
    return change_scene(layouts[0], layouts[1], uses, devices=_compared(old, new), **options)


def _compared(old: Any, new: Any) -> DeviceOrder:
    if set(old.device_set) != set(new.device_set):
        return "other"
    orders = [
        list(sharding.mesh.devices.flat) if isinstance(sharding, jax.sharding.NamedSharding) else []
        for sharding in (old, new)
    ]
    return "same" if orders[0] == orders[1] else "reordered"
