"""Find the steps of a loop in a cell's timeline, and cut out the time of some of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from mcnb.errors import PictureError
from mcnb.pictures.timeline import Meeting, Timeline


@dataclass(frozen=True, slots=True)
class Step:
    """A round of a loop, which ends when all participants have made its launch.

    Attributes:
        number: Number of the step, from 1.
        begin: When the step before it ended, in seconds since the cell began.
        meeting: The launch with which it ends.
    """

    number: int
    begin: float
    meeting: Meeting

    @property
    def end(self) -> float:
        """When all participants had launched, in seconds since the cell began."""
        return self.meeting.at

    @property
    def seconds(self) -> float:
        """How long the step took."""
        return self.end - self.begin

    @property
    def last(self) -> int:
        """The process that came last to the step's launch."""
        came = self.meeting.came
        return max(came, key=lambda k: came[k])

    @property
    def late(self) -> float:
        """How much later the last process came than the first, in seconds."""
        came = self.meeting.came.values()
        return max(came) - min(came)


def steps_of(time: Timeline) -> tuple[Step, ...]:
    """Return the steps of a cell's loop.

    The launch that processes made together most often is the one that ends a step; of several, the
    first. The first step begins with the launch before it, if there was one.

    Args:
        time: Timeline of the cell.

    Returns:
        The steps in order; none if no launch was made twice.
    """
    met = [m for m in time.meetings if m.met]
    counts = Counter((m.launch.program, m.launch.participants) for m in met)
    (which, times) = max(counts.items(), key=lambda item: item[1], default=(None, 0))
    if times < 2:
        return ()
    ends = [m for m in met if (m.launch.program, m.launch.participants) == which]
    before = [m.at for m in met if m.at < ends[0].at]
    begins = [max(before, default=0.0), *(m.at for m in ends)]
    return tuple(Step(i, begins[i - 1], m) for i, m in enumerate(ends, 1))


def between(time: Timeline, first: int, last: int) -> Timeline:
    """Return the part of a timeline in which some steps of the cell's loop were made.

    Args:
        time: Timeline of the cell.
        first: Number of the first step, from 1.
        last: Number of the last one.

    Raises:
        PictureError: There is no loop, or it has no such steps.
    """
    steps = steps_of(time)
    if not steps:
        raise PictureError(
            "The cell has no steps: no launch that spans processes was made more than once"
        )
    if not 1 <= first <= last <= len(steps):
        asked = f"no step {first}" if first == last else f"no steps {first} to {last}"
        raise PictureError(
            f"The cell has {asked}: its steps are 1 to {len(steps)}, each with "
            f"{steps[0].meeting.launch.brief()}"
        )
    begin, end = steps[first - 1].begin, steps[last - 1].end
    return cut(time, begin, end)


def cut(time: Timeline, begin: float, end: float) -> Timeline:
    """Return the part of a timeline between two times, in seconds since the cell began.

    Example:
        >>> from mcnb.pictures.timeline import Stretch
        >>> lane = Stretch("python", 0.0, 2.0), Stretch("waits", 2.0, 4.0)
        >>> cut(Timeline(4.0, {0: lane}, ()), 1.0, 3.0).lanes[0][1]
        Stretch(kind='waits', begin=1.0, end=2.0, line=None)
    """
    lanes = {
        k: tuple(
            replace(s, begin=max(s.begin, begin) - begin, end=min(s.end, end) - begin)
            for s in lane
            if s.end > begin and s.begin < end
        )
        for k, lane in time.lanes.items()
    }
    meetings = tuple(_moved(m, begin) for m in time.meetings if begin < m.at <= end)
    return Timeline(end - begin, lanes, meetings)


def _moved(m: Meeting, begin: float) -> Meeting:
    """Return a meeting with times since `begin`; who came earlier, came then."""
    return replace(
        m,
        came={k: max(at - begin, 0.0) for k, at in m.came.items()},
        went={k: at - begin for k, at in m.went.items()},
        at=m.at - begin,
    )
