"""Lanes as text: a character for each column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcnb.pictures.scene import IN_VAIN, KINDS_OF_BARS, MET, MISSED, Bar, Lanes

COLUMNS = 72
MOST_JOINS = 24  # with more, what is between them could not be seen


def lanes_text(lanes: Lanes) -> list[str]:
    """Return the lines of lanes.

    Example:
        >>> from mcnb.pictures.scene import Join, Lane
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
        row = _row(lane.bars)
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


def _row(bars: Sequence[Bar]) -> list[str]:
    """Return the characters of a lane; of each column, what most of it is."""
    shares: list[dict[str, float]] = [{} for _ in range(COLUMNS)]
    for bar in bars:
        begin, end = bar.begin * COLUMNS, bar.end * COLUMNS
        for c in range(int(begin), min(int(end) + 1, COLUMNS)):
            share = min(end, c + 1) - max(begin, c)
            shares[c][bar.kind] = shares[c].get(bar.kind, 0.0) + share
    row = []
    for column in shares:
        most = max(column, key=lambda kind: column[kind]) if column else ""
        row.append(KINDS_OF_BARS[most][1] if most and sum(column.values()) > 0.5 else " ")
    return row


def _spread(places: Iterable[tuple[int, str]], mark: str) -> str:
    """Return texts in a line, each at its column, as long as there is room.

    Args:
        places: Columns and texts.
        mark: What points at the column; a text that has no room to its right stands before it.
    """
    line = last = ""
    for column, text in sorted(places):
        column = min(column, COLUMNS - 1)
        said = f"{mark} {text}" if mark else text
        if column + len(said) > COLUMNS:
            said = f"{text} {mark}" if mark else text
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
