"""Build the scene of a mesh, with a box for each device."""

from __future__ import annotations

import itertools

from mcnb._text import plural
from mcnb.pictures.model import MeshModel, by_id, grouped, process_ranges
from mcnb.pictures.scene import (
    LONG,
    MOST_ACROSS,
    MOST_DEVICES,
    Cell,
    Grid,
    Scene,
    elided,
    most_facets,
)

Index = tuple[int, ...]


def mesh_scene(mesh: MeshModel, *, ids: bool = False) -> Scene:
    """Return the scene of a mesh: a grid of the last two axes for each index of the others."""
    sizes = [axis.size for axis in mesh.axes]
    facets = list(itertools.product(*map(range, sizes[:-2])))
    most = most_facets(mesh.size)
    grids = [_grid(mesh, facet, ids) for facet in facets[:most]]
    notes = [_scope(mesh), *_kinds(mesh)]
    if len(facets) > most:
        names = " and ".join(f"'{axis.name}'" for axis in mesh.axes[:-2])
        notes.append(f"{most} of {len(facets)} slices along {names} are drawn.")
    if mesh.devices and mesh.size > MOST_DEVICES:
        notes.append(_blocks(mesh))
    shape = ", ".join(f"'{axis.name}': {axis.size}" for axis in mesh.axes)
    what = "Mesh" if mesh.devices else "Abstract mesh"
    return Scene(f"{what} {shape}" if shape else f"{what} without axes", tuple(notes), tuple(grids))


def _grid(mesh: MeshModel, facet: Index, ids: bool) -> Grid:
    axes = [(axis.name, axis.size) for axis in mesh.axes]
    (first, down), (last, across) = [("", 1), ("", 1), *axes][-2:]
    column = len(axes) == 1 and across > LONG
    if column:
        (first, down), (last, across) = (last, across), (first, down)
    large = mesh.size > MOST_DEVICES
    rows = elided(range(down), large)
    columns = elided(range(across), large or across > MOST_ACROSS)

    def cell(row: int, at: int) -> Cell:
        place = (row,) if column else (row, at)[2 - len(axes[-2:]) :]
        return _cell(mesh, (*facet, *place), ids)

    return Grid(
        rows=tuple(
            tuple(None if row == "…" or at == "…" else cell(row, at) for at in columns)
            for row in rows
        ),
        row_heads=tuple(map(str, rows)) if down > 1 else (),
        column_heads=tuple(map(str, columns)) if across > 1 else (),
        row_axis=f"'{first}': {down}" if column or len(axes) > 1 else "",
        column_axis=f"'{last}': {across}" if axes and not column else "",
        title=", ".join(f"'{name}' = {i}" for (name, _), i in zip(axes, facet, strict=False)),
        heights=tuple(0.5 if row == "…" else 1.0 for row in rows),
        widths=tuple(0.5 if at == "…" else 1.0 for at in columns),
    )


def _cell(mesh: MeshModel, place: Index, ids: bool) -> Cell:
    where = ", ".join(f"'{axis.name}' = {i}" for axis, i in zip(mesh.axes, place, strict=True))
    if not mesh.devices:
        return Cell((), (",".join(map(str, place)),), hint=where)
    index = 0
    for axis, i in zip(mesh.axes, place, strict=True):
        index = index * axis.size + i
    device = mesh.devices[index]
    name = by_id([device]) if ids else str(device)
    return Cell((device.process,), (name,), hint=f"{where}: {name}" if where else name)


def _scope(mesh: MeshModel) -> str:
    if not mesh.devices:
        return f"{plural(mesh.size, 'place', 'places')} for devices, and no devices yet."
    members = mesh.members
    devices = plural(len(mesh.devices), "device", "devices")
    if len(members) == 1 and mesh.processes > 1:
        return f"Local: {devices} of process {members[0]} alone."
    of = f"{plural(len(members), 'process', 'processes')}: {process_ranges(members)}"
    if mesh.processes <= 1:
        return f"{devices} of {of}."
    if len(mesh.devices) == mesh.all_devices:
        return f"Global: all {devices} of all {of}."
    return f"Process-spanning: {devices} of {of}; there are {mesh.processes} processes."


def _kinds(mesh: MeshModel) -> list[str]:
    said = []
    for kind, axes in grouped(mesh.axes, lambda axis: axis.kind).items():
        *names, last = (f"'{axis.name}'" for axis in axes)
        said.append(f"{', '.join(names)} and {last} {kind}" if names else f"{last} {kind}")
    return [f"Axis types: {', '.join(said)}."] if said else []


def _blocks(mesh: MeshModel) -> str:
    """Describe how the devices of each process are grouped in the mesh."""
    runs = [len(list(run)) for _, run in itertools.groupby(d.process for d in mesh.devices)]
    if len(set(runs)) == 1:
        owners = [d.process for d in mesh.devices][:: runs[0]]
        ascending = all(one < following for one, following in itertools.pairwise(owners))
        order = ", processes ascending" if ascending else ""
        each = plural(runs[0], "device", "devices")
        return f"In the mesh's order, each process has {each} in a row{order}."
    return f"The devices of a process stand in runs of {min(runs)} to {max(runs)}."
