"""Convert a scene to a drawing of boxes, lines, marks and labels, for SVG and matplotlib."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from mcnb.pictures.scene import (
    KINDS_OF_BARS,
    LONG,
    Cell,
    Chart,
    Grid,
    Join,
    Lane,
    Lanes,
    Part,
    Scene,
    Table,
)

# Black is used for text, so gray replaces it in the palette.
_PROCESSES = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # bluish green
    "#CC79A7",  # reddish purple
    "#56B4E9",  # sky blue
    "#D55E00",  # vermillion
    "#F0E442",  # yellow
    "#999999",  # gray
)
# On a page with a dark theme, all of these are others; what stands in a box of a process is not.
INK, SOFT, PAPER, EDGE, NOBODY = "#1A1A1A", "#555555", "#FFFFFF", "#C8C8C8", "#EDEDED"
BLACK = "#000000"
FONT = 12.0
TITLE_FONT = 13.0
ADVANCE = 0.61  # width of a character, as a fraction of the font size
LINE = 17.0  # height of a line of text
LANE, LANE_GAP, THIN = 24.0, 10.0, 8.0
RADIUS = 5.0
MOST_NOTE = 2  # lines of text in a lane: more would reach into the next one
MOST_JOINS = 60  # with more, their marks would hide the bars between them
SHORTEST = 24  # characters of a name in a table that is too wide
SWATCH = 22.0
FRAME_GAP = 2.0
PADDING, GUTTER = 14.0, 26.0
CELL_WIDTH, CELL_HEIGHT, CELL_PADDING = 54.0, 34.0, 9.0
# A part of an array, whose outline has a size of its own, may be smaller.
SMALLEST, PART_PADDING = 24.0, 3.0
SLIMMEST = 0.45  # minimum size of a box, as a fraction of the usual one: a label still fits
# Arrays of one shape have one outline, however they are split, unless their labels need more room:
# of the shape's proportions, up to four to one, and of this area if there are no more than two.
STEEPEST = 4.0
AREA, MOST_ALIKE = 200.0**2, 2
MOST_HEIGHT = 400.0  # of the steepest outline, and of one whose labels need more width
# With its margins, a picture fits into a notebook's output beside JupyterLab's file browser.
MOST_WIDTH = 632.0
LEAST_WIDTH = 420.0
Shape: TypeAlias = Literal["disc", "ring", "diamond"]


def color_of(process: int) -> str:
    """Return the colour of a process. Colours repeat after eight; then frames tell them apart.

    Example:
        >>> color_of(0), color_of(8)
        ('#0072B2', '#0072B2')
    """
    return _PROCESSES[process % len(_PROCESSES)]


def text_on(color: str) -> str:
    """Return a readable text colour for the colour of a box: black or white, or the page's.

    The choice is the one with the higher contrast ratio.

    Example:
        >>> text_on("#0072B2"), text_on("#F0E442")
        ('#FFFFFF', '#000000')
    """
    if color in (PAPER, NOBODY):
        return INK
    return max((PAPER, BLACK), key=lambda text: contrast(text, color))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21, as in WCAG 2.1, section 1.4.3.

    Example:
        >>> contrast("#000000", "#FFFFFF"), round(contrast("#555555", "#FFFFFF"), 1)
        (21.0, 7.5)
    """
    darker, lighter = sorted(_luminance(color) + 0.05 for color in (one, other))
    return lighter / darker


def paler(color: str) -> str:
    """Return the colour halfway between a colour and white.

    Example:
        >>> paler("#0072B2")
        '#7FB8D8'
    """
    return "#" + "".join(f"{(int(color[i : i + 2], 16) + 255) // 2:02X}" for i in (1, 3, 5))


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@dataclass(frozen=True, slots=True)
class Box:
    """Rectangle with its upper left corner, striped if it has several colours, and a tooltip."""

    x: float
    y: float
    width: float
    height: float
    colors: tuple[str, ...]
    edge: str = PAPER
    dashed: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """Line of text, with its anchor at `x` and its vertical centre at `y`.

    Attributes:
        plate: Background colour; empty for none.
    """

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    color: str = INK
    size: float = FONT
    bold: bool = False
    plate: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """Straight line between two points."""

    x1: float
    y1: float
    x2: float
    y2: float
    color: str = EDGE
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    """Mark on a line, with its centre; a disc is filled, a ring and a diamond are not."""

    x: float
    y: float
    radius: float
    color: str
    shape: Shape = "disc"


