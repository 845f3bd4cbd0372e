"""Programs as text, and what their groups are."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

Groups = tuple[tuple[int, ...], ...]


ROWS, COLUMNS = ((0, 1), (2, 3)), ((0, 2), (1, 3))


DEVICES = "P0.0 P0.1 P1.0 P1.1"


def as_lists(groups: Groups) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


@st.composite
def iotas(draw: st.DrawFn) -> tuple[str, Groups]:
    """An iota, and its groups, computed index by index."""
    dims = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    permutation = draw(st.permutations(range(len(dims))))
    weights = [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
    flat = [
        sum(index[permutation.index(axis)] * weights[axis] for axis in range(len(dims)))
        for index in np.ndindex(*(dims[axis] for axis in permutation))
    ]
    size = draw(st.sampled_from([n for n in range(1, len(flat) + 1) if len(flat) % n == 0]))
    rows = tuple(tuple(flat[i : i + size]) for i in range(0, len(flat), size))
    turned = permutation != sorted(permutation) or draw(st.booleans())
    spelling = f"[{len(rows)},{size}]<=[{','.join(map(str, dims))}]"
    return spelling + turned * f"T({','.join(map(str, permutation))})", rows
