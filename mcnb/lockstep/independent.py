"""Report launches without communication for which processes compiled different programs.

Such a launch waits for no process, so nothing hangs: each process makes its part of the result by
its own program, and the parts do not belong together. Afterwards, the processes' launches are
counted, and compared.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mcnb._text import grouped, name_processes, plural
from mcnb.lockstep.model import LaunchRecord, Origin

# A longer expression is seen in the line of source.
LONGEST_NAME = 60
_SAME_LAUNCHES = "All processes must launch the same computations, on arrays of the same shapes"
SAME_PROGRAM = (
    "What a program is made of must be equal on all processes: static arguments, constants, "
    "closed-over values, options such as out_shardings, and the conditions of Python branches"
)


@dataclass(frozen=True, slots=True)
class Tally:
    """How often a process made a launch that does not communicate.

    Attributes:
        where: The line of the cell, or the file and line.
        processes: The processes on whose devices it runs.
        text: Its name and the types of its arguments.
        program: The compiled program.
        lowered: What JAX lowered the function to, where XLA may compile that in several ways.
        times: How often.
        cause: Where what it computes begins to differ; see `Launch.cause`.
    """

    where: str
    processes: tuple[int, ...]
    text: str
    program: str
    lowered: str
    times: int
    cause: str = ""


@dataclass(slots=True)
class _Line:
    """What processes launched at a line: each program, in the order of the first launches."""

    programs: dict[int, Counter[str]] = field(default_factory=dict)
    lowered: dict[int, Counter[str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)

    def add(self, process: int, tally: Tally) -> None:
        self.programs.setdefault(process, Counter())[tally.program] += tally.times
        self.lowered.setdefault(process, Counter())[tally.lowered] += tally.times
        self.texts[tally.program] = tally.text
        self.causes[tally.program] = tally.cause

    def odd(self, processes: Sequence[int]) -> dict[int, str]:
        """Return, for each process, the first program that it launched more often than others."""
        numbers = {launched.total() for launched in self.programs.values()}
        if self.programs.keys() != {*processes} or len(numbers) > 1:
            return {}
        same = all(one == self.lowered[processes[0]] for one in self.lowered.values())
        if same and "" not in self.lowered[processes[0]]:
            return {}
        common = functools.reduce(operator.and_, self.programs.values())
        left = {k: self.programs[k] - common for k in processes}
        return {k: next(iter(own)) for k, own in left.items() if own}


def tallies_of(records: Iterable[LaunchRecord]) -> list[Tally]:
    """Count the launches of a process that do not communicate, in the order of the first ones.

    Launches on devices of the process alone are left out, as are those without a line.
    """
    spans: dict[int, tuple[int, ...]] = {}  # by the launch, which many records share
    times: Counter[tuple[str, int]] = Counter()
    launches = {}
    for record in records:
        launch = record.launch
        where = record.place or ("" if record.line is None else f"line {record.line}")
        if launch.communicates or launch.is_barrier or record.began is None or not where:
            continue
        if id(launch) not in spans:
            spans[id(launch)] = tuple(sorted(launch.processes))
            launches[id(launch)] = launch
        if len(spans[id(launch)]) > 1:
            times[where, id(launch)] += 1
    return [
        Tally(where, spans[at], str(one), one.program, one.lowered, n, one.cause)
        for (where, at), n, one in ((key, n, launches[key[1]]) for key, n in times.items())
    ]


def depends(origin: Origin) -> str:
    """Say what depends on the process, and where.

    Example:
        >>> depends(Origin("shift", "line 2", "shift = 0.5 if k == 2 else 0.25"))
        '`shift` depends on a value that differs between processes: `shift = 0.5 if k == 2 else \
0.25` (line 2)'
    """
    conditional = origin.source.startswith(("if ", "elif ", "while ", "match "))
    what = "condition" if conditional else "value"
    name = f"`{origin.name}`" if len(origin.name) <= LONGEST_NAME else "the expression"
    name = "the lambda" if origin.name == "lambda" else name
    said = f"{name} depends on a {what} that differs between processes"
    return f"{said}: `{origin.source}` ({origin.place})" if origin.source else said


def different_programs(tallies: Mapping[int, Iterable[Tally]], count: int) -> str:
    """Tell of the first line at which processes launched different programs, if there is any.

    Compared are lines at which all processes of a launch launched equally often: what only some of
    them launch may be meant so. The order does not matter, because threads may share a line.

    Args:
        tallies: What each process launched.
        count: The number of processes in the cluster.

    Example:
        >>> made = {k: [Tally("line 3", (0, 1), "jit(f)", str(k), "", 1)] for k in range(2)}
        >>> different_programs(made, 2)[:72]
        'process 0 and process 1 launched different programs of jit(f) at line 3.'
    """
    lines: dict[tuple[str, tuple[int, ...]], _Line] = {}
    for k, own in tallies.items():
        for tally in own:
            lines.setdefault((tally.where, tally.processes), _Line()).add(k, tally)
    found = [
        (where, line, odd)
        for (where, processes), line in lines.items()
        if (odd := line.odd(processes))
    ]
    if not found:
        return ""
    where, first, odd = found[0]
    cause = next((first.causes[odd[k]] for k in sorted(odd) if first.causes[odd[k]]), "")
    groups = [(first.texts[program], name_processes(ks, count)) for program, ks in grouped(odd)]
    text, mend = groups[0][0], SAME_PROGRAM
    if len({said for said, _ in groups}) > 1:
        each = [f"{name} launched {said}" for said, name in groups]
        what, mend = f"at {where}, {', '.join(each[:-1])}, and {each[-1]}", _SAME_LAUNCHES
    elif len(groups) > 2:
        everyone = name_processes(sorted(odd), count)
        what = f"{everyone} launched {len(groups)} different programs of {text} at {where}"
    else:
        names = " and ".join(name for _, name in groups)
        what = f"{names} launched different programs of {text} at {where}"
    more = plural(len(found) - 1, "other line", "other lines")
    return (
        f"{what}. The launch does not communicate, so no process waited, but each made its part of "
        "the result by its own program, and the result may be wrong. "
        f"{f'Likely cause: {cause}. ' if cause else ''}{mend}"
        f"{f'. The same holds for {more}' if found[1:] else ''}"
    )
