"""Layouts and meshes of every size, box for box."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.pictures.inspect import layout_of, mesh_model
from mcnb.pictures.model import Axis, Device, Layout, MeshModel, Region, by_id
from mcnb.pictures.scene import Grid, Scene
from mcnb.pictures.scenes.layout import layout_scene
from mcnb.pictures.scenes.mesh import mesh_scene
from mcnb.pictures.text import text_of
from tests.support.fake_devices import fake_devices
from tests.unit.pictures.test_show import mesh_of, struct

SLICES = """\
float32[4,6,4]  P('a', 'b', 'c')
[0:2, :, :]
↓ dim 1: 6, split over 'b' (2)   → dim 2: 4, split over 'c' (2)
      0:2    2:4
    ┌──────┬──────┐
0:3 │ P0.0 │ P0.1 │
    ├──────┼──────┤
3:6 │ P1.0 │ P1.1 │
    └──────┴──────┘
[2:4, :, :]
↓ dim 1: 6, split over 'b' (2)   → dim 2: 4, split over 'c' (2)
      0:2    2:4
    ┌──────┬──────┐
0:3 │ P2.0 │ P2.1 │
    ├──────┼──────┤
3:6 │ P3.0 │ P3.1 │
    └──────┴──────┘
On 8 devices of 4 processes: P0-3, float32[2,3,2] of 48 B on each; global: spans all devices."""
ABBREVIATED = """\
float32[2,36]  P('a', 'b')
↓ dim 0: 2, split over 'a' (2)   → dim 1: 36, split over 'b' (36)
   0:1     1:2     2:3     3:4     4:5    …   34:35   35:36
┌───────┬───────┬───────┬───────┬───────┬───┬───────┬───────┐
│  P0.0 │  P0.1 │  P1.0 │  P1.1 │  P2.0 │ … │ P17.0 │ P17.1 │
├───────┼───────┼───────┼───────┼───────┼───┼───────┼───────┤
│ P18.0 │ P18.1 │ P19.0 │ P19.1 │ P20.0 │ … │ P35.0 │ P35.1 │
└───────┴───────┴───────┴───────┴───────┴───┴───────┴───────┘
On 72 devices of 36 processes: P0-35, float32[1,1] of 4 B on each; global: spans all devices."""
SIXTEEN_COPIES = """\
float32[2]  P()
→ dim 0: 2, whole
┌─────────────────────────────────────────┐
│ P0.0 P0.1 P1.0 P1.1 P2.0 P2.1 P3.0 P3.1 │
│ P4.0 P4.1 P5.0 P5.1 P6.0 P6.1 P7.0 P7.1 │
└─────────────────────────────────────────┘
On 16 devices of 8 processes: P0-7, float32[2] of 8 B on each; global: spans all devices.
Replicated over 'a' (8) and 'b' (2): each device holds all of it."""
AN_AXIS_OF_ONE = """\
float32[4,2]  P('a', 'b')
↓ dim 0: 4, split over 'a' (2)   → dim 1: 2, over 'b' (1)
┌───────────┐
│ P0.0 P0.1 │
├───────────┤
│ P1.0 P1.1 │
└───────────┘
On 4 devices of 2 processes: P0-1, float32[2,2] of 16 B on each; global: spans all devices.
Replicated over 'c' (2): each part lies on 2 devices."""
NO_ELEMENTS = """\
float32[0,4]  P('a')
↓ dim 0: 0, over 'a' (2)   → dim 1: 4, whole
┌───────────┐
│ P0.0 P0.1 │
│ P1.0 P1.1 │
└───────────┘
On 4 devices of 2 processes: P0-1, float32[0,4] of 0 B on each; global: spans all devices.
It has no elements."""
TWO_AXES = """\
float32[8]  P(('a', 'b'))
→ dim 0: 8, split over 'a' (2), 'b' (2)
  0:2    2:4    4:6    6:8
