"""Render a scene as SVG: identical bytes for equal scenes, with a background for any theme."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from xml.sax.saxutils import escape

from mcnb.pictures.drawing import (
    EDGE,
    FONT,
    LINE,
    PAPER,
    Box,
    Dot,
    Drawing,
    Label,
    Rule,
    drawing_of,
    width_of,
)
from mcnb.pictures.scene import Chart, Grid, Profile, Scene, Table

SVG_BEGINS = '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
FONTS = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
STRIPE = 7.0
MOST_WORDS = 64  # parts that are told in words


def svg_of(scene: Scene) -> str:
    """Render a scene as an SVG document.

    Example:
        >>> svg_of(Scene("a title"))[:45]
        '<svg xmlns="http://www.w3.org/2000/svg" role='
    """
    drawing = drawing_of(scene)
    body = "".join(_body(drawing))
    # Ids are global to the page that contains the SVG, so each picture has its own.
    key = hashlib.sha256(f"{scene.title}{scene.notes}{body}".encode()).hexdigest()[:8]
    width, height = _number(drawing.width), _number(drawing.height)
    described = escape(" ".join([*scene.notes, *words_of(scene)]))
    frame = _at(x=0.5, y=0.5, width=drawing.width - 1, height=drawing.height - 1)
    return (
        f'{SVG_BEGINS}width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" style="max-width:100%;height:auto" '
        f'aria-labelledby="t{key} d{key}" '
        f'font-family="{FONTS}" font-size="{_number(FONT)}">'
        f'<title id="t{key}">{escape(scene.title)}</title><desc id="d{key}">{described}</desc>'
        f"{''.join(_patterns(drawing.boxes))}"
        f'<rect {frame} rx="6" fill="{PAPER}" stroke="{EDGE}"/>{body}</svg>'
    )


def words_of(scene: Scene) -> list[str]:
    """Return the contents of a scene in words, for those who cannot see it.

    What lanes show is told by the tables below them.

    Example:
        >>> words_of(Scene("", parts=(Table(("device", "holds"), (("P0", "4 B"),)),)))
        ['device: P0, holds: 4 B.']
    """
    said: list[str] = []
    for part in scene.parts:
        if isinstance(part, Grid):
            said += _words_of_grid(part)
        elif isinstance(part, Table):
            said += [_words_of_row(part.heads, row) for row in part.rows]
        elif isinstance(part, Chart):
            said += [part.title, *filter(None, map(_words_of_profile, part.profiles))]
    if len(said) > MOST_WORDS:
        said[MOST_WORDS:] = [f"And {len(said) - MOST_WORDS} more"]
    return [one if one.endswith(".") else f"{one}." for one in said]


def _words_of_grid(grid: Grid) -> list[str]:
    """Return which grid it is and what its axes are, and then its boxes, row by row."""
    axes = (("down", grid.row_axis), ("across", grid.column_axis))
    which = [grid.title, *(f"{way}, {axis}" for way, axis in axes if axis)]
    boxes = [cell.hint for row in grid.rows for cell in row if cell and cell.hint]
    return [*filter(None, ["; ".join(filter(None, which))]), *boxes]


def _words_of_profile(profile: Profile) -> str:
    """Return the highest value of a row of a chart; empty if it is not known what that is."""
    highest = max(range(len(profile.heights)), key=profile.heights.__getitem__, default=0)
    return f"{profile.label}: highest at {profile.hints[highest]}" if profile.hints else ""


def _words_of_row(heads: Iterable[str], row: Iterable[str]) -> str:
    told = ((head, text) for head, text in zip(heads, row, strict=True) if text)
    return ", ".join(f"{head}: {text}" if head else text for head, text in told)


def _at(**values: float) -> str:
    """Return attributes that are numbers, such as `x="1" y="2.5"`."""
    return " ".join(f'{name}="{_number(value)}"' for name, value in values.items())


def _body(drawing: Drawing) -> Iterable[str]:
    yield from map(_box, drawing.boxes)
    yield from map(_rule, drawing.rules)
    yield from map(_dot, drawing.dots)
    for label in drawing.labels:
        yield from _label(label)


def _rule(rule: Rule) -> str:
    ends = _at(x1=rule.x1, y1=rule.y1, x2=rule.x2, y2=rule.y2)
    dash = ' stroke-dasharray="4 3"' if rule.dashed else ""
    return f'<line {ends} stroke="{rule.color}" stroke-width="{_number(rule.width)}"{dash}/>'


def _box(box: Box) -> str:
    edge = '"1" stroke-dasharray="3 3"' if box.dashed else '"2"'
    fill = box.colors[0] if len(box.colors) == 1 else f"url(#{_pattern_id(box.colors)})"
    place = _at(x=box.x, y=box.y, width=box.width, height=box.height)
    rect = f'<rect {place} fill="{fill}" stroke="{box.edge}" stroke-width={edge}'
    return f"{rect}><title>{escape(box.hint)}</title></rect>" if box.hint else f"{rect}/>"


def _dot(dot: Dot) -> str:
    shape = f"circle {_at(cx=dot.x, cy=dot.y, r=dot.radius)}"
    if dot.shape == "diamond":
        x, y, r = dot.x, dot.y, dot.radius + 1
        corners = ((x - r, y), (x, y - r), (x + r, y), (x, y + r))
        points = " ".join(f"{_number(a)},{_number(b)}" for a, b in corners)
        shape = f'polygon points="{points}"'
    fill = dot.color if dot.shape == "disc" else PAPER
    return f'<{shape} fill="{fill}" stroke="{dot.color}" stroke-width="2"/>'


def _label(label: Label) -> Iterable[str]:
    if label.plate:
        width, height = width_of(label.text, label.size) + 6, LINE * label.size / FONT
        x = label.x - {"start": 0.0, "middle": width / 2, "end": width}[label.anchor]
        place = _at(x=x, y=label.y - height / 2, width=width, height=height)
        yield f'<rect {place} fill="{label.plate}" fill-opacity="0.88"/>'
    attributes = f'{_at(x=label.x, y=label.y)} dy="0.35em" fill="{label.color}"'
    if label.anchor != "start":
        attributes += f' text-anchor="{label.anchor}"'
    if label.size != FONT:
        attributes += f' font-size="{_number(label.size)}"'
    if label.bold:
        attributes += ' font-weight="bold"'
    yield f'<text {attributes} xml:space="preserve">{escape(label.text)}</text>'


def _pattern_id(colors: Iterable[str]) -> str:
    return "stripes" + "".join(color.replace("#", "-") for color in colors)


def _patterns(boxes: Iterable[Box]) -> Iterable[str]:
    striped = sorted({box.colors for box in boxes if len(box.colors) > 1})
    if not striped:
        return
    yield "<defs>"
    for colors in striped:
        yield (
            f'<pattern id="{_pattern_id(colors)}" {_at(width=STRIPE * len(colors), height=STRIPE)} '
            'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        )
        for i, color in enumerate(colors):
            yield f'<rect {_at(x=i * STRIPE, width=STRIPE, height=STRIPE)} fill="{color}"/>'
        yield "</pattern>"
    yield "</defs>"


def _number(value: float) -> str:
    """Format a number with at most one decimal place."""
    return f"{value:.1f}".removesuffix(".0")
