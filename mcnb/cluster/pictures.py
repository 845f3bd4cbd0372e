"""Draw pictures of a cluster's variables and devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mcnb._text import grouped, plural
from mcnb.errors import PictureError
from mcnb.options import Options
from mcnb.pictures.model import process_ranges
from mcnb.pictures.picture import Picture
from mcnb.pictures.scene import ELSEWHERE, Cell, Grid, Scene

MOST_PROCESSES = 64


def pictures_of(
    cluster: Options,
    scenes_of: Callable[..., dict[int, Scene]],
    args: Sequence[Any],
    options: Mapping[str, Any],
) -> list[Picture]:
    """Return the distinct pictures of a variable on a cluster's processes, or of the devices.

    The `args` are the name of a variable, or an expression, whose scenes by process index
    `scenes_of` returns; for a sharding, also the global shape. They are empty for the devices.

    Raises:
        PictureError: The argument is not an expression.
    """
    if not args:
        return [Picture(_devices_of(cluster))]
    what, *shape = args
    if not isinstance(what, str) or not (shape == [] or (len(shape) == 1 and _is_shape(shape[0]))):
        given = ", ".join(map(repr, args))
        raise PictureError(
            f"mcnb.show(cluster, {given}): the argument after a cluster is the name of a variable. "
            "For example: mcnb.show(cluster, 'x')"
        )
    try:
        compile(what, "<expression>", "eval")
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise PictureError(
            f"{what!r} is neither a variable nor an expression: {reason}. For example: "
            "mcnb.show(cluster, 'x')"
        ) from None
    scenes = scenes_of(what, *shape, **options)
    return shared_pictures(put_together(scenes) if options.get("values") else scenes)


def shared_pictures(scenes: Mapping[int, Scene]) -> list[Picture]:
    """Return the distinct pictures of the scenes of processes, by process index.

    The titles say on which processes each one is, if there are several.
    """
    if len(found := grouped(scenes)) == 1:
        return [Picture(scene) for scene, _ in found]
    return [
        Picture(replace(scene, title=f"On {process_ranges(own)}: {scene.title}"))
        for scene, own in found
    ]


def _is_shape(thing: Any) -> bool:
    return isinstance(thing, (tuple, list)) and all(isinstance(n, int) for n in thing)


def put_together(scenes: Mapping[int, Scene]) -> dict[int, Scene]:
    """Merge the values of all processes into their scenes, if the scenes show the same array."""
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


def _with_values(cells: Sequence[Cell | None]) -> Cell | None:
    return next((cell for cell in cells if cell and ELSEWHERE not in cell.lines), cells[0])


def _without_values(scene: Scene) -> Scene:
    parts = [
        replace(
            part,
            rows=tuple(
                tuple(cell and replace(cell, lines=cell.lines[:1], hint="") for cell in row)
                for row in part.rows
            ),
        )
        for part in scene.parts
        if isinstance(part, Grid)
    ]
    return replace(scene, parts=tuple(parts))


def _devices_of(cluster: Options) -> Scene:
    count, each = cluster.processes, cluster.devices_per_process
    rows = tuple(
        tuple(Cell((k,), (f"P{k}.{i}",), hint=f"P{k}.{i}") for i in range(each))
        for k in range(min(count, MOST_PROCESSES))
    )
    heads = tuple(f"process {k}" for k in range(len(rows)))
    return Scene(
        f"{plural(count, 'process', 'processes')}, "
        f"{plural(each, 'device', 'devices')} each, {cluster.platform}",
        (f"Pk.i is device i of process k. {count * each} devices in all.",),
        (Grid(rows, row_heads=heads),),
    )
