"""`mcnb.show`: what can be drawn, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcnb.errors import PictureError
from mcnb.options import plural
from mcnb.pictures.devices import process_ranges
from mcnb.pictures.layout_scene import layout_scene
from mcnb.pictures.mesh_scene import mesh_scene
from mcnb.pictures.picture import Picture
from mcnb.pictures.scene import ELSEWHERE, Cell, Grid, Scene
from mcnb.pictures.tree_scene import Leaf, tree_scene

if TYPE_CHECKING:
    from mcnb.cluster import Cluster


def show(
    thing: Any,
    *args: Any,
    name: str = "",
    bounds: bool = False,
    values: bool = False,
    ids: bool = False,
) -> None:
    """Show where something lies, or what a program communicates.

    Only what JAX knows without asking other processes is used: nothing is moved or computed, so it
    can't hang, and one process can call it alone. In a notebook it is shown as SVG, else printed.

    Args:
        thing: A `Mesh` or `AbstractMesh`; an array or a `ShapeDtypeStruct`; a sharding; a PyTree of
            these; a function, or a compiled one; or, in the notebook itself, a `Cluster`, or the
            `Result` of a cell, to see who did what when.
        args: For a sharding, the global shape, such as `(8, 4)`. For a function, its arguments, or
            `ShapeDtypeStruct`s in their place: it is compiled, and not run. For an array, another
            array or sharding, to see what has to move from one to the other; for two shardings,
            a shape as well. For a cluster, the name of a variable in its processes.
        name: What to call it in the title.
        bounds: Whether to write at the edges where each part begins and ends.
        values: Whether to write the numbers into the boxes, of an array of at most 256; those that
            this process holds.
        ids: Whether to tell devices by JAX's numbers for them, as in `TPU 4,5 · P0`, and not by
            their place in their process.

    Raises:
        PictureError: It can't be drawn; the message says why.

    Example:
        >>> import jax
        >>> kinds = (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit)
        >>> show(jax.sharding.AbstractMesh((2, 2), ("a", "b"), axis_types=kinds))
        Abstract mesh 'a': 2, 'b': 2
        → 'b': 2   ↓ 'a': 2
             0     1
          ┌─────┬─────┐
        0 │ 0,0 │ 0,1 │
          ├─────┼─────┤
        1 │ 1,0 │ 1,1 │
          └─────┴─────┘
        4 places for devices, and no devices yet.
        Axis types: 'a' Auto, 'b' Explicit.
    """
    from mcnb.cluster import Cluster
    from mcnb.result import Result

    options: dict[str, Any] = {"name": name, "bounds": bounds, "values": values, "ids": ids}
    if isinstance(thing, Cluster):
        pictures = _of_cluster(thing, args, options)
    elif isinstance(thing, Result):
        pictures = [thing.timeline()]
    else:
        pictures = [picture(thing, *args, **options)]
    for one in pictures:
        _display(one)


def _display(one: Picture) -> None:
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        print(one.text())
    else:
        display(one)


def picture(
    thing: Any,
    *args: Any,
    name: str = "",
    bounds: bool = False,
    values: bool = False,
    ids: bool = False,
) -> Picture:
    """Return the picture that `show` shows.

    Args:
        thing: A mesh, an array, a `ShapeDtypeStruct`, a sharding, a PyTree, or a function.
        args: The global shape, for a sharding; a function's arguments.
        name: What to call it in the title.
        bounds: Whether to write at the edges where each part begins and ends.
        values: Whether to write the numbers into the boxes.
        ids: Whether to tell devices by JAX's numbers for them.

    Raises:
        PictureError: It can't be drawn; the message says why.

    Example:
        >>> import jax
        >>> axes = picture(jax.sharding.AbstractMesh((2,), ("a",))).plot()
        >>> axes.figure.savefig("mesh.pdf")  # doctest: +SKIP
    """
    return Picture(scene_of(thing, *args, name=name, bounds=bounds, values=values, ids=ids))


def scene_of(
    thing: Any,
    *args: Any,
    name: str = "",
    bounds: bool = False,
    values: bool = False,
    ids: bool = False,
) -> Scene:
    """Return the scene of something; see `picture`."""
    import jax

    from mcnb.pictures import observe
    from mcnb.pictures.values import value_labels

    laid_out = (jax.sharding.Sharding, jax.Array, jax.ShapeDtypeStruct)
    if args and isinstance(thing, laid_out) and isinstance(args[0], laid_out):
        return _of_change(thing, args[0], args[1:], name=name, bounds=bounds, ids=ids)
    if isinstance(thing, jax.sharding.Sharding):
        return layout_scene(observe.layout_of(thing, *args[:1]), name=name, bounds=bounds, ids=ids)
    mesh = isinstance(thing, (jax.sharding.Mesh, jax.sharding.AbstractMesh))
    if isinstance(thing, (jax.stages.Compiled, jax.stages.Lowered)) or (
        args and callable(thing) and not mesh
    ):
        return _of_function(thing, args, name)
    if args and isinstance(args[0], str):
        raise PictureError(
            f"A name, {args[0]!r}, can be given with a cluster only: "
            f"mcnb.show(cluster, {args[0]!r})"
        )
    if args:
        raise PictureError(
            f"mcnb.show of a {type(thing).__name__} takes nothing more: only a sharding takes a "
            "shape, a function its arguments, and a cluster a name"
        )
    if mesh:
        return mesh_scene(observe.mesh_model(thing), ids=ids)
    if observe.is_host_value(thing):
        raise PictureError(
            f"A {type(thing).__name__} lies in this process's own memory and on no device. "
            "Put it there first: jax.device_put(x, sharding)"
        )
    if isinstance(thing, (jax.Array, jax.ShapeDtypeStruct)):
        label = value_labels(thing) if values else None
        return layout_scene(
            observe.layout_of(thing), name=name, bounds=bounds, ids=ids, label=label
        )
    leaves = jax.tree_util.tree_leaves_with_path(thing)
    if leaves and leaves[0][1] is not thing:
        return tree_scene([_leaf(path, leaf) for path, leaf in leaves], name)
    if callable(thing):
        return _of_function(thing, args, name)
    raise PictureError(
        f"A {type(thing).__name__} can't be drawn. What can: a Mesh, a Sharding with a shape, "
        "an array, a ShapeDtypeStruct, a PyTree of arrays, and a function with its arguments"
    )


def _of_change(before: Any, after: Any, shape: Sequence[Any], **options: Any) -> Scene:
    import jax

    from mcnb.pictures.change import change_scene
    from mcnb.pictures.observe import layout_of
    from mcnb.pictures.observe_program import moving

    if isinstance(before, jax.sharding.Sharding):
        if not shape:
            raise PictureError(
                "Two shardings alone have no shape. Say which: mcnb.show(before, after, (8, 4))"
            )
        before = jax.ShapeDtypeStruct(tuple(shape[0]), "float32", sharding=before)
    if not isinstance(after, jax.sharding.Sharding):
        if after.shape != before.shape:
            raise PictureError(
                f"What moves keeps its shape, and these have two: {tuple(before.shape)} and "
                f"{tuple(after.shape)}"
            )
        after = after.sharding
    first = layout_of(before)
    second = layout_of(jax.ShapeDtypeStruct(before.shape, before.dtype, sharding=after))
    return change_scene(first, second, moving(before, after), **options)


def _of_function(function: Any, args: Sequence[Any], name: str) -> Scene:
    from mcnb.pictures.observe_program import compiled, program_model
    from mcnb.pictures.program_scene import program_scene

    return program_scene(program_model(compiled(function, args), name))


def _leaf(path: Any, leaf: Any) -> Leaf:
    import jax

    from mcnb.pictures import observe

    where = jax.tree_util.keystr(path)
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        return Leaf(where, None, "deleted")
    if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) and leaf.sharding is not None:
        return Leaf(where, observe.layout_of(leaf))
    return Leaf(where, None, type(leaf).__name__)


def _of_cluster(cluster: Cluster, args: Sequence[Any], options: dict[str, Any]) -> list[Picture]:
    """Return the pictures of a variable on a cluster's processes, equal ones once."""
    if not args:
        return [Picture(_devices_of(cluster))]
    what = args[0]
    if not isinstance(what, str) or len(args) > 1:
        given = ", ".join(map(repr, args))
        raise PictureError(
            f"With a cluster goes the name of a variable, not {given}: mcnb.show(cluster, 'x')"
        )
    scenes = cluster.scenes(what, **options)
    if options["values"]:
        scenes = put_together(scenes)
    found: dict[Scene, list[int]] = {}
    for process, scene in scenes.items():
        found.setdefault(scene, []).append(process)
    if len(found) == 1:
        return [Picture(scene) for scene in found]
    return [
        Picture(Scene(f"On {process_ranges(own)}: {scene.title}", scene.notes, scene.parts))
        for scene, own in found.items()
    ]


