"""Values of learners as plain data: what is compared, and how it is told in a line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mcnb.exercises import looks
from mcnb.exercises.looks import SeenArray, SeenSharding
from tests.support.fake_devices import fake_devices


class Array(jax.Array):
    """An array of which this process has some shards.

    Args:
        whole: Its values.
        starts: For each shard here, the device's number and its first row.
        size: The rows of each shard.
    """

    def __init__(self, whole: Any, starts: list[tuple[int, int | None]], size: int) -> None:
        self._whole = np.asarray(whole)
        self._starts = starts
        self._size = size

    @property
    def shape(self) -> tuple[int, ...]:
        return self._whole.shape

    @property
    def is_fully_addressable(self) -> bool:
        return len(self._starts) * self._size == len(self._whole)

    @property
    def addressable_shards(self) -> Any:
        return [
            SimpleNamespace(
                device=SimpleNamespace(id=device),
                index=(
                    slice(start, (start or 0) + self._size),
                    *[slice(None)] * (self._whole.ndim - 1),
                ),
                data=self._whole[start or 0 :][: self._size],
            )
            for device, start in self._starts
        ]


def test_an_array_is_told_by_its_shards_in_the_order_of_devices() -> None:
    whole = np.arange(8).reshape(4, 2)
    seen = looks.array(Array(whole, [(3, 2), (1, None)], 1))
    assert seen == SeenArray((4, 2), True, (((0, 0), [[0, 1]]), ((2, 0), [[4, 5]])))
    assert str(seen) == "shape (4, 2), spans processes, here [[0, 1]] at (0, 0), [[4, 5]] at (2, 0)"
    assert seen == looks.rows(whole, [0, 2], 1, 2)
    alone = looks.array(Array(whole, [(0, None)], 4))
    assert alone == looks.rows(whole, [0], 4, 1)
    assert str(alone) == (
        "shape (4, 2), lies on this process alone, here [[0, 1], [2, 3], [4, 5], [6, 7]] at (0, 0)"
    )
    assert looks.array(whole) == "an ndarray, which is no jax.Array"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            np.array([[0.1, 1 / 3], [12345.6, -2e-9]], np.float32),
            [[0.1, 0.3333], [12350.0, -2e-09]],
        ),
        (np.array([True, False]), [True, False]),
        (np.array([12345, -1], np.int32), [12345, -1]),
        (np.array([70000], np.uint32), [70000]),
    ],
)
def test_only_what_is_no_whole_number_is_rounded(values: Any, expected: list[Any]) -> None:
    seen = looks.array(Array(values, [(0, 0)], len(values)))
    assert isinstance(seen, SeenArray)
    ((_, found),) = seen.pieces
    assert found == expected
    assert list(map(type, np.ravel(found).tolist())) == list(map(type, np.ravel(expected).tolist()))


SPEC = PartitionSpec


class Sharded(Array):
    """An array that is split over devices of several processes."""

    def __init__(self, shape: tuple[int, ...], *spec: str | None) -> None:
        super().__init__(np.zeros(shape), [], 0)
        self._spec = spec

    @property
    def sharding(self) -> NamedSharding:
        mesh = Mesh(fake_devices(8, 2).reshape(4, 2), ("row", "column"))
        return NamedSharding(mesh, SPEC(*self._spec))


@pytest.mark.parametrize(
    ("value", "seen", "text"),
    [
        (
            Sharded((8, 4), "row", "column"),
            SeenSharding((8, 4), (((4, 6), (0, 2)), ((4, 6), (2, 4))), 1),
            "shape (8, 4), here [4:6, 0:2] and [4:6, 2:4]",
        ),
        (
            Sharded((8,), "row"),
            SeenSharding((8,), (((4, 6),), ((4, 6),)), 2),
            "shape (8,), here [4:6] and [4:6], on 2 devices each",
        ),
        (
            Sharded((2, 8), None, "column"),
            SeenSharding((2, 8), (((0, 2), (0, 4)), ((0, 2), (4, 8))), 4),
            "shape (2, 8), here [0:2, 0:4] and [0:2, 4:8], on 4 devices each",
        ),
    ],
)
def test_a_sharding_is_told_by_the_regions_of_this_process(
    value: Sharded, seen: SeenSharding, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: 2)
    assert looks.sharding(value) == seen
    assert str(seen) == text


def test_a_process_without_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: 9)
    seen = looks.sharding(Sharded((8,), "row"))
    assert seen == SeenSharding((8,), (), 0)
    assert str(seen) == "shape (8,), here nothing, on 0 devices each"


def test_a_sharding_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    assert looks.sharding([1]) == "a list, which is no jax.Array"
    assert str(looks.sharding(Sharded((7,), "row"))).startswith(
        "An array of shape (7,) can't be split as P('row'): "
    )


@pytest.mark.parametrize(
    ("look", "value", "expected"),
    [
        (looks.number, True, 1),
        (looks.number, np.int64(-3), -3),
        (looks.number, 1.5, "1.5, which is no whole number"),
        (looks.number, lambda: 1, "a function, which is no whole number"),
        (looks.text, "a", "a"),
        (looks.text, 1, "an int, which is no string"),
        (looks.rounded, 12346, 12350.0),
        (looks.rounded, "many", "a str, which is no number"),
        (looks.rounded, [1], "a list, which is no number"),
        (looks.items(looks.rounded), (1, "a"), (1.0, "a str, which is no number")),
        (looks.items(looks.number), {1}, "a set, which is no list or tuple"),
        (looks.function(lambda f: f() + 1), lambda: 1, 2),
        (looks.function(lambda f: f() + 1), 3, "an int, which is no function"),
    ],
)
def test_values_of_each_kind(look: Any, value: object, expected: object) -> None:
    assert look(value) == expected
    assert type(look(value)) is type(expected)
