"""A scene as text, for a terminal, a diff and a screen reader."""

from __future__ import annotations

from collections.abc import Sequence

from mcnb.pictures.lanes_text import lanes_text
from mcnb.pictures.scene import Cell, Grid, Lanes, Part, Scene, Table

GAP = "…"
MOST_CHARACTERS = 100


def text_of(scene: Scene) -> str:
    """Return a scene as text, without an end of line.

    Example:
        >>> print(text_of(Scene("two", ("A note.",), (Grid(((Cell((0,), ("P0.0",)),),)),))))
        two
        ┌──────┐
        │ P0.0 │
        └──────┘
        A note.
    """
    lines = [scene.title] if scene.title else []
    for row in _flow([_part(part) for part in scene.parts]):
        lines += _beside(row)
    return "\n".join([*lines, *scene.notes])


def _part(part: Part) -> list[str]:
    if isinstance(part, Lanes):
        return lanes_text(part)
    return _grid(part) if isinstance(part, Grid) else _table(part)


def _flow(parts: Sequence[list[str]]) -> list[list[list[str]]]:
    """Put parts side by side, and below each other where there is no room."""
    rows: list[list[list[str]]] = []
    width = 0
    for part in parts:
        own = max(map(len, part), default=0) + 4
        if rows and width + own <= MOST_CHARACTERS:
            rows[-1].append(part)
            width += own
        else:
            rows.append([part])
            width = own
    return rows


def _beside(parts: Sequence[list[str]]) -> list[str]:
    height = max((len(part) for part in parts), default=0)
    columns = []
    for part in parts:
        width = max(map(len, part), default=0)
        columns.append([line.ljust(width) for line in part] + [" " * width] * (height - len(part)))
    return ["    ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _grid(grid: Grid) -> list[str]:
    columns = len(grid.rows[0]) if grid.rows else 0
    widths = [0] * columns
    for c, head in enumerate(grid.column_heads):
        widths[c] = len(head)
    for row in grid.rows:
        for c, cell in enumerate(row):
            widths[c] = max(widths[c], *(len(line) for line in _lines(cell)), 1)
    margin = max(map(len, grid.row_heads), default=0)
    indent = " " * (margin + 1 if margin else 0)
    edges = [f"{grid.title}"] if grid.title else []
    said = [f"→ {grid.column_axis}"] if grid.column_axis else []
    said += [f"↓ {grid.row_axis}"] if grid.row_axis else []
    edges += ["   ".join(said)] if said else []
    if grid.column_heads:
        heads = (head.center(width) for head, width in zip(grid.column_heads, widths, strict=True))
        edges.append((f"{indent}  " + "   ".join(heads)).rstrip())
    lines = [*edges, indent + _rule("┌┬┐", widths)]
    for r, row in enumerate(grid.rows):
        if r:
            lines.append(indent + _rule("├┼┤", widths))
        lines += _row(row, widths, grid.row_heads[r] if grid.row_heads else "", margin)
    return [*lines, indent + _rule("└┴┘", widths)]


def _rule(corners: str, widths: Sequence[int]) -> str:
    return corners[0] + corners[1].join("─" * (width + 2) for width in widths) + corners[2]


def _row(row: Sequence[Cell | None], widths: Sequence[int], head: str, margin: int) -> list[str]:
    height = max(len(_lines(cell)) for cell in row)
    lines = []
    for i in range(height):
        begin = f"{head if i == (height - 1) // 2 else '':>{margin}} " if margin else ""
        texts = []
        for cell, width in zip(row, widths, strict=True):
            own = _lines(cell)
            above = (height - len(own)) // 2
            text = own[i - above] if 0 <= i - above < len(own) else ""
            texts.append(text.center(width))
        lines.append(f"{begin}│ " + " │ ".join(texts) + " │")
    return lines


def _lines(cell: Cell | None) -> tuple[str, ...]:
    return (GAP,) if cell is None else cell.lines or ("",)


def _table(table: Table) -> list[str]:
    rows = [table.heads, *table.rows]
    widths = [max(len(row[c]) for row in rows) for c in range(len(table.heads))]
    return [
        "  ".join(
            f"{cell:>{width}}" if c in table.numbers else f"{cell:<{width}}"
            for c, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
