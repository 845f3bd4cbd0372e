"""A cell's time as a scene, to scale: a lane for each process, joined where processes meet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from mcnb.options import plural
from mcnb.pictures.devices import process_ranges
from mcnb.pictures.scene import KINDS_OF_BARS, Bar, Join, Lane, Lanes, Part, Scene, Table
from mcnb.pictures.timeline import KINDS, Kind, Meeting, Stretch, Timeline

MOST_LANES = 64
MOST_ROWS = 12
LEAST_LATE = 0.1  # of the cell: who has others wait for longer is named
COLUMNS = 400  # into so many columns a lane is cut: what is shorter than one can't be seen


def time_scene(time: Timeline, absent: Mapping[int, str]) -> Scene:
    """Return the scene of a cell's time.

    Args:
        time: What the processes did.
        absent: What stands in the lanes of processes that have nothing to show.
    """
    length = time.length or 1.0
    lanes = [
        Lane(k, tuple(_bars(time.lanes.get(k, ()), length)), absent.get(k, ""))
        for k in sorted({*time.lanes, *absent})
    ]
    notes = [*_latecomer(time), *_in_vain(time)]
    if len(lanes) > MOST_LANES:
        notes.append(f"{MOST_LANES} of {len(lanes)} lanes are drawn.")
    groups = grouped(time.meetings)
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
    """Return a time in words, as exactly as it is of use.

    Args:
        amount: The time in seconds.

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


def lines_of(meetings: Iterable[Meeting]) -> str:
    """Return the lines of the cell at which processes launch something, in words."""
    lines = sorted({line for m in meetings for line in m.lines.values() if line is not None})
    if not lines:
        return ""
    return ("line " if len(lines) == 1 else "lines ") + ", ".join(map(str, lines))


def grouped(meetings: Iterable[Meeting]) -> list[list[Meeting]]:
    """Return meetings that repeat each other together, those first that came first."""
    groups: dict[tuple[str, str, tuple[int, ...], tuple[int, ...]], list[Meeting]] = {}
    for m in meetings:
        groups.setdefault((str(m.launch), lines_of([m]), m.present, m.missing), []).append(m)
    return list(groups.values())


def _bars(stretches: Sequence[Stretch], length: float) -> Iterable[Bar]:
    """Cut a lane into columns, and tell of each what most of it is."""
    columns: list[dict[tuple[Kind, int | None], float]] = [{} for _ in range(COLUMNS)]
    for stretch in stretches:
        what = (stretch.kind, stretch.line)
        begin, end = stretch.begin / length * COLUMNS, stretch.end / length * COLUMNS
        for c in range(min(int(begin), COLUMNS - 1), min(math.ceil(end), COLUMNS)):
            share = min(end, c + 1) - max(begin, c)
            columns[c][what] = columns[c].get(what, 0.0) + share
    runs: list[tuple[tuple[Kind, int | None] | None, int]] = []
    for c, shares in enumerate(columns):
        # A column in which nothing happened for most of its time is the lane's end.
        most = max(shares, key=lambda what: shares[what]) if sum(shares.values()) > 0.5 else None
        if not runs or runs[-1][0] != most:
            runs.append((most, c))
    for (most, begin), (_, end) in zip(runs, [*runs[1:], (None, COLUMNS)], strict=True):
        if most is not None:
            kind, line = most
            name = KINDS_OF_BARS[kind][0]
            texts = (name,) if line is None else (f"{name}, line {line}", f"line {line}")
            yield Bar(kind, begin / COLUMNS, end / COLUMNS, texts)


def _joins(time: Timeline) -> tuple[Join, ...]:
    """Return where processes met; what can't be told apart is drawn once."""
    length = time.length or 1.0
    joins: dict[tuple[object, ...], Join] = {}
    for m in time.meetings:
        if m.launched:
            at = m.at / length
            joins.setdefault((int(at * COLUMNS), m.present, m.missing), *joins_at(at, [m]))
    vain = [m for m in time.meetings if not m.launched]
    end = max((m.at for m in vain), default=0.0)
    return (*joins.values(), *joins_at(end / length, vain))


def joins_at(at: float, meetings: Sequence[Meeting]) -> list[Join]:
    """Return how meetings are drawn at one place."""
    # Who stands at another launch is not away.
    elsewhere = {k for m in meetings if not m.launched for k in m.present}
    lines = dict.fromkeys(filter(None, (lines_of([m]) for m in meetings)))
    label = (", " if all(m.launched for m in meetings) else " ≠ ").join(lines)
    return [
        Join(at, m.present, tuple(k for k in m.missing if k not in elsewhere), label, m.launched)
        for m in meetings
    ]


def _ticks(length: float) -> Iterable[tuple[float, str]]:
    """Return three to nine round times."""
    step = 10.0 ** math.floor(math.log10(length))
    step = next(step * part for part in (0.2, 0.5, 1.0, 2.0) if length / (step * part) <= 8)
    for i in range(int(length / step) + 1):
        yield i * step / length, seconds(i * step) if i else "0"


def _latecomer(time: Timeline) -> Iterable[str]:
    """Say for whom the others waited longest, and what it did meanwhile."""
    late = [(max(m.came.values()) - min(m.came.values()), m) for m in time.meetings if m.launched]
    waited, m = max(late, key=lambda pair: pair[0], default=(0.0, None))
    if m is None or waited < LEAST_LATE * time.length:
        return
    last = max(m.came, key=lambda k: m.came[k])
    began, came = min(m.came.values()), m.came[last]
    during: dict[tuple[Kind, int | None], float] = {}
    for s in time.lanes.get(last, ()):
        share = min(s.end, came) - max(s.begin, began)
        if share > 0:
            during[s.kind, s.line] = during.get((s.kind, s.line), 0.0) + share
    doing = ""
    if during:
        kind, line = max(during, key=lambda what: during[what])
        name = KINDS_OF_BARS[kind][0]
        at = "" if line is None else f" at line {line}"
        doing = f", which was {'in Python' if kind == 'python' else name}{at}"
    where = lines_of([m])
    yield (
        f"{f'At {where}, others' if where else 'Others'} waited up to {seconds(waited)} "
        f"for P{last}{doing}."
    )


def _in_vain(time: Timeline) -> Iterable[str]:
    """Say who waited for whom in vain."""
    for m in [m for m in time.meetings if not m.launched][:MOST_ROWS]:
        where = lines_of([m])
        at = f" at {where}" if where else ""
        yield (
            f"{process_ranges(m.present)} waited{at} in vain for {process_ranges(m.missing)}."
            if m.missing
            else f"{process_ranges(m.present)} gave up{at}."
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
        waited = [(m.at - min(m.came[k] for k in m.present), m) for m in group]
        longest, which = max(waited, key=lambda pair: pair[0])
        first = [k for k in which.present if which.came[k] == min(which.came.values())]
        last = max(which.came, key=lambda k: which.came[k])
        came_last = f"P{last}" if not which.missing else f"{process_ranges(which.missing)} never"
        rows.append(
            (
                lines_of(group).removeprefix("lines ").removeprefix("line "),
                str(group[0].launch),
                str(len(group)),
                f"P{first[0]}, {seconds(longest)}" if first else seconds(longest),
                came_last,
            )
        )
    return Table(("line", "launch", "times", "longest wait", "last to come"), tuple(rows), (2,))
