"""A cell's time, from its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcnb.errors import PictureError
from mcnb.pictures.order_scene import order_scene
from mcnb.pictures.scene import Scene
from mcnb.pictures.time_scene import time_scene
from mcnb.pictures.timeline import timeline

if TYPE_CHECKING:
    from mcnb.result import Result


def times(result: Result, *, order: bool = False) -> Scene:
    """Return the scene of what the processes did in a cell, and when.

    Args:
        result: The cell's result.
        order: Whether to leave out all times.

    Raises:
        PictureError: No process could say what it did.
    """
    traces = {k: reply.trace for k, reply in result.replies.items()}
    known = {k for k, trace in traces.items() if trace is not None}
    if not known:
        ran = bool(result.died or result.stopped)
        raise PictureError(
            "There is nothing to draw: "
            + ("no process could say what it did in the cell" if ran else "the cell did not run")
        )
    absent = {
        k: result.died.get(k, "gave no answer" if k in result.replies else "not given this cell")
        for k in range(result.count)
        if k not in known
    }
    draw = order_scene if order else time_scene
    return draw(timeline(traces, result.launches), absent)
