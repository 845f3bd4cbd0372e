"""Define the contents of a picture as data: a title, notes, grids, tables, lanes and charts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from mcnb.pictures.model import Device

K = TypeVar("K")
T = TypeVar("T")
# Name of each activity of a process, and the character that represents it in text.
KINDS_OF_BARS = {
    "python": ("Python", "─"),
    "computes": ("computing", "█"),
    "compiles": ("compiling", "▒"),
    "waits": ("waiting", "·"),
}
MET, IN_VAIN, MISSED = "●", "◇", "○"
MOST_DEVICES = 64  # pictures of more devices are abbreviated
LONG = 12  # parts of one dimension; more are drawn below each other
MOST_ACROSS = 16  # columns; of more, some are left out, as a page is not wide enough
ELSEWHERE = "elsewhere"  # replaces values that a process does not hold
MOST_FACETS = 8  # grids of a picture of more devices
SHOWN = (5, 2)  # rows or columns at the start and the end of an abbreviated picture


@dataclass(frozen=True, slots=True)
class Cell:
    """Box of a grid.

    Attributes:
        processes: Indices of the processes of the box, ascending; they determine its colours.
        lines: Lines of text in the box.
        copies: Number of devices that hold the same data; more than one is drawn as stripes.
        hint: Tooltip; for those who cannot see the picture, what it says.
    """

    processes: tuple[int, ...]
    lines: tuple[str, ...]
    copies: int = 1
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """Boxes in rows and columns.

    Attributes:
        rows: Rows of boxes; None is a gap, for boxes that are left out.
        row_heads: Text before each row; empty for none.
        column_heads: Text above each column; empty for none.
        row_axis: Label of the vertical axis; empty for none.
        column_axis: Label of the horizontal axis; empty for none.
        title: Title of the grid, if there are several.
        heights: Relative heights of the rows.
        widths: Relative widths of the columns.
        shape: Rows and columns of the array of which these are the parts; empty if the boxes are no
            parts of one.
    """

    rows: tuple[tuple[Cell | None, ...], ...]
    row_heads: tuple[str, ...] = ()
    column_heads: tuple[str, ...] = ()
    row_axis: str = ""
    column_axis: str = ""
    title: str = ""
    heights: tuple[float, ...] = ()
    widths: tuple[float, ...] = ()
    shape: tuple[int, ...] = ()

    def axes(self) -> list[str]:
        """Return the labels of the axes, with arrows in their directions."""
        labels = (("↓", self.row_axis), ("→", self.column_axis))
        return [f"{arrow} {label}" for arrow, label in labels if label]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; columns whose indices are in `numbers` are right-aligned."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """Interval of a lane.

    Attributes:
        kind: One of `KINDS_OF_BARS`.
        begin: Start, as a fraction of the lane's length.
        end: End, as a fraction of the lane's length.
        texts: Alternative texts of the bar; the first that fits is drawn.
    """

    kind: str
    begin: float
    end: float
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """Activity of a process: bars in order and without overlap, or a note if there are none."""

    process: int
    bars: tuple[Bar, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """Vertical line at which processes meet.

    Attributes:
        at: Position, as a fraction of the lanes' length.
        present: Processes that meet.
        missing: Participants that are missing, drawn as rings in their lanes.
        label: Text above the line, if there is room.
        met: Whether the processes went on together; otherwise they arrived in vain.
        came: Position at which each present process arrived, if the processes arrived in vain.
    """

    at: float
    present: tuple[int, ...]
    missing: tuple[int, ...] = ()
    label: str = ""
    met: bool = True
    came: tuple[float, ...] = ()

    def place(self, process: int) -> float:
        """Return the position of the mark of a process."""
        if self.came and process in self.present:
            return self.came[self.present.index(process)]
        return self.at


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes below each other, and the lines at which processes meet, from left to right.

    The ticks below the lanes are positions, as fractions of the lanes' length, and texts.
    """

    lanes: tuple[Lane, ...]
    joins: tuple[Join, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """Row of a chart: heights from left to right.

    Attributes:
        label: Text before the row.
        heights: The heights, 0 to 1.
        hints: Tooltip of each height.
        process: Process whose colour the row has; None for a neutral one.
    """

    label: str
    heights: tuple[float, ...]
    hints: tuple[str, ...] = ()
    process: int | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Profiles of equal width below each other.

    The ticks below them are positions, as fractions of the width, and texts.
    """

    title: str
    profiles: tuple[Profile, ...]
    ticks: tuple[tuple[float, str], ...] = ()


Part: TypeAlias = Grid | Table | Lanes | Chart


@dataclass(frozen=True, slots=True)
class Scene:
    """Contents of a picture: parts side by side if there is room, and notes below them."""

    title: str
    notes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


def columns(intervals: Iterable[tuple[K, float, float]], count: int) -> list[K | None]:
    """Divide a lane into columns, and return what fills most of each; None if most is empty.

    Args:
        intervals: What fills an interval, and its begin and end as fractions of the lane.
        count: Number of columns.

    Example:
        >>> columns([("a", 0.0, 0.4), ("b", 0.4, 0.7)], 4)
        ['a', 'a', 'b', None]
    """
    shares: list[dict[K, float]] = [defaultdict(float) for _ in range(count)]
    for what, begin, end in intervals:
        first, last = begin * count, end * count
        for c in range(int(first), min(int(last) + 1, count)):
            shares[c][what] += min(last, c + 1) - max(first, c)
    return [max(own, key=own.__getitem__) if sum(own.values()) > 0.5 else None for own in shares]


def elided(things: Sequence[T], large: bool) -> list[T | Literal["…"]]:
    """Return the rows or columns to show: if there are very many, the first and the last.

    Args:
        things: All rows or columns.
        large: Whether there are too many: the picture has more than `MOST_DEVICES` devices, or the
            columns are more than `MOST_ACROSS`.

    Example:
        >>> elided(range(64), large=False) == list(range(64)), elided(range(64), large=True)
        (True, [0, 1, 2, 3, 4, '…', 62, 63])
    """
    first, last = SHOWN
    if not large or len(things) <= first + last + 1:
        return list(things)
    return [*things[:first], "…", *things[-last:]]


def most_facets(devices: int) -> int:
    """Return the maximum number of grids in a picture of that many devices."""
    return MOST_FACETS if devices > MOST_DEVICES else MOST_DEVICES


def label_lines(devices: tuple[Device, ...], most: int) -> tuple[str, ...]:
    """Return the names of devices as lines of a box, by process, at most `most` on a line."""
    lines: list[list[Device]] = []
    for device in sorted(devices):
        last = lines[-1] if lines else []
        if last and len(last) < most and (last[-1].process == device.process or most > 4):
            last.append(device)
        else:
            lines.append([device])
    return tuple(" ".join(map(str, line)) for line in lines)