┌──────┬──────┬──────┬──────┐
│ P0.0 │ P0.1 │ P1.0 │ P1.1 │
└──────┴──────┴──────┴──────┘
On 4 devices of 2 processes: P0-1, float32[2] of 8 B on each; global: spans all devices."""
LAYOUTS: dict[str, tuple[Any, bool, str]] = {
    "three dimensions": (struct((4, 6, 4), mesh_of((2, 2, 2), "abc"), *"abc"), True, SLICES),
    "very many columns": (struct((2, 36), mesh_of((2, 36), "ab"), *"ab"), False, ABBREVIATED),
    "copies on many devices": (struct((2,), mesh_of((8, 2), "ab")), False, SIXTEEN_COPIES),
    "an axis of one": (struct((4, 2), mesh_of((2, 1, 2), "abc"), *"ab"), False, AN_AXIS_OF_ONE),
    "no elements": (struct((0, 4), mesh_of((2, 2), "ab"), "a"), False, NO_ELEMENTS),
    "two axes on one dimension": (struct((8,), mesh_of((2, 2), "ab"), ("a", "b")), True, TWO_AXES),
}


@pytest.mark.parametrize(("given", "bounds", "text"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_whole_text_of_a_layout(given: Any, bounds: bool, text: str) -> None:
    assert mcnb.picture(given, bounds=bounds).text() == text


def boxes(scene: Scene) -> list[list[tuple[str, ...]]]:
    """Return the lines in the boxes of the first grid."""
    grid = scene.parts[0]
    assert isinstance(grid, Grid)
    return [[("…",) if cell is None else cell.lines for cell in row] for row in grid.rows]


def titles(scene: Scene) -> list[str]:
    return [part.title for part in scene.parts if isinstance(part, Grid)]


@pytest.mark.parametrize(("parts", "rows", "columns"), [(12, 1, 12), (13, 13, 1)])
def test_a_long_array_is_a_column(parts: int, rows: int, columns: int) -> None:
    drawn = boxes(layout_scene(layout_of(struct((parts,), mesh_of((parts,), "a"), "a"))))
    assert (len(drawn), len(drawn[0])) == (rows, columns)


@pytest.mark.parametrize(
    ("copies", "parts", "first"),
    [
        (4, 18, ("P0.0", "P18.0", "P36.0", "P54.0")),
        (5, 18, ("P0.0", "P18.0", "…", "P72.0", "(5 devices)")),
    ],
)
def test_a_box_of_a_large_picture_names_a_few_devices(
    copies: int, parts: int, first: tuple[str, ...]
) -> None:
    devices = fake_devices(copies * parts, 1).reshape(copies, parts)
    scene = layout_scene(layout_of(struct((parts,), Mesh(devices, ("a", "b")), "b")))
    drawn, [grid] = boxes(scene), scene.parts
    assert drawn[0] == [first]
    assert drawn[5] == [("…",)]
    assert isinstance(grid, Grid)
    assert grid.row_heads == ("0:1", "1:2", "2:3", "3:4", "4:5", "…", "16:17", "17:18")
    assert grid.column_heads == ()


@pytest.mark.parametrize(
    ("sizes", "drawn", "note"),
    [
        ((9, 2, 2), 9, ()),
        ((16, 2, 2), 16, ()),
        ((8, 3, 3), 8, ()),
        ((9, 4, 2), 8, ("8 of 9 slices along {} are drawn.",)),
    ],
)
def test_of_many_slices_of_a_large_picture_the_first_are_drawn(
    sizes: tuple[int, ...], drawn: int, note: tuple[str, ...]
) -> None:
    mesh = mesh_of(sizes, "abc")
    layout = layout_scene(layout_of(struct(sizes, mesh, *"abc")))
    assert titles(layout) == [f"[{i}:{i + 1}, :, :]" for i in range(drawn)]
    assert layout.notes[1:] == tuple(text.format("dim 0") for text in note)
    for given in (mesh, AbstractMesh(sizes, tuple("abc"))):
        scene = mesh_scene(mesh_model(given))
        assert titles(scene) == [f"'a' = {i}" for i in range(drawn)]
        said = tuple(one for one in scene.notes if "slices" in one)
        assert said == tuple(text.format("'a'") for text in note)


UNEVEN = """\
x: float32[6]
→ dim 0: 6, in 2 parts
  0:4    4:6
