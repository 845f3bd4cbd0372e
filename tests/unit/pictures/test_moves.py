"""What moves from one sharding to another, against a count of every element."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.pictures.inspect import layout_of
from mcnb.pictures.model import named
from mcnb.pictures.moves import moves
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
    assert picture.svg().count("after: P()") == 1


def test_nothing_moves() -> None:
    text = mcnb.picture(struct(), struct("a")).text()
    assert "Nothing has to move: each device has what it needs." in text


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