@dataclass(slots=True)
class Drawing:
    """Boxes, rules, dots and labels, drawn over each other in this order, and the total size."""

    boxes: list[Box] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0

    def add(self, other: Drawing, x: float, y: float) -> None:
        """Add another drawing, moved by `x` and `y`."""
        self.boxes += [replace(box, x=box.x + x, y=box.y + y) for box in other.boxes]
        self.labels += [replace(label, x=label.x + x, y=label.y + y) for label in other.labels]
        self.dots += [replace(dot, x=dot.x + x, y=dot.y + y) for dot in other.dots]
        self.rules += [
            replace(rule, x1=rule.x1 + x, y1=rule.y1 + y, x2=rule.x2 + x, y2=rule.y2 + y)
            for rule in other.rules
        ]


def width_of(text: str, size: float = FONT) -> float:
    """Return the width of a text."""
    return len(text) * size * ADVANCE


def lanes_drawing(lanes: Lanes) -> Drawing:
    """Convert lanes to a drawing."""
    drawing = Drawing(width=MOST_WIDTH)
    left = max((width_of(f"P{lane.process}") for lane in lanes.lanes), default=0.0) + 10
    scale = MOST_WIDTH - left - RADIUS - 2
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
        _join(drawing, join, left, scale, middles, dense and join.met)
        half = width_of(join.label) / 2
        at = min(max(x, half), MOST_WIDTH - half)
        if join.label not in ("", last) and at - half >= free:
            drawing.labels.append(Label(at, LINE / 2, join.label, "middle", SOFT))
            free, last = at + half + 8, join.label
    free = 0.0
    for at, text in lanes.ticks:
        x, half = left + at * scale, width_of(text) / 2
        drawing.rules.append(Rule(x, bottom - 4, x, bottom + 1))
        if x - half >= free and x + half <= MOST_WIDTH:
            drawing.labels.append(Label(x, bottom + LINE / 2, text, "middle", SOFT))
            free = x + half + 8
    if lanes.ticks:
        drawing.rules.append(Rule(left, bottom - 4, left + scale, bottom - 4))
        bottom += LINE + 4
    _legend(drawing, lanes, left, bottom + LINE / 2)
    drawing.height = bottom + LINE + 4
    return drawing


def _lane(drawing: Drawing, lane: Lane, left: float, middle: float, scale: float) -> None:
    color = color_of(lane.process)
    drawing.labels.append(Label(left - 10, middle, f"P{lane.process}", "end", bold=True))
    if not lane.bars and lane.note:
        texts = _wrapped(lane.note, scale, FONT, MOST_NOTE)
        first = middle - (len(texts) - 1) * LINE / 2
        for i, text in enumerate(texts):
            drawing.labels.append(Label(left, first + i * LINE, text, color=SOFT))
    for bar in lane.bars:
        x, width = left + bar.begin * scale, (bar.end - bar.begin) * scale
        hint = f"P{lane.process}: {bar.texts[0]}" if bar.texts else ""
        box = _bar(bar.kind, color, x, middle, width, hint)
        drawing.boxes.append(box)
        text = next((text for text in bar.texts if width_of(text) + 10 <= width), "")
        if text:
            thin = bar.kind == "python"
            plate, ink = (PAPER, INK) if thin else ("", text_on(box.colors[0]))
            drawing.labels.append(Label(x + width / 2, middle, text, "middle", ink, plate=plate))


def _bar(kind: str, color: str, x: float, middle: float, width: float, hint: str = "") -> Box:
    height = THIN if kind == "python" else LANE
    fill, edge = {
        "python": (paler(color), paler(color)),
        "computes": (color, color),
        "compiles": (paler(color), color),
        "waits": (PAPER, SOFT),
    }[kind]
    return Box(x, middle - height / 2, width, height, (fill,), edge, kind == "waits", hint)