┌──────┬──────┐
│ P0.0 │ P1.0 │
└──────┴──────┘
On 2 devices of 2 processes: P0-1, 8 B to 16 B on each; spans 2 of 3 processes.
In memory of kind pinned_host."""


def test_parts_of_different_sizes_on_some_processes_in_other_memory() -> None:
    regions = (Region(((0, 4),), (Device(0, 0),)), Region(((4, 6),), (Device(1, 0),)))
    layout = Layout((6,), "float32", 4, regions, processes=3, all_devices=3, memory="pinned_host")
    scene = layout_scene(layout, name="x", bounds=True)
    assert text_of(scene) == UNEVEN
    [grid] = scene.parts
    assert isinstance(grid, Grid)
    assert (grid.widths, grid.heights) == ((1.0, 0.5), (1.0,))
    unknown = Layout((6,), "", 0, regions, processes=3, all_devices=2)
    assert layout_scene(unknown).title == "an array[6]"
    assert layout_scene(unknown).notes == (
        "On 2 devices of 2 processes: P0-1; global: spans all devices.",
    )


def test_where_there_is_one_process_nothing_is_said_of_others() -> None:
    layout = layout_of(struct((2,), mesh_of((2,), "a"), "a"))
    assert layout_scene(layout).notes == (
        "On 2 devices of 1 process: P0, float32[1] of 4 B on each.",
    )


def test_the_sizes_of_a_layout_count_every_copy_on_its_device() -> None:
    first, second = Device(0, 0), Device(1, 0)
    layout = Layout(
        (4,), "int16", 2, (Region(((0, 3),), (first, second)), Region(((3, 4),), (first,)))
    )
    assert (layout.copies, layout.bytes) == (2, 8)
    assert layout.device_bytes == {first: 8, second: 6}


def test_an_array_is_replicated_over_axes_that_neither_split_nor_sum_it() -> None:
    mesh = MeshModel((Axis("a", 2), Axis("b", 2), Axis("c", 1), Axis("d", 2)), ())
    layout = Layout((4,), "int8", 1, (), mesh=mesh, split=(("a",),), unreduced=("b",))
    assert layout.replicated() == ("d",)


def test_ids_are_in_their_own_order_whichever_processes_have_them() -> None:
    assert by_id([Device(0, 0, 4, "tpu"), Device(1, 0, 2, "tpu")]) == "TPU 2,4 · P0-1"
    many = [Device(k, 0, 20 - k, "gpu") for k in range(9)]
    assert by_id(many) == "GPU 12-20 · P0-8"


ONE_EACH = "the first device of each process"
SCOPES: dict[str, tuple[slice, str, str]] = {
    "all": (
        slice(None),
        "Global: all 8 devices of all 4 processes: P0-3.",
        "On 8 devices of 4 processes: P0-3, int8[2] of 2 B on each; global: spans all devices.",
    ),
    ONE_EACH: (
        slice(0, 8, 2),
        "Process-spanning: 4 devices of 4 processes: P0-3; there are 4 processes.",
        "On 4 devices of 4 processes: P0-3, int8[2] of 2 B on each; spans 4 of 4 processes.",
    ),
    "some": (
        slice(1, 4),
        "Process-spanning: 3 devices of 2 processes: P0-1; there are 4 processes.",
        "On 3 devices of 2 processes: P0-1, int8[2] of 2 B on each; spans 2 of 4 processes.",
    ),
    "one process": (
        slice(2, 4),
        "Local: 2 devices of process 1 alone.",
        "On 2 devices of 1 process: P1, int8[2] of 2 B on each; local to process 1.",
    ),
}


@pytest.mark.parametrize(("which", "of_mesh", "of_array"), SCOPES.values(), ids=SCOPES)
def test_how_far_a_mesh_and_an_array_reach(which: slice, of_mesh: str, of_array: str) -> None:
    every = fake_devices(8)

    class Client:
        def devices(self) -> list[Any]:
            return list(every)

    for device in every:
        device.client = Client()
    mesh = Mesh(every[which], ("x",))
    assert mesh_scene(mesh_model(mesh)).notes[0] == of_mesh
    layout = layout_of(NamedSharding(mesh, P()), (2,), np.int8)
    assert layout_scene(layout).notes[0] == of_array


A_MESH_OF_THREE = """\
Mesh 'a': 2, 'b': 2, 'c': 2
'a' = 0                'a' = 1
↓ 'b': 2   → 'c': 2    ↓ 'b': 2   → 'c': 2
     0      1               0      1
  ┌──────┬──────┐        ┌──────┬──────┐
