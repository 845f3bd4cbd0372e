"""Render a scene as text, for terminals, diffs and screen readers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mcnb.pictures.scene import (
    IN_VAIN,
    KINDS_OF_BARS,
    MET,
    MISSED,
    Cell,
    Chart,
    Grid,
    Lanes,
    Part,
    Scene,
    Table,
    columns,
)

COLUMNS = 72
MOST_JOINS = 24  # with more, their marks would hide the bars between them
GAP = "…"
HEIGHTS = " ▁▂▃▄▅▆▇█"
MOST_CHARACTERS = 100


def lanes_text(lanes: Lanes) -> list[str]:
    """Render lanes as lines of text.

    Example:
        >>> from mcnb.pictures.scene import Bar, Join, Lane
        >>> bars = (Bar("python", 0.0, 0.5), Bar("waits", 0.5, 1.0))
        >>> join = Join(1.0, (0,), (1,), "line 2", met=False)
        >>> drawn = Lanes((Lane(0, bars), Lane(1, bars[:1])), (join,))
        >>> for line in lanes_text(drawn): print(line)
        P0 ────────────────────────────────────···································◇
        P1 ────────────────────────────────────                                   ○
                                                                           line 2 ↑
        ─ Python · waiting ◇ in vain ○ missing
    """
    names = [f"P{lane.process}" for lane in lanes.lanes]
    margin = max(map(len, names), default=0)
    lines = []
    dense = len(lanes.joins) > MOST_JOINS
    for lane, name in zip(lanes.lanes, names, strict=True):
        filled = columns(((bar.kind, bar.begin, bar.end) for bar in lane.bars), COLUMNS)
        row = [" " if kind is None else KINDS_OF_BARS[kind][1] for kind in filled]
        if not lane.bars:
            row[: len(lane.note)] = lane.note
        for join in lanes.joins:
            column = min(int(join.place(lane.process) * COLUMNS), COLUMNS - 1)
            if lane.process in join.missing:
                row[column] = MISSED
            elif lane.process in join.present and not (dense and join.met):
                row[column] = MET if join.met else IN_VAIN
        lines.append(f"{name:<{margin}} {''.join(row)}".rstrip())
    indent = " " * (margin + 1)
    places = [(int(join.at * COLUMNS), join.label) for join in lanes.joins if join.label]
    heads = _spread(places, "↑")
    ticks = _spread([(int(at * COLUMNS), text) for at, text in lanes.ticks], "")
    return [
        *lines,
        *(f"{indent}{line}".rstrip() for line in (heads, ticks) if line),
        _legend(lanes),
    ]


def chart_text(chart: Chart) -> list[str]:
    """Render a chart as lines of text.

    Example:
        >>> from mcnb.pictures.scene import Profile
        >>> for line in chart_text(Chart("Time of each step", (Profile("all", (0.1, 0.5, 1.0)),))):
        ...     print(line)
        Time of each step
        all ▁▄█
    """
    margin = max((len(profile.label) for profile in chart.profiles), default=0)
    lines = [chart.title]
    for profile in chart.profiles:
        row = "".join(HEIGHTS[math.ceil(round(height * 8, 3))] for height in profile.heights)
        lines.append(f"{profile.label:<{margin}} {row}".rstrip())
    width = max((len(profile.heights) for profile in chart.profiles), default=0)
    ticks = _spread([(int(at * width), text) for at, text in chart.ticks], "")
    return [*lines, *([f"{' ' * (margin + 1)}{ticks}".rstrip()] if ticks else [])]


def _spread(places: Iterable[tuple[int, str]], mark: str) -> str:
    """Place texts on one line, each at its column, and skip those without room.

    Args:
        places: Columns and texts.
        mark: Character that points at the column; its text is on its left if the right is full.
    """
    line = last = ""
    for column, text in sorted(places):
        column = min(column, COLUMNS - 1)
        said = f"{mark} {text}".lstrip()
        if column + len(said) > COLUMNS:
            said = f"{text} {mark}".rstrip()
            column = max(column + 1 - len(said), 0)
        if text != last and (not line or column > len(line)):
            line, last = f"{line:<{column}}{said}", text
    return line


def _legend(lanes: Lanes) -> str:
    used = {bar.kind for lane in lanes.lanes for bar in lane.bars}
    said = [f"{char} {name}" for kind, (name, char) in KINDS_OF_BARS.items() if kind in used]
    if any(join.met for join in lanes.joins) and len(lanes.joins) <= MOST_JOINS:
        said.append(f"{MET} met")
    if any(not join.met for join in lanes.joins):
        said.append(f"{IN_VAIN} in vain")
    if any(join.missing for join in lanes.joins):
        said.append(f"{MISSED} missing")
    return " ".join(said)


def text_of(scene: Scene) -> str:
    """Render a scene as text, without a final line end.

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
    if isinstance(part, Chart):
        return chart_text(part)
    return _grid(part) if isinstance(part, Grid) else _table(part)


def _flow(parts: Sequence[list[str]]) -> list[list[list[str]]]:
    """Put parts side by side, and start a new row if there is no room."""
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
    widths = [
        max(1, *(len(line) for cell in column for line in _lines(cell)))
        for column in zip(*grid.rows, strict=True)
    ]
    if grid.column_heads:
        widths = [max(own, len(head)) for own, head in zip(widths, grid.column_heads, strict=True)]
    margin = max(map(len, grid.row_heads), default=0)
    indent = " " * (margin + 1 if margin else 0)
    edges = list(filter(None, (grid.title, "   ".join(grid.axes()))))
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
