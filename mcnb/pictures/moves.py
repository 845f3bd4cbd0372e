"""Compute and draw the data that moves between processes when an array is resharded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import jax

from mcnb._text import plural, size
from mcnb.errors import PictureError
from mcnb.pictures.inspect import layout_of, moving, shape_of
from mcnb.pictures.model import Device, Layout, Region
from mcnb.pictures.program import Use
from mcnb.pictures.scene import Grid, Scene, Table
from mcnb.pictures.scenes.layout import layout_scene

MOST_ROWS = 16
DeviceOrder: TypeAlias = Literal["same", "reordered", "other"]


@dataclass(frozen=True, slots=True)
class Moves:
    """Amount of data that moves when an array is resharded.

    Attributes:
        stays: Number of bytes that stay on their devices, in total; or of elements, if their size
            is unknown.
        moved: Number that moves, by source and target process, which may be the same.
    """

    stays: int
    moved: tuple[tuple[tuple[int, int], int], ...]

    @property
    def between(self) -> int:
        """Number of bytes that move from one process to another."""
        return sum(count for (source, target), count in self.moved if source != target)

    @property
    def within(self) -> int:
        """Number of bytes that move between devices of the same process."""
        return sum(count for (source, target), count in self.moved if source == target)


@dataclass(frozen=True, slots=True)
class Need:
    """A part of an array that a device needs after a change of layout.

    Attributes:
        bounds: Begin and end of the part in each dimension.
        device: The device that needs it.
        source: The process from which it comes; None if the device has it.
    """

    bounds: tuple[tuple[int, int], ...]
    device: Device
    source: int | None

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(end - begin for begin, end in self.bounds)


def needs(before: Layout, after: Layout) -> list[Need]:
    """Return what each device needs after a change of layout, and from where it comes.

    Each device keeps the data that it has. Missing data comes from a device of the same process if
    one holds it, and otherwise from the holders in turn. Both layouts have the same shape.
    """
    own = {device: region for region in before.regions for device in region.devices}
    found = []
    for region in after.regions:
        for turn, device in enumerate(region.devices):
            had = own.get(device)
            for source in before.regions:
                bounds = _common(source, region)
                if all(begin < end for begin, end in bounds):
                    stays = had is not None and source.bounds == had.bounds
                    nearest = None if stays else _nearest(source.devices, device, turn)
                    found.append(Need(bounds, device, nearest))
    return found


def moves(before: Layout, after: Layout) -> Moves:
    """Compute the minimum data that must move between two layouts of the same shape."""
    stays = 0
    moved: Counter[tuple[int, int]] = Counter()
    for need in needs(before, after):
        count = need.count * (before.item_bytes or 1)
        if need.source is None:
            stays += count
        else:
            moved[need.source, need.device.process] += count
    return Moves(stays, tuple(sorted(moved.items())))


def _common(one: Region, other: Region) -> tuple[tuple[int, int], ...]:
    """Return the bounds of what two regions have in common, which may be empty."""
    return tuple(
        (max(begin, first), min(end, last))
        for (begin, end), (first, last) in zip(one.bounds, other.bounds, strict=True)
    )


def _nearest(holders: Sequence[Device], device: Device, turn: int) -> int:
    if any(holder.process == device.process for holder in holders):
        return device.process
    return holders[turn % len(holders)].process


def change_scene(
    before: Layout,
    after: Layout,
    uses: Sequence[Use] | None,
    *,
    devices: DeviceOrder = "same",
    name: str = "",
    bounds: bool = False,
    ids: bool = False,
) -> Scene:
    """Return a scene with two layouts side by side, and the data that moves between them.

    `uses` are the collectives with which XLA moves the array, or None if they are unknown.
    """
    found = moves(before, after)
    parts: list[Grid | Table] = []
    for title, layout in (("before", before), ("after", after)):
        for part in layout_scene(layout, bounds=bounds, ids=ids).parts:
            if isinstance(part, Grid):
                said = f"{title}: {layout.spec}" if layout.spec else title
                parts.append(replace(part, title=f"{said} {part.title}".rstrip()))
    summed = summed_over(before, after)
    untold = summed or is_host_value(before, after)
    rows = [] if untold else _rows(found, before.item_bytes)
    if rows:
        unit = "bytes" if before.item_bytes else "elements"
        parts.append(Table(("from", "to", unit), tuple(rows[:MOST_ROWS]), numbers=(2,)))
    title = f"{name}: {before.kind}" if name else before.kind
    arrow = f"{before.spec or 'as it is'} → {after.spec or 'as given'}"
    notes = _notes(before, after, found, uses, devices)
    if len(rows) > MOST_ROWS:
        notes.insert(1, f"{len(rows) - MOST_ROWS} more pairs of processes are not listed.")
    return Scene(f"{title}  {arrow}", tuple(notes), tuple(parts))


def summed_over(before: Layout, after: Layout) -> str:
    """Return the mesh axes over which partial sums have to be added up, for a sentence, or "".

    What a device needs then is not what another one holds.
    """
    axes = [f"'{name}'" for name in before.unreduced if name not in after.unreduced]
    return " and ".join(axes)


def is_host_value(before: Layout, after: Layout) -> bool:
    """Return whether an array of one process is to be spread over several processes."""
    members = {device.process for device in before.devices}
    return len(members) == 1 and not {device.process for device in after.devices} <= members


def _rows(found: Moves, item_bytes: int) -> list[tuple[str, str, str]]:
    """Return the rows of data sent between processes; one row if all pairs send equally much."""
    crossing = [((s, t), count) for (s, t), count in found.moved if s != t]
    members = sorted({process for pair, _ in crossing for process in pair})
    amounts = {count for _, count in crossing}
    if len(amounts) == 1 and len(crossing) == len(members) * (len(members) - 1) > 2:
        return [("each", "each other", _amount(amounts.pop(), item_bytes, short=True))]
    return [(f"P{s}", f"P{t}", _amount(n, item_bytes, short=True)) for (s, t), n in crossing]


def _amount(count: int, item_bytes: int, *, short: bool = False) -> str:
    """Format an amount of data, in elements if their size is unknown."""
    if item_bytes:
        return size(count)
    return str(count) if short else plural(count, "element", "elements")


def _notes(
    before: Layout, after: Layout, found: Moves, uses: Sequence[Use] | None, devices: DeviceOrder
) -> list[str]:
    if is_host_value(before, after):
        return [
            f"An array on P{before.devices[0].process} alone is treated as a value that every "
            "process has: each process keeps its own part, and no data is sent."
        ]
    if summed := summed_over(before, after):
        notes = [
            f"Before, each device holds a partial sum over {summed}. The devices along it add up "
            "theirs, so each of them sends what it holds, or a part of it."
        ]
    elif not found.moved:
        notes = ["Nothing has to move: each device has what it needs."]
    else:
        between, within, stays = (
            _amount(count, before.item_bytes)
            for count in (found.between, found.within, found.stays)
        )
        notes = [
            f"{between} have to go between processes and {within} between devices of one process; "
            f"{stays} stay where they are."
        ]
    if devices == "other":
        notes.append(
            "The target has other devices: jax.device_put can move an array there only if it is "
            "fully addressable by one process."
        )
    if devices == "reordered" and uses is None:
        notes.append(
            "The shardings list the devices in a different order, so the collectives are not known "
            "before the move."
        )
    if uses is not None:
        kinds = Counter(use.operation.kind for use in uses)
        said = ", ".join(plural(n, kind, f"{kind}s") for kind, n in kinds.items())
        notes.append(f"XLA moves it with {said}." if said else "XLA needs no collective for it.")
    return notes


def layouts_of_change(before: Any, after: Any, more: Sequence[Any]) -> tuple[Layout, Layout]:
    """Return the layouts of an array before and after a move.

    Args:
        before: Array, `ShapeDtypeStruct` or sharding.
        after: Array, `ShapeDtypeStruct` or sharding.
        more: Shape, or an object that has one, if both are shardings.

    Raises:
        PictureError: One is neither array nor sharding, the shape is missing or ambiguous, or a
            sharding can't be applied to it.
    """
    arrays = [one for one in (before, after) if not _is_sharding(one)]
    for one in arrays:
        if not isinstance(getattr(one, "shape", None), tuple):  # that of a mesh is a mapping
            raise PictureError(
                f"A change leads from an array or a sharding to another, and {one!r} is neither. "
                "For example: mcnb.show(x, jax.NamedSharding(mesh, jax.P('x')))"
            )
    if arrays and more:
        raise PictureError(
            "An array already has a shape, so the shape must be left out: mcnb.show(x, sharding)"
        )
    if not arrays and not more:
        raise PictureError(
            "Two shardings have no shape. Pass the array's shape, too: mcnb.show(before, after, "
            "(8, 4))"
        )
    if len(more) > 1:
        raise PictureError("Two shardings take one shape: mcnb.show(before, after, (8, 4))")
    given = arrays[0] if arrays else more[0]
    shape = shape_of(given)
    dtype = getattr(given, "dtype", None)
    if len(arrays) == 2 and arrays[1].shape != shape:
        raise PictureError(
            f"The two arrays have different shapes, but a move does not change the shape: {shape} "
            f"and {arrays[1].shape}"
        )
    old, new = (
        layout_of(one, shape, dtype) if _is_sharding(one) else layout_of(one)
        for one in (before, after)
    )
    return old, new


def change_of(before: Any, after: Any, more: Sequence[Any], **options: Any) -> Scene:
    """Return the scene of an array before and after a move.

    Args:
        before: Array, `ShapeDtypeStruct` or sharding.
        after: Array, `ShapeDtypeStruct` or sharding.
        more: Shape, or an object that has one, if both are shardings.
        options: Options of `change_scene`.

    Raises:
        PictureError: The shape is missing or ambiguous, or a sharding can't be applied to it.
    """
    layouts = layouts_of_change(before, after, more)
    old, new = (getattr(one, "sharding", one) for one in (before, after))
    given = next((one for one in (before, after, *more) if not _is_sharding(one)), None)
    dtype = getattr(given, "dtype", None) or "float32"
    uses = moving(jax.ShapeDtypeStruct(layouts[0].shape, dtype, sharding=old), new)
    return change_scene(*layouts, uses, devices=_compared(old, new), **options)


def _is_sharding(one: Any) -> bool:
    return isinstance(one, jax.sharding.Sharding)


def _compared(old: Any, new: Any) -> DeviceOrder:
    if set(old.device_set) != set(new.device_set):
        return "other"
    orders = [
        list(sharding.mesh.devices.flat) if isinstance(sharding, jax.sharding.NamedSharding) else []
        for sharding in (old, new)
    ]
    return "same" if orders[0] == orders[1] else "reordered"
