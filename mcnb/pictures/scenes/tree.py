"""Build the scene of a PyTree: rows of leaves, and the bytes that each device holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mcnb._text import plural, size
from mcnb.pictures.model import Device, Layout, grouped, ranges
from mcnb.pictures.scene import Scene, Table
from mcnb.pictures.scenes.rows import merged, room, times, without_numbers

DELETED = "deleted"
# Who holds how many bytes.
_Amount: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Leaf:
    """Leaf of a PyTree.

    Attributes:
        path: PyTree path, such as `"['layers'][3].w"`.
        layout: Layout over devices; None for a leaf on the host, or a deleted one.
        what: Name of the type or `DELETED`, if the leaf has no layout.
    """

    path: str
    layout: Layout | None
    what: str = ""


def tree_scene(leaves: Sequence[Leaf], name: str = "", *, full: bool = False) -> Scene:
    """Return the scene of a PyTree.

    Args:
        leaves: The leaves, in order.
        name: The name to use in the title.
        full: Whether each leaf has a row. Otherwise, leaves that differ only in numbers share one,
            and of very many rows the first are shown.
    """
    groups = [[leaf] for leaf in leaves] if full else [*grouped(leaves, _pattern).values()]
    layouts = [leaf.layout for leaf in leaves if leaf.layout is not None]
    devices, processes = _held(layouts)
    notes = [_total(leaves, layouts)]
    lengths = [len(groups), len(devices), len(processes)]
    kept = lengths
    if not full:
        # The other lines: the title, the heads of the tables, and notes.
        others = 2 + 2 * bool(devices) + len(notes)
        kept = room(others, *lengths)
        if kept[0] < len(groups):
            kept = room(others + 1, *lengths)
            hidden = sum(map(len, groups[kept[0] :]))
            notes.append(f"More, with full=True: {plural(hidden, 'leaf', 'leaves')}.")
    rows = tuple(map(_row, groups[: kept[0]]))
    heads = ("leaf", "shape", "split", "copies", "bytes", "on each device")
    parts = [Table(heads, rows, numbers=(3, 4, 5))]
    if devices:
        parts.append(Table(("device", "holds"), _amounts(devices, kept[1]), numbers=(1,)))
        parts.append(Table(("process", "holds"), _amounts(processes, kept[2]), numbers=(1,)))
    what = plural(len(leaves), "leaf", "leaves")
    return Scene(f"{name}: {what}" if name else f"A tree of {what}", tuple(notes), tuple(parts))


def _pattern(leaf: Leaf) -> tuple[object, ...]:
    """Return what is equal for leaves that share a row."""
    layout = leaf.layout
    where: tuple[object, ...] = ()
    if layout is not None:
        held = frozenset(layout.device_bytes.items())
        where = layout.shape, layout.dtype, layout.spec, layout.copies, held
    return without_numbers(leaf.path), leaf.what, where


def _row(group: Sequence[Leaf]) -> tuple[str, ...]:
    layout = group[0].layout
    path = merged([leaf.path for leaf in group])
    if layout is None:
        where = "nowhere any more" if group[0].what == DELETED else "on the host"
        return (path, group[0].what, where, "", "", "")
    held = set(layout.device_bytes.values())
    each = size(max(held) * len(group)) if held else ""
    return (
        path,
        times(len(group), layout.kind),
        layout.spec or "on one device" if len(layout.devices) == 1 else layout.spec,
        str(layout.copies),
        size(layout.bytes * len(group)),
        each,
    )


def _total(leaves: Sequence[Leaf], layouts: Sequence[Layout]) -> str:
    whole = sum(layout.bytes for layout in layouts)
    stored = sum(sum(layout.device_bytes.values()) for layout in layouts)
    gone = sum(leaf.what == DELETED for leaf in leaves)
    host = len(leaves) - len(layouts) - gone
    copies = f", {size(stored)} on the devices, with all copies" if stored != whole else ""
    counted = f"{size(whole)} in all" + (", each number counted once" if copies else "")
    notes = [f"{counted}{copies}."] if layouts else ["No array in it."]
    if host:
        notes.append(f"{plural(host, 'leaf lies', 'leaves lie')} on the host, not counted here.")
    if gone:
        notes.append(f"{plural(gone, 'leaf has', 'leaves have')} been deleted or donated.")
    return " ".join(notes)


def _held(layouts: Iterable[Layout]) -> tuple[list[_Amount], list[_Amount]]:
    """Return how many bytes devices and processes hold, with equal amounts merged."""
    held: Counter[Device] = Counter()
    of_process: Counter[int] = Counter()
    for layout in layouts:
        for device, count in layout.device_bytes.items():
            held[device] += count
            of_process[device.process] += count
    by_amount = grouped(sorted(held), lambda device: held[device])
    devices = [(ranges(own), count) for count, own in by_amount.items()]
    processes = [
        (", ".join(f"P{process}" for process in own[:8]) + (", …" if len(own) > 8 else ""), count)
        for count, own in grouped(sorted(of_process), lambda process: of_process[process]).items()
    ]
    return devices, processes


def _amounts(rows: Sequence[_Amount], most: int) -> tuple[tuple[str, ...], ...]:
    """Return rows of who holds how many bytes, and the range of those that are one too many."""
    if len(rows) <= most:
        return tuple((who, size(count)) for who, count in rows)
    counts = [count for _, count in rows[most - 1 :]]
    last = f"{len(counts)} rows more", f"{size(min(counts))} to {size(max(counts))}"
    return (*_amounts(rows[: most - 1], most), last)
