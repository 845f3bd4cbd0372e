"""Build the scene of a cell with many launches: how long each step took, and who was late."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mcnb.pictures.scene import Chart, Lanes, Part, Profile, Scene, Table
from mcnb.pictures.scenes.time import doing, lines_of, seconds, time_scene
from mcnb.pictures.steps import Step
from mcnb.pictures.timeline import Timeline

MOST_MARKED = 30  # steps; the lines of more would hide the bars between them
SLOWEST = 5  # steps in the table, and at most above the chart's scale
MOST_LATE = 4  # processes of which the chart says when they were late
LEAST_LATE = 0.05  # fraction of the time of all steps but the first; others are not in the chart
COLUMNS = 72  # of a chart; the highest of several steps in a column is drawn


def loop_scene(time: Timeline, absent: Mapping[int, str], steps: Sequence[Step]) -> Scene:
    """Return the scene of a cell with a loop of many steps; see `time_scene`.

    The lines of launches that succeeded are left out. Instead, there are a chart of the steps'
    times, of the times by which the last process came later than the first, and a table of the
    slowest steps.

    Args:
        time: Timeline of the cell.
        absent: Text in the lane of each process that has nothing to show.
        steps: The steps, at least two.
    """
    scene = time_scene(time, absent)
    lanes, *others = scene.parts
    assert isinstance(lanes, Lanes)
    lanes = replace(lanes, joins=tuple(join for join in lanes.joins if not join.met))
    slowest = sorted(steps, key=lambda step: -step.seconds)[:SLOWEST]
    parts: tuple[Part, ...] = (lanes, _chart(steps), _table(time, slowest), *others)
    # The first step compiles, so that it is slow need not be looked into.
    which = max(steps[1:], key=lambda step: step.seconds).number
    more = f"One step, with its launches: %mcjax timeline --step {which}; several: --from "
    more += f"{max(which - 2, 1)} --to {min(which + 2, len(steps))}."
    return replace(scene, parts=parts, notes=(*scene.notes, more))


def steps_title(steps: Sequence[Step], first: int, last: int, *, order: bool) -> str:
    """Return the title of a picture of some steps of a loop.

    Args:
        steps: All steps of the loop.
        first: Number of the first step that is shown.
        last: Number of the last one.
        order: Whether it shows only the order of their launches.
    """
    which = f"Step {first}" if first == last else f"Steps {first} to {last}"
    if order:
        return f"{which} of {len(steps)}: the launches, in order"
    return f"{which} of {len(steps)} took {seconds(steps[last - 1].end - steps[first - 1].begin)}"


def _chart(steps: Sequence[Step]) -> Chart:
    # A usual step is half as high. The slowest, such as the first, which compiles, would make all
    # others look alike.
    took = [step.seconds for step in steps]
    top = max(2 * statistics.median(took), sorted(took)[-SLOWEST - 1 :][0]) or 1.0
    lateness: dict[int, float] = defaultdict(float)
    usual = steps[1:]  # the first one compiles
    for step in usual:
        lateness[step.last] += step.late
    whole = usual[-1].end - usual[0].begin
    worst = sorted(lateness, key=lambda k: -lateness[k])[:MOST_LATE]
    late = sorted(k for k in worst if lateness[k] >= LEAST_LATE * whole)
    profiles = [_profile("time", [(s.seconds, _told(s)) for s in steps], top)]
    for k in late:
        row = [(s.late if s.last == k else 0.0, _late(s)) for s in steps]
        profiles.append(replace(_profile(f"P{k} late", row, top), process=k))
    launch, where = steps[0].meeting.launch.brief(), lines_of(steps[0].meeting)
    at = f", {where}" if where else ""
    title = f"The time of each step, up to {seconds(top)}; a step ends with {launch}{at}"
    ticks = _ticks(len(steps))
    return Chart(title, tuple(profiles), tuple(ticks))


def _profile(label: str, values: Sequence[tuple[float, str]], top: float) -> Profile:
    """Return the highest value of each column, in units of `top`."""
    count = min(len(values), COLUMNS)
    groups = [
        values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)
    ]
    highest = [max(group, key=lambda pair: pair[0]) for group in groups]
    heights = tuple(min(value / top, 1.0) for value, _ in highest)
    return Profile(label, heights, tuple(hint for _, hint in highest))


def _ticks(count: int) -> list[tuple[float, str]]:
    """Return the ticks of the axis of steps: the first, the last and round numbers.

    Example:
        >>> [text for _, text in _ticks(340)]
        ['1', '50', '100', '150', '200', '250', '300', '340']
    """
    exact = count / 8
    power = 10 ** max(len(str(int(exact))) - 1, 0)
    round_ = next(power * part for part in (1, 2, 5, 10) if power * part >= exact)
    numbers = [1, *range(round_, count - round_ // 2, round_), count]
    columns = min(count, COLUMNS)
    # The column in which a step is drawn; see `_profile`.
    return [(((n - 1) * columns // count) / columns, str(n)) for n in dict.fromkeys(numbers)]


def _table(time: Timeline, slowest: Sequence[Step]) -> Table:
    rows = [
        (
            str(step.number),
            seconds(step.seconds),
            f"P{step.last}",
            seconds(step.late),
            doing(time.lanes.get(step.last, ()), step.begin, step.meeting.came[step.last]),
        )
        for step in slowest
    ]
    heads = ("slowest", "time", "last to come", "late by", "meanwhile")
    return Table(heads, tuple(rows), (0, 1, 3))


def _told(step: Step) -> str:
    return f"step {step.number}: {seconds(step.seconds)}"


def _late(step: Step) -> str:
    return f"step {step.number}: P{step.last} came {seconds(step.late)} after the first"