0 │ P0.0 │ P0.1 │      0 │ P2.0 │ P2.1 │
  ├──────┼──────┤        ├──────┼──────┤
1 │ P1.0 │ P1.1 │      1 │ P3.0 │ P3.1 │
  └──────┴──────┘        └──────┴──────┘
Global: all 8 devices of all 4 processes: P0-3.
Axis types: 'a' and 'c' Auto, 'b' Explicit."""
A_LINE = """\
Mesh 'a': 2
→ 'a': 2
   0      1
┌──────┬──────┐
│ P0.0 │ P0.1 │
└──────┴──────┘
2 devices of 1 process: P0.
Axis types: 'a' Auto."""
A_POINT = """\
Mesh without axes
┌──────┐
│ P0.0 │
└──────┘
1 device of 1 process: P0."""
A_LARGE_MESH = """\
Mesh 'a': 2, 'b': 36
↓ 'a': 2   → 'b': 36
      0       1       2       3       4     …     34      35
  ┌───────┬───────┬───────┬───────┬───────┬───┬───────┬───────┐
0 │  P0.0 │  P0.1 │  P1.0 │  P1.1 │  P2.0 │ … │ P17.0 │ P17.1 │
  ├───────┼───────┼───────┼───────┼───────┼───┼───────┼───────┤
1 │ P18.0 │ P18.1 │ P19.0 │ P19.1 │ P20.0 │ … │ P35.0 │ P35.1 │
  └───────┴───────┴───────┴───────┴───────┴───┴───────┴───────┘
Global: all 72 devices of all 36 processes: P0-35.
Axis types: 'a' and 'b' Auto.
In the mesh's order, each process has 2 devices in a row, processes ascending."""
KINDS = (AxisType.Auto, AxisType.Explicit, AxisType.Auto)
MESHES: dict[str, tuple[Mesh, str]] = {
    "three axes": (mesh_of((2, 2, 2), "abc", axis_types=KINDS), A_MESH_OF_THREE),
    "one axis": (mesh_of((2,), "a"), A_LINE),
    "no axis": (Mesh(fake_devices(1).reshape(()), ()), A_POINT),
    "very many devices": (mesh_of((2, 36), "ab"), A_LARGE_MESH),
}


@pytest.mark.parametrize(("mesh", "text"), MESHES.values(), ids=MESHES)
def test_the_whole_text_of_a_mesh(mesh: Mesh, text: str) -> None:
    assert mcnb.picture(mesh).text() == text


@pytest.mark.parametrize(
    ("order", "note"),
    [
        (
            list(reversed(range(72))),
            "In the mesh's order, each process has 2 devices in a row.",
        ),
        (
            [*range(0, 72, 2), *range(1, 72, 2)],
            "In the mesh's order, each process has 1 device in a row.",
        ),
        ([*range(1, 72), 0], "The devices of a process stand in runs of 1 to 2."),
    ],
    ids=["descending", "by turns", "shifted"],
)
def test_the_order_of_a_large_mesh_is_told(order: list[int], note: str) -> None:
    mesh = Mesh(fake_devices(72)[order].reshape(2, 36), ("a", "b"))
    assert mesh_scene(mesh_model(mesh)).notes[-1] == note


def test_a_gap_in_a_large_mesh_takes_less_room_than_a_device() -> None:
    [grid] = mesh_scene(mesh_model(mesh_of((9, 8), "ab"))).parts
    assert isinstance(grid, Grid)
    assert grid.row_heads == ("0", "1", "2", "3", "4", "…", "7", "8")
    assert grid.heights == (1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0)
    assert grid.widths == (1.0,) * 8
