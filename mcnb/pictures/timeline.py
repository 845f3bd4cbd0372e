"""Compute the timeline of a cell: the activity of each process, and the launches they share."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mcnb.lockstep.model import Launch, LaunchRecord
from mcnb.lockstep.trace import Trace

Kind: TypeAlias = Literal["python", "computes", "compiles", "waits"]
# Where two kinds overlap, the later one in this list is shown.
KINDS: tuple[Kind, ...] = ("python", "computes", "compiles", "waits")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Interval in which a process did one thing.

    Attributes:
        kind: Activity: `"python"`, `"computes"`, `"compiles"` or `"waits"` for other processes.
        begin: Start, in seconds since the cell began.
        end: End, in seconds since the cell began.
        line: Line of the cell, or None if unknown.
    """

    kind: Kind
    begin: float
    end: float
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Meeting:
    """Launch at which processes meet.

    Attributes:
        launch: The launch that the processes share.
        lines: Line of the cell that each process had reached, or None if unknown.
        came: Time at which each process arrived, in seconds since the cell began.
        went: Time at which each process launched; processes that gave up waiting are left out.
        at: Time at which all processes had launched, or at which the first gave up waiting.
        missing: Participants that are known not to have launched; for a process that no longer
            responds, this is unknown.
    """

    launch: Launch
    lines: Mapping[int, int | None]
    came: Mapping[int, float]
    went: Mapping[int, float]
    at: float
    missing: tuple[int, ...] = ()

    @property
    def launched(self) -> bool:
        """Whether any process launched."""
        return bool(self.went)

    @property
    def met(self) -> bool:
        """Whether all participants launched: as far as known, no participant was missing."""
        return self.launched and not self.missing

    def waited(self, process: int) -> float:
        """Return the time that a process waited before this launch, in seconds."""
        return self.went.get(process, self.at) - self.came[process]

    @property
    def present(self) -> tuple[int, ...]:
        """Processes that launched, or waited in vain."""
        return tuple(k for k in sorted(self.came) if k not in self.missing)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Timeline of a cell.

    Attributes:
        length: Duration of the cell, in seconds.
        lanes: Intervals of each process, in order of time; empty if it no longer responded.
        meetings: Launches at which processes met, in order of time.
    """

    length: float
    lanes: Mapping[int, tuple[Stretch, ...]]
    meetings: tuple[Meeting, ...]


def timeline(traces: Mapping[int, Trace | None], records: Iterable[LaunchRecord]) -> Timeline:
    """Compute the timeline of a cell.

    Args:
        traces: Trace of each process; None if it no longer responded.
        records: Launches of all processes, in order of time.

    Example:
        >>> f = Launch("jit(f)", "1", (0, 1))
        >>> traces = {0: Trace(5.0, 9.0), 1: Trace(5.0, 9.0)}
        >>> records = [LaunchRecord(0, f, 2, 6.0, 8.0), LaunchRecord(1, f, 2, 8.0, 8.0)]
        >>> for stretch in timeline(traces, records).lanes[0]:
        ...     print(stretch.kind, stretch.begin, stretch.end)
        python 0.0 1.0
        waits 1.0 3.0
        python 3.0 4.0
    """
    known = {k: trace for k, trace in traces.items() if trace is not None}
    made = [record for record in records if record.launch.communicates]
    begins = [trace.begin for trace in known.values()] + [record.announced for record in made]
    start = min(begins, default=0.0)
    ends = [trace.end for trace in known.values()] + [record.announced for record in made]
    own: dict[int, list[LaunchRecord]] = {k: [] for k in traces}
    for record in made:
        own.setdefault(record.process, []).append(record)
    given_up = {
        (k, i): _given_up(known.get(k), records, i)
        for k, records in own.items()
        for i, record in enumerate(records)
        if record.began is None
    }
    lanes = {
        k: _lane(trace, own[k], given_up, k, start) if trace is not None else ()
        for k, trace in traces.items()
    }
    silent = {k for k, trace in traces.items() if trace is None}
    meetings = sorted(_meetings(own, given_up, silent, start), key=lambda m: (m.at, min(m.came)))
    return Timeline(max(ends, default=start) - start, lanes, tuple(meetings))


def _given_up(trace: Trace | None, records: Sequence[LaunchRecord], i: int) -> float:
    """Return when a process gave up waiting at a launch that it did not make."""
    announced = records[i].announced
    after = [record.announced for record in records[i + 1 : i + 2]]
    if trace is not None:
        after.append(trace.end)
        after += [span.begin for span in trace.compiled if span.begin > announced]
    return max(min(after, default=announced), announced)


def _lane(
    trace: Trace,
    records: Sequence[LaunchRecord],
    given_up: Mapping[tuple[int, int], float],
    process: int,
    start: float,
) -> tuple[Stretch, ...]:
    layers = [*_sampled(trace)]
    layers += [Stretch("compiles", span.begin, span.end, span.line) for span in trace.compiled]
    for i, record in enumerate(records):
        end = given_up[process, i] if record.began is None else record.began
        layers.append(Stretch("waits", record.announced, end, record.line))
    clipped = [
        Stretch(s.kind, max(s.begin, trace.begin) - start, min(s.end, trace.end) - start, s.line)
        for s in layers
    ]
    return tuple(_uppermost([s for s in clipped if s.end > s.begin]))


def _sampled(trace: Trace) -> Iterable[Stretch]:
    begin = trace.begin
    for sample in trace.samples:
        yield Stretch("computes" if sample.computes else "python", begin, sample.at, sample.line)
        begin = max(begin, sample.at)
    yield Stretch("python", begin, trace.end)


def _uppermost(layers: Sequence[Stretch]) -> Iterable[Stretch]:
    """Return the visible parts of overlapping stretches, with equal neighbours merged."""
    edges = sorted(
        [(s.begin, 1, i) for i, s in enumerate(layers)]
        + [(s.end, 0, i) for i, s in enumerate(layers)]
    )
    open_: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    shown: Stretch | None = None
    for (at, opens, i), following in itertools.pairwise(edges):
        kind = layers[i].kind
        if opens:
            open_[kind].append(i)
        else:
            open_[kind].remove(i)
        above = next((open_[kind][-1] for kind in reversed(KINDS) if open_[kind]), None)
        if above is None or following[0] == at:
            continue
        top = layers[above]
        if (
            shown is not None
            and (shown.kind, shown.line) == (top.kind, top.line)
            and shown.end == at
        ):
            shown = Stretch(shown.kind, shown.begin, following[0], shown.line)
            continue
        if shown is not None:
            yield shown
        shown = Stretch(top.kind, at, following[0], top.line)
    if shown is not None:
        yield shown


def _meetings(
    own: Mapping[int, Sequence[LaunchRecord]],
    given_up: Mapping[tuple[int, int], float],
    silent: Set[int],
    start: float,
) -> Iterable[Meeting]:
    """Match launches that processes made together: the n-th of each program on each process."""
    found: dict[tuple[str, tuple[int, ...], int], dict[int, int]] = {}
    for k, records in own.items():
        seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for i, record in enumerate(records):
            which = (record.launch.program, record.launch.participants)
            found.setdefault((*which, seen[which]), {})[k] = i
            seen[which] += 1
    for members in found.values():
        made = {k: own[k][i] for k, i in members.items()}
        began = {k: record.began for k, record in made.items() if record.began is not None}
        launch = next(iter(made.values())).launch
        present = began or made
        came = {k: record.announced for k, record in made.items()}
        gone = [given_up[k, members[k]] for k in present if k not in began]
        yield Meeting(
            launch,
            {k: record.line for k, record in made.items()},
            {k: time - start for k, time in came.items()},
            {k: time - start for k, time in began.items()},
            (max(began.values()) if began else min(gone)) - start,
            tuple(k for k in launch.participants if k not in present and k not in silent),
        )
