"""What is drawn, however it is drawn: a title, notes, and grids and tables of plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from mcnb.pictures.model import Device


@dataclass(frozen=True, slots=True)
class Cell:
    """A box of a grid.

    Attributes:
        processes: The processes that it belongs to, ascending; they give it its colours.
        lines: What stands in it.
        copies: On how many devices the same lies; more than one is drawn as stripes.
    """

    processes: tuple[int, ...]
    lines: tuple[str, ...]
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Grid:
    """Boxes in rows and columns.

    Attributes:
        rows: The boxes; None is a gap, for what is left out.
        row_heads: What stands before each row; empty for nothing.
        column_heads: What stands above each column; empty for nothing.
        row_axis: What runs downwards; empty for nothing.
        column_axis: What runs to the right.
        title: What the grid is, where there are several.
        heights: How high each row is, in relation to the others.
        widths: How wide each column is, in relation to the others.
    """

    rows: tuple[tuple[Cell | None, ...], ...]
    row_heads: tuple[str, ...] = ()
    column_heads: tuple[str, ...] = ()
    row_axis: str = ""
    column_axis: str = ""
    title: str = ""
    heights: tuple[float, ...] = ()
    widths: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text.

    Attributes:
        heads: The columns' heads.
        rows: The rows.
        numbers: Which columns hold numbers, which stand on the right.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a lane.

    Attributes:
        kind: One of `KINDS_OF_BARS`.
        begin: Where it begins, in parts of the lane's length.
        end: Where it ends.
        texts: What may stand in it; the first that fits is taken.
    """

    kind: str
    begin: float
    end: float
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """What a process did, from left to right.

    Attributes:
        process: The process's index.
        bars: Its stretches, in their order; none overlap.
        note: What stands in it where there are no bars.
    """

    process: int
    bars: tuple[Bar, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """An upright line at which processes meet.

    Attributes:
        at: Where it stands, in parts of the lanes' length.
        present: The processes that meet.
        missing: Those that should have; a hole in their lanes.
        label: What stands above it, where there is room.
        met: Whether they went on from there together; otherwise they came in vain.
        came: Where each that is present came, for those that came in vain.
    """

    at: float
    present: tuple[int, ...]
    missing: tuple[int, ...] = ()
    label: str = ""
    met: bool = True
    came: tuple[float, ...] = ()

    def place(self, process: int) -> float:
        """Return where the mark of a process stands."""
        if self.came and process in self.present:
            return self.came[self.present.index(process)]
        return self.at


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes below each other, and where processes meet.

    Attributes:
        lanes: The lanes.
        joins: Where they meet, from left to right.
        ticks: What stands below: places in parts of the length, and texts.
    """

    lanes: tuple[Lane, ...]
    joins: tuple[Join, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()


Part: TypeAlias = Grid | Table | Lanes
T = TypeVar("T")
# What a process does, as people read it, and the character that stands for it in text.
KINDS_OF_BARS = {
    "python": ("Python", "─"),
    "computes": ("computing", "█"),
    "compiles": ("compiling", "▒"),
    "waits": ("waiting", "·"),
}
MET, IN_VAIN, MISSED = "●", "◇", "○"
MOST_DEVICES = 64  # with more, what is alike is told once
ELSEWHERE = "elsewhere"  # stands for values that a process does not hold
SHOWN = (5, 2)  # at the beginning and the end, then


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture.

    Attributes:
        title: What it shows.
        notes: Sentences below it.
        parts: What is drawn, side by side where there is room.
    """

    title: str
    notes: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


def elided(things: Sequence[T], large: bool) -> list[T | Literal["…"]]:
    """Return what is shown of rows or columns: where there are very many, the first and the last.

    Args:
        things: What there is.
        large: Whether the picture has more than `MOST_DEVICES` devices.

    Example:
        >>> elided(range(64), large=False) == list(range(64)), elided(range(64), large=True)
        (True, [0, 1, 2, 3, 4, '…', 62, 63])
    """
    first, last = SHOWN
    if not large or len(things) <= first + last + 1:
        return list(things)
    return [*things[:first], "…", *things[-last:]]


def label_lines(devices: tuple[Device, ...], most: int) -> tuple[str, ...]:
    """Return devices' names as the lines of a box: those of a process stand together.

    Args:
        devices: The devices.
        most: How many names a line may have.
    """
    lines: list[list[Device]] = []
    for device in sorted(devices):
        last = lines[-1] if lines else []
        if last and len(last) < most and (last[-1].process == device.process or most > 4):
            last.append(device)
        else:
            lines.append([device])
    return tuple(" ".join(map(str, line)) for line in lines)
