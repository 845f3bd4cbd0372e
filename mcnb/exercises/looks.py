"""How values are looked at: described in plain data that compares equal and reads well in a line.

Nothing here communicates: an array is described by what this process holds of it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcnb._text import a_or_an

LONGEST_PATH = 1024


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Have process 0 make a folder, and tell the others; it is removed when process 0 is through.

    It communicates: all processes enter it together.
    """
    import jax
    from jax.experimental import multihost_utils

    made = tempfile.mkdtemp() if jax.process_index() == 0 else ""
    try:
        name = np.frombuffer(made.encode().ljust(LONGEST_PATH, b"\0"), np.uint8)
        told = multihost_utils.broadcast_one_to_all(name)
        yield Path(bytes(np.asarray(told, np.uint8)).rstrip(b"\0").decode())
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)


DIGITS = 4  # numbers are compared as they are shown


@dataclass(frozen=True)
class SeenArray:
    """An array, as one process sees it.

    Attributes:
        shape: The whole array's shape.
        spans: Whether it lies on devices of several processes.
        pieces: The values of this process's pieces, by where each begins; one for each device, in
            the order of the devices' places.
    """

    shape: tuple[int, ...]
    spans: bool
    pieces: tuple[tuple[tuple[int, ...], list[Any]], ...]

    def __str__(self) -> str:
        where = "spans processes" if self.spans else "lies on this process alone"
        pieces = ", ".join(f"{values} at {start}" for start, values in self.pieces)
        return f"shape {self.shape}, {where}, here {pieces}"


@dataclass(frozen=True)
class SeenSharding:
    """How an array is laid out, without its values.

    Attributes:
        shape: The whole array's shape.
        spec: Over which axes of the mesh each dimension is split; None for a sharding of another
            kind.
        regions: What each of this process's devices holds, as the bounds of each dimension, in
            the order of the devices' places.
        copies: On how many devices the part of the first of them lies.
    """

    shape: tuple[int, ...]
    spec: tuple[tuple[str, ...], ...] | None
    regions: tuple[tuple[tuple[int, int], ...], ...]
    copies: int

    def __str__(self) -> str:
        held = " and ".join(
            "[" + ", ".join(f"{begin}:{end}" for begin, end in region) + "]"
            for region in self.regions
        )
        copies = "" if self.copies == 1 else f", on {self.copies} devices each"
        return f"shape {self.shape}, here {held or 'nothing'}{copies}"


def kind(value: Any, wanted: str) -> str:
    """Return the description of a value that is of another kind.

    Example:
        >>> kind([1], "jax.Array")
        'a list, which is no jax.Array'
    """
    given = a_or_an(type(value).__name__)
    return f"a{given[1:]}, which is no {wanted}"


def number(value: Any) -> object:
    """Describe a whole number.

    Example:
        >>> number(np.int32(3)), number("x")
        (3, "'x', which is no whole number")
    """
    return int(value) if hasattr(value, "__index__") else f"{value!r}, which is no whole number"


def text(value: Any) -> object:
    """Describe a string."""
    return value if isinstance(value, str) else kind(value, "string")


def rounded(value: Any) -> object:
    """Describe a number with a fraction, as exactly as different orders of summing allow.

    Example:
        >>> rounded(np.float32(0.1)), rounded(1 / 3)
        (0.1, 0.3333)
    """
    try:
        return float(f"{float(value):.{DIGITS}g}")
    except (TypeError, ValueError):
        return kind(value, "number")


def items(one: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return how a list or tuple is described, given how each of its items is.

    Example:
        >>> items(number)([1, 2])
        (1, 2)
    """

    def look(value: Any) -> object:
        if not isinstance(value, (list, tuple)):
            return kind(value, "list or tuple")
        return tuple(one(item) for item in value)

    return look


def array(value: Any) -> object:
    """Describe an array with what this process holds of it; numbers are rounded."""
    import jax

    if not isinstance(value, jax.Array):
        return kind(value, "jax.Array")
    pieces = [
        (tuple(part.start or 0 for part in shard.index), _values(shard.data))
        for shard in _in_place(value.addressable_shards)
    ]
    return SeenArray(value.shape, not value.is_fully_addressable, tuple(pieces))


def sharding(value: Any, shape: Sequence[int] | None = None) -> object:
    """Describe how an array is laid out; or how a sharding would lay out a shape.

    Args:
        value: An array, or a sharding.
        shape: The shape, for a sharding.
    """
    import jax

    if isinstance(value, jax.Array):
        shape, value = value.shape, value.sharding
    if not isinstance(value, jax.sharding.Sharding) or shape is None:
        return kind(value, "jax.Array")
    from mcnb.errors import PictureError
    from mcnb.pictures.inspect import layout_of

    try:
        layout = layout_of(value, shape)
    except PictureError as error:
        return str(error)
    process = jax.process_index()
    own = sorted(
        (device.position, region)
        for region in layout.regions
        for device in region.devices
        if device.process == process
    )
    return SeenSharding(
        tuple(shape),
        layout.split if layout.mesh is not None else None,
        tuple(region.bounds for _, region in own),
        len(own[0][1].devices) if own else 0,
    )


def _in_place(shards: Sequence[Any]) -> list[Any]:
    return sorted(shards, key=lambda shard: shard.device.id)


def _values(data: Any) -> list[Any]:
    values = np.asarray(data)
    if values.dtype.kind in "biu":
        found: list[Any] = values.tolist()
        return found
    flat = [float(f"{float(v):.{DIGITS}g}") for v in values.astype(np.float64).ravel()]
    rows: list[Any] = np.array(flat).reshape(values.shape).tolist()
    return rows
