"""Parse a compiled program: its collectives in order, how often each runs, and its source line.

The text is XLA's HLO, as `jax.stages.Compiled.as_text` returns it. The trip count of a loop is its
`known_trip_count`, if XLA could determine it (xla/service/while_loop_trip_count_annotator.h).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mcnb.lockstep.hlo import Operation, operations

_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[^\s(]+) (?:\(.*\) -> .*)?\{$")
_CALLED = re.compile(
    r"(?P<how>condition|body|calls|to_apply|true_computation|false_computation|branch_computations"
    r"|called_computations)=(?P<names>\{[^}]*\}|%?[^\s,)]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_OLD_SOURCE = re.compile(r'source_file="([^"]*)" source_line=(\d+)')
_ENTRY_OF_TABLE = re.compile(r"^(\d+) (.*)$")
_HERE = Path(__file__).parent  # lines of this package are not the user's source
_BRANCHES = ("true_computation", "false_computation", "branch_computations")


@dataclass(frozen=True, slots=True)
class Use:
    """Collective of a program.

    Attributes:
        operation: The collective.
        times: Number of executions in one run; None if it depends on an unknown trip count.
        branch: Whether the collective is in a branch that may not be taken.
        source: Source file and line; None if the program does not contain them.
    """

    operation: Operation
    times: int | None = 1
    branch: bool = False
    source: tuple[str, int] | None = None


def wire_bytes(operation: Operation) -> float | None:
    """Return how many bytes a device sends in a collective, on average over its group.

    It is what the other devices lack. With n devices in a group, that is (n - 1)/n of the result in
    an all-gather, an all-to-all or a broadcast, n - 1 times the result in a reduce-scatter, and
    2 (n - 1)/n of the result in an all-reduce, as in a reduce-scatter and an all-gather. Less is
    impossible, and a ring of devices sends no more: P. Patarasuk and X. Yuan, Bandwidth optimal
    all-reduce algorithms for clusters of workstations, Journal of Parallel and Distributed
    Computing 69 (2009), 117-124.

    Args:
        operation: Collective; its bytes are those of its result on a device.

    Returns:
        The number of bytes; None if the groups are unknown, or depend on data.

    Example:
        >>> wire_bytes(Operation("all-reduce", 1024, ((0, 1, 2, 3),)))
        1536.0
    """
    if not operation.groups:
        return None
    members = max(map(len, operation.groups))
    others = (members - 1) / members
    share = {
        "all-reduce": 2 * others,
        "all-gather": others,
        "all-to-all": others,
        "collective-broadcast": others,
        "reduce-scatter": members - 1,
        # A group is a pair of a source and a target, which may be the same device.
        "collective-permute": any(len(set(pair)) > 1 for pair in operation.groups),
    }
    return float(operation.bytes * share[operation.kind]) if operation.kind in share else None


def sent_bytes(uses: Iterable[Use]) -> float:
    """Return the known `wire_bytes` of a program's collectives together.

    A collective in a loop with an unknown trip count is counted once.
    """
    return sum(
        (wire_bytes(use.operation) or 0) * (1 if use.times is None else use.times) for use in uses
    )


@dataclass(slots=True)
class _Program:
    partitions: int
    entry: str = ""
    lines: dict[str, list[str]] = field(default_factory=dict)
    tables: dict[str, dict[int, str]] = field(default_factory=dict)
    speaking: set[str] = field(default_factory=set)  # computations that contain collectives


def uses(text: str, partitions: int) -> list[Use]:
    """Return the collectives of a program, in the order in which it reaches them.

    Args:
        text: HLO text of the program.
        partitions: Number of devices on which the program runs.
    """
    program = _read(text, partitions)
    program.speaking = _speaking(program)
    return list(_walk(program, program.entry, 1, False))


def _read(text: str, partitions: int) -> _Program:
    program = _Program(partitions)
    computation: list[str] | None = None
    table: dict[int, str] = {}
    for line in text.splitlines():
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = program.tables.setdefault(line, {})
        elif match := _COMPUTATION.match(line):
            computation = program.lines.setdefault(match["name"], [])
            if match["entry"]:
                program.entry = match["name"]
        elif line == "}":
            computation = None
        elif computation is not None:
            computation.append(line)
        elif match := _ENTRY_OF_TABLE.match(line):
            table[int(match[1])] = match[2]
    return program


def _called(line: str) -> Iterator[tuple[str, str]]:
    for match in _CALLED.finditer(line):
        for name in re.findall(r"[^\s,{}%]+", match["names"]):
            yield match["how"], name


def _speaking(program: _Program) -> set[str]:
    """Return the computations that contain collectives, directly or through calls."""
    speaking = {
        name for name, lines in program.lines.items() if any(operations(line, 1) for line in lines)
    }
    callers: dict[str, set[str]] = defaultdict(set)
    for name, lines in program.lines.items():
        for line in lines:
            for _, called in _called(line):
                callers[called].add(name)
    ahead = list(speaking)
    while ahead:
        for caller in callers[ahead.pop()] - speaking:
            speaking.add(caller)
            ahead.append(caller)
    return speaking


def _walk(program: _Program, name: str, times: int | None, branch: bool) -> Iterator[Use]:
    for line in program.lines.get(name, ()):
        for operation in operations(line, program.partitions):
            yield Use(operation, times, branch, _source(program, line))
        for how, called in _called(line):
            if called in program.speaking:
                inside = times
                if how in ("body", "condition") and times is not None:
                    trips = _TRIPS.search(line)
                    more = how == "condition"  # evaluated once more, to end the loop
                    inside = times * (int(trips[1]) + more) if trips else None
                yield from _walk(program, called, inside, branch or how in _BRANCHES)


def _source(program: _Program, line: str) -> tuple[str, int] | None:
    if match := _OLD_SOURCE.search(line):
        return match[1], int(match[2])
    match = _FRAME.search(line)
    if match is None:
        return None
    frame = _fields(program, "StackFrames", int(match[1]))
    place = _fields(program, "FileLocations", frame.get("file_location_id", 0))
    name = program.tables.get("FileNames", {}).get(place.get("file_name_id", 0), "").strip('"')
    known = name and "line" in place and Path(name).parent != _HERE
    return (name, place["line"]) if known else None


def _fields(program: _Program, table: str, key: int) -> dict[str, int]:
    text = program.tables.get(table, {}).get(key, "")
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", text)}


def axes_of(groups: Sequence[Sequence[int]], sizes: dict[str, int]) -> tuple[str, ...] | None:
    """Return the mesh axes along which partitions communicate.

    Args:
        groups: Partitions that participate together, or pairs of a source and a target.
        sizes: Names and sizes of the mesh axes, in mesh order.

    Returns:
        Axis names, in mesh order; None if the groups are not lines, planes or the like along axes.

    Example:
        >>> axes_of([(0, 2), (1, 3)], {"a": 2, "b": 2})
        ('a',)
    """
    names = list(sizes)
    if not groups or not names or max(map(max, groups)) >= math.prod(sizes.values()):
        return None
    varying: set[int] = set()
    for group in groups:
        places = np.array(np.unravel_index(list(group), list(sizes.values())))
        varying |= {int(i) for i in np.flatnonzero((places != places[:, :1]).any(axis=1))}
    return tuple(names[i] for i in sorted(varying)) or None
