"""Build the scenes of a cell's timeline: to scale, or only the order of its launches."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from mcnb._text import plural
from mcnb.pictures.model import grouped, process_ranges
from mcnb.pictures.scene import KINDS_OF_BARS, Bar, Join, Lane, Lanes, Part, Scene, Table, columns
from mcnb.pictures.timeline import KINDS, Kind, Meeting, Stretch, Timeline

MOST_LANES = 64
MOST_ROWS = 12
LEAST_LATE = 0.1  # fraction of the cell's time; a process that delays others longer is reported
LEAST_DONE = 0.2  # fraction of a wait; longer activities of the delaying process are reported
# Columns of a lane; anything shorter than one is not visible. Many lanes have fewer, as each bar of
# theirs needs some bytes on the page.
COLUMNS, FEWEST_COLUMNS, MOST_COLUMNS = 400, 60, 6000
MOST_STEPS = 24
LAST_STEPS = 6  # the last steps among these, which show how the cell ended
LONGEST_PATTERN = 12  # steps; a repeated pattern of at most this length is drawn once


def time_scene(time: Timeline, absent: Mapping[int, str]) -> Scene:
    """Return the scene of a cell's timeline, to scale.

    Args:
        time: Timeline of the cell.
        absent: Text in the lane of each process that has nothing to show.
    """
    length = time.length or 1.0
    everybody = sorted({*time.lanes, *absent})
    count = min(COLUMNS, max(MOST_COLUMNS // max(len(everybody), 1), FEWEST_COLUMNS))
    lanes = [
        Lane(k, tuple(_bars(time.lanes.get(k, ()), length, count)), absent.get(k, ""))
        for k in everybody
    ]
    notes = [*_latecomer(time), *_in_vain(time), *_remarks(time)]
    if len(lanes) > MOST_LANES:
        notes.append(f"{MOST_LANES} of {len(lanes)} lanes are drawn.")
    repeated = grouped(time.meetings, lambda m: (str(m.launch), lines_of(m), m.present, m.missing))
    groups = list(repeated.values())
    if len(groups) > MOST_ROWS:
        notes.append(f"{MOST_ROWS} of {len(groups)} launches are in the table.")
    parts: list[Part] = [
        Lanes(tuple(lanes[:MOST_LANES]), _joins(time), tuple(_ticks(length))),
        _times(time),
    ]
    if groups:
        parts.append(_waits(groups[:MOST_ROWS]))
    who = plural(len(time.lanes), "process", "processes")
    return Scene(f"The cell took {seconds(time.length)} on {who}", tuple(notes), tuple(parts))


def seconds(amount: float) -> str:
    """Format a time with useful precision.

    Args:
        amount: Time in seconds.

    Example:
        >>> [seconds(amount) for amount in (0.0, 0.000437, 0.0437, 0.4371, 1.437, 143.7)]
        ['0 ms', '0.4 ms', '44 ms', '437 ms', '1.44 s', '144 s']
    """
    if round(amount * 1e4) == 0:
        return "0 ms"
    if amount < 0.9995:
        thousandths = amount * 1e3
        return f"{thousandths:.1f} ms" if thousandths < 9.95 else f"{thousandths:.0f} ms"
    return f"{amount:.2f} s" if amount < 9.995 else f"{amount:.3g} s"


def line_numbers(m: Meeting) -> str:
    """Return the numbers of the cell's lines from which processes launch, ascending."""
    return ", ".join(map(str, sorted({line for line in m.lines.values() if line is not None})))


def lines_of(m: Meeting) -> str:
    """Name the lines of the cell from which processes launch; empty if unknown."""
    numbers = line_numbers(m)
    return numbers and f"{'lines' if ',' in numbers else 'line'} {numbers}"


