"""The log: what the processes launched in a cell, as a table."""

from __future__ import annotations

from collections.abc import Iterable

from mcnb.lockstep.launches import Launch, LaunchRecord
from mcnb.options import index_ranges
from mcnb.report.text import label

_UNITS = ("B", "KB", "MB", "GB", "TB")


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
    rows: list[list[LaunchRecord]] = []
    position: dict[int, int] = {}
    for record in sorted(records, key=lambda record: (record.announced, record.process)):
        # The same launch at the same line, as the process's next: the row of those before it.
        number = next(
            (
                number
                for number in range(position.get(record.process, 0), len(rows))
                if _alike(rows[number][0], record)
            ),
            len(rows),
        )
        if number == len(rows):
            rows.append([])
        rows[number].append(record)
        position[record.process] = number + 1
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


def _alike(one: LaunchRecord, other: LaunchRecord) -> bool:
    """Return whether two processes' launches stand in one row."""
    return (one.launch.program, str(one.launch), one.line, one.began is None) == (
        other.launch.program,
        str(other.launch),
        other.line,
        other.began is None,
    )


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


def size(count: int) -> str:
    """Return a number of bytes in words.

    Example:
        >>> size(4), size(1_500_000)
        ('4 B', '1.5 MB')
    """
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}"
