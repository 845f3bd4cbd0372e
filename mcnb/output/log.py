"""The log: what the processes launched in a cell, as a table."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import TypeAlias

from mcnb._text import index_ranges, label, size
from mcnb.lockstep.model import Launch, LaunchRecord

# Program, name and arguments, line, and whether it was left undone.
_Kind: TypeAlias = tuple[str, str, int | None, bool]


def log_text(records: Iterable[LaunchRecord], count: int) -> str:
    """Return launches as a table: one row for each that several processes made together.

    The table is the same for every run of a program that launches the same: it holds no times.

    Args:
        records: The launches, in the order of time.
        count: How many processes the cluster has.

    Example:
        >>> f = Launch("jit(f)", "1", (0, 1), ("f32[8]",))
        >>> rows = [LaunchRecord(k, f, 2, 0.0, 0.1) for k in (0, 1)]
        >>> print(log_text(rows, 2))
        process  line  launch         communicates
        [all 2]  2     jit(f) f32[8]  nothing
    """
    rows = _rows(records)
    table = [("process", "line", "launch", "communicates")]
    for made in rows:
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
    """Return the launches that stand in one row: of several processes, the n-th of its kind each.

    Rows come in the processes' own orders. Where these differ, a row is taken apart; where they
    leave a choice, the process with the lowest index comes first. So times decide nothing.
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
        heads = {k: queue[0] for k, queue in sorted(queues.items()) if queue}
        at: dict[tuple[_Kind, int], list[int]] = {}
        for k, row in heads.items():
            at.setdefault(row, []).append(k)
        together = [row for row, ks in at.items() if len(ks) == len(made[row])]
        row = (together or list(at))[0]
        rows.append([made[row].pop(k) for k in at[row]])
        for k in at[row]:
            queues[k].popleft()
    return rows


def _communication(launch: Launch) -> str:
    said: dict[str, int] = {}
    for collective in launch.collectives:
        groups = [group for group in collective.groups if len(group) > 1]
        if groups:
            among = " ".join(index_ranges(group) for group in groups)
            text = f"{collective.kind} of {size(collective.bytes)} among {among}"
            said[text] = said.get(text, 0) + 1
    parts = [text if times == 1 else f"{times} x {text}" for text, times in said.items()]
    return ", ".join(parts) or "nothing"