def _join(
    drawing: Drawing, join: Join, left: float, scale: float, middles: dict[int, float], thin: bool
) -> None:
    """Draw a vertical line, with a mark per present process and a ring per missing one."""
    drawn = sorted({*join.present, *join.missing} & middles.keys())
    if not drawn:
        return
    x, first, last = left + join.at * scale, middles[drawn[0]], middles[drawn[-1]]
    drawing.rules.append(Rule(x, first, x, last, INK, 0.5 if thin else 1.5, dashed=not join.met))
    for k in [] if thin else drawn:
        shape: Shape = "ring" if k in join.missing else "disc" if join.met else "diamond"
        drawing.dots.append(Dot(left + join.place(k) * scale, middles[k], RADIUS, INK, shape))


def _legend(drawing: Drawing, lanes: Lanes, left: float, y: float) -> None:
    used = {bar.kind for lane in lanes.lanes for bar in lane.bars}
    x = left
    for kind, (name, _) in KINDS_OF_BARS.items():
        if kind in used:
            drawing.boxes.append(_bar(kind, _PROCESSES[-1], x, y, SWATCH))
            drawing.labels.append(Label(x + SWATCH + 6, y, name, color=SOFT))
            x += SWATCH + width_of(name) + 22
    met = any(join.met for join in lanes.joins)
    if met and len(lanes.joins) > MOST_JOINS:
        drawing.rules.append(Rule(x + 4, y - LANE / 2, x + 4, y + LANE / 2, INK, 0.5))
        drawing.labels.append(Label(x + 14, y, "met", color=SOFT))
        x += 14 + width_of("met") + 22
        met = False
    marks: tuple[tuple[Shape, str, bool], ...] = (
        ("disc", "met", met),
        ("diamond", "in vain", any(not join.met for join in lanes.joins)),
        ("ring", "missing", any(join.missing for join in lanes.joins)),
    )
    for shape, text, drawn in marks:
        if drawn:
            drawing.dots.append(Dot(x + RADIUS, y, RADIUS, INK, shape))
            drawing.labels.append(Label(x + 2 * RADIUS + 6, y, text, color=SOFT))
            x += 2 * RADIUS + width_of(text) + 22


def drawing_of(scene: Scene) -> Drawing:
    """Convert a scene to a drawing."""
    area = _area([part for part in scene.parts if isinstance(part, Grid)])
    body = _flow([_part(part, area) for part in scene.parts])
    width = max(body.width, LEAST_WIDTH)
    drawing = Drawing(width=width + 2 * PADDING)
    y = PADDING
    for text in _wrapped(scene.title, width, TITLE_FONT):
        drawing.labels.append(Label(PADDING, y + LINE / 2, text, size=TITLE_FONT, bold=True))
        y += LINE
    if scene.parts:
        drawing.add(body, PADDING, y + 8)
        y += body.height + 16
    for note in scene.notes:
        for text in _wrapped(note, width, FONT):
            drawing.labels.append(Label(PADDING, y + LINE / 2, text, color=SOFT))
            y += LINE
    drawing.height = y + PADDING
    return drawing


def _wrapped(text: str, width: float, size: float, most: int | None = None) -> list[str]:
    characters = max(int(width / (size * ADVANCE)), 20)
    return textwrap.wrap(text, characters, max_lines=most, placeholder=" …")


def _flow(parts: Sequence[Drawing]) -> Drawing:
    """Put drawings side by side, and start a new row if there is no room."""
    whole = Drawing()
    x = y = height = 0.0
    for part in parts:
        if x and x + part.width > MOST_WIDTH:
            x, y, height = 0.0, y + height + GUTTER / 2, 0.0
        whole.add(part, x, y)
        x += part.width + GUTTER
        height = max(height, part.height)
        whole.width = max(whole.width, x - GUTTER)
    whole.height = y + height
    return whole


def _part(part: Part, area: float) -> Drawing:
    if isinstance(part, Lanes):
        return lanes_drawing(part)
    if isinstance(part, Chart):
        return _chart(part)
    return _grid(part, area) if isinstance(part, Grid) else _table(part)


