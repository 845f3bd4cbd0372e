"""Draw JAX objects, pods, clusters and results with `mcnb.show` and `mcnb.picture`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from mcnb._text import a_or_an, spec_text
from mcnb.errors import PictureError
from mcnb.pictures import inspect
from mcnb.pictures.model import Region, by_id
from mcnb.pictures.moves import change_of
from mcnb.pictures.picture import Picture
from mcnb.pictures.scene import ELSEWHERE, Scene
from mcnb.pictures.scenes.layout import layout_scene
from mcnb.pictures.scenes.mesh import mesh_scene
from mcnb.pictures.scenes.program import program_scene
from mcnb.pictures.scenes.tree import DELETED, Leaf, tree_scene

MOST_VALUES = 256
ARRAY = (jax.Array, jax.ShapeDtypeStruct)
DRAWN = (
    "a Mesh, a Sharding with a shape, an array, a ShapeDtypeStruct, a PyTree of arrays, and a "
    "function with its arguments"
)


def value_labels(array: Any, *, ids: bool = False) -> Callable[[Region], tuple[str, ...]]:
    """Return a function that labels a region with its values, if this process holds them.

    Nothing is moved or computed: only addressable shards are read.
    """
    if not isinstance(array, jax.Array):
        raise PictureError(f"{a_or_an(type(array).__name__)} has no values to show: give an array")
    if array.size > MOST_VALUES:
        raise PictureError(
            f"An array of {array.size} elements is too large to show its values; the limit is "
            f"{MOST_VALUES}. Show a part of it, or leave out values=True"
        )
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise PictureError("Random keys have no values to show: see jax.random.key_data")
    shards = reversed(array.addressable_shards)  # of equal shards, the first is read
    held = {inspect.bounds_of(shard.index, array.shape): shard.data for shard in shards}

    def label(region: Region) -> tuple[str, ...]:
        line = by_id(region.devices) if ids else " ".join(map(str, region.devices))
        data = held.get(region.bounds)
        return (line, ELSEWHERE) if data is None else (line, *_lines(np.asarray(data)))

    return label


def _lines(values: np.ndarray[Any, Any]) -> list[str]:
    if values.dtype == object or values.dtype.kind == "V":  # bfloat16 and similar types
        values = values.astype(np.float32)
    text = np.array2string(
        values, precision=3, suppress_small=True, threshold=MOST_VALUES + 1, max_line_width=200
    )
    return [line.replace("[", "").replace("]", "").strip() for line in text.split("\n") if line]


def show(
    thing: Any,
    *args: Any,
    name: str = "",
    bounds: bool = False,
    values: bool = False,
    ids: bool = False,
    full: bool = False,
    **keywords: Any,
) -> None:
    """Show how data is laid out over devices, what a program communicates, or a cell's timeline.

    Only local information of JAX is used: nothing is moved or computed, so `show` can't hang, and
    one process can call it alone. Notebooks display the picture; elsewhere, it is printed.

    Args:
        thing: A `Mesh` or `AbstractMesh`; an array or a `ShapeDtypeStruct`; a sharding; a PyTree of
            these; a function, or a compiled one; a `Pod`, or a program compiled for it; or, in the
            notebook kernel, a `Cluster`, or the `Result` of a cell, for its timeline.
        args: For a sharding, the global shape, such as `(8, 4)`. For a function, its arguments, or
            `ShapeDtypeStruct`s in their place: it is compiled, but not run. For an array, another
            array or sharding, to show the data that moves from one to the other; for two shardings,
            also a shape, or an array or a `ShapeDtypeStruct` with a shape and a type. For a
            cluster, the name of a variable in its processes, or an expression; for a sharding
            there, also the shape.
        name: Name to use in the title.
        bounds: Whether to write the bounds of each part at the edges.
        values: Whether to write the values that this process holds into the boxes, for an array of
            at most 256 elements.
        ids: Whether to write JAX's device ids, as in `TPU 4,5 · P0`, instead of positions.
        full: Whether each leaf of a PyTree, and each collective and result of a function, has a row
            of its own. By default, those that are alike share one, and the text has 25 lines.
        keywords: For a function, its keyword arguments. For a result, `order=True` shows only the
            order of its launches, without times.

    Raises:
        PictureError: `thing` can't be drawn; the message says why.

    Example:
        >>> import jax
        >>> kinds = (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit)
        >>> show(jax.sharding.AbstractMesh((2, 2), ("a", "b"), axis_types=kinds))
        Abstract mesh 'a': 2, 'b': 2
        ↓ 'a': 2   → 'b': 2
             0     1
          ┌─────┬─────┐
        0 │ 0,0 │ 0,1 │
          ├─────┼─────┤
        1 │ 1,0 │ 1,1 │
          └─────┴─────┘
        4 places for devices, and no devices yet.
        Axis types: 'a' Auto, 'b' Explicit.
    """
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    options = {"name": name, "bounds": bounds, "values": values, "ids": ids, "full": full}
    in_notebook = hasattr(get_ipython(), "kernel")
    for one in _pictures(thing, args, options, keywords):
        if in_notebook:
            display(one)
        else:
            print(one.text())


def picture(
    thing: Any,
    *args: Any,
    name: str = "",
    bounds: bool = False,
    values: bool = False,
    ids: bool = False,
    full: bool = False,
    **keywords: Any,
) -> Picture:
    """Return the picture that `show` displays.

    Args:
        thing: Object to draw, as in `show`.
        args: Further arguments, as in `show`.
        name: Name to use in the title.
        bounds: Whether to write the bounds of each part at the edges.
        values: Whether to write the values into the boxes.
        ids: Whether to write JAX's device ids.
        full: Whether each leaf, collective and result has a row of its own.
        keywords: For a function, its keyword arguments; for a result, `order=True`.

    Raises:
        PictureError: `thing` can't be drawn, or differs between the processes of a cluster.

    Example:
        >>> import jax
        >>> axes = picture(jax.sharding.AbstractMesh((2,), ("a",))).plot()
        >>> axes.figure.savefig("mesh.pdf")  # doctest: +SKIP
    """
    options = {"name": name, "bounds": bounds, "values": values, "ids": ids, "full": full}
    found = _pictures(thing, args, options, keywords)
    if len(found) > 1:
        raise PictureError(
            f"{args[0]} differs between processes, so there are {len(found)} pictures. "
            "mcnb.picture returns only one; mcnb.show shows them all"
        )
    return found[0]


def _pictures(
    thing: Any, args: Sequence[Any], options: dict[str, Any], keywords: Mapping[str, Any]
) -> list[Picture]:
    draw = getattr(type(thing), "__mcnb_picture__", None)
    drawn: list[Picture] | None = draw(thing, args, options, keywords) if draw else None
    if drawn is None:
        drawn = [Picture(scene_of(thing, *args, keywords=keywords, **options))]
    return drawn


def scene_of(
    thing: Any,
    *args: Any,
    name: str = "",
    bounds: bool = False,
    values: bool = False,
    ids: bool = False,
    full: bool = False,
    keywords: Mapping[str, Any] = MappingProxyType({}),
) -> Scene:
    """Return the scene of an object; see `picture`."""
    laid_out = (jax.sharding.Sharding, *ARRAY)
    mesh = isinstance(thing, (jax.sharding.Mesh, jax.sharding.AbstractMesh))
    compiled = isinstance(thing, (jax.stages.Compiled, jax.stages.Lowered))
    if compiled or ((args or keywords) and callable(thing) and not mesh):
        return _of_function(thing, args, keywords, name, full)
    if keywords:
        raise PictureError(
            f"mcnb.show has no option {next(iter(keywords))}. Options: name, bounds, values, ids, "
            "full; a function also takes its own keyword arguments"
        )
    if args and isinstance(thing, laid_out) and isinstance(args[0], laid_out):
        return change_of(thing, args[0], args[1:], name=name, bounds=bounds, ids=ids)
    if isinstance(thing, jax.sharding.Sharding):
        _no_more(thing, args[1:])
        shape = inspect.shape_of(args[0]) if args else None
        return layout_scene(inspect.layout_of(thing, shape), name=name, bounds=bounds, ids=ids)
    _no_more(thing, args)
    if mesh:
        return mesh_scene(inspect.mesh_model(thing), ids=ids)
    if isinstance(thing, (np.ndarray, np.generic, int, float, complex, bool)):
        raise PictureError(
            f"{a_or_an(type(thing).__name__)} is in host memory, not on a device. Move it to "
            f"devices first: jax.device_put(x, sharding)"
        )
    if isinstance(thing, ARRAY):
        layout = inspect.layout_of(thing)
        label = value_labels(thing, ids=ids) if values else None
        return layout_scene(layout, name=name, bounds=bounds, ids=ids, label=label)
    leaves = jax.tree_util.tree_leaves_with_path(thing)
    if leaves and leaves[0][1] is not thing:
        return tree_scene([_leaf(path, leaf) for path, leaf in leaves], name, full=full)
    if callable(thing):
        return _of_function(thing, args, {}, name, full)
    nothing = ", as there is no array in it" if not leaves and thing is not None else ""
    raise PictureError(
        f"{a_or_an(type(thing).__name__)} can't be drawn{nothing}. What can: {DRAWN}"
    )


def _no_more(thing: Any, args: Sequence[Any]) -> None:
    """Reject arguments that would be ignored."""
    if not args:
        return
    if isinstance(args[0], str):
        raise PictureError(
            f"A name, {args[0]!r}, can be given with a cluster only: "
            f"mcnb.show(cluster, {args[0]!r})"
        )
    if isinstance(args[0], jax.sharding.PartitionSpec):
        spec = spec_text(args[0])
        raise PictureError(f"{spec} has no mesh. Give a sharding: NamedSharding(mesh, {spec})")
    what = a_or_an("jax.Array" if isinstance(thing, jax.Array) else type(thing).__name__)
    raise PictureError(
        f"mcnb.show does not accept a value of type {type(args[0]).__name__} after "
        f"{what[0].lower()}{what[1:]}. Allowed: a shape after a sharding; an array or a "
        "sharding after an array; arguments after a function; a name after a cluster"
    )


def _of_function(
    function: Any, args: Sequence[Any], keywords: Mapping[str, Any], name: str, full: bool
) -> Scene:
    program = inspect.compiled(function, args, keywords)
    return program_scene(inspect.program_model(program, name), full=full)


def _leaf(path: Any, leaf: Any) -> Leaf:
    where = jax.tree_util.keystr(path)
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        return Leaf(where, None, DELETED)
    if isinstance(leaf, ARRAY) and leaf.sharding is not None:
        return Leaf(where, inspect.layout_of(leaf))
    return Leaf(where, None, type(leaf).__name__)