def _bars(stretches: Sequence[Stretch], length: float, count: int) -> Iterable[Bar]:
    """Return bars of the activities of a process, with anything shorter than a column left out."""
    parts = (((s.kind, s.line), s.begin / length, s.end / length) for s in stretches)
    begin = 0
    for most, run in itertools.groupby(columns(parts, count)):
        end = begin + len(list(run))
        if most is not None:  # a column that is mostly empty is at an end of the lane
            kind, line = most
            name = KINDS_OF_BARS[kind][0]
            texts = (name,) if line is None else (f"{name}, line {line}", f"line {line}")
            yield Bar(kind, begin / count, end / count, texts)
        begin = end


def _joins(time: Timeline) -> tuple[Join, ...]:
    """Return the lines at which processes met; those too close to distinguish are merged."""
    length = time.length or 1.0
    joins: dict[tuple[object, ...], Join] = {}
    for m in time.meetings:
        if m.met:
            at = m.at / length
            joins.setdefault((int(at * COLUMNS), m.present), *joins_at(at, [m]))
    vain = [m for m in time.meetings if not m.launched]
    parted = joins_at(min((m.at for m in vain), default=0.0) / length, vain, length)
    ahead = [m for m in time.meetings if m.launched and not m.met]
    alone = [join for m in ahead for join in joins_at(m.at / length, [m], length)]
    return (*joins.values(), *parted, *alone)


def joins_at(at: float, meetings: Sequence[Meeting], length: float = 0.0) -> list[Join]:
    """Return the lines that represent meetings at one position.

    Args:
        at: Position, as a fraction of the lanes' length.
        meetings: Meetings to draw.
        length: Duration of the cell in seconds, to mark where each process arrived in vain; 0 to
            put all marks at `at`.
    """
    # A process that waits at another launch is not missing.
    elsewhere = {k for m in meetings if not m.met for k in m.present}
    lines = dict.fromkeys(filter(None, map(lines_of, meetings)))
    label = (", " if all(m.met for m in meetings) else " ≠ ").join(lines)
    return [
        Join(
            at,
            m.present,
            tuple(k for k in m.missing if k not in elsewhere),
            label,
            m.met,
            tuple(m.came[k] / length for k in m.present) if length and not m.met else (),
        )
        for m in meetings
    ]


def _ticks(length: float) -> Iterable[tuple[float, str]]:
    """Return the ticks of the time axis: three to nine round times."""
    step = 10.0 ** math.floor(math.log10(length))
    step = next(step * part for part in (0.2, 0.5, 1.0, 2.0) if length / (step * part) <= 8)
    for i in range(int(length / step + 1e-6) + 1):  # 0.3 / 0.1 is less than 3
        yield i * step / length, seconds(i * step) if i else "0"


def _latecomer(time: Timeline) -> Iterable[str]:
    """Report the process that the others waited for longest, and its activity meanwhile."""
    m = max((m for m in time.meetings if m.met), key=_lateness, default=None)
    if m is None or _lateness(m) < LEAST_LATE * time.length:
        return
    waited = max(map(m.waited, m.came))
    last = max(m.came, key=lambda k: m.came[k])
    at = f"At {lines_of(m)}, others" if lines_of(m) else "Others"
    meanwhile = doing(time.lanes.get(last, ()), min(m.came.values()), m.came[last])
    which = f", which was {meanwhile}" if meanwhile else ""
    yield f"{at} waited up to {seconds(waited)} for P{last}{which}."


def _lateness(m: Meeting) -> float:
    return max(m.came.values()) - min(m.came.values())


def doing(lane: Sequence[Stretch], begin: float, end: float) -> str:
    """Describe the main activities of a process in an interval, in order; empty if unknown.

    Args:
        lane: What the process did.
        begin: Begin of the interval, in seconds since the cell began.
        end: Its end.
    """
    during: dict[tuple[Kind, int | None], float] = defaultdict(float)
    for s in lane:
        share = min(s.end, end) - max(s.begin, begin)
        if share > 0:
            during[s.kind, s.line] += share
    said = []
    for (kind, line), share in during.items():
        if share >= LEAST_DONE * (end - begin):
            name = "in Python" if kind == "python" else KINDS_OF_BARS[kind][0]
            said.append(name if line is None else f"{name} at line {line}")
    return ", then ".join(said)