def _chart(chart: Chart) -> Drawing:
    drawing = Drawing(width=MOST_WIDTH)
    left = max((width_of(profile.label) for profile in chart.profiles), default=0.0) + 10
    scale = MOST_WIDTH - left
    y = 0.0
    for text in _wrapped(chart.title, MOST_WIDTH, FONT):
        drawing.labels.append(Label(0.0, y + LINE / 2, text, color=SOFT))
        y += LINE
    y += 4
    for profile in chart.profiles:
        bottom, width = y + LANE, scale / max(len(profile.heights), 1)
        color = _PROCESSES[-1] if profile.process is None else color_of(profile.process)
        bold = profile.process is not None
        drawing.labels.append(Label(left - 10, y + LANE / 2, profile.label, "end", bold=bold))
        for i, height in enumerate(profile.heights):
            if height > 0:
                hint = profile.hints[i] if profile.hints else ""
                x, tall = left + i * width, max(height * LANE, 1.0)
                box = Box(x, bottom - tall, width, tall, (color,), color, hint=hint)
                drawing.boxes.append(box)
        drawing.rules.append(Rule(left, bottom, left + scale, bottom))
        y = bottom + LANE_GAP
    free = 0.0
    for at, text in chart.ticks:
        half = width_of(text) / 2
        x = min(max(left + at * scale, half), MOST_WIDTH - half)
        if x - half >= free:
            drawing.labels.append(Label(x, y - LANE_GAP + LINE / 2 + 2, text, "middle", SOFT))
            free = x + half + 8
    drawing.height = y + LINE
    return drawing


def _grid(grid: Grid, area: float) -> Drawing:
    drawing = Drawing()
    heads = max((width_of(head) for head in grid.row_heads), default=0.0)
    left = heads + 8 if heads else 0.0
    widths, heights = _in_proportion(grid, area)
    top = 0.0
    for text in filter(None, (grid.title, *grid.axes())):
        bold, color = (True, INK) if text == grid.title else (False, SOFT)
        drawing.labels.append(Label(0.0, top + LINE / 2, text, color=color, bold=bold))
        drawing.width = max(drawing.width, width_of(text))
        top += LINE
    x = left
    if any(grid.column_heads):
        for head, width in zip(grid.column_heads, widths, strict=True):
            drawing.labels.append(Label(x + width / 2, top + LINE / 2, head, "middle", SOFT))
            x += width
        top += LINE
    y = top + 2
    for r, row in enumerate(grid.rows):
        if grid.row_heads:
            drawing.labels.append(
                Label(left - 8, y + heights[r] / 2, grid.row_heads[r], "end", SOFT)
            )
        x = left
        for c, cell in enumerate(row):
            _cell(drawing, cell, x, y, widths[c], heights[r])
            x += widths[c]
        y += heights[r]
    drawing.width = max(drawing.width, left + sum(widths))
    drawing.height = y + 2
    return drawing


def _area(grids: Sequence[Grid]) -> float:
    """Return the least area of the arrays that grids show: of equal ones, what the labels need."""
    area = AREA if len(grids) <= MOST_ALIKE else 0.0
    if len({grid.shape for grid in grids}) != 1:
        return area
    sizes = (_in_proportion(grid, area) for grid in grids)
    return max(sum(widths) * sum(heights) for widths, heights in sizes)


def _in_proportion(grid: Grid, area: float) -> tuple[list[float], list[float]]:
    """Return the widths of a grid's columns and the heights of its rows.

    Args:
        grid: The grid.
        area: The least area of the array that the grid shows.
    """
    widths, heights = _sizes(grid, across=True), _sizes(grid, across=False)
    if not grid.shape or not all(grid.shape):
        return widths, heights
    rows, columns = grid.shape
    ratio = min(max(rows / columns, 1 / STEEPEST), STEEPEST)
    needs, high = sum(widths), sum(heights)
    width = max(needs, min(max(high / ratio, math.sqrt(area / ratio)), MOST_WIDTH))
    height = max(high, min(width * ratio, MOST_HEIGHT))
    return [own * width / needs for own in widths], [own * height / high for own in heights]


