"""Trees: leaves that share a row, and what devices and processes hold."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.pictures.model import Device, Layout, Region
from mcnb.pictures.scene import Table
from mcnb.pictures.scenes.rows import MOST_LINES
from mcnb.pictures.scenes.tree import Leaf, tree_scene
from mcnb.pictures.text import text_of
from tests.support.fake_devices import fake_devices
from tests.unit.pictures.test_show import mesh_of

MESH = mesh_of((2, 2), "ab")


def array(shape: tuple[int, ...], *spec: Any, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


ON_ONE = jax.ShapeDtypeStruct((3,), "float32", sharding=SingleDeviceSharding(fake_devices(1)[0]))
TREE = {
    "layers": [{"w": array((4, 2), "a"), "b": array((2,))} for _ in range(3)],
    "v0": array((4, 2), "a"),
    "v1": array((4, 2), "b"),
    "v2": array((4, 2), "a", dtype="int32"),
    "v3": array((2, 4), "a"),
    "key": ON_ONE,
    "n0": 3,
    "n1": 2.0,
    "n2": 4,
}
TEXT = """\
A tree of 14 leaves
leaf                  shape             split          copies  bytes  on each device
['key']               float32[3]        on one device       1   12 B            12 B
['layers'][0-2]['b']  3 x float32[2]    P()                 4   24 B            24 B
['layers'][0-2]['w']  3 x float32[4,2]  P('a')              2   96 B            48 B
['n0,2']              int               on the host
['n1']                float             on the host
['v0']                float32[4,2]      P('a')              2   32 B            16 B
['v1']                float32[4,2]      P('b')              2   32 B            16 B
['v2']                int32[4,2]        P('a')              2   32 B            16 B
['v3']                float32[2,4]      P('a')              2   32 B            16 B
device       holds    process  holds
P0.0         148 B    P0       284 B
P0.1 P1.0-1  136 B    P1       272 B
260 B in all, each number counted once, 556 B on the devices, with all copies. 3 leaves lie on \
the host, not counted here."""


def test_only_leaves_that_differ_in_numbers_alone_share_a_row() -> None:
    assert mcnb.picture(TREE).text() == TEXT


def test_without_copies_nothing_is_counted_twice() -> None:
    whole = {"w": array((4, 2), "a", "b"), "x": array((4, 2), ("a", "b"))}
    assert mcnb.picture(whole).scene.notes == ("64 B in all.",)


def of_process(process: int, size: int = 2) -> Layout:
    """Return the layout of an array on the first device of a process."""
    return Layout((size,), "int8", 1, (Region(((0, size),), (Device(process, 0),)),))


def test_arrays_on_other_devices_have_rows_of_their_own() -> None:
    leaves = [Leaf(f"[{k}]", of_process(k // 2)) for k in range(4)]
    [table, *_] = tree_scene(leaves).parts
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["[0,1]", "[2,3]"]
    assert [row[-1] for row in table.rows] == ["4 B", "4 B"]


def test_an_array_on_several_devices_without_a_mesh_has_no_split_to_tell() -> None:
    both = Region(((0, 2),), (Device(0, 0), Device(0, 1)))
    [table, *_] = tree_scene([Leaf("x", Layout((2,), "int8", 1, (both,)))]).parts
    assert isinstance(table, Table)
    assert table.rows == (("x", "int8[2]", "", "2", "2 B", "2 B"),)


@pytest.mark.parametrize(
    ("count", "shown", "note"),
    [(18, 18, ()), (19, 17, ("More, with full=True: 2 leaves.",))],
)
def test_of_very_many_rows_the_first_are_listed_and_all_are_counted(
    count: int, shown: int, note: tuple[str, ...]
) -> None:
    leaves = [Leaf(f".{'x' * i}", of_process(0, i + 1)) for i in range(count)]
    scene = tree_scene(leaves, "state")
    assert scene.title == f"state: {count} leaves"
    table, devices, _ = scene.parts
    assert isinstance(table, Table)
    assert isinstance(devices, Table)
    assert [row[0] for row in table.rows] == [leaf.path for leaf in leaves[:shown]]
    assert scene.notes[1:] == note
    assert devices.rows == (("P0.0", f"{count * (count + 1) // 2} B"),)


def test_on_request_each_leaf_has_a_row() -> None:
    leaves = [Leaf(f"[{i}]", of_process(i % 40)) for i in range(100)]
    scene = tree_scene(leaves, full=True)
    table, *_ = scene.parts
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == [leaf.path for leaf in leaves]
    assert len(scene.notes) == 1


LAYERS = {
    f"layer{i}": {"w": array((64, 64), *["a", "b"][: i % 3]), "b": array((64,))} for i in range(500)
}
THOUSAND = """\
A tree of 1000 leaves
leaf                       shape                 split        copies    bytes  on each device
['layer0-499']['b']        500 x float32[64]     P()               4   128 KB          128 KB
['layer0-498']['w'] (167)  167 x float32[64,64]  P()               4  2.74 MB         2.74 MB
['layer1-499']['w'] (167)  167 x float32[64,64]  P('a')            2  2.74 MB         1.37 MB
['layer2-497']['w'] (166)  166 x float32[64,64]  P('a', 'b')       1  2.72 MB          680 KB
device      holds    process    holds
P0-1.0-1  4.91 MB    P0, P1   9.82 MB
8.32 MB in all, each number counted once, 19.6 MB on the devices, with all copies."""


def test_a_thousand_leaves() -> None:
    assert mcnb.picture(LAYERS).text() == THOUSAND


PATHS = st.text(".[]ab019", min_size=1, max_size=8)
HOLDERS = st.builds(of_process, st.integers(0, 40), st.integers(1, 3))


@given(st.lists(st.builds(Leaf, PATHS, st.none() | HOLDERS, st.just("int")), max_size=80))
def test_every_tree_fits_and_tells_how_many_leaves_it_hides(leaves: list[Leaf]) -> None:
    short, full = tree_scene(leaves), tree_scene(leaves, full=True)
    assert len(text_of(short).splitlines()) <= MOST_LINES
    table, whole = short.parts[0], full.parts[0]
    assert isinstance(table, Table)
    assert isinstance(whole, Table)
    assert len(whole.rows) == len(leaves)
    hidden = [int(note.split()[3]) for note in short.notes if note.startswith("More")]
    numbers = [row[1].partition(" x ") for row in table.rows]
    # A row of several leaves on the host has no number of them.
    if all(leaf.layout for leaf in leaves):
        shown = sum(int(count) if shape else 1 for count, _, shape in numbers)
        assert shown + sum(hidden) == len(leaves)


@pytest.mark.parametrize(("count", "owners"), [(8, "P6, P7"), (9, "P6, P7, …")])
def test_of_many_processes_that_hold_as_much_the_first_are_named(count: int, owners: str) -> None:
    *_, devices, processes = tree_scene([Leaf(f"[{k}]", of_process(k)) for k in range(count)]).parts
    assert devices == Table(("device", "holds"), ((f"P0-{count - 1}.0", "2 B"),), (1,))
    assert processes == Table(
        ("process", "holds"), ((f"P0, P1, P2, P3, P4, P5, {owners}", "2 B"),), (1,)
    )


def test_of_many_amounts_the_first_are_listed() -> None:
    leaves = [Leaf(f"[{k}]", of_process(k, k + 1)) for k in range(22)]
    rows, devices, processes = (
        part.rows for part in tree_scene(leaves).parts if isinstance(part, Table)
    )
    assert [len(rows), len(devices), len(processes)] == [6, 6, 7]
    assert (devices[-2:], processes[-2:]) == (
        (("P4.0", "5 B"), ("17 rows more", "6 B to 22 B")),
        (("P5", "6 B"), ("16 rows more", "7 B to 22 B")),
    )
    *_, devices, processes = (
        part.rows for part in tree_scene(leaves, full=True).parts if isinstance(part, Table)
    )
    assert (devices[-1], processes[-1]) == (("P21.0", "22 B"), ("P21", "22 B"))


@pytest.mark.parametrize(
    ("paths", "path"),
    [
        (["['layer_007']"], "['layer_007']"),
        ([f"['layers_{k:02d}']" for k in range(32)], "['layers_00-31']"),
        ([f"w-{k:05d}-of-00004" for k in (1, 2)], "w-00001,00002-of-00004"),
        (["w_08", "w_09", "w_10"], "w_08-10"),
        (["w_8", "w_9", "w_10"], "w_8-10"),
        ([f"w{i:02d}.{j:02d}" for i in range(3) for j in range(2)], "w00-02.00-01 (6)"),
        ([f"w{i:02d}" for i in range(0, 40, 2)], "w00-38 (20)"),
    ],
)
@pytest.mark.parametrize("full", [True, False])
def test_numbers_keep_their_zeros(paths: list[str], path: str, full: bool) -> None:
    [table, *_] = tree_scene([Leaf(one, of_process(0)) for one in paths], full=full).parts
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == (paths if full else [path])


@pytest.mark.parametrize(
    ("numbers", "path"),
    [
        (range(0, 10, 2), "x[0,2,4,6,8]"),
        (range(0, 40, 2), "x[0-38] (20)"),
    ],
    ids=["few", "many"],
)
def test_numbers_with_gaps_are_told_as_long_as_there_is_room(numbers: range, path: str) -> None:
    [table, *_] = tree_scene([Leaf(f"x[{k}]", of_process(0)) for k in numbers]).parts
    assert isinstance(table, Table)
    size = f"{2 * len(numbers)} B"
    shape = f"{len(numbers)} x int8[2]"
    assert table.rows == ((path, shape, "on one device", "1", size, size),)
