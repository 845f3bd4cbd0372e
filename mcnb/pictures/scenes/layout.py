"""Build the scene of a layout, with a box for each region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mcnb._text import array_type, plural, size
from mcnb.pictures.model import Layout, Region, by_id, grouped, process_ranges, ranges
from mcnb.pictures.scene import (
    LONG,
    MOST_ACROSS,
    MOST_DEVICES,
    Cell,
    Grid,
    Scene,
    elided,
    label_lines,
    most_facets,
)

MOST_NAMES = 4  # names in a box, if there are more than `MOST_DEVICES` devices
# The most names of devices below each other, and the most boxes beside each other that have two
# names on a line.
MOST_HIGH, MOST_WIDE = 4, 3
Bounds = tuple[int, int]
Label = Callable[[Region], tuple[str, ...]]


def layout_scene(
    layout: Layout,
    *,
    name: str = "",
    bounds: bool = False,
    ids: bool = False,
    label: Label | None = None,
) -> Scene:
    """Return the scene of a layout, with the options of `mcnb.show`.

    The lines in a region's box are those of `label`, its devices and then its values, or by default
    the names of its devices. Its tooltip says which elements they are, how large, on which devices,
    and their values.
    """
    cut = [sorted({region.bounds[d] for region in layout.regions}) for d in _dims(layout)]
    parted = [d for d in _dims(layout) if len(cut[d]) > 1]
    drawn = parted[-2:] if len(layout.shape) > 2 else list(_dims(layout))
    beside = len(cut[drawn[-1]]) if drawn else 1
    lines = label or _labels(layout, ids, beside)

    def cell(region: Region) -> Cell:
        shown = lines(region)
        processes = tuple(sorted({device.process for device in region.devices}))
        hint = ": ".join(
            filter(None, [_hint(layout, region), "; ".join(shown[1:] if label else ())])
        )
        return Cell(processes, shown, len(region.devices), hint)

    facets = [d for d in parted if d not in drawn]
    by_facet = grouped(layout.regions, lambda r: tuple(r.bounds[d] for d in facets))
    grids = [
        _grid(layout, regions, drawn, cut, bounds, cell, _facet_title(layout, facets, where))
        for where, regions in by_facet.items()
    ]
    notes = list(_notes(layout, drawn, facets, len(grids)))
    title = f"{name}: {layout.title()}" if name else layout.title()
    return Scene(title, tuple(notes), tuple(grids[: most_facets(len(layout.devices))]))


def _dims(layout: Layout) -> range:
    return range(len(layout.shape))


def _labels(layout: Layout, ids: bool, beside: int) -> Label:
    """Return the function that names the devices of a box, one of so many beside each other."""
    if ids:
        return lambda region: (by_id(region.devices),)
    if len(layout.devices) > MOST_DEVICES:
        return lambda region: _few(ranges(region.devices).split(), len(region.devices))
    per_line = 2 if layout.copies <= 8 else 8
    if beside > MOST_WIDE and layout.copies <= MOST_HIGH:
        per_line = 1
    return lambda region: label_lines(region.devices, per_line)


def _few(names: Sequence[str], count: int) -> tuple[str, ...]:
    if len(names) <= MOST_NAMES:
        return tuple(names)
    return (*names[:2], "…", names[-1], f"({count} devices)")


def _grid(
    layout: Layout,
    regions: Sequence[Region],
    drawn: Sequence[int],
    cut: Sequence[Sequence[Bounds]],
    with_bounds: bool,
    cell: Callable[[Region], Cell],
    title: str,
) -> Grid:
    down = drawn[0] if len(drawn) == 2 else None
    across = drawn[-1] if drawn else None
    if len(drawn) == 1 and len(cut[drawn[0]]) > LONG:
        down, across = drawn[0], None  # a long column is easier to read than a long row
    cells: Mapping[tuple[object, object], Cell] = {
        (_bound(region, down), _bound(region, across)): cell(region) for region in regions
    }
    row_bounds = [None] if down is None else list(cut[down])
    column_bounds = [None] if across is None else list(cut[across])
    large = len(layout.devices) > MOST_DEVICES
    rows = elided(row_bounds, large)
    columns = elided(column_bounds, large or len(column_bounds) > MOST_ACROSS)
    return Grid(
        rows=tuple(tuple(cells.get((row, column)) for column in columns) for row in rows),
        row_heads=_heads(rows, with_bounds or len(rows) != len(row_bounds)),
        column_heads=_heads(columns, with_bounds or len(columns) != len(column_bounds)),
        row_axis=_edge(layout, down, len(row_bounds)),
        column_axis=_edge(layout, across, len(column_bounds)),
        title=title,
        heights=_extents(rows),
        widths=_extents(columns),
        shape=_outline(layout, down, across),
    )


def _outline(layout: Layout, down: int | None, across: int | None) -> tuple[int, ...]:
    """Return the rows and columns of the array that is drawn; one without a dimension has none.

    Where only one dimension is drawn, or none, the outline is that of a vector.
    """
    if down is None and across is None:
        return (1, max(layout.shape)) if layout.shape else ()
    rows, columns = (1 if d is None else layout.shape[d] for d in (down, across))
    return rows, columns


def _hint(layout: Layout, region: Region) -> str:
    """Return which elements a region has, how large they are, and which devices hold them."""
    part = ", ".join(f"{begin}:{end}" for begin, end in region.bounds)
    what = plural(region.size, "element", "elements")
    if layout.item_bytes:
        kind = array_type(layout.dtype, [end - begin for begin, end in region.bounds])
        what = f"{kind}, {size(region.size * layout.item_bytes)}"
    return f"{f'[{part}]: ' if part else ''}{what}, on {ranges(region.devices)}"


def _bound(region: Region, dim: int | None) -> Bounds | None:
    return None if dim is None else region.bounds[dim]


def _heads(bounds: Sequence[Bounds | str | None], wanted: bool) -> tuple[str, ...]:
    if not wanted or bounds == [None]:
        return ()
    return tuple("…" if isinstance(b, str) or b is None else f"{b[0]}:{b[1]}" for b in bounds)


def _extents(bounds: Sequence[Bounds | str | None]) -> tuple[float, ...]:
    lengths = [b[1] - b[0] if isinstance(b, tuple) else 0 for b in bounds]
    usual = max(lengths) or None
    return tuple(
        0.4 if b == "…" else length / usual if usual else 1.0
        for b, length in zip(bounds, lengths, strict=True)
    )


def _edge(layout: Layout, dim: int | None, parts: int) -> str:
    """Return the text at an edge: the dimension, and the mesh axes over which it is split."""
    if dim is None:
        return ""
    text = f"dim {dim}: {layout.shape[dim]}"
    names = layout.split[dim] if dim < len(layout.split) else ()
    if names:
        sizes = _sizes(layout)
        over = ", ".join(f"'{name}' ({sizes[name]})" for name in names)
        return f"{text}, split over {over}" if parts > 1 else f"{text}, over {over}"
    return f"{text}, in {parts} parts" if parts > 1 else f"{text}, whole"


def _sizes(layout: Layout) -> dict[str, int]:
    """Return the size of each mesh axis by its name."""
    return {axis.name: axis.size for axis in layout.mesh.axes} if layout.mesh is not None else {}


def _facet_title(layout: Layout, facets: Sequence[int], where: tuple[Bounds, ...]) -> str:
    if not facets:
        return ""
    at = dict(zip(facets, where, strict=True))
    parts = [f"{at[d][0]}:{at[d][1]}" if d in at else ":" for d in _dims(layout)]
    return f"[{', '.join(parts)}]"


def _notes(layout: Layout, drawn: Sequence[int], facets: Sequence[int], grids: int) -> list[str]:
    notes = [_holders(layout)]
    if 0 in layout.shape:
        return [*notes, "It has no elements."]
    # Of a dimension that is left to XLA, and of the axes of the mesh then, nothing is known.
    left = "UNCONSTRAINED" in layout.spec
    if left:
        notes.append("UNCONSTRAINED leaves a dimension to XLA. It is drawn as if it were whole.")
    replicated = () if left else layout.replicated()
    whole = len(layout.regions) == 1
    lies = "each device holds all of it" if whole else f"each part lies on {layout.copies} devices"
    if replicated:
        sizes = _sizes(layout)
        axes = " and ".join(f"'{name}' ({sizes[name]})" for name in replicated)
        notes.append(f"Replicated over {axes}: {lies}.")
    elif layout.copies > 1 and not left:
        notes.append(f"{lies[0].upper()}{lies[1:]}.")
    if layout.unreduced:
        axes = " and ".join(f"'{name}'" for name in layout.unreduced)
        notes.append(f"Unreduced over {axes}: each device holds a partial sum.")
    hidden = [d for d in _dims(layout) if d not in drawn and d not in facets]
    if hidden:
        dims = ", ".join(f"{d} ({layout.shape[d]})" for d in hidden)
        notes.append(
            f"Not drawn, as it is not split: {'dim' if len(hidden) == 1 else 'dims'} {dims}."
        )
    most = most_facets(len(layout.devices))
    if grids > most:
        over = " and ".join(f"dim {d}" for d in facets)
        notes.append(f"{most} of {grids} slices along {over} are drawn.")
    if layout.memory:
        notes.append(f"In memory of kind {layout.memory}.")
    return notes


def _holders(layout: Layout) -> str:
    devices = layout.devices
    members = sorted({device.process for device in devices})
    held = set(layout.device_bytes.values())
    amount = ""
    if layout.item_bytes and held:
        shapes = {tuple(end - begin for begin, end in region.bounds) for region in layout.regions}
        part = f"{array_type(layout.dtype, next(iter(shapes)))} of " if len(shapes) == 1 else ""
        least = f"{size(min(held))} to " if len(held) > 1 else ""
        amount = f", {part}{least}{size(max(held))} on each"
    on = plural(len(devices), "device", "devices")
    of = plural(len(members), "process", "processes")
    return f"On {on} of {of}: {process_ranges(members)}{amount}{_scope(layout, members)}."


def _scope(layout: Layout, members: Sequence[int]) -> str:
    if layout.processes <= 1:
        return ""
    if len(members) == 1:
        return f"; local to process {members[0]}"
    if len(layout.devices) == layout.all_devices:
        return "; global: spans all devices"
    return f"; spans {len(members)} of {layout.processes} processes"
