"""Build the scene of a compiled program: its collectives, results and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mcnb._text import place_name, plural, size
from mcnb._turns import Fold, folded
from mcnb.pictures.model import Device, Layout, MeshModel, grouped, process_ranges
from mcnb.pictures.program import Use, axes_of, sent_bytes, wire_bytes
from mcnb.pictures.scene import Part, Scene, Table
from mcnb.pictures.scenes.rows import merged, room, times, without_numbers

_Row: TypeAlias = tuple[str, ...]
# The PyTree path and the layout of a result.
_Output: TypeAlias = tuple[str, Layout]
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


def program_scene(program: ProgramModel, more: Sequence[str] = (), *, full: bool = False) -> Scene:
    """Return the scene of a compiled program.

    Args:
        program: The program.
        more: Notes to put below those on the program.
        full: Whether each collective and each result has a row. Otherwise, collectives that repeat
            share one, alone or in turn with others, and so do results that differ only in numbers;
            and of very many rows the first are shown.
    """
    rows = [_row(use, program) for use in program.uses]
    uses = [Fold(row, at) for at, row in enumerate(rows)] if full else folded(rows, lambda r: r)
    results = [[one] for one in program.outputs]
    if not full:
        results = [*grouped(program.outputs, _pattern).values()]
    notes = [*_notes(program), *more]
    # Besides the rows: the title, the heads of the tables, and notes.
    others = 1 + bool(uses) + bool(results) + len(notes)
    kept = [len(uses), len(results)]
    if not full and room(others, *kept) != kept:
        kept = room(others + 1, *kept)
        notes.insert(0, _left_out(uses[kept[0] :], results[kept[1] :]))
    parts: list[Part] = []
    if uses:
        heads = ("", "collective", "along", "among", "result", "sent", "times", "from")
        shown = tuple((_numbers(fold), *fold.thing) for fold in uses[: kept[0]])
        parts.append(Table(heads, shown, numbers=(0, 4, 5, 6)))
    if results:
        columns = ("result", "shape", "split", "copies", "on each device")
        parts.append(Table(columns, tuple(map(_result, results[: kept[1]])), numbers=(3, 4)))
    return Scene(f"{program.name}: {_title(program)}", tuple(notes), tuple(parts))


def _left_out(uses: Sequence[Fold[_Row]], results: Sequence[Sequence[_Output]]) -> str:
    """Say what has no row."""
    said = []
    if uses:
        number = sum(fold.number * fold.rounds for fold in uses)
        said.append(plural(number, "collective", "collectives"))
    if results:
        said.append(plural(sum(map(len, results)), "result", "results"))
    return f"More, with full=True: {' and '.join(said)}."


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


def _numbers(fold: Fold[_Row]) -> str:
    """Return which collectives share a row, counted from 1.

    Example:
        >>> _numbers(Fold((), 2, number=3)), _numbers(Fold((), 0, rounds=250, step=4))
        ('3-5', '1, 5 … 997')
    """
    first, *others = (
        str(at) if fold.number == 1 else f"{at}-{at + fold.number - 1}"
        for at in (fold.at + 1 + turn * fold.step for turn in range(fold.rounds))
    )
    if not others:
        return first
    return f"{first}, {others[0]}" if len(others) == 1 else f"{first}, {others[0]} … {others[-1]}"


def _row(use: Use, program: ProgramModel) -> _Row:
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


def _pattern(output: _Output) -> tuple[object, ...]:
    """Return what is equal for results that share a row."""
    path, layout = output
    held = frozenset(layout.device_bytes.items())
    return without_numbers(path), layout.shape, layout.dtype, layout.spec, layout.copies, held


def _result(group: Sequence[_Output]) -> _Row:
    layout = group[0][1]
    each = max(layout.device_bytes.values(), default=0)
    path = merged([path for path, _ in group])
    kind = times(len(group), layout.kind)
    return (path, kind, layout.spec, str(layout.copies), size(each * len(group)))


def _notes(program: ProgramModel) -> list[str]:
    notes = []
    if program.uses:
        notes.append("Result: bytes on each device. Sent: bytes that each device sends on a ring.")
    if any(use.times is None for use in program.uses):
        notes.append("Times ?: in a loop whose trip count XLA does not know.")
    if any(use.branch for use in program.uses):
        notes.append("0 or: in a branch that may not be taken.")
    if program.memory:
        needs = ", ".join(f"{size(count)} for {what}" for what, count in program.memory)
        notes.append(f"Each device needs {needs}.")
    return notes
