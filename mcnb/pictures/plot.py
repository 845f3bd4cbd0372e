"""Draw a scene on matplotlib axes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mcnb.errors import PictureError
from mcnb.pictures.drawing import LINE, PAPER, Box, Drawing, drawing_of
from mcnb.pictures.scene import Scene

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PIXELS_PER_INCH = 96.0
POINTS_PER_INCH = 72.0
# Formats of files, with what would differ from run to run in them.
FORMATS: Mapping[str, Mapping[str, None]] = {".png": {}, ".pdf": {"CreationDate": None}}
SAVED = 2 * PIXELS_PER_INCH  # for screens with small pixels, and for print
SLIMMER = 0.94  # matplotlib's monospace font is wider if characters are set on whole pixels


def plot(scene: Scene, ax: Axes | None = None) -> Axes:
    """Draw a scene on matplotlib axes; see `Picture.plot`."""
    if ax is not None and not hasattr(ax, "set_xlim"):
        raise PictureError(
            f"ax takes matplotlib's Axes, not {ax!r}: picture.plot(ax=plt.subplots()[1])"
        )
    import matplotlib.pyplot as plt

    drawing = drawing_of(scene)
    if ax is None:
        figure = plt.figure(figsize=_inches(drawing), facecolor=PAPER)
        ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    return _on(ax, drawing)


def save_plot(scene: Scene, file: Path) -> None:
    """Write a scene to a file in one of the `FORMATS`; see `Picture.save`.

    The figure is none of pyplot's, so no backend is chosen, and a notebook does not show it.
    """
    from matplotlib.figure import Figure

    drawing = drawing_of(scene)
    figure = Figure(figsize=_inches(drawing), facecolor=PAPER)
    _on(figure.add_axes((0.0, 0.0, 1.0, 1.0)), drawing)
    suffix = file.suffix.lower()
    figure.savefig(file, format=suffix[1:], dpi=SAVED, metadata=dict(FORMATS[suffix]))


def _inches(drawing: Drawing) -> tuple[float, float]:
    return drawing.width / PIXELS_PER_INCH, drawing.height / PIXELS_PER_INCH


def _on(ax: Axes, drawing: Drawing) -> Axes:
    ax.set_xlim(0, drawing.width)
    ax.set_ylim(drawing.height, 0)
    ax.set_aspect("equal")
    ax.set_axis_off()
    _draw(ax, drawing)
    return ax


def _draw(ax: Axes, drawing: Drawing) -> None:
    from matplotlib.patches import Circle, Rectangle, RegularPolygon

    # Points per pixel of the drawing, at the axes' current size.
    inches = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
    scale = POINTS_PER_INCH * min(inches.width / drawing.width, inches.height / drawing.height)
    paper = Rectangle((0, 0), drawing.width, drawing.height, facecolor=PAPER, linewidth=0)
    ax.add_patch(paper)
    for box in drawing.boxes:
        _stripes(ax, box)
        edge = Rectangle(
            (box.x, box.y),
            box.width,
            box.height,
            fill=False,
            edgecolor=box.edge,
            linestyle="--" if box.dashed else "-",
        )
        ax.add_patch(edge)
    for rule in drawing.rules:
        ax.plot(
            [rule.x1, rule.x2],
            [rule.y1, rule.y2],
            color=rule.color,
            linewidth=rule.width * scale,
            linestyle="--" if rule.dashed else "-",
        )
    for dot in drawing.dots:
        face = dot.color if dot.shape == "disc" else PAPER
        place, radius = (dot.x, dot.y), dot.radius
        diamond = dot.shape == "diamond"
        mark = RegularPolygon(place, 4, radius=radius) if diamond else Circle(place, radius)
        mark.set(facecolor=face, edgecolor=dot.color, zorder=3)
        ax.add_patch(mark)
    for label in drawing.labels:
        plate = {"facecolor": label.plate, "edgecolor": "none", "alpha": 0.88, "pad": 1.5}
        ax.text(
            label.x,
            label.y,
            label.text,
            color=label.color,
            fontsize=label.size * scale * SLIMMER,
            fontweight="bold" if label.bold else "normal",
            family="monospace",
            ha={"start": "left", "middle": "center", "end": "right"}[label.anchor],
            va="center",
            bbox=plate if label.plate else None,
            parse_math=False,
        )


def _stripes(ax: Axes, box: Box) -> None:
    """Fill a box with its colours, as vertical stripes if there are several."""
    from matplotlib.patches import Rectangle

    one = len(box.colors) == 1
    count = 1 if one else max(int(box.width / (LINE / 2)), len(box.colors))
    width = box.width / count
    for i in range(count):
        color = box.colors[i % len(box.colors)]
        ax.add_patch(
            Rectangle((box.x + i * width, box.y), width, box.height, facecolor=color, linewidth=0)
        )
