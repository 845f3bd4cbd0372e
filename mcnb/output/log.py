"""Format the launches of a cell as a table."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import TypeAlias

from mcnb._text import index_ranges, label, size
from mcnb.lockstep.model import Launch, LaunchRecord

# Program, name and arguments, line, and whether the launch was not made.
_Kind: TypeAlias = tuple[str, str, int | None, bool]


def log_text(records: Iterable[LaunchRecord], count: int) -> str:
    """Format launches as a table, with one row for launches that processes made together.

    Two runs with the same launches give the same table, because it contains no times.

    Args:
        records: Launches, in order of time.
        count: Number of processes in the cluster.

    Example:
        >>> f = Launch("jit(f)", "1", (0, 1), ("f32[8]",))
        >>> rows = [LaunchRecord(k, f, 2, 0.0, 0.1) for k in (0, 1)]
        >>> print(log_text(rows, 2))
        process  line  launch         communicates
        [all 2]  2     jit(f) f32[8]  nothing
    """
    table = [("process", "line", "launch", "communicates")]
    for made in _rows(records):
        launch, line = made[0].launch, made[0].line
        what = _communication(launch)
        table.append(
            (
                label(sorted(record.process for record in made), count),
                "" if line is None else str(line),
                str(launch),
                what if made[0].began is not None else f"{what} · not launched",
            )
        )
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def _rows(records: Iterable[LaunchRecord]) -> list[list[LaunchRecord]]:
    """Group launches into rows: the n-th launch of a kind on each process.

    Rows follow the order of launches on each process. If these orders conflict, a row is split; if
    they leave a choice, the process with the lowest index comes first. Times have no influence.
    """
    queues: dict[int, deque[tuple[_Kind, int]]] = {}
    made: dict[tuple[_Kind, int], dict[int, LaunchRecord]] = {}
    seen: Counter[tuple[int, _Kind]] = Counter()
    for record in sorted(records, key=lambda record: record.announced):
        kind = (record.launch.program, str(record.launch), record.line, record.began is None)
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
