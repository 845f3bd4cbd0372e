"""What looks odd about launches, though it proves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mcnb.lockstep.launches import LaunchRecord
from mcnb.lockstep.verdicts import Verdict
from mcnb.options import name_processes


def other_lines(records: Sequence[LaunchRecord], count: int) -> str:
    """Return that processes launched the same together from different lines, if they did.

    It may be meant: both branches of a condition may hold the same computation. It may also be one
    step on some processes and another one on the others, and then the values are wrong.

    Args:
        records: A cell's launches, in the order of time.
        count: How many processes there are.

    Returns:
        The first such launch, in a sentence; empty if there is none.

    Example:
        >>> from mcnb.lockstep.launches import Launch
        >>> f = Launch("jit(f)", "1", (0, 1))
        >>> print(other_lines([LaunchRecord(0, f, 3, 0, 1), LaunchRecord(1, f, 6, 0, 1)], 2))
        process 0 launched jit(f) at line 3, and process 1 at line 6. It is the same computation, \
so nothing hung; if these are different steps of the program, the values are wrong
    """
    made: dict[tuple[str, tuple[int, ...]], dict[int, list[LaunchRecord]]] = {}
    for record in records:
        if record.began is not None and record.launch.communicates:
            key = record.launch.program, record.launch.participants
            made.setdefault(key, {}).setdefault(record.process, []).append(record)
    odd = [
        together
        for by_process in made.values()
        for together in zip(*by_process.values(), strict=False)
        if len({record.line for record in together}) > 1
        and all(record.line is not None for record in together)
    ]
    if not odd:
        return ""
    first = min(odd, key=lambda together: min(record.announced for record in together))
    by_line: dict[int | None, list[int]] = {}
    for record in sorted(first, key=lambda record: record.process):
        by_line.setdefault(record.line, []).append(record.process)
    (line, ks), *others = by_line.items()
    said = [f"{name_processes(ks, count)} launched {first[0].launch.name} at line {line}"]
    said += [f"and {name_processes(ks, count)} at line {line}" for line, ks in others]
    return (
        f"{', '.join(said)}. It is the same computation, so nothing hung; if these are different "
        "steps of the program, the values are wrong"
    )


def met_nobody(verdict: Verdict, records: Iterable[LaunchRecord], count: int) -> str:
    """Return which processes launched by the same name, but without communication, if some did.

    Args:
        verdict: How the processes parted.
        records: The cell's launches.
        count: How many processes there are.

    Returns:
        It in a sentence; empty if nobody did.
    """
    for stand in verdict.stands.values():
        if stand.doing != "waits" or stand.launch is None:
            continue
        alone = [
            record
            for record in records
            if (record.launch.name, record.line) == (stand.launch.name, stand.line)
            and record.began is not None
            and not record.launch.communicates
        ]
        if alone:
            ks = sorted({record.process for record in alone})
            other, own = alone[0].launch, stand.launch
            how = ""
            if other.arguments != own.arguments:
                how = f", with {' '.join(other.arguments)} where it takes {' '.join(own.arguments)}"
            elif other.shardings != own.shardings:
                how = f", sharded as {' '.join(other.shardings)} instead of "
                how += " ".join(own.shardings)
            return (
                f"{name_processes(ks, count)} launched {other.name} at line {stand.line}, too"
                f"{how}: that one does not communicate, and meets nobody"
            )
    return ""
