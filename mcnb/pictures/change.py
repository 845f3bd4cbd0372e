"""From one layout of an array to another: what has to move, and between whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mcnb.options import plural
from mcnb.pictures.devices import Device
from mcnb.pictures.layout_scene import layout_scene
from mcnb.pictures.model import Layout, Region
from mcnb.pictures.program import Use
from mcnb.pictures.scene import Grid, Scene, Table
from mcnb.report.log import size

MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class Moves:
    """What has to move.

    Attributes:
        stays: How many bytes each device has already, all together.
        moved: How many bytes go from one process to one process, which may be the same.
    """

    stays: int
    moved: tuple[tuple[tuple[int, int], int], ...]

    @property
    def between(self) -> int:
        """How many bytes go from one process to another."""
        return sum(count for (source, target), count in self.moved if source != target)

    @property
    def within(self) -> int:
        """How many bytes go from one device of a process to another."""
        return sum(count for (source, target), count in self.moved if source == target)


def moves(before: Layout, after: Layout) -> Moves:
    """Return the least that has to move.

    Each device keeps what it has. What it lacks comes from a device of its own process, where one
    has it, or else from the holders in turn.

    Args:
        before: Where the array lies.
        after: Where it shall lie; of the same shape.
    """
    own = {device: region for region in before.regions for device in region.devices}
    stays = 0
    moved: Counter[tuple[int, int]] = Counter()
    for region in after.regions:
        for turn, device in enumerate(region.devices):
            had = own.get(device)
            for source in before.regions:
                count = _common(source, region) * before.item_bytes
                if not count:
                    continue
                if had is not None and source.bounds == had.bounds:
                    stays += count
                else:
                    moved[_nearest(source.devices, device, turn), device.process] += count
    return Moves(stays, tuple(sorted(moved.items())))


def _common(one: Region, other: Region) -> int:
    """Return how many elements two regions have in common."""
    count = 1
    for (begin, end), (first, last) in zip(one.bounds, other.bounds, strict=True):
        count *= max(0, min(end, last) - max(begin, first))
    return count


def _nearest(holders: Sequence[Device], device: Device, turn: int) -> int:
    if any(holder.process == device.process for holder in holders):
        return device.process
    return holders[turn % len(holders)].process


def change_scene(
    before: Layout,
    after: Layout,
    uses: Sequence[Use] | None,
    *,
    name: str = "",
    bounds: bool = False,
    ids: bool = False,
) -> Scene:
    """Return the scene of two layouts side by side.

    Args:
        before: Where the array lies.
        after: Where it shall lie.
        uses: The collectives that XLA moves it with; None where that is not known.
        name: What the array is called.
        bounds: Whether the bounds of regions stand at the edges.
        ids: Whether devices are told by JAX's numbers for them.
    """
    found = moves(before, after)
    parts: list[Grid | Table] = []
    for title, layout in (("before", before), ("after", after)):
        for part in layout_scene(layout, bounds=bounds, ids=ids).parts:
            if isinstance(part, Grid):
                said = f"{title}: {layout.spec}" if layout.spec else title
                parts.append(replace(part, title=f"{said} {part.title}".rstrip()))
    crossing = [((s, t), count) for (s, t), count in found.moved if s != t]
    if crossing:
        rows = tuple((f"P{s}", f"P{t}", size(n)) for (s, t), n in crossing[:MOST_ROWS])
        parts.append(Table(("from", "to", "bytes"), rows, numbers=(2,)))
    shape = f"{before.dtype or 'an array'}[{','.join(map(str, before.shape))}]"
    title = f"{name}: {shape}" if name else shape
    arrow = f"{before.spec or 'as it is'} → {after.spec or 'as given'}"
    return Scene(f"{title}  {arrow}", tuple(_notes(found, uses, len(crossing))), tuple(parts))


def _notes(found: Moves, uses: Sequence[Use] | None, pairs: int) -> list[str]:
    if not found.moved:
        first = "Nothing has to move: each device has what it needs."
    else:
        first = (
            f"{size(found.between)} have to go between processes and {size(found.within)} between "
            f"devices of one; {size(found.stays)} stay where they are."
        )
    notes = [first]
    if pairs > MOST_ROWS:
        notes.append(f"{pairs - MOST_ROWS} pairs of processes more are not listed.")
    if uses is not None:
        kinds = Counter(use.operation.kind for use in uses)
        said = ", ".join(plural(n, kind, f"{kind}s") for kind, n in kinds.items())
        notes.append(f"XLA moves it with {said}." if said else "XLA needs no collective for it.")
    return notes