def put_together(scenes: Mapping[int, Scene]) -> dict[int, Scene]:
    """Return scenes of one array with the values that any process holds, where they fit."""
    every = list(scenes.values())
    frames = {_without_values(scene) for scene in every}
    if len(frames) > 1:
        return dict(scenes)
    parts = []
    for same in zip(*(scene.parts for scene in every), strict=True):
        grids = [part for part in same if isinstance(part, Grid)]
        rows = tuple(
            tuple(_with_values(cells) for cells in zip(*row, strict=True))
            for row in zip(*(grid.rows for grid in grids), strict=True)
        )
        parts.append(replace(grids[0], rows=rows))
    return dict.fromkeys(scenes, replace(every[0], parts=tuple(parts)))


def _with_values(cells: Iterable[Cell | None]) -> Cell | None:
    given = list(cells)
    known = [cell for cell in given if cell is not None and ELSEWHERE not in cell.lines]
    return known[0] if known else given[0]


def _without_values(scene: Scene) -> Scene:
    parts = [
        replace(
            part,
            rows=tuple(
                tuple(cell and replace(cell, lines=cell.lines[:1]) for cell in row)
                for row in part.rows
            ),
        )
        for part in scene.parts
        if isinstance(part, Grid)
    ]
    return replace(scene, parts=tuple(parts))


def _devices_of(cluster: Cluster) -> Scene:
    count, each = cluster.options.processes, cluster.options.devices_per_process
    rows = tuple(
        tuple(Cell((k,), (f"P{k}.{i}",)) for i in range(each)) for k in range(min(count, 64))
    )
    heads = tuple(f"process {k}" for k in range(len(rows)))
    return Scene(
        f"{plural(count, 'process', 'processes')}, "
        f"{plural(each, 'device', 'devices')} each, {cluster.options.platform}",
        (f"Pk.i is device i of process k. {count * each} devices in all.",),
        (Grid(rows, row_heads=heads),),
    )
