"""The order in which processes met in a cell, as a scene without times: the same on every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mcnb.options import plural
from mcnb.pictures.devices import process_ranges
from mcnb.pictures.scene import Bar, Join, Lane, Lanes, Scene, Table
from mcnb.pictures.time_scene import MOST_LANES, joins_at, lines_of
from mcnb.pictures.timeline import Meeting, Timeline

MOST_COLUMNS = 24


def order_scene(time: Timeline, absent: Mapping[int, str]) -> Scene:
    """Return the scene of the order in which processes met.

    Args:
        time: What the processes did.
        absent: What stands in the lanes of processes that have nothing to show.
    """
    columns = _columns(time.meetings)
    shown = columns[:MOST_COLUMNS]
    joins: list[Join] = []
    rows = []
    for i, (column, times) in enumerate(shown, 1):
        at, repeated = i / (len(shown) + 1), f" x {times}" if times > 1 else ""
        joins += [replace(join, label=join.label + repeated) for join in joins_at(at, column)]
        for m in column:
            lines = lines_of([m])
            line = lines.removeprefix("lines ").removeprefix("line ")
            processes = process_ranges(m.present), process_ranges(m.missing)
            rows.append((line, str(m.launch), str(times), *processes))
    lanes = tuple(
        Lane(k, () if k in absent else (Bar("python", 0.0, 1.0),), absent.get(k, ""))
        for k in sorted({*time.lanes, *absent})
    )
    notes = ["In the order in which the processes launched; not to scale."]
    if len(columns) > len(shown):
        notes.append(f"The first {len(shown)} of {len(columns)} steps are drawn.")
    heads = ("line", "launch", "times", "processes", "missing")
    parts = (Lanes(lanes[:MOST_LANES], tuple(joins)), Table(heads, tuple(rows), (2,)))
    who = plural(len(time.lanes), "process", "processes")
    return Scene(
        f"The cell's launches on {who}, in order", tuple(notes), parts if rows else parts[:1]
    )


def _columns(meetings: Sequence[Meeting]) -> list[tuple[list[Meeting], int]]:
    """Return what stands above each other, and how often in a row.

    A meeting comes right after the last one that any of its processes had before. So the times
    decide nothing, as long as each process launches from one thread.
    """
    after: dict[int, int] = {}
    columns: list[list[Meeting]] = []
    for m in meetings:
        column = max((after.get(k, 0) for k in m.came), default=0)
        after.update(dict.fromkeys(m.came, column + 1))
        columns += [[]] * (column + 1 - len(columns))
        columns[column] = [*columns[column], m]
    runs: list[tuple[list[Meeting], int]] = []
    for own in columns:
        own.sort(key=lambda m: (m.present, m.missing, str(m.launch)))
        if runs and _same(runs[-1][0], own):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((own, 1))
    return runs


def _same(first: Sequence[Meeting], second: Sequence[Meeting]) -> bool:
    return [_key(m) for m in first] == [_key(m) for m in second]


def _key(m: Meeting) -> tuple[object, ...]:
    return m.launch.program, dict(m.lines), m.missing, m.launched
