"""A scene as a drawing, which SVG and matplotlib draw alike."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from mcnb.pictures import palette
from mcnb.pictures.lanes_drawing import lanes_drawing
from mcnb.pictures.scene import Cell, Grid, Lanes, Part, Scene, Table
from mcnb.pictures.shapes import ADVANCE, FONT, LINE, Box, Drawing, Label, Rule, width_of

TITLE_FONT = 13.0
PADDING, GUTTER = 14.0, 26.0
CELL_WIDTH, CELL_HEIGHT, CELL_PADDING = 54.0, 34.0, 9.0
SLIMMEST = 0.45  # of the usual size: what a label still fits into
# With its margins, a picture fits into a notebook's output beside JupyterLab's list of files.
MOST_WIDTH = 632.0
LEAST_WIDTH = 420.0


def drawing_of(scene: Scene) -> Drawing:
    """Return the drawing of a scene."""
    body = _flow([_part(part) for part in scene.parts])
    width = min(max(body.width, LEAST_WIDTH), max(MOST_WIDTH, body.width))
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
            drawing.labels.append(Label(PADDING, y + LINE / 2, text, color=palette.SOFT))
            y += LINE
    drawing.height = y + PADDING
    return drawing


def _wrapped(text: str, width: float, size: float) -> list[str]:
    return textwrap.wrap(text, max(int(width / (size * ADVANCE)), 20))


def _flow(parts: Sequence[Drawing]) -> Drawing:
    """Put drawings side by side, and below each other where there is no room."""
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


def _part(part: Part) -> Drawing:
    if isinstance(part, Lanes):
        return lanes_drawing(part)
    return _grid(part) if isinstance(part, Grid) else _table(part)


def _grid(grid: Grid) -> Drawing:
    drawing = Drawing()
    widths = _sizes(grid, across=True)
    heights = _sizes(grid, across=False)
    heads = max((width_of(head) for head in grid.row_heads), default=0.0)
    left = heads + 8 if heads else 0.0
    arrows = (("→ ", grid.column_axis), ("↓ ", grid.row_axis))
    said = [arrow + axis for arrow, axis in arrows if axis]
    top = 0.0
    for text in [grid.title, *said] if grid.title else said:
        bold, color = text == grid.title, palette.INK if text == grid.title else palette.SOFT
        drawing.labels.append(Label(0.0, top + LINE / 2, text, color=color, bold=bold))
        drawing.width = max(drawing.width, width_of(text))
        top += LINE
    x = left
    if any(grid.column_heads):
        for head, width in zip(grid.column_heads, widths, strict=True):
            drawing.labels.append(
                Label(x + width / 2, top + LINE / 2, head, "middle", palette.SOFT)
            )
            x += width
        top += LINE
    y = top + 2
    for r, row in enumerate(grid.rows):
        if grid.row_heads:
            drawing.labels.append(
                Label(left - 8, y + heights[r] / 2, grid.row_heads[r], "end", palette.SOFT)
            )
        x = left
        for c, cell in enumerate(row):
            _cell(drawing, cell, x, y, widths[c], heights[r])
            x += widths[c]
        y += heights[r]
    drawing.width = max(drawing.width, left + sum(widths))
    drawing.height = y + 2
    return drawing


def _sizes(grid: Grid, *, across: bool) -> list[float]:
    lines = [list(column) for column in zip(*grid.rows, strict=True)] if across else grid.rows
    heads = grid.column_heads if across else ()
    needed = []
    for i, line in enumerate(lines):
        cells = [cell for cell in line if cell is not None]
        if across:
            widest = max((width_of(t) for cell in cells for t in cell.lines), default=0.0)
            head = width_of(heads[i]) + 6 if heads else 0.0
            needed.append(max(widest + 2 * CELL_PADDING, head))
        else:
            tallest = max((len(_lines(cell)) for cell in cells), default=1)
            needed.append(tallest * LINE + 2 * CELL_PADDING)
    usual = max(CELL_WIDTH if across else CELL_HEIGHT, *needed) if needed else 0.0
    relative = grid.widths if across else grid.heights
    scale = relative or (1.0,) * len(needed)
    return [max(usual * max(part, SLIMMEST), 24.0) for part in scale]


def _cell(
    drawing: Drawing, cell: Cell | None, x: float, y: float, width: float, height: float
) -> None:
    if cell is None:
        drawing.labels.append(Label(x + width / 2, y + height / 2, "…", "middle", palette.SOFT))
        return
    colors = [palette.color_of(process) for process in cell.processes]
    colors = list(dict.fromkeys(colors))[: palette.MOST_STRIPES]
    if not colors:
        colors = [palette.NOBODY]
    striped = cell.copies > 1
    if striped and len(colors) == 1:
        colors.append(palette.paler(colors[0]))
    shown = tuple(colors) if striped or len(cell.processes) > 1 else (colors[0],)
    drawing.boxes.append(Box(x, y, width, height, shown))
    one = len(shown) == 1
    lines = _lines(cell)
    first = y + height / 2 - (len(lines) - 1) * LINE / 2
    for i, line in enumerate(lines):
        ink = palette.text_on(shown[0]) if one else palette.INK
        plate = "" if one else palette.PAPER
        label = Label(x + width / 2, first + i * LINE, line, "middle", ink, plate=plate)
        drawing.labels.append(label)


def _lines(cell: Cell) -> tuple[str, ...]:
    """Return what stands in a box: how often there is a copy, too, where the count is not plain."""
    return (*cell.lines, f"x{cell.copies}") if cell.copies > 2 else cell.lines


def _table(table: Table) -> Drawing:
    drawing = Drawing()
    rows = [table.heads, *table.rows]
    widths = [max(width_of(row[c]) for row in rows) for c in range(len(table.heads))]
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
