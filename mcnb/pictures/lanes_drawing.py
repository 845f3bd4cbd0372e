"""Lanes as a drawing.

What a process does is told by the height, the fill and the edge of its bars, and by words where
there is room: colours tell processes apart, nothing else.
"""

from __future__ import annotations

from mcnb.pictures import palette
from mcnb.pictures.scene import KINDS_OF_BARS, Bar, Join, Lane, Lanes
from mcnb.pictures.shapes import LINE, Box, Dot, Drawing, Label, Rule, Shape, width_of

WIDTH = 632.0
LANE, LANE_GAP, THIN = 24.0, 10.0, 8.0
RADIUS = 5.0
MOST_JOINS = 60  # with more, what is between them could not be seen
SWATCH = 22.0


def lanes_drawing(lanes: Lanes) -> Drawing:
    """Return the drawing of lanes."""
    drawing = Drawing(width=WIDTH)
    left = max((width_of(f"P{lane.process}") for lane in lanes.lanes), default=0.0) + 10
    scale = WIDTH - left - RADIUS - 2
    top = LINE + 4 if any(join.label for join in lanes.joins) else 4.0
    middles = {}
    for i, lane in enumerate(lanes.lanes):
        middles[lane.process] = top + i * (LANE + LANE_GAP) + LANE / 2
        _lane(drawing, lane, left, middles[lane.process], scale)
    bottom = top + len(lanes.lanes) * (LANE + LANE_GAP)
    free, last = 0.0, ""
    dense = len(lanes.joins) > MOST_JOINS
    for join in lanes.joins:
        x = left + join.at * scale
        _join(drawing, join, (left, scale), middles, dense and join.met)
        half = width_of(join.label) / 2
        at = min(max(x, half), WIDTH - half)
        if join.label not in ("", last) and at - half >= free:
            drawing.labels.append(Label(at, LINE / 2, join.label, "middle", palette.SOFT))
            free, last = at + half + 8, join.label
    free = 0.0
    for at, text in lanes.ticks:
        x, half = left + at * scale, width_of(text) / 2
        drawing.rules.append(Rule(x, bottom - 4, x, bottom + 1))
        if x - half >= free and x + half <= WIDTH:
            drawing.labels.append(Label(x, bottom + LINE / 2, text, "middle", palette.SOFT))
            free = x + half + 8
    if lanes.ticks:
        drawing.rules.append(Rule(left, bottom - 4, left + scale, bottom - 4))
        bottom += LINE + 4
    _legend(drawing, lanes, left, bottom + LINE / 2)
    drawing.height = bottom + LINE + 4
    return drawing


def _lane(drawing: Drawing, lane: Lane, left: float, middle: float, scale: float) -> None:
    color = palette.color_of(lane.process)
    drawing.labels.append(Label(left - 10, middle, f"P{lane.process}", "end", bold=True))
    if not lane.bars and lane.note:
        drawing.labels.append(Label(left, middle, lane.note, color=palette.SOFT))
    for bar in lane.bars:
        x, width = left + bar.begin * scale, (bar.end - bar.begin) * scale
        hint = f"P{lane.process}: {bar.texts[0]}" if bar.texts else ""
        _bar(drawing, bar, color, (x, middle, width), hint)


def _bar(
    drawing: Drawing, bar: Bar, color: str, place: tuple[float, float, float], hint: str
) -> None:
    x, middle, width = place
    thin = bar.kind == "python"
    height = THIN if thin else LANE
    fill, edge, dashed = {
        "python": (palette.paler(color), palette.paler(color), False),
        "computes": (color, color, False),
        "compiles": (palette.paler(color), color, False),
        "waits": (palette.PAPER, palette.SOFT, True),
    }[bar.kind]
    drawing.boxes.append(Box(x, middle - height / 2, width, height, (fill,), edge, dashed, hint))
    text = next((text for text in bar.texts if width_of(text) + 10 <= width), "")
    if text:
        plate = palette.PAPER if thin else ""
        ink = palette.INK if thin else palette.text_on(fill)
        drawing.labels.append(Label(x + width / 2, middle, text, "middle", ink, plate=plate))


def _join(
    drawing: Drawing,
    join: Join,
    across: tuple[float, float],
    middles: dict[int, float],
    thin: bool,
) -> None:
    """Draw an upright line, with a mark for each that is there and a ring for each that is not."""
    left, scale = across
    x = left + join.at * scale
    drawn = [middles[k] for k in (*join.present, *join.missing) if k in middles]
    if not drawn:
        return
    width = 0.5 if thin else 1.5
    drawing.rules.append(
        Rule(x, min(drawn), x, max(drawn), palette.INK, width, dashed=not join.met)
    )
    if thin:
        return
    for k in sorted({*join.present, *join.missing} & middles.keys()):
        shape: Shape = "ring" if k in join.missing else "disc" if join.met else "diamond"
        drawing.dots.append(
            Dot(left + join.place(k) * scale, middles[k], RADIUS, palette.INK, shape)
        )


def _legend(drawing: Drawing, lanes: Lanes, left: float, y: float) -> None:
    used = {bar.kind for lane in lanes.lanes for bar in lane.bars}
    x = left
    gray = palette.color_of(7)
    for kind, (name, _) in KINDS_OF_BARS.items():
        if kind in used:
            _bar(drawing, Bar(kind, 0.0, 0.0), gray, (x, y, SWATCH), "")
            drawing.labels.append(Label(x + SWATCH + 6, y, name, color=palette.SOFT))
            x += SWATCH + width_of(name) + 22
    met = any(join.met for join in lanes.joins)
    if met and len(lanes.joins) > MOST_JOINS:
        drawing.rules.append(Rule(x + 4, y - LANE / 2, x + 4, y + LANE / 2, palette.INK, 0.5))
        drawing.labels.append(Label(x + 14, y, "met", color=palette.SOFT))
        x += 14 + width_of("met") + 22
        met = False
    in_vain = any(not join.met for join in lanes.joins)
    missing = any(join.missing for join in lanes.joins)
    marks: tuple[tuple[bool, Shape, str], ...] = (
        (met, "disc", "met"),
        (in_vain, "diamond", "in vain"),
        (missing, "ring", "missing"),
    )
    for used_too, shape, text in marks:
        if used_too:
            drawing.dots.append(Dot(x + RADIUS, y, RADIUS, palette.INK, shape))
            drawing.labels.append(Label(x + 2 * RADIUS + 6, y, text, color=palette.SOFT))
            x += 2 * RADIUS + width_of(text) + 22
