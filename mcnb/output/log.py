"""Format the launches of a cell as a table."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import TypeAlias

from mcnb._text import index_ranges, label, size
from mcnb._turns import Fold, folded
from mcnb.lockstep.model import Launch, LaunchRecord

# Program, name and arguments, line, and whether the launch was not made.
_Kind: TypeAlias = tuple[str, str, int | None, bool]
# A launch of the processes that made it together.
_Row: TypeAlias = list[LaunchRecord]
# The longest list of arguments that is shown whole.
MOST_CHARACTERS = 60


def log_text(records: Iterable[LaunchRecord], count: int, *, full: bool = False) -> str:
    """Format launches as a table, with one row for launches that processes made together.

    Two runs with the same launches give the same table, because it contains no times.

    Args:
        records: Launches, in order of time.
        count: Number of processes in the cluster.
        full: Whether each launch has a row, with all its arguments. Otherwise, launches that
            follow each other and are alike share one, as do the rounds of a loop, and a long list
            of arguments has only the first ones, and those that differ from launch to launch.

    Example:
        >>> f = Launch("jit(f)", "1", (0, 1), ("f32[8]",))
        >>> rows = [LaunchRecord(k, f, 2, t, t + 0.1) for t in (0.0, 1.0, 2.0) for k in (0, 1)]
        >>> print(log_text(rows, 2))
        process  line  launch         times  communicates
        [all 2]  2     jit(f) f32[8]  3      nothing
        >>> print(log_text(rows[:4], 2, full=True))
        process  line  launch         communicates
        [all 2]  2     jit(f) f32[8]  nothing
        [all 2]  2     jit(f) f32[8]  nothing
    """
    records = list(records)
    rows = _rows(records)
    shown = [(row, "") for row in rows]
    if not full:
        shown = [(fold.thing, _times(fold)) for fold in folded(rows, _alike)]
    names = {} if full else _brief(records)
    table: list[tuple[str, ...]] = [("process", "line", "launch", "times", "communicates")]
    for made, times in shown:
        launch, line = made[0].launch, made[0].line
        what = _communication(launch)
        table.append(
            (
                label(sorted(record.process for record in made), count),
                "" if line is None else str(line),
                names.get(str(launch), str(launch)),
                times,
                what if made[0].began is not None else f"{what} · not launched",
            )
        )
    if not any(times for _, times in shown):
        table = [(*row[:3], *row[4:]) for row in table]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def _kind(record: LaunchRecord) -> _Kind:
    launch = record.launch
    return launch.program, str(launch), record.line, record.began is None


def _times(fold: Fold[_Row]) -> str:
    """Return how often a row repeats, or comes in turn with others; empty if it does not."""
    each = str(fold.number) if fold.number > 1 else ""
    if fold.rounds == 1:
        return each
    return f"{fold.rounds}{f' x {each}' if each else ''} in turn"


def _alike(row: _Row) -> tuple[_Kind, tuple[int, ...]]:
    return _kind(row[0]), tuple(sorted(record.process for record in row))


def _brief(records: Iterable[LaunchRecord]) -> dict[str, str]:
    """Return short texts of launches that differ where the whole texts do, by these."""
    alike: dict[tuple[str, int], dict[str, Launch]] = {}
    for record in records:
        launch = record.launch
        key = launch.name, len(launch.arguments)
        alike.setdefault(key, {})[str(launch)] = launch
    return {
        text: launch.brief(MOST_CHARACTERS, Launch.differing([*launches.values()]) or ())
        for launches in alike.values()
        for text, launch in launches.items()
    }


def _rows(records: Iterable[LaunchRecord]) -> list[_Row]:
    """Group launches into rows: the n-th launch of a kind on each process.

    Rows follow the order of launches on each process. If these orders conflict, a row is split; if
    they leave a choice, the process with the lowest index comes first. Times have no influence.
    """
    queues: dict[int, deque[tuple[_Kind, int]]] = {}
    made: dict[tuple[_Kind, int], dict[int, LaunchRecord]] = {}
    seen: Counter[tuple[int, _Kind]] = Counter()
    for record in sorted(records, key=lambda record: record.announced):
        kind = _kind(record)
        row = (kind, seen[record.process, kind])
        seen[record.process, kind] += 1
        queues.setdefault(record.process, deque()).append(row)
        made.setdefault(row, {})[record.process] = record
    rows = []
    while any(queues.values()):
        at: dict[tuple[_Kind, int], list[int]] = {}
        for k, queue in sorted(queues.items()):
            if queue:
                at.setdefault(queue[0], []).append(k)
        row = next((row for row, ks in at.items() if len(ks) == len(made[row])), next(iter(at)))
        rows.append([made[row].pop(k) for k in at[row]])
        for k in at[row]:
            queues[k].popleft()
    return rows


def _communication(launch: Launch) -> str:
    said: Counter[str] = Counter()
    for collective in launch.collectives:
        groups = [group for group in collective.groups if len(group) > 1]
        if groups:
            among = " ".join(index_ranges(group) for group in groups)
            said[f"{collective.kind} of {size(collective.bytes)} among {among}"] += 1
    parts = [text if times == 1 else f"{times} x {text}" for text, times in said.items()]
    return ", ".join(parts) or "nothing"