def _sizes(grid: Grid, *, across: bool) -> list[float]:
    lines = list(zip(*grid.rows, strict=True)) if across else grid.rows
    cells = [cell for line in lines for cell in line if cell is not None]
    least, padding = (CELL_WIDTH, CELL_HEIGHT), CELL_PADDING
    if grid.shape or (across and len(lines) > LONG):
        least, padding = (SMALLEST, SMALLEST), PART_PADDING
    if across:
        widest = max((width_of(line) for cell in cells for line in cell.lines), default=0.0)
        head = max(map(width_of, grid.column_heads), default=0.0)
        usual = max(least[0], widest + 2 * padding, head + 6)
    else:
        tallest = max((len(_lines(cell)) for cell in cells), default=1)
        usual = max(least[1], tallest * LINE + 2 * padding)
    relative = (grid.widths if across else grid.heights) or (1.0,) * len(lines)
    return [max(usual * max(part, SLIMMEST), SMALLEST) for part in relative]


def _cell(
    drawing: Drawing, cell: Cell | None, x: float, y: float, width: float, height: float
) -> None:
    if cell is None:
        drawing.labels.append(Label(x + width / 2, y + height / 2, "…", "middle", SOFT))
        return
    colors = _colors(cell)
    # From the ninth process on, colours repeat: its boxes have a frame, a dashed one from the 17th.
    again = min(cell.processes, default=0) // len(_PROCESSES)
    frame, gap = (INK, FRAME_GAP) if again else (PAPER, 0.0)
    place = x + gap, y + gap, width - 2 * gap, height - 2 * gap
    drawing.boxes.append(Box(*place, colors, frame, again > 1, hint=cell.hint))
    ink, plate = (text_on(colors[0]), "") if len(colors) == 1 else (INK, PAPER)
    lines = _lines(cell)
    first = y + height / 2 - (len(lines) - 1) * LINE / 2
    for i, line in enumerate(lines):
        label = Label(x + width / 2, first + i * LINE, line, "middle", ink, plate=plate)
        drawing.labels.append(label)


def _colors(cell: Cell) -> tuple[str, ...]:
    """Return the colours of a box, as stripes from left to right."""
    rounds = [process // len(_PROCESSES) for process in cell.processes]
    if len({*rounds}) > 1 and len(rounds) <= len(_PROCESSES):
        # A dark stripe follows that of a process whose colour another one may have, too.
        dark = [(INK,) * (own - min(rounds)) for own in rounds]
        each = zip(map(color_of, cell.processes), dark, strict=True)
        return tuple(color for own, after in each for color in (own, *after))
    colors = tuple(dict.fromkeys(map(color_of, cell.processes))) or (NOBODY,)
    return (colors[0], paler(colors[0])) if cell.copies > 1 and len(colors) == 1 else colors


def _lines(cell: Cell) -> tuple[str, ...]:
    """Return the lines in a box, with the number of copies if stripes do not show it."""
    return (*cell.lines, f"x{cell.copies}") if cell.copies > 2 else cell.lines


def _shortened(text: str, most: int) -> str:
    """Return a text without its middle, if it has more than so many characters."""
    if len(text) <= most:
        return text
    return f"{text[: (most - 1) // 2]}…{text[len(text) - most // 2 :]}"


def _table(table: Table) -> Drawing:
    drawing = Drawing()
    rows = [table.heads, *table.rows]
    widths = [max(width_of(row[c]) for row in rows) for c in range(len(table.heads))]
    over = sum(widths) + (len(widths) - 1) * GUTTER / 2 - MOST_WIDTH
    if over > 0:  # the names of rows, such as paths in a PyTree, may be very long
        most = max(int((widths[0] - over) / (FONT * ADVANCE)), SHORTEST)
        rows = [(_shortened(row[0], most), *row[1:]) for row in rows]
        widths[0] = max(width_of(row[0]) for row in rows)
    for r, row in enumerate(rows):
        x = 0.0
        for c, (text, width) in enumerate(zip(row, widths, strict=True)):
            right = c in table.numbers
            at = x + width if right else x
            drawing.labels.append(
                Label(at, (r + 0.5) * LINE, text, "end" if right else "start", bold=r == 0)
            )
            x += width + GUTTER / 2
        drawing.width = max(drawing.width, x - GUTTER / 2)
    drawing.rules.append(Rule(0.0, LINE + 1, drawing.width, LINE + 1))
    drawing.height = len(rows) * LINE + 4
    return drawing
