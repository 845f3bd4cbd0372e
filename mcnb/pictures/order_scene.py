"""The order in which processes met in a cell, as a scene without times: the same on every run."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mcnb.options import plural
from mcnb.pictures.devices import process_ranges
from mcnb.pictures.scene import Bar, Join, Lane, Lanes, Scene, Table
from mcnb.pictures.time_scene import MOST_LANES, joins_at, lines_of
from mcnb.pictures.timeline import Meeting, Timeline

MOST_STEPS = 24
LAST_STEPS = 6  # of them, from the end: how it ended is what one wants to see
LONGEST_PATTERN = 12  # so many steps that repeat each other are told once


@dataclass(frozen=True, slots=True)
class Step:
    """What is drawn above each other.

    Attributes:
        meetings: The launches.
        times: How often it happened; more than once as a part of a pattern.
    """

    meetings: tuple[Meeting, ...]
    times: int = 1


def order_scene(time: Timeline, absent: Mapping[int, str]) -> Scene:
    """Return the scene of the order in which processes met.

    Args:
        time: What the processes did.
        absent: What stands in the lanes of processes that have nothing to show.
    """
    steps = _folded(_columns(time.meetings))
    shown: list[Step | None] = [*steps]
    if len(steps) > MOST_STEPS:
        shown = [*steps[: MOST_STEPS - LAST_STEPS], None, *steps[-LAST_STEPS:]]
    joins: list[Join] = []
    rows = []
    for i, step in enumerate(shown, 1):
        if step is None:
            rows.append(("…", "", "", "", ""))
            continue
        at, repeated = i / (len(shown) + 1), f" x {step.times}" if step.times > 1 else ""
        joins += [replace(j, label=j.label + repeated) for j in joins_at(at, step.meetings)]
        for m in step.meetings:
            line = lines_of([m]).removeprefix("lines ").removeprefix("line ")
            who = process_ranges(m.present), process_ranges(m.missing)
            rows.append((line, m.launch.brief(), str(step.times), *who))
    lanes = tuple(
        Lane(k, () if k in absent else (Bar("python", 0.0, 1.0),), absent.get(k, ""))
        for k in sorted({*time.lanes, *absent})
    )
    notes = ["In the order in which the processes launched; not to scale."]
    if not rows:
        notes = ["Nothing was launched that spans processes."]
    if len(steps) > MOST_STEPS:
        notes.append(f"{MOST_STEPS} of {len(steps)} steps are drawn, the first and the last.")
    heads = ("line", "launch", "times", "processes", "missing")
    parts = (Lanes(lanes[:MOST_LANES], tuple(joins)), Table(heads, tuple(rows), (2,)))
    who_ran = plural(len(time.lanes), "process", "processes")
    return Scene(
        f"The cell's launches on {who_ran}, in order", tuple(notes), parts if rows else parts[:1]
    )


def _columns(meetings: Sequence[Meeting]) -> list[list[Meeting]]:
    """Return what stands above each other.

    A meeting comes right after the last one that any of its processes had before, each process by
    its own account: clocks of two processes decide nothing, nor does when one gave up waiting.
    """
    own = {
        k: deque(sorted((m for m in meetings if k in m.came), key=lambda m: m.came[k]))
        for k in sorted({k for m in meetings for k in m.came})
    }
    columns: list[list[Meeting]] = []
    placed: set[int] = set()
    while queues := [queue for queue in own.values() if queue]:
        # Where they wait in a circle, nobody was first; the lowest process's goes ahead.
        heads = {id(queue[0]): queue[0] for queue in queues}.values()
        column = [m for m in heads if all(own[k][0] is m for k in m.came)] or [queues[0][0]]
        columns.append(sorted(column, key=lambda m: (m.present, m.missing, str(m.launch))))
        placed.update(id(m) for m in column)
        for queue in queues:
            while queue and id(queue[0]) in placed:
                queue.popleft()
    return columns


def _folded(columns: Sequence[Sequence[Meeting]]) -> list[Step]:
    """Return the steps, those that repeat each other once: also where several do, in turn."""
    keys = [[_key(m) for m in own] for own in columns]
    steps: list[Step] = []
    i = 0
    while i < len(columns):
        best, times = 1, 1
        for length in range(1, LONGEST_PATTERN + 1):
            count = 1
            first = keys[i : i + length]
            while keys[i + count * length : i + (count + 1) * length] == first:
                count += 1
            if count > 1 and count * length > best * times:
                best, times = length, count
        steps += [Step(tuple(columns[c]), times) for c in range(i, i + best)]
        i += best * times
    return steps


def _key(m: Meeting) -> tuple[object, ...]:
    return m.launch.program, dict(m.lines), m.missing, m.met
