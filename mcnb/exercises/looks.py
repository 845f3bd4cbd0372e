"""Describe values as plain data that can be compared and printed on one line.

Nothing here communicates: an array is described by its addressable shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcnb._text import a_or_an

DIGITS = 4  # significant digits of numbers, as compared and as printed


@dataclass(frozen=True)
class SeenArray:
    """Description of an array on one process.

    Attributes:
        shape: Global shape.
        spans: Whether the array spans several processes.
        pieces: Start index and values of each addressable shard, ordered by device id.
    """

    shape: tuple[int, ...]
    spans: bool
    pieces: tuple[tuple[tuple[int, ...], list[Any]], ...]

    def __str__(self) -> str:
        where = "spans processes" if self.spans else "lies on this process alone"
        pieces = ", ".join(f"{values} at {start}" for start, values in self.pieces)
        return f"shape {self.shape}, {where}, here {pieces}"


def rows(whole: Any, starts: Iterable[int], size: int, processes: int) -> SeenArray:
    """Describe an array, given its values and where each device's `size` rows start here."""
    after = (0,) * (whole.ndim - 1)
    pieces = [((start, *after), whole[start : start + size].tolist()) for start in starts]
    return SeenArray(whole.shape, processes > 1, tuple(pieces))


@dataclass(frozen=True)
class SeenSharding:
    """Description of how an array is sharded, without its values.

    Attributes:
        shape: Global shape.
        regions: Bounds in each dimension of the shard on each of this process's devices, ordered
            by the position of the device.
        copies: Number of devices that hold the first of these shards.
    """

    shape: tuple[int, ...]
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
    """Describe a value of the wrong type.

    Example:
        >>> kind([1], "jax.Array")
        'a list, which is no jax.Array'
    """
    given = a_or_an(type(value).__name__)
    return f"a{given[1:]}, which is no {wanted}"


def number(value: Any) -> object:
    """Describe an integer.

    Example:
        >>> number(np.int32(3)), number("x")
        (3, "'x', which is no whole number")
        >>> number(object())
        'an object, which is no whole number'
    """
    if hasattr(value, "__index__"):
        return int(value)
    written = repr(value)
    # An address differs between processes, and from run to run.
    if " at 0x" in written:
        return kind(value, "whole number")
    return f"{written}, which is no whole number"


def text(value: Any) -> object:
    """Describe a string."""
    return value if isinstance(value, str) else kind(value, "string")


def rounded(value: Any) -> object:
    """Describe a float, rounded so that the order of summation makes no difference.

    Example:
        >>> rounded(np.float32(0.1)), rounded(1 / 3)
        (0.1, 0.3333)
    """
    try:
        return float(f"{float(value):.{DIGITS}g}")
    except (TypeError, ValueError):
        return kind(value, "number")


def items(one: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a function that describes a list or tuple, given one that describes an item.

    Example:
        >>> items(number)([1, 2])
        (1, 2)
    """

    def look(value: Any) -> object:
        if not isinstance(value, (list, tuple)):
            return kind(value, "list or tuple")
        return tuple(one(item) for item in value)

    return look


def function(look: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return a function that describes a function, given one that tries it out."""
    return lambda value: look(value) if callable(value) else kind(value, "function")


def array(value: Any) -> object:
    """Describe an array by its addressable shards, with numbers rounded."""
    import jax

    if not isinstance(value, jax.Array):
        return kind(value, "jax.Array")
    pieces = [
        (tuple(part.start or 0 for part in shard.index), _values(shard.data))
        for shard in sorted(value.addressable_shards, key=lambda shard: shard.device.id)
    ]
    return SeenArray(value.shape, not value.is_fully_addressable, tuple(pieces))


def sharding(value: Any) -> object:
    """Describe the sharding of an array."""
    import jax

    from mcnb.errors import PictureError
    from mcnb.pictures.inspect import layout_of

    if not isinstance(value, jax.Array):
        return kind(value, "jax.Array")
    try:
        layout = layout_of(value.sharding, value.shape)
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
        value.shape,
        tuple(region.bounds for _, region in own),
        len(own[0][1].devices) if own else 0,
    )


def _values(data: Any) -> list[Any]:
    values = np.asarray(data)
    if values.dtype.kind not in "biu":
        flat = map(rounded, values.astype(np.float64).ravel())
        values = np.array([*flat]).reshape(values.shape)
    found: list[Any] = values.tolist()
    return found
