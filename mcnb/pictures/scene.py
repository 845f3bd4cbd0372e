"""What is drawn, however it is drawn: a title, notes, and grids and tables of plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from mcnb.pictures.devices import Device


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


Part: TypeAlias = Grid | Table
T = TypeVar("T")
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
