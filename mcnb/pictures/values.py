"""The numbers of a small array, as far as this process has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mcnb.errors import PictureError
from mcnb.options import a_or_an
from mcnb.pictures.devices import by_id
from mcnb.pictures.model import Region
from mcnb.pictures.scene import ELSEWHERE

MOST_VALUES = 256


def value_labels(array: Any, *, ids: bool = False) -> Callable[[Region], tuple[str, ...]]:
    """Return what stands in a region's box: its values, where this process holds them.

    Nothing is moved or computed: only shards of this process's own devices are read.

    Args:
        array: An array of at most 256 elements.
        ids: Whether devices are told by JAX's numbers for them.

    Raises:
        PictureError: It is no array, or too large.
    """
    if not isinstance(array, jax.Array):
        raise PictureError(f"{a_or_an(type(array).__name__)} has no values to show: give an array")
    if array.size > MOST_VALUES:
        raise PictureError(
            f"An array of {array.size} elements is too large to show its values; the limit is "
            f"{MOST_VALUES}. Show a part of it, or leave out values=True"
        )
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise PictureError("Random keys have no values to show: see jax.random.key_data")
    held: dict[tuple[tuple[int, int], ...], Any] = {}
    for shard in array.addressable_shards:
        bounds = tuple(
            part.indices(size)[:2] for part, size in zip(shard.index, array.shape, strict=True)
        )
        held.setdefault(bounds, shard.data)

    def label(region: Region) -> tuple[str, ...]:
        lines = [by_id(region.devices) if ids else " ".join(map(str, region.devices))]
        data = held.get(region.bounds)
        return (*lines, ELSEWHERE) if data is None else (*lines, *_lines(np.asarray(data)))

    return label


def _lines(values: np.ndarray[Any, Any]) -> list[str]:
    if values.dtype == object or values.dtype.kind == "V":  # bfloat16 and its like
        values = values.astype(np.float32)
    text = np.array2string(
        values, precision=3, suppress_small=True, threshold=MOST_VALUES + 1, max_line_width=200
    )
    return [line.replace("[", "").replace("]", "").strip() for line in text.split("\n") if line]
