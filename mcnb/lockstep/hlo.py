"""Parse a compiled program: its collectives, their participants, its constants, a fingerprint.

XLA writes replica groups in four ways: lists, `{{0,1},{2,3}}`; an iota, `[2,4]<=[4,2]T(1,0)`; axes
of a mesh, `mesh['a'=4,'b'=2] {'b'}`; and pairs of a source and a target, `{{0,1},{1,0}}`. See
xla/hlo/ir/replica_group.cc, xla/hlo/ir/tile_assignment.cc and mesh_and_axis.cc.

A partition is one of the devices that a program runs on, and `partitions` is their number.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mcnb.lockstep.model import Collective

KINDS = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "ragged-all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
)
_BITS = {"pred": 8, "token": 0, "opaque": 0, "c64": 64, "c128": 128, "bf16": 16}

_COLLECTIVE = re.compile(
    r"^\s*(?:ROOT )?\S+ = (?P<type>\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\S+) "
    rf"(?P<kind>{'|'.join(KINDS)})(?P<start>-start)?\((?P<rest>.*)$"
)
_SHAPE = re.compile(r"([a-z][a-z0-9]*)\[([0-9,]*)\]")
_GROUPS = re.compile(
    r"(?:replica_groups|source_target_(?P<pairs>pairs))=(?:\{(?P<lists>(?:\{[0-9,]*\},?)*)\}"
    r"|\[(?P<dims>[0-9,]+)\]<=\[(?P<iota>[0-9,]+)\](?:T\((?P<permutation>[0-9,]+)\))?"
    r"|mesh\[(?P<axes>[^\]]*)\](?:, device_ids=\((?P<ids>[^{]*)\))? \{(?P<over>[^}]*)\})"
)
_NAMES_OF_PARAMETERS = re.compile(r"(?m)^(?:ENTRY )?%?\S*\(.*\) -> .* \{$")
# XLA's notes on where a program comes from and how it was partitioned; what follows from them is in
# the program itself.
_NOTES = re.compile(
    r", (?:frontend_attributes|sharding)=\{.*?\}(?=, backend_config=|$)", re.MULTILINE
)
# The settings of a callback are its address, or its number among the process's callbacks.
_ADDRESS = re.compile(r'(?m)(custom_call_target="[^"\n]*callback[^"\n]*".*?), backend_config=.*$')
# XLA's text for a constant of more than ten elements.
ELIDED = "constant({...})"


@dataclass(frozen=True)
class Operation:
    """A collective in the text of a program.

    Attributes:
        kind: XLA's name for the collective.
        bytes: The size of the result on each device, in bytes.
        groups: The partitions that participate together; None if unknown.
    """

    kind: str
    bytes: int
    groups: tuple[tuple[int, ...], ...] | None


def operations(text: str, partitions: int) -> list[Operation]:
    """Return the collectives of a program, given as HLO text, in the order of the text.

    Example:
        >>> operations("r = f32[8]{0} all-reduce(x), replica_groups=[2,2]<=[4], to_apply=add", 4)
        [Operation(kind='all-reduce', bytes=32, groups=((0, 1), (2, 3)))]
    """
    found = []
    for line in text.splitlines():
        if match := _COLLECTIVE.match(line):
            groups = replica_groups(match["rest"], partitions)
            kind, result = match["kind"], match["type"]
            if match["start"] and kind in ("all-gather", "collective-permute"):
                result = _second(result)  # after the operand, before runtime data
            found.append(Operation(kind, _bytes(result), groups))
    return found


def _second(types: str) -> str:
    """Return the second element type of a tuple type."""
    parts, depth, begin = [], 0, 1
    for i, character in enumerate(types):
        depth += character in "([{"
        depth -= character in ")]}"
        if (depth == 1 and character == ",") or depth == 0:
            parts.append(types[begin:i])
            begin = i + 1
    return parts[1] if len(parts) > 1 else types


def replica_groups(attributes: str, partitions: int) -> tuple[tuple[int, ...], ...] | None:
    """Parse the groups of partitions that participate in an operation together.

    Return None if the attributes, which are the text after the operands, can't be parsed.

    Example:
        >>> replica_groups("replica_groups=mesh['a'=2,'b'=2] {'a'}", 4)
        ((0, 2), (1, 3))
        >>> replica_groups("replica_groups={}", 3)
        ((0, 1, 2),)
    """
    match = _GROUPS.search(attributes)
    if match is None:
        return None
    if match["lists"] is not None:
        lists = re.findall(r"\{([0-9,]+)\}", match["lists"])
        groups = tuple(tuple(_numbers(one)) for one in lists)
        # Without pairs, nothing is sent.
        return groups if groups or match["pairs"] else (tuple(range(partitions)),)
    if match["axes"] is not None:
        return _mesh_groups(match["axes"], match["ids"], match["over"])
    dims, ids = _numbers(match["dims"]), _iota(match["iota"], match["permutation"])
    if ids is None or ids.size != math.prod(dims):
        return None
    return _rows(ids.reshape(dims[0], -1))


def _mesh_groups(axes: str, ids: str | None, over: str) -> tuple[tuple[int, ...], ...] | None:
    sizes = {name: int(size) for name, size in re.findall(r"'([^']*)'=([0-9]+)", axes)}
    order: np.ndarray | None = np.arange(math.prod(sizes.values()))
    if ids is not None:
        iota = re.fullmatch(r"\[([0-9,]+)\](?:T\(([0-9,]+)\))?", ids)
        order = _iota(iota[1], iota[2]) if iota else np.array(_numbers(ids))
    # The axes that a group spans, in order, or the part of `size` after `before` of an axis.
    chosen = [
        (name, int(before or 1), int(size) if size else sizes.get(name, 0))
        for name, before, size in re.findall(r"'([^']*)'(?::\(([0-9]+)\)([0-9]+))?", over)
    ]
    mentioned = over.count(",") + 1 if over.strip() else 0
    if not sizes or len(chosen) < mentioned or any(name not in sizes for name, *_ in chosen):
        return None
    # Split each axis into the parts that `over` distinguishes.
    shape: list[int] = []
    position: dict[tuple[str, int, int], int] = {}
    for axis, size in sizes.items():
        cuts = {1, size}
        for name, before, part in chosen:
            cuts |= {before, before * part} if name == axis else set()
        edges = sorted(cuts)
        for low, high in itertools.pairwise(edges):
            if high % low:
                return None
            position[axis, low, high // low] = len(shape)
            shape.append(high // low)
    grouped = [position.get((name, before, part), -1) for name, before, part in chosen if part > 1]
    if order is None or order.size != math.prod(shape) or -1 in grouped:
        return None
    others = [i for i in range(len(shape)) if i not in grouped]
    members = math.prod(shape[i] for i in grouped)
    return _rows(order.reshape(shape).transpose(others + grouped).reshape(-1, members))


def _iota(dims: str, permutation: str | None) -> np.ndarray | None:
    sizes = _numbers(dims)
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    if permutation is None:
        return ids.ravel()
    axes = _numbers(permutation)
    return ids.transpose(axes).ravel() if sorted(axes) == list(range(len(sizes))) else None


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", text)]


def _rows(groups: np.ndarray) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(i) for i in row) for row in groups)


def _bytes(types: str) -> int:
    total = 0
    for name, dims in _SHAPE.findall(types):
        digits = re.search(r"[0-9]+", name)
        bits = _BITS.get(name, int(digits[0]) if digits else 8)
        total += (math.prod(_numbers(dims)) * bits + 7) // 8
    return total


def constants(module: bytes) -> list[str]:
    """Return digests of the constants of a serialized `HloModuleProto`, in its order.

    The text of a program leaves out the values of larger constants, and writing them out takes
    longer than compiling them. The fields are those of xla/service/hlo.proto.
    """
    return [
        hashlib.sha256(literal).hexdigest()[:16]
        for computation in _fields(memoryview(module), 3)
        for instruction in _fields(computation, 2)
        for literal in _fields(instruction, 8)
    ]


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the submessages of a field; see protobuf.dev/programming-guides/encoding."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            _, at = _varint(message, at)
        elif kind == 2:
            size, at = _varint(message, at)
            if number == wanted:
                yield message[at : at + size]
            at += size
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field of kind {kind} in a serialized program")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fingerprint(text: str, partitions: int, devices: str, values: Sequence[str] = ()) -> str:
    """Return a fingerprint that is equal for equal programs on equal devices.

    XLA's own fingerprint depends on the function's name, the names of mesh axes and the source
    lines, which may differ between equal programs.

    Args:
        text: The program, without metadata, and with canonical names.
        partitions: The number of devices.
        devices: The devices, in the program's order.
        values: Digests of the constants that the text leaves out.
    """
    header, _, _ = text.partition("\n")
    layout = re.search(r"entry_computation_layout=\{.*?\}(?=, \w+=|$)", header)
    content = [str(layout and layout[0]), devices, " ".join(values), comparable(text, partitions)]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]


def comparable(text: str, partitions: int) -> str:
    """Return a program without what may differ between equal programs, and without its header."""
    body = text.partition("\n")[2]
    body = _NAMES_OF_PARAMETERS.sub("{", body)
    body = _NOTES.sub("", body)
    body = _ADDRESS.sub(r"\1", body)
    return _GROUPS.sub(lambda match: _one_spelling(match[0], partitions), body)


def donated(text: str) -> tuple[int, ...]:
    """Return the parameters whose memory a program may use for its results.

    Example:
        >>> donated("HloModule f, input_output_alias={ {}: (1, {}, may-alias) }, num_partitions=2")
        (1,)
    """
    header = text.partition("\n")[0]
    given = re.findall(r"(?:input_output_alias|buffer_donor)=\{ (.*?) \}(?=, \w+=|$)", header)
    return tuple(sorted({int(number) for number in re.findall(r"\((\d+), \{", " ".join(given))}))


def _one_spelling(groups: str, partitions: int) -> str:
    read = replica_groups(groups, partitions)
    return groups if read is None else f"groups={read}"


def by_process(found: Iterable[Operation], owners: Sequence[int]) -> tuple[Collective, ...]:
    """Return collectives with groups of processes: those that own each group's partitions."""
    result = []
    for operation in found:
        groups = [tuple(range(len(owners)))] if operation.groups is None else operation.groups
        processes = {tuple(sorted({owners[i] for i in group})) for group in groups}
        result.append(Collective(operation.kind, operation.bytes, tuple(sorted(processes))))
    return tuple(result)


def partners(
    collectives: Iterable[Collective], process: int, everyone: Iterable[int]
) -> tuple[int, ...]:
    """Return the processes that must launch a program together with a process, itself included.

    Two processes must launch a program together if their devices share a group, directly or
    through other processes. A collective-permute makes one group of all devices, whatever its
    pairs (XLA's `CollectivePermuteThunk::GetP2PConfig`).

    Args:
        collectives: The program's collectives.
        process: The process that launches.
        everyone: All processes that own devices of the program.

    Example:
        >>> partners([Collective("all-reduce", 4, ((0, 1), (2, 3)))], 2, range(4))
        (2, 3)
        >>> partners([Collective("collective-permute", 4, ((0, 1),))], 0, range(4))
        (0, 1, 2, 3)
        >>> partners([], 1, range(4))
        (1,)
    """
    together = {process}
    groups = [
        set(group)
        for collective in collectives
        for group in ((everyone,) if collective.kind == "collective-permute" else collective.groups)
    ]
    while touching := [group for group in groups if group & together and not group <= together]:
        together.update(*touching)
    return tuple(sorted(together))
