"""Build the scene of a compiled program: its collectives, results and memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from mcnb._text import place_name, plural, size
from mcnb.pictures.model import Device, Layout, MeshModel, process_ranges
from mcnb.pictures.program import Use, axes_of, sent_bytes, wire_bytes
from mcnb.pictures.scene import Part, Scene, Table

MOST_ROWS = 40
MOST_GROUPS = 4
WITHIN = "each process by itself"


@dataclass(frozen=True, slots=True)
class ProgramModel:
    """Compiled program.

    Attributes:
        name: Name of the program.
        uses: Collectives of the program.
        devices: Devices on which the program runs, in its order.
        mesh: Mesh of the arguments or results; None if they have none.
        outputs: PyTree path and layout of each result.
        memory: Memory that each device needs: purpose and number of bytes.
    """

    name: str
    uses: tuple[Use, ...]
    devices: tuple[Device, ...]
    mesh: MeshModel | None
    outputs: tuple[tuple[str, Layout], ...]
    memory: tuple[tuple[str, int], ...] = ()


def program_scene(program: ProgramModel) -> Scene:
    """Return the scene of a compiled program."""
    rows = _folded([_row(use, program) for use in program.uses])
    parts: list[Part] = []
    if rows:
        heads = ("", "collective", "along", "among", "result", "sent", "times", "from")
        parts.append(Table(heads, tuple(rows[:MOST_ROWS]), numbers=(0, 4, 5, 6)))
    if program.outputs:
        results = [_result(path, layout) for path, layout in program.outputs[:MOST_ROWS]]
        columns = ("result", "shape", "split", "copies", "on each device")
        parts.append(Table(columns, tuple(results), numbers=(3, 4)))
    return Scene(f"{program.name}: {_title(program)}", tuple(_notes(program)), tuple(parts))


def _title(program: ProgramModel) -> str:
    if not program.uses:
        return "no communication"
    count = sum(1 if use.times is None else use.times for use in program.uses)
    least = "at least " if any(use.times is None for use in program.uses) else ""
    # Not every branch is taken.
    most = "up to " if not least and any(use.branch for use in program.uses) else ""
    return (
        f"{least}{most}{plural(count, 'collective', 'collectives')}, "
        f"{size(round(sent_bytes(program.uses)))} sent by each device"
    )


def _folded(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Number rows, and merge consecutive equal rows into one."""
    folded = []
    number = 1
    for row, same in itertools.groupby(rows):
        last = number + len(list(same)) - 1
        folded.append((str(number) if number == last else f"{number}-{last}", *row))
        number = last + 1
    return folded


def _row(use: Use, program: ProgramModel) -> tuple[str, ...]:
    operation, sent = use.operation, wire_bytes(use.operation)
    times = "?" if use.times is None else str(use.times)
    return (
        operation.kind,
        _along(use, program.mesh),
        _among(use, program.devices),
        size(operation.bytes),
        "?" if sent is None else size(round(sent)),
        f"0 or {times}" if use.branch else times,
        "" if use.source is None else place_name(*use.source),
    )


def _along(use: Use, mesh: MeshModel | None) -> str:
    groups = use.operation.groups
    if mesh is None or groups is None:
        return ""
    axes = axes_of(groups, {axis.name: axis.size for axis in mesh.axes})
    return "" if axes is None else ", ".join(f"'{name}'" for name in axes)


def _among(use: Use, devices: Sequence[Device]) -> str:
    groups = use.operation.groups
    if groups is None:
        return "not told"
    owners = [sorted({devices[i].process for i in group}) for group in groups]
    if use.operation.kind == "collective-permute":
        crossing = sum(len(own) > 1 for own in owners)
        pairs = plural(len(groups), "pair", "pairs")
        return f"{pairs}, {crossing} between processes"
    if all(len(own) == 1 for own in owners):
        return WITHIN
    sets = sorted({tuple(own) for own in owners})
    if len(sets) <= MOST_GROUPS:
        return "; ".join(process_ranges(own) for own in sets)
    return f"{len(sets)} groups of {len(sets[0])} processes"


def _result(path: str, layout: Layout) -> tuple[str, ...]:
    each = max(layout.device_bytes.values(), default=0)
    return (path, layout.kind, layout.spec, str(layout.copies), size(each))


def _notes(program: ProgramModel) -> list[str]:
    notes = []
    if program.uses:
        notes.append("Result: bytes on each device. Sent: bytes that each device sends on a ring.")
    if any(use.times is None for use in program.uses):
        notes.append("Times ?: in a loop whose trip count XLA does not know.")
    if any(use.branch for use in program.uses):
        notes.append("0 or: in a branch that may not be taken.")
    if len(program.uses) > MOST_ROWS:
        notes.append(f"{len(program.uses) - MOST_ROWS} more collectives are counted in the title.")
    if len(program.outputs) > MOST_ROWS:
        notes.append(f"{len(program.outputs) - MOST_ROWS} more results are left out here.")
    if program.memory:
        needs = ", ".join(f"{size(count)} for {what}" for what, count in program.memory)
        notes.append(f"Each device needs {needs}.")
    return notes
