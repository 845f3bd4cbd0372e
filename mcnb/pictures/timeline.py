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
# A launch, and the time until which its process waited.
Wait: TypeAlias = tuple[LaunchRecord, float]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Interval in which a process did one thing, in seconds since the cell began.

    A process that `waits` does so for other processes. The line is None if it is unknown.
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
    """Timeline of a cell: its length in seconds, and lanes and meetings in order of time.

    The lane of a process that no longer responded is empty.
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
    known = [trace for trace in traces.values() if trace is not None]
    own: dict[int, list[LaunchRecord]] = {k: [] for k in traces}
    times = []
    for record in records:
        if record.launch.communicates:
            own.setdefault(record.process, []).append(record)
            times.append(record.announced)
    start = min([*times, *(trace.begin for trace in known)], default=0.0)
    end = max([*times, *(trace.end for trace in known)], default=start)
    waits = {
        k: [(record, _until(traces.get(k), made, i)) for i, record in enumerate(made)]
        for k, made in own.items()
    }
    lanes = {
        k: _lane(trace, waits[k], start) if trace is not None else () for k, trace in traces.items()
    }
    silent = {k for k, trace in traces.items() if trace is None}
    meetings = sorted(_meetings(waits, silent, start), key=lambda m: (m.at, min(m.came)))
    return Timeline(end - start, lanes, tuple(meetings))


def _until(trace: Trace | None, records: Sequence[LaunchRecord], i: int) -> float:
    """Return when a process began a launch, or else when it gave up waiting."""
    announced, began = records[i].announced, records[i].began
    if began is not None:
        return began
    after = [record.announced for record in records[i + 1 : i + 2]]
    if trace is not None:
        after.append(trace.end)
        after += [span.begin for span in trace.compiled if span.begin > announced]
    return max(min(after, default=announced), announced)


def _lane(trace: Trace, waits: Iterable[Wait], start: float) -> tuple[Stretch, ...]:
    layers = [*_sampled(trace)]
    layers += [Stretch("compiles", span.begin, span.end, span.line) for span in trace.compiled]
    layers += [Stretch("waits", wait.announced, until, wait.line) for wait, until in waits]
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
        if shown is not None and (shown.kind, shown.line, shown.end) == (top.kind, top.line, at):
            shown = Stretch(shown.kind, shown.begin, following[0], shown.line)
            continue
        if shown is not None:
            yield shown
        shown = Stretch(top.kind, at, following[0], top.line)
    if shown is not None:
        yield shown


def _meetings(
    waits: Mapping[int, Sequence[Wait]], silent: Set[int], start: float
) -> Iterable[Meeting]:
    """Match launches that processes made together: the n-th of each program on each process."""
    found: dict[tuple[str, tuple[int, ...], int], dict[int, Wait]] = {}
    for k, own in waits.items():
        seen: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for record, until in own:
            which = (record.launch.program, record.launch.participants)
            found.setdefault((*which, seen[which]), {})[k] = record, until
            seen[which] += 1
    for members in found.values():
        made = {k: record for k, (record, _) in members.items()}
        began = {k: record.began for k, record in made.items() if record.began is not None}
        launch = next(iter(made.values())).launch
        present = began or made
        at = max(began.values()) if began else min(until for _, until in members.values())
        yield Meeting(
            launch,
            {k: record.line for k, record in made.items()},
            {k: record.announced - start for k, record in made.items()},
            {k: time - start for k, time in began.items()},
            at - start,
            tuple(k for k in launch.participants if k not in present and k not in silent),
        )