def _in_vain(time: Timeline) -> Iterable[str]:
    """Report processes that waited in vain, or launched without others."""
    for m in [m for m in time.meetings if not m.met][:MOST_ROWS]:
        where = f" at {lines_of(m)}" if lines_of(m) else ""
        who, missing = process_ranges(m.present), process_ranges(m.missing)
        if m.launched:
            yield f"{who} went ahead{where} without {missing}."
        elif m.missing:
            yield f"{who} waited{where} in vain for {missing}."
        else:
            yield f"{who} gave up{where}."


def _remarks(time: Timeline) -> Iterable[str]:
    if not time.meetings:
        yield "Nothing was launched that spans processes."
    if any(s.kind == "computes" for lane in time.lanes.values() for s in lane):
        yield (
            "Computing: Python waits for a result. Computations are not shown while Python goes on."
        )


def _times(time: Timeline) -> Table:
    rows = []
    for k, stretches in sorted(time.lanes.items())[:MOST_LANES]:
        sums = [sum(s.end - s.begin for s in stretches if s.kind == kind) for kind in KINDS]
        rows.append((f"P{k}", *map(seconds, sums)) if stretches else (f"P{k}", *[""] * len(KINDS)))
    heads = ("process", *(KINDS_OF_BARS[kind][0] for kind in KINDS))
    return Table(heads, tuple(rows), tuple(range(1, len(heads))))


def _waits(groups: Sequence[Sequence[Meeting]]) -> Table:
    rows = []
    for group in groups:
        waits = [(m.waited(k), k) for m in group if not m.launched or m.met for k in m.present]
        longest, who = max(waits, key=lambda pair: pair[0], default=(0.0, -1))
        late = max(group, key=_lateness)
        last = max(late.came, key=lambda k: late.came[k])
        rows.append(
            (
                line_numbers(group[0]),
                group[0].launch.brief(),
                str(len(group)),
                f"P{who}, {seconds(longest)}" if waits else "",
                f"{process_ranges(late.missing)} never" if late.missing else f"P{last}",
            )
        )
    return Table(("line", "launch", "times", "longest wait", "last to come"), tuple(rows), (2,))


@dataclass(frozen=True, slots=True)
class Step:
    """Meetings that are drawn above each other, several times if they are part of a pattern."""

    meetings: tuple[Meeting, ...]
    times: int = 1


def order_scene(time: Timeline, absent: Mapping[int, str]) -> Scene:
    """Return the scene of the order in which processes launched; see `time_scene`."""
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
            who = process_ranges(m.present), process_ranges(m.missing)
            rows.append((line_numbers(m), m.launch.brief(), str(step.times), *who))
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
    """Group meetings into columns.

    A meeting directly follows the last earlier meeting of any of its processes, in each process's
    own order. Differences between clocks and the times of giving up have no influence.
    """
    own = {
        k: deque(sorted((m for m in meetings if k in m.came), key=lambda m: m.came[k]))
        for k in sorted({k for m in meetings for k in m.came})
    }
    columns: list[list[Meeting]] = []
    placed: set[int] = set()
    while queues := [queue for queue in own.values() if queue]:
        # In a cycle of waits, no meeting was first; take that of the lowest process.
        heads = {id(queue[0]): queue[0] for queue in queues}.values()
        column = [m for m in heads if all(own[k][0] is m for k in m.came)] or [queues[0][0]]
        columns.append(sorted(column, key=lambda m: (m.present, m.missing, str(m.launch))))
        placed.update(id(m) for m in column)
        for queue in queues:
            while queue and id(queue[0]) in placed:
                queue.popleft()
    return columns


def _folded(columns: Sequence[Sequence[Meeting]]) -> list[Step]:
    """Merge columns that repeat, alone or as a pattern of several, into steps."""
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
