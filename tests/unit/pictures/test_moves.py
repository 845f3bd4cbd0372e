"""What moves from one sharding to another, against a count of every element."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.lockstep.hlo import Operation
from mcnb.pictures.inspect import layout_of
from mcnb.pictures.model import Device, Layout, Region, named
from mcnb.pictures.moves import change_scene, moves
from mcnb.pictures.play import player_of
from mcnb.pictures.program import Use
from mcnb.pictures.scene import Grid, Table
from tests.support.fake_devices import fake_devices

SHAPE = (8, 12)
DEVICES = fake_devices(8)


@st.composite
def shardings(draw: st.DrawFn) -> NamedSharding:
    sizes = draw(st.sampled_from([(8,), (4, 2), (2, 4), (2, 2, 2), (4,), (2, 2)]))
    names = "abc"[: len(sizes)]
    count = math.prod(sizes)
    first = draw(st.sampled_from([0, len(DEVICES) - count]))
    mesh = Mesh(DEVICES[first : first + count].reshape(sizes), tuple(names))
    fitting = [
        spec
        for order in itertools.permutations([*names, None], 2)
        for spec in (P(*order), P(None, order[:1] if order[0] else None))
        if all(
            size % math.prod(mesh.shape[n] for n in ((part,) if isinstance(part, str) else part))
            == 0
            for size, part in zip(SHAPE, spec, strict=True)
            if part
        )
    ]
    return NamedSharding(mesh, draw(st.sampled_from([*fitting, P()])))


def elements(sharding: NamedSharding) -> dict[Any, set[tuple[int, ...]]]:
    """Return which elements each device holds, counted one by one."""
    grid = np.arange(math.prod(SHAPE)).reshape(SHAPE)
    held = sharding.devices_indices_map(SHAPE)
    return {device: {(int(i),) for i in grid[index].ravel()} for device, index in held.items()}


@given(shardings(), shardings())
@settings(max_examples=200, deadline=None)
def test_every_element_stays_or_comes_from_the_nearest(
    before: NamedSharding, after: NamedSharding
) -> None:
    old, new = elements(before), elements(after)
    names = named([*old, *new])
    stays = within = between = 0
    for device, needed in new.items():
        for element in needed:
            holders = {names[other].process for other, has in old.items() if element in has}
            if element in old.get(device, set()):
                stays += 1
            elif names[device].process in holders:
                within += 1
            else:
                between += 1
    found = moves(
        *(layout_of(jax.ShapeDtypeStruct(SHAPE, np.int8, sharding=s)) for s in (before, after))
    )
    assert (found.stays, found.within, found.between) == (stays, within, between)


MESH = Mesh(DEVICES.reshape(4, 2), ("a", "b"))


def struct(*spec: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((8, 4), np.float32, sharding=NamedSharding(MESH, P(*spec)))


def test_both_stand_side_by_side() -> None:
    picture = mcnb.picture(struct("a"), NamedSharding(MESH, P()), name="x")
    lines = picture.text().splitlines()
    assert lines[0] == "x: float32[8,4]  P('a') → P()"
    assert re.fullmatch(r"before: P\('a'\) +after: P\(\)", lines[1])
    assert lines[-1] == (
        "768 B have to go between processes and 0 B between devices of one process; "
        "256 B stay where they are."
    )
    assert re.search(r"each +each other +64 B", picture.text())
    assert picture.svg().count(">after: P()<") == 1


def test_nothing_moves() -> None:
    text = mcnb.picture(struct(), struct("a")).text()
    assert "Nothing has to move: each device has what it needs." in text


@pytest.mark.parametrize("after", [("a",), ()])
def test_partial_sums_are_added_up(after: tuple[str, ...]) -> None:
    sharding = NamedSharding(Mesh(DEVICES.reshape(4, 2), ("a", "b")), P())
    whole = layout_of(sharding, (8,), "float32")
    before = replace(whole, spec="P(unreduced={'b'})", unreduced=("b",))
    target = layout_of(NamedSharding(sharding.mesh, P(*after)), (8,), "float32")
    scene = change_scene(before, target, [Use(Operation("all-reduce", 32, None))])
    assert scene.notes == (
        "Before, each device holds a partial sum over 'b'. The devices along it add up theirs, so "
        "each of them sends what it holds, or a part of it.",
        "XLA moves it with 1 all-reduce.",
    )
    assert not any(isinstance(part, Table) for part in scene.parts)
    with pytest.raises(mcnb.PictureError) as raised:
        player_of(before, target)
    assert str(raised.value) == (
        "mcnb.play moves parts of an array, and each device holds a partial sum over 'b' before, "
        "which is added up. mcnb.show draws the change as one picture"
    )
    # What stays a partial sum moves as it is.
    assert change_scene(before, before, None).notes == (
        "Nothing has to move: each device has what it needs.",
    )


def test_two_shardings_need_a_shape_and_two_arrays_the_same() -> None:
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(NamedSharding(MESH, P("a")), NamedSharding(MESH, P("b")))
    assert str(caught.value) == (
        "Two shardings have no shape. Pass the array's shape, too: mcnb.show(before, after, (8, 4))"
    )
    other = jax.ShapeDtypeStruct((4, 4), np.float32, sharding=NamedSharding(MESH, P("a")))
    with pytest.raises(mcnb.PictureError) as two:
        mcnb.picture(struct("a"), other)
    assert (
        str(two.value)
        == "The two arrays have different shapes, but a move does not change the shape: (8, 4) "
        "and (4, 4)"
    )
    text = mcnb.picture(NamedSharding(MESH, P("a")), NamedSharding(MESH, P("b")), (8, 4)).text()
    assert text.startswith("an array[8,4]  P('a') → P('b')\n")
    assert text.splitlines()[-1] == (
        "96 elements have to go between processes and 0 elements between devices of one process; "
        "32 elements stay where they are."
    )
    for third in (other, np.zeros((4, 4), np.float32)):
        two = mcnb.picture(NamedSharding(MESH, P("a")), NamedSharding(MESH, P("b")), third).text()
        assert two.startswith("float32[4,4]  P('a') → P('b')\n")
    mixed = mcnb.picture(NamedSharding(MESH, P("b")), other).text()
    assert mixed.startswith("float32[4,4]  P('b') → P('a')\n")


def test_each_to_each_other_is_one_row() -> None:
    large = Mesh(fake_devices(16, 1), ("a",))
    before, after = (NamedSharding(large, spec) for spec in (P("a"), P(None, "a")))
    text = mcnb.picture(before, after, jax.ShapeDtypeStruct((16, 16), np.float32)).text()
    assert re.search(r"each +each other +4 B", text)


def test_what_jax_does_otherwise_is_said() -> None:
    some = NamedSharding(Mesh(MESH.devices[:2], ("a", "b")), P("a"))
    text = mcnb.picture(struct("a"), some).text()
    assert text.splitlines()[-1] == (
        "The target has other devices: jax.device_put can move an array there only if it is fully "
        "addressable by one process."
    )
    turned = NamedSharding(Mesh(MESH.devices[::-1], ("a", "b")), P("a"))
    assert mcnb.picture(struct("a"), turned).text().splitlines()[-1] == (
        "The shardings list the devices in a different order, so the collectives are not known "
        "before the move."
    )
    own = jax.ShapeDtypeStruct(
        (8, 4), np.float32, sharding=jax.sharding.SingleDeviceSharding(MESH.devices.flat[4])
    )
    text = mcnb.picture(own, NamedSharding(MESH, P("a"))).text()
    assert (
        "An array on P2 alone is treated as a value that every process has: each process keeps "
        "its own part, and no data is sent." in text
    )
    assert "from" not in text


def test_the_holders_send_in_turn() -> None:
    """Each of two processes that hold a part sends it to one of the two that need it."""
    old = NamedSharding(Mesh(DEVICES[[0, 2]], "a"), P())
    new = NamedSharding(Mesh(DEVICES[[4, 6]], "a"), P())
    found = moves(*(layout_of(jax.ShapeDtypeStruct((3,), np.int8, sharding=s)) for s in (old, new)))
    assert found.moved == (((0, 2), 3), ((1, 3), 3))


ROTATED = """\
x: float32[3]  P('a') → P('a')
before: P('a')                              after: P('a')
→ dim 0: 3, split over 'a' (3)              → dim 0: 3, split over 'a' (3)
     0:1          1:2          2:3               0:1          1:2          2:3
