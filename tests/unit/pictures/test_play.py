"""A change of layout that is played step by step, against a count of every element."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jax
import pytest
from hypothesis import given, settings
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.pictures.inspect import layout_of
from mcnb.pictures.model import Device, Layout, Region
from mcnb.pictures.moves import moves, needs
from mcnb.pictures.play import HOSTED, ORDER, Player, play, player_of
from mcnb.pictures.scene import Grid
from tests.unit.pictures.test_explore import Page
from tests.unit.pictures.test_moves import SHAPE, shardings
from tests.unit.pictures.test_show import mesh_of

MESH = mesh_of((4, 2), "ab")
ACROSS, ALONG = NamedSharding(MESH, P("a", "b")), NamedSharding(MESH, P("b", "a"))
X = jax.ShapeDtypeStruct((8, 4), "int32", sharding=ACROSS)


def texts(player: Player) -> list[str]:
    return [step.text for step in player.steps]


def boxes(player: Player, step: int) -> list[list[str]]:
    """Return the names in the boxes of a step, row by row."""
    [grid] = [part for part in player.steps[step].picture.scene.parts if isinstance(part, Grid)]
    return [[" ".join(map(str.strip, cell.lines)) for cell in row if cell] for row in grid.rows]


def test_each_process_sends_to_each_other_one() -> None:
    player = play(X, ALONG, name="x")
    assert str(player) == (
        "x: int32[8,4]  P('a', 'b') → P('b', 'a')\n"
        "Before: P('a', 'b').\n"
        "Step 1 of 3: 32 B in all, from P0 to P1, P1 to P2, P2 to P3, P3 to P0.\n"
        "Step 2 of 3: 32 B in all, from P0 to P2, P1 to P3, P2 to P0, P3 to P1.\n"
        "Step 3 of 3: 32 B in all, from P0 to P3, P1 to P0, P2 to P1, P3 to P2.\n"
        f"After: P('b', 'a'). 32 B stayed on their devices. {ORDER}"
    )
    assert boxes(player, 0)[:2] == [
        ["P0.0", "P0.0", "P0.1", "P0.1"],
        ["P1.0", "P1.0", "P1.1", "P1.1"],
    ]
    # What arrives in a step is marked in this one.
    assert boxes(player, 1)[0] == ["P0.0", "P0.0 +P1.0", "P0.1", "P0.1"]
    assert boxes(player, 2)[0] == ["P0.0", "P0.0 P1.0", "P0.1 +P2.0", "P0.1"]
    assert boxes(player, 4)[:2] == [["P0.0", "P1.0", "P2.0", "P3.0"]] * 2


def test_devices_of_one_process_come_first() -> None:
    player = play(X, NamedSharding(MESH, P("a")))
    assert texts(player) == [
        "Before: P('a', 'b').",
        "Step 1 of 1: 128 B between devices of one process.",
        "After: P('a'). 128 B stayed on their devices.",
    ]
    assert boxes(player, 1)[0] == ["P0.0 +P0.1", "P0.1 +P0.0"]


def test_nothing_moves() -> None:
    assert texts(play(X, ACROSS)) == [
        "Before: P('a', 'b').",
        "After: P('a', 'b'). 128 B stayed on their devices.",
    ]


def test_elements_whose_size_is_unknown() -> None:
    player = play(ACROSS, NamedSharding(MESH, P(None, "b")), (8, 4))
    assert texts(player)[1:2] == [
        "Step 1 of 3: 32 elements in all, from P0 to P1, P1 to P2, P2 to P3, P3 to P0."
    ]


def test_an_array_of_one_process() -> None:
    devices = [Device(k, 0, k) for k in range(2)]
    whole, low, high = ((0, 4),), ((0, 2),), ((2, 4),)
    before = Layout((4,), "int32", 4, (Region(whole, (devices[0],)),), processes=2, all_devices=2)
    after = Layout(
        (4,),
        "int32",
        4,
        (Region(low, (devices[0],)), Region(high, (devices[1],))),
        spec="P('a')",
        processes=2,
        all_devices=2,
    )
    assert texts(player_of(before, after)) == [
        "Before: as it is.",
        f"After: P('a'). {HOSTED}",
    ]


def test_many_pairs() -> None:
    mesh = mesh_of((16, 2), "ab")
    player = play(NamedSharding(mesh, P("a")), NamedSharding(mesh, P(None, "a")), (32, 16))
    pairs = ", ".join(f"P{k} to P{k + 1}" for k in range(8))
    assert texts(player)[1] == (f"Step 1 of 15: 64 elements in all, from {pairs}, 8 more pairs.")


@given(shardings(), shardings())
@settings(max_examples=50, deadline=None)
def test_the_steps_give_each_device_what_it_needs(old: NamedSharding, new: NamedSharding) -> None:
    before, after = (layout_of(one, SHAPE, "int32") for one in (old, new))
    player = player_of(before, after)
    found = moves(before, after)
    total = sum(one.count * 4 for one in needs(before, after) if one.source is None)
    assert total == found.stays
    assert len(player.steps) >= 2
    # Before the last step, each part is where it was and where it is to be.
    grids = [
        [part for part in step.picture.scene.parts if isinstance(part, Grid)]
        for step in player.steps
    ]

    def held(step: int) -> list[set[str]]:
        return [
            set(" ".join(cell.lines).replace("+", "").split())
            for grid in grids[step]
            for row in grid.rows
            for cell in row
            if cell
        ]

    for first, then, last in zip(held(0), held(-2), held(-1), strict=True):
        assert then == first | last or player.steps[-1].text.endswith(HOSTED)


def test_what_can_not_be_played() -> None:
    mesh = mesh_of((33, 2), "ab")
    with pytest.raises(mcnb.PictureError) as raised:
        play(NamedSharding(mesh, P("a")), NamedSharding(mesh, P()), (66,))
    assert str(raised.value) == (
        "mcnb.play draws at most 64 devices, and these layouts have 66. mcnb.show draws the "
        "change as one picture"
    )
    with pytest.raises(mcnb.PictureError) as raised:
        play(NamedSharding(MESH, P("a")), NamedSharding(MESH, P()), (0, 8))
    assert str(raised.value) == "an array[0,8] has no elements, so there is nothing to play"
    with pytest.raises(mcnb.PictureError) as raised:
        play(ACROSS, ALONG)
    assert "Two shardings have no shape" in str(raised.value)
    for before, after, neither in ((X, 3, "3"), ("x", ALONG, "'x'"), (X, MESH, repr(MESH))):
        with pytest.raises(mcnb.PictureError) as raised:
            play(before, after)
        assert str(raised.value) == (
            f"A change leads from an array or a sharding to another, and {neither} is neither. For "
            "example: mcnb.show(x, jax.NamedSharding(mesh, jax.P('x')))"
        )


def test_the_page_has_a_picture_for_each_step(tmp_path: Path) -> None:
    player = play(X, ALONG)
    data: list[dict[str, Any]] = json.loads(Page(player.html()).data)
    assert data == [{"svg": step.picture.svg(), "text": step.text} for step in player.steps]
    assert re.findall(r'max="(\d+)" value="(\d+)"', player.html()) == [("4", "0")]
    assert player._repr_mimebundle_() == {"text/html": player.html(), "text/plain": str(player)}
    player.save(tmp_path / "moves.html")
    assert player.html() in (tmp_path / "moves.html").read_text()
    with pytest.raises(mcnb.PictureError) as raised:
        player.save(tmp_path / "moves.png")
    assert str(raised.value) == "moves.png must end in .html, because a player is an HTML page"
