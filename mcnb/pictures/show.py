"""`mcnb.show` and `mcnb.picture`: what can be drawn, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcnb.errors import PictureError
from mcnb.options import a_or_an
from mcnb.pictures.layout_scene import layout_scene
from mcnb.pictures.mesh_scene import mesh_scene
from mcnb.pictures.picture import Picture
from mcnb.pictures.scene import Scene
from mcnb.pictures.tree_scene import DELETED, Leaf, tree_scene

OPTIONS = {"name": "", "bounds": False, "values": False, "ids": False}
DRAWN = (
    "a Mesh, a Sharding with a shape, an array, a ShapeDtypeStruct, a PyTree of arrays, and a "
    "function with its arguments"
)


def show(
    thing: Any,
    *args: Any,
    name: str = "",
    bounds: bool = False,
    values: bool = False,
    ids: bool = False,
    **keywords: Any,
) -> None:
    """Show where something lies, or what a program communicates.

    Only what JAX knows without asking other processes is used: nothing is moved or computed, so it
    can't hang, and one process can call it alone. In a notebook it is shown as SVG, else printed.

    Args:
        thing: A `Mesh` or `AbstractMesh`; an array or a `ShapeDtypeStruct`; a sharding; a PyTree of
            these; a function, or a compiled one; a `Pod`, or what it compiled; or, in the notebook
            itself, a `Cluster`, or the `Result` of a cell, to see who did what when.
        args: For a sharding, the global shape, such as `(8, 4)`. For a function, its arguments, or
            `ShapeDtypeStruct`s in their place: it is compiled, and not run. For an array, another
            array or sharding, to see what has to move from one to the other; for two shardings,
            a shape as well, or an array or a `ShapeDtypeStruct` with a shape and a type. For a
            cluster, the name of a variable in its processes, or an expression.
        name: What to call it in the title.
        bounds: Whether to write at the edges where each part begins and ends.
        values: Whether to write the numbers into the boxes, of an array of at most 256; those that
            this process holds.
        ids: Whether to tell devices by JAX's numbers for them, as in `TPU 4,5 · P0`, and not by
            their place in their process.
        keywords: For a function, its keyword arguments. For a result, `order=True`: the order of
            its launches only, without times.

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
    options = {"name": name, "bounds": bounds, "values": values, "ids": ids}
    for one in _pictures(thing, args, options, keywords):
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
    **keywords: Any,
) -> Picture:
    """Return the picture that `show` shows.

    Args:
        thing: What `show` takes.
        args: What `show` takes with it.
        name: What to call it in the title.
        bounds: Whether to write at the edges where each part begins and ends.
        values: Whether to write the numbers into the boxes.
        ids: Whether to tell devices by JAX's numbers for them.
        keywords: For a function, its keyword arguments; for a result, `order=True`.

    Raises:
        PictureError: It can't be drawn, or a cluster's processes differ; the message says why.

    Example:
        >>> import jax
        >>> axes = picture(jax.sharding.AbstractMesh((2,), ("a",))).plot()
        >>> axes.figure.savefig("mesh.pdf")  # doctest: +SKIP
    """
    options = {"name": name, "bounds": bounds, "values": values, "ids": ids}
    found = _pictures(thing, args, options, keywords)
    if len(found) > 1:
        raise PictureError(
            f"The processes differ, which makes {len(found)} pictures of {args[0]}: "
            "mcnb.show shows them all"
        )
    return found[0]


def _pictures(
    thing: Any, args: Sequence[Any], options: dict[str, Any], keywords: Mapping[str, Any]
) -> list[Picture]:
    from mcnb.cluster import Cluster
    from mcnb.pictures.of_cluster import pictures_of
    from mcnb.pods.pod import Pod, Rehearsal
    from mcnb.result import Result

    if isinstance(thing, (Pod, Rehearsal)) and not args and not keywords:
        return [thing.picture()]
    if isinstance(thing, Result) and not args and set(keywords) <= {"order"}:
        return [thing.timeline(**keywords)]
    if isinstance(thing, Cluster) and not keywords:
        return pictures_of(thing, args, options)
    return [Picture(scene_of(thing, *args, keywords=keywords, **options))]