┌────────────┬────────────┬────────────┐    ┌────────────┬────────────┬────────────┐
│ TPU 0 · P0 │ TPU 1 · P1 │ TPU 2 · P2 │    │ TPU 1 · P1 │ TPU 2 · P2 │ TPU 0 · P0 │
└────────────┴────────────┴────────────┘    └────────────┴────────────┴────────────┘
from  to  bytes
P0    P1    4 B
P1    P2    4 B
P2    P0    4 B
12 B have to go between processes and 0 B between devices of one process; 0 B stay where they are.
The shardings list the devices in a different order, so the collectives are not known before the \
move."""
SWAPPED = """\
an array[2]  P('a') → P('a')
before: P('a')                    after: P('a')                     from  to  elements
→ dim 0: 2, split over 'a' (2)    → dim 0: 2, split over 'a' (2)    P0    P1         1
┌──────┬──────┐                   ┌──────┬──────┐                   P1    P0         1
│ P0.0 │ P1.0 │                   │ P1.0 │ P0.0 │
└──────┴──────┘                   └──────┴──────┘
2 elements have to go between processes and 0 elements between devices of one process; \
0 elements stay where they are.
The shardings list the devices in a different order, so the collectives are not known before the \
move."""


def over(devices: Any, *spec: Any) -> NamedSharding:
    return NamedSharding(Mesh(devices, ("a",)), P(*spec))


def test_the_whole_text_of_a_rotation_and_of_a_swap() -> None:
    """Equal amounts are one row only if each process sends to each other one of several."""
    three = fake_devices(3, 1)
    before = jax.ShapeDtypeStruct((3,), np.float32, sharding=over(three, "a"))
    rotated = over(three[[1, 2, 0]], "a")
    assert mcnb.picture(before, rotated, name="x", bounds=True, ids=True).text() == ROTATED
    two = three[:2]
    assert mcnb.picture(over(two, "a"), over(two[::-1], "a"), (2,)).text() == SWAPPED


@pytest.mark.parametrize(
    ("count", "note"), [(16, ()), (18, ("2 more pairs of processes are not",))]
)
def test_of_very_many_pairs_the_first_are_listed(count: int, note: tuple[str, ...]) -> None:
    devices = fake_devices(count, 1)
    rotated = over(np.roll(devices, -1), "a")
    before = jax.ShapeDtypeStruct((count,), np.float32, sharding=over(devices, "a"))
    scene = mcnb.picture(before, rotated).scene
    *_, table = scene.parts
    assert isinstance(table, Table)
    assert table.rows == tuple((f"P{k}", f"P{k + 1}", "4 B") for k in range(16 if note else 15)) + (
        () if note else (("P15", "P0", "4 B"),)
    )
    assert scene.notes[0].startswith(f"{4 * count} B have to go between processes")
    assert scene.notes[1:-1] == tuple(f"{text} listed." for text in note)


def test_different_amounts_are_different_rows() -> None:
    """Two processes need what a third one has, and one of them needs more of it."""
    both = Layout(
        (4,),
        "int8",
        1,
        (
            Region(((0, 1),), (Device(0, 0),)),
            Region(((1, 3),), (Device(1, 0),)),
            Region(((3, 4),), (Device(2, 0),)),
        ),
    )
    every = Layout((4,), "int8", 1, (Region(((0, 4),), tuple(Device(k, 0) for k in range(3))),))
    *_, table = change_scene(both, every, None).parts
    assert isinstance(table, Table)
    assert table.rows == (
        ("P0", "P1", "1 B"),
        ("P0", "P2", "1 B"),
        ("P1", "P0", "2 B"),
        ("P1", "P2", "2 B"),
        ("P2", "P0", "1 B"),
        ("P2", "P1", "1 B"),
    )


def test_each_slice_says_whether_it_is_of_before_or_after() -> None:
    cube = Mesh(DEVICES.reshape(2, 2, 2), ("a", "b", "c"))
    before = jax.ShapeDtypeStruct(
        (2, 2, 2), np.int8, sharding=NamedSharding(cube, P("a", "b", "c"))
    )
    scene = mcnb.picture(before, NamedSharding(cube, P("a"))).scene
    assert [part.title for part in scene.parts if isinstance(part, Grid)] == [
        "before: P('a', 'b', 'c') [0:1, :, :]",
        "before: P('a', 'b', 'c') [1:2, :, :]",
        "after: P('a')",
    ]


def test_from_one_device_to_others_of_the_same_process_data_moves() -> None:
    pair = DEVICES[:2]
    before = jax.ShapeDtypeStruct(
        (2,), np.float32, sharding=jax.sharding.SingleDeviceSharding(pair[0])
    )
    scene = mcnb.picture(before, over(pair)).scene
    assert scene.title == "float32[2]  as it is → P()"
    assert scene.notes[0] == (
        "0 B have to go between processes and 8 B between devices of one process; "
        "8 B stay where they are."
    )


def test_an_array_that_stays_needs_no_collective() -> None:
    x = jax.numpy.ones((2,))
    scene = mcnb.picture(x, x.sharding).scene
    assert scene.title == "float32[2]  as it is → as given"
    assert scene.notes == (
        "Nothing has to move: each device has what it needs.",
        "XLA needs no collective for it.",
    )
    assert [part.title for part in scene.parts if isinstance(part, Grid)] == ["before", "after"]


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ((), "XLA needs no collective for it."),
        (("all-gather",), "XLA moves it with 1 all-gather."),
        (
            ("all-to-all", "all-gather", "all-to-all"),
            "XLA moves it with 2 all-to-alls, 1 all-gather.",
        ),
    ],
)
def test_the_collectives_of_a_move_are_counted(kinds: tuple[str, ...], said: str) -> None:
    before, after = (layout_of(struct(*spec)) for spec in (("a",), ()))
    uses = [Use(Operation(kind, 8, None)) for kind in kinds]
    for devices in ("same", "reordered"):
        scene = change_scene(before, after, uses, devices=devices)
        assert scene.notes[1:] == (said,)
    assert len(change_scene(before, after, None).notes) == 1


def test_two_shardings_take_one_shape() -> None:
    with pytest.raises(mcnb.PictureError) as caught:
        mcnb.picture(NamedSharding(MESH, P("a")), NamedSharding(MESH, P("b")), (8, 4), (8, 4))
    assert str(caught.value) == "Two shardings take one shape: mcnb.show(before, after, (8, 4))"
