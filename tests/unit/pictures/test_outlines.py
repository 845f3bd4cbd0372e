"""The outline of an array in a picture: its proportions, and room for what is written into it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcnb
from mcnb.pictures.drawing import (
    INK,
    LINE,
    MOST_HEIGHT,
    MOST_WIDTH,
    PAPER,
    Box,
    drawing_of,
    width_of,
)
from mcnb.pictures.scene import Grid
from tests.unit.pictures.test_show import mesh_of, struct

SPECS = [(), ("a",), (None, "b"), ("b", "a"), ("a", "b"), (None, "a"), ("b",)]


def outline(boxes: Sequence[Box]) -> tuple[float, float]:
    """Return the height and the width of an array whose parts these boxes are."""
    bottom, right = max(b.y + b.height for b in boxes), max(b.x + b.width for b in boxes)
    return bottom - min(b.y for b in boxes), right - min(b.x for b in boxes)


def outlines(shape: tuple[int, int]) -> list[tuple[float, float]]:
    """Return the outlines of an array that is split in several ways."""
    arrays = [struct(shape, mesh_of((4, 2), "ab"), *spec) for spec in SPECS]
    return [outline(drawing_of(mcnb.picture(array).scene).boxes) for array in arrays]


@pytest.mark.parametrize(("shape", "sides"), [((8, 8), (200, 200)), ((8, 4), (283, 141))])
def test_an_array_has_one_outline_however_it_is_split(
    shape: tuple[int, int], sides: tuple[int, int]
) -> None:
    found = [(round(height), round(width)) for height, width in outlines(shape)]
    assert found == [sides] * len(SPECS)


@pytest.mark.parametrize("rank", [1, 3])
def test_a_vector_has_one_outline_however_it_is_split(rank: int) -> None:
    """So has an array of which at most one dimension is split, and the others are not drawn."""
    shape = (16, *(28 for _ in range(rank - 1)))
    split = (((8,), "a", ("a",)), ((4, 2), "ab", ("b",)), ((4, 2), "ab", ()))
    arrays = [struct(shape, mesh_of(mesh, names), *spec) for mesh, names, spec in split]
    found = [outline(drawing_of(mcnb.picture(array).scene).boxes) for array in arrays]
    assert {(round(high), round(wide)) for high, wide in found} == {(100, 400)}
    long = struct((64, *shape[1:]), mesh_of((16,), "a"), "a")
    high, wide = outline(drawing_of(mcnb.picture(long).scene).boxes)
    assert (round(high), round(wide)) == (400, 100)


@pytest.mark.parametrize("count", [8, 12, 13, 16, 17, 32, 64])
def test_a_row_of_many_devices_fits_into_a_page(count: int) -> None:
    mesh, two = mesh_of((count,), "x"), mesh_of((2, count), "ab")
    row = struct((8, 2 * count), mesh, None, "x")
    for thing in (mesh, two, row, struct((count, 28, 28), mesh, "x")):
        picture = mcnb.picture(thing)
        assert drawing_of(picture.scene).width <= 1.16 * (MOST_WIDTH + 28), thing
        assert max(map(len, picture.text().splitlines())) <= 140
    across = mcnb.picture(row).scene.parts[0]
    assert isinstance(across, Grid)
    assert len(across.rows[0]) == (count if count <= 16 else 8)
    below = mcnb.picture(mesh).scene.parts[0]
    assert isinstance(below, Grid)
    assert (below.row_axis, below.column_axis) == (
        ("", f"'x': {count}") if count <= 12 else (f"'x': {count}", "")
    )


def test_labels_that_need_more_room_have_it() -> None:
    array = struct((64, 64), mesh_of((8,), "x"), None, "x")
    many = struct((64, 64), mesh_of((16,), "x"), None, "x")
    found = [outline(drawing_of(mcnb.picture(one).scene).boxes) for one in (array, many)]
    assert [(round(height), round(width)) for height, width in found] == [(282, 282), (400, 564)]


def test_before_and_after_a_move_an_array_has_one_outline() -> None:
    mesh = mesh_of((8,), "x")
    old, new = (struct((64, 64), mesh, *spec) for spec in (("x",), (None, "x")))
    boxes = drawing_of(mcnb.picture(old, new.sharding).scene).boxes
    before, after = boxes[:8], boxes[8:]
    assert sum(box.height for box in before) == pytest.approx(sum(box.width for box in after))
    assert before[0].width == pytest.approx(after[0].height)


@given(
    st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
    st.sampled_from([(8, 1), (4, 2), (2, 4), (1, 8), (2, 2), (1, 1)]),
    st.booleans(),
)
def test_an_outline_has_the_proportions_of_its_array_and_room_for_every_label(
    shape: tuple[int, int], devices: tuple[int, int], bounds: bool
) -> None:
    rows, columns = (n * parts for n, parts in zip(shape, devices, strict=True))
    array = struct((rows, columns), mesh_of(devices, "ab"), "a", "b")
    drawing = drawing_of(mcnb.picture(array, bounds=bounds).scene)
    high, wide = outline(drawing.boxes)
    assert wide < MOST_WIDTH + 1 or devices[1] > 4
    proportions = high / wide == pytest.approx(min(max(rows / columns, 1 / 4), 4))
    assert proportions or round(wide) >= MOST_WIDTH or round(high) >= MOST_HEIGHT
    for box in drawing.boxes:
        inside = [
            label
            for label in drawing.labels
            if box.x < label.x < box.x + box.width and box.y < label.y < box.y + box.height
        ]
        assert inside
        assert all(width_of(label.text) < box.width for label in inside)
        assert len(inside) * LINE < box.height


def test_where_colours_repeat_boxes_have_frames() -> None:
    every = drawing_of(mcnb.picture(mesh_of((20, 2), "ab")).scene).boxes
    frames = [(box.edge, box.dashed) for box in every[::2]]
    assert frames == [(PAPER, False)] * 8 + [(INK, False)] * 8 + [(INK, True)] * 4
    # A part that is on the first process, too, is told apart by its colours.
    shared = drawing_of(mcnb.picture(struct((8,), mesh_of((20, 2), "ab"))).scene).boxes
    assert [box.edge for box in shared] == [PAPER]