def scene_of(
    thing: Any,
    *args: Any,
    name: str = "",
    bounds: bool = False,
    values: bool = False,
    ids: bool = False,
    keywords: Mapping[str, Any] | None = None,
) -> Scene:
    """Return the scene of something; see `picture`."""
    import jax

    from mcnb.pictures import observe
    from mcnb.pictures.values import value_labels

    laid_out = (jax.sharding.Sharding, jax.Array, jax.ShapeDtypeStruct)
    mesh = isinstance(thing, (jax.sharding.Mesh, jax.sharding.AbstractMesh))
    compiled = isinstance(thing, (jax.stages.Compiled, jax.stages.Lowered))
    if compiled or ((args or keywords) and callable(thing) and not mesh):
        return _of_function(thing, args, keywords or {}, name)
    if keywords:
        raise PictureError(
            f"mcnb.show has no option {next(iter(keywords))}. Options: {', '.join(OPTIONS)}; a "
            "function takes its own keyword arguments, too"
        )
    if args and isinstance(thing, laid_out) and isinstance(args[0], laid_out):
        from mcnb.pictures.of_change import change_of

        return change_of(thing, args[0], args[1:], name=name, bounds=bounds, ids=ids)
    if isinstance(thing, jax.sharding.Sharding):
        _no_more(thing, args[1:])
        shape = observe.shape_of(args[0]) if args else None
        return layout_scene(observe.layout_of(thing, shape), name=name, bounds=bounds, ids=ids)
    _no_more(thing, args)
    if mesh:
        return mesh_scene(observe.mesh_model(thing), ids=ids)
    if observe.is_host_value(thing):
        raise PictureError(
            f"{a_or_an(type(thing).__name__)} lies in this process's own memory and on no device. "
            "Put it there first: jax.device_put(x, sharding)"
        )
    if isinstance(thing, (jax.Array, jax.ShapeDtypeStruct)):
        layout = observe.layout_of(thing)
        label = value_labels(thing, ids=ids) if values else None
        return layout_scene(layout, name=name, bounds=bounds, ids=ids, label=label)
    leaves = jax.tree_util.tree_leaves_with_path(thing)
    if leaves and leaves[0][1] is not thing:
        return tree_scene([_leaf(path, leaf) for path, leaf in leaves], name)
    if callable(thing):
        return _of_function(thing, args, {}, name)
    nothing = ", as there is no array in it" if not leaves and thing is not None else ""
    raise PictureError(
        f"{a_or_an(type(thing).__name__)} can't be drawn{nothing}. What can: {DRAWN}"
    )


def _no_more(thing: Any, args: Sequence[Any]) -> None:
    """Refuse arguments that would not be looked at."""
    import jax

    if not args:
        return
    if isinstance(args[0], str):
        raise PictureError(
            f"A name, {args[0]!r}, can be given with a cluster only: "
            f"mcnb.show(cluster, {args[0]!r})"
        )
    if isinstance(args[0], jax.sharding.PartitionSpec):
        from mcnb.pictures.observe import spec_text

        spec = spec_text(args[0])
        raise PictureError(
            f"{spec} says nothing of a mesh. Give a sharding: NamedSharding(mesh, {spec})"
        )
    what = "jax.Array" if isinstance(thing, jax.Array) else type(thing).__name__
    raise PictureError(
        f"{a_or_an(what)} takes no {type(args[0]).__name__} beside it. A sharding takes a shape; "
        "an array, another array or a sharding; a function, its arguments; a cluster, a name"
    )


def _of_function(
    function: Any, args: Sequence[Any], keywords: Mapping[str, Any], name: str
) -> Scene:
    from mcnb.pictures.observe_program import compiled, program_model
    from mcnb.pictures.program_scene import program_scene

    return program_scene(program_model(compiled(function, args, keywords), name))


def _leaf(path: Any, leaf: Any) -> Leaf:
    import jax

    from mcnb.pictures import observe

    where = jax.tree_util.keystr(path)
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        return Leaf(where, None, DELETED)
    if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) and leaf.sharding is not None:
        return Leaf(where, observe.layout_of(leaf))
    return Leaf(where, None, type(leaf).__name__)
