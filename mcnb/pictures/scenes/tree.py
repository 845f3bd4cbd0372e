"""Build the scene of a PyTree: rows of leaves, and the bytes that each device holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mcnb._text import index_ranges, plural, size
from mcnb.pictures.model import Device, Layout, grouped, ranges
from mcnb.pictures.scene import Scene, Table

MOST_ROWS = 40
DELETED = "deleted"
MOST_HOLDERS = 20
LONGEST_SPAN = 16  # characters


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


def tree_scene(leaves: Sequence[Leaf], name: str = "") -> Scene:
    """Return the scene of a PyTree, with one row for leaves that differ only in numbers."""
    rows = [_row(group) for group in grouped(leaves, _pattern).values()]
    shown = rows[:MOST_ROWS]
    layouts = [leaf.layout for leaf in leaves if leaf.layout is not None]
    notes = [_total(leaves, layouts)]
    if len(rows) > MOST_ROWS:
        notes.append(f"{len(rows) - MOST_ROWS} rows more are left out here, and counted below.")
    heads = ("leaf", "shape", "split", "copies", "bytes", "on each device")
    parts = [Table(heads, tuple(shown), numbers=(3, 4, 5)), *_held(layouts)]
    what = plural(len(leaves), "leaf", "leaves")
    return Scene(f"{name}: {what}" if name else f"A tree of {what}", tuple(notes), tuple(parts))


def _pattern(leaf: Leaf) -> tuple[object, ...]:
    """Return what is equal for leaves that share a row."""
    layout = leaf.layout
    where: tuple[object, ...] = ()
    if layout is not None:
        held = frozenset(layout.device_bytes.items())
        where = layout.shape, layout.dtype, layout.spec, layout.copies, held
    return re.sub(r"\d+", "#", leaf.path), leaf.what, where


def _row(group: Sequence[Leaf]) -> tuple[str, ...]:
    layout = group[0].layout
    path = _path([leaf.path for leaf in group])
    if layout is None:
        where = "nowhere any more" if group[0].what == DELETED else "on the host"
        return (path, group[0].what, where, "", "", "")
    held = set(layout.device_bytes.values())
    each = size(max(held) * len(group)) if held else ""
    return (
        path,
        layout.kind if len(group) == 1 else f"{len(group)} x {layout.kind}",
        layout.spec or "on one device" if len(layout.devices) == 1 else layout.spec,
        str(layout.copies),
        size(layout.bytes * len(group)),
        each,
    )


def _path(paths: Sequence[str]) -> str:
    """Merge paths that differ only in numbers into one.

    Example:
        >>> _path(["w[0].a", "w[1].a", "w[2].a"]), _path(["w[0][0]", "w[0][1]", "w[1][1]"])
        ('w[0-2].a', 'w[0-1][0-1] (3)')
        >>> _path(["[0][1]", "[2][1]"])
        '[0,2][1]'
    """
    columns = list(zip(*(map(int, re.findall(r"\d+", path)) for path in paths), strict=True))
    spans = [index_ranges(sorted(set(column))) for column in columns]
    varying = [span for span, column in zip(spans, columns, strict=True) if len(set(column)) > 1]
    if len(varying) > 1 or any(len(span) > LONGEST_SPAN for span in spans):
        spans = [f"{min(c)}-{max(c)}" if len(set(c)) > 1 else str(c[0]) for c in columns]
    remaining = iter(spans)
    text = re.sub(r"\d+", lambda _: next(remaining), paths[0])
    whole = len(varying) == 1 and len(varying[0]) <= LONGEST_SPAN
    return text if whole or len(paths) == 1 else f"{text} ({len(paths)})"


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


def _held(layouts: Iterable[Layout]) -> list[Table]:
    """Return tables of the bytes that devices and processes hold, with equal ones merged."""
    held: Counter[Device] = Counter()
    of_process: Counter[int] = Counter()
    for layout in layouts:
        for device, count in layout.device_bytes.items():
            held[device] += count
            of_process[device.process] += count
    if not held:
        return []
    by_amount = grouped(sorted(held), lambda device: held[device])
    devices = [(ranges(own), size(count)) for count, own in by_amount.items()]
    processes = [
        (", ".join(f"P{process}" for process in own[:8]) + (", …" if len(own) > 8 else ""), size(n))
        for n, own in grouped(sorted(of_process), lambda process: of_process[process]).items()
    ]
    return [
        Table(("device", "holds"), tuple(devices[:MOST_HOLDERS]), numbers=(1,)),
        Table(("process", "holds"), tuple(processes[:MOST_HOLDERS]), numbers=(1,)),
    ]
