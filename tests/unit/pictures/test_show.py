"""Pictures of meshes, shardings, arrays and PyTrees say where everything is."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from typing import Any
from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.pictures.inspect import layout_of
from mcnb.pictures.model import Device, Layout, Region
from mcnb.pictures.scenes.layout import layout_scene
from tests.support.fake_devices import fake_devices
from tests.support.timing import known_work_s

SVG = "{http://www.w3.org/2000/svg}"
DEVICE = re.compile(r"\bP\d+\.\d+\b")


def mesh_of(shape: tuple[int, ...], names: str, **options: Any) -> Mesh:
    devices = fake_devices(math.prod(shape)).reshape(shape)
    return Mesh(devices, tuple(names), **options)


def struct(shape: tuple[int, ...], mesh: Mesh, *spec: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, P(*spec)))


def svg_texts(picture: mcnb.Picture) -> list[str]:
    root = ElementTree.fromstring(picture.svg())
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def devices_drawn(lines: list[str]) -> Counter[str]:
    """Return how often each device stands in boxes."""
    return Counter(name for line in lines for name in DEVICE.findall(line))


@st.composite
def shardings(draw: st.DrawFn) -> tuple[tuple[int, ...], NamedSharding]:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    names = "abcd"[: len(sizes)]
    count = math.prod(sizes)
    devices = fake_devices(count, draw(st.integers(1, 4)))
    order = draw(st.permutations(range(count))) if count <= 24 else range(count)
    mesh = Mesh(devices[list(order)].reshape(sizes), tuple(names))
    rank = draw(st.integers(0, 5))
    parts: list[tuple[str, ...] | None] = [None] * rank
    left = list(names)
    for d in range(rank):
        taken = draw(st.lists(st.sampled_from(left), unique=True, max_size=2)) if left else []
        left = [name for name in left if name not in taken]
        parts[d] = tuple(taken) or None
    shape = tuple(
        math.prod(mesh.shape[name] for name in part or ()) * draw(st.integers(1, 3))
        for part in parts
    )
    return shape, NamedSharding(mesh, P(*parts))


@given(shardings())
@settings(max_examples=300, deadline=None)
def test_each_device_stands_once_for_each_region_it_holds(
    drawn: tuple[tuple[int, ...], NamedSharding],
) -> None:
    shape, sharding = drawn
    layout = layout_of(jax.ShapeDtypeStruct(shape, np.int8, sharding=sharding))
    indices = sharding.devices_indices_map(shape)
    expected = {
        (device.id, tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True)))
        for device, index in indices.items()
    }
    found = [(device.id, region.bounds) for region in layout.regions for device in region.devices]
    assert sorted(found) == sorted(expected)
    assert sum(layout.device_bytes.values()) == sum(region.size for region in layout.regions) * (
        layout.copies
    )
    picture = mcnb.picture(sharding, shape)
    if len(indices) <= 64:
        once = Counter(str(device) for region in layout.regions for device in region.devices)
        assert devices_drawn(picture.text().splitlines()) == once
        assert devices_drawn(svg_texts(picture)) == once
    assert mcnb.picture(sharding, shape).svg() == picture.svg()


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda sizes: math.prod(sizes) <= 64)
)
@settings(deadline=None)
def test_a_mesh_has_a_box_for_each_device(sizes: list[int]) -> None:
    picture = mcnb.picture(mesh_of(tuple(sizes), "abcd"[: len(sizes)]))
    names = Counter(f"P{i // 2}.{i % 2}" for i in range(math.prod(sizes)))
    assert devices_drawn(picture.text().splitlines()) == names
    assert devices_drawn(svg_texts(picture)) == names


MESH = """
Mesh 'a': 4, 'b': 2
↓ 'a': 4   → 'b': 2
     0      1
  ┌──────┬──────┐
0 │ P0.0 │ P0.1 │
  ├──────┼──────┤
1 │ P1.0 │ P1.1 │
  ├──────┼──────┤
2 │ P2.0 │ P2.1 │
  ├──────┼──────┤
3 │ P3.0 │ P3.1 │
  └──────┴──────┘
Global: all 8 devices of all 4 processes: P0-3.
Axis types: 'a' Auto, 'b' Explicit.
"""
REPLICATED = """
w: float32[8,4]  P(None, 'b')
↓ dim 0: 8, whole   → dim 1: 4, split over 'b' (2)
       0:2    2:4
    ┌──────┬──────┐
    │ P0.0 │ P0.1 │
0:8 │ P1.0 │ P1.1 │
    │ P2.0 │ P2.1 │
    │ P3.0 │ P3.1 │
    └──────┴──────┘
On 8 devices of 4 processes: P0-3, float32[8,2] of 64 B on each; global: spans all devices.
Replicated over 'a' (4): each part lies on 4 devices.
"""
FACETS = """
float32[4,6,3,2]  P('a', None, None, 'b')
↓ dim 0: 4, split over 'a' (4)   → dim 3: 2, split over 'b' (2)
       0:1    1:2
    ┌──────┬──────┐
0:1 │ P0.0 │ P0.1 │
    ├──────┼──────┤
1:2 │ P1.0 │ P1.1 │
    ├──────┼──────┤
2:3 │ P2.0 │ P2.1 │
    ├──────┼──────┤
3:4 │ P3.0 │ P3.1 │
    └──────┴──────┘
On 8 devices of 4 processes: P0-3, float32[1,6,3,1] of 72 B on each; global: spans all devices.
Not drawn, as it is not split: dims 1 (6), 2 (3).
"""


def same(picture: mcnb.Picture, expected: str) -> bool:
    """Compare but for spaces at the ends of lines, and how far a head is from its box."""

    def squeezed(text: str) -> list[str]:
        return [" ".join(line.split()) for line in text.strip().splitlines()]

    assert squeezed(picture.text()) == squeezed(expected)
    return True


def test_the_text_of_a_mesh() -> None:
    kinds = (AxisType.Auto, AxisType.Explicit)
    assert same(mcnb.picture(mesh_of((4, 2), "ab", axis_types=kinds)), MESH)


def test_the_text_of_a_replicated_array() -> None:
    given = struct((8, 4), mesh_of((4, 2), "ab"), None, "b")
    assert same(mcnb.picture(given, name="w", bounds=True), REPLICATED)


def test_the_text_of_four_dimensions() -> None:
    given = struct((4, 6, 3, 2), mesh_of((4, 2), "ab"), "a", None, None, "b")
    assert same(mcnb.picture(given, bounds=True), FACETS)


def test_what_a_mesh_spans_is_said() -> None:
    devices = jax.devices()
    text = mcnb.picture(Mesh(np.array(devices[:1]), ("x",))).text()
    assert f"{len(devices[:1])} device of 1 process: P0." in text
    fakes = fake_devices(8)

    class Client:
        def devices(self) -> list[Any]:
            return list(fakes)

    for fake in fakes:
        fake.client = Client()
    assert "Local: 2 devices of process 1 alone." in mcnb.picture(Mesh(fakes[2:4], ("x",))).text()
    assert (
        "Process-spanning: 3 devices of 2 processes: P0-1; there are 4 processes."
        in mcnb.picture(Mesh(fakes[1:4], ("x",))).text()
    )
    # A device is named by its place among all of its process, also where others are not there.
    assert "│ P0.1 │ P1.0 │ P1.1 │" in mcnb.picture(Mesh(fakes[1:4], ("x",))).text()
    one = NamedSharding(Mesh(fakes[2:4], ("x",)), P("x"))
    assert "; local to process 1." in mcnb.picture(one, (2,)).text()


def test_large_meshes_and_trees_stay_readable_and_quick() -> None:
    began = time.process_time()
    mesh = Mesh(fake_devices(10_000, 4).reshape(100, 100), ("data", "model"))
    pictures = [mcnb.picture(mesh)]
    taken = [time.process_time() - began]
    began = time.process_time()
    pictures.append(mcnb.picture(struct((10_000, 200), mesh, "data", "model")))
    pictures.append(mcnb.picture(struct((10_000, 200), mesh, None, "model")))
    taken.append((time.process_time() - began) / 2)
    small = mesh_of((4, 2), "ab")
    tree = {
        f"layer{i}": {"w": struct((64, 32), small, "a", "b"), "b": struct((32,), small, "b")}
        for i in range(500)
    }
    began = time.process_time()
    pictures.append(mcnb.picture(tree))
    taken.append(time.process_time() - began)
    for picture in pictures:
        began = time.process_time()
        lines = picture.text().splitlines()
        assert len(lines) <= 60
        assert max(map(len, lines)) <= 160
        assert len(picture.svg()) < 60_000
        taken.append(time.process_time() - began)
    assert max(taken) < 40 * known_work_s(), taken
    assert "['layer0-499']['w']" in pictures[3].text()


def test_a_tree_says_how_much_each_device_holds() -> None:
    mesh = mesh_of((4, 2), "ab")
    tree = {"w": struct((8, 4), mesh, "a", "b"), "b": struct((4,), mesh), "step": 3}
    text = mcnb.picture(tree, name="state").text()
    assert text.splitlines()[0] == "state: 3 leaves"
    assert re.search(r"\['w'\] +float32\[8,4\] +P\('a', 'b'\) +1 +128 B +16 B", text)
    assert re.search(r"\['b'\] +float32\[4\] +P\(\) +8 +16 B +16 B", text)
    assert re.search(r"\['step'\] +int +on the host", text)
    assert (
        "144 B in all, each number counted once, 256 B on the devices, with all copies. "
        "1 leaf lies on the host, not counted here." in text
    )
    assert text.splitlines()[1:-1] == [
        "leaf      shape         split        copies  bytes  on each device    device    holds",
        "['b']     float32[4]    P()               8   16 B            16 B    P0-3.0-1   32 B",
        "['step']  int           on the host",
        "['w']     float32[8,4]  P('a', 'b')       1  128 B            16 B",
        "process         holds",
        "P0, P1, P2, P3   64 B",
    ]


def test_unreduced_arrays_random_keys_and_other_memory() -> None:
    mesh = jax.make_mesh((1,), ("a",), axis_types=(AxisType.Explicit,))
    unreduced = NamedSharding(mesh, P(None, unreduced={"a"}))
    assert (
        "Unreduced over 'a': each device holds a partial sum."
        in mcnb.picture(unreduced, (4,)).text()
    )
    alone = mcnb.picture(NamedSharding(mesh, P(unreduced={"a"})), ()).text()
    assert "Unreduced over 'a': each device holds a partial sum." in alone
    reduced = mcnb.picture(NamedSharding(mesh, P(reduced={"a"})), (4,)).text()
    assert "float32" not in reduced
    assert "On 1 device of 1 process: P0" in reduced
    left = P("a", P.UNCONSTRAINED)
    text = mcnb.picture(NamedSharding(mesh_of((2, 2), "ab"), left), (4, 4)).text()
    assert "UNCONSTRAINED leaves a dimension to XLA. It is drawn as if it were whole." in text
    assert "Replicated" not in text
    assert "each part lies on" not in text
    keys = jax.random.split(jax.random.key(0), 4)
    moved = mcnb.picture(keys, jax.sharding.SingleDeviceSharding(jax.devices()[0])).text()
    assert moved.startswith("key<fry>[4]  as it is → as given\n")
    assert mcnb.picture(keys).text().startswith("key<fry>[4]\n")
    assert "32 B on each" in mcnb.picture(keys).text()
    assert mcnb.picture(jax.numpy.ones(())).text().startswith("float32[]\n┌──────┐\n│ P0.0 │\n")


def test_values_stand_in_their_boxes() -> None:
    x = jax.device_put(np.arange(6.0, dtype=np.float32).reshape(2, 3), jax.devices()[0])
    assert "│ 0. 1. 2. │\n│ 3. 4. 5. │" in mcnb.picture(x, values=True).text()
    half = jax.numpy.asarray([1.5, 2.0], dtype=jax.numpy.bfloat16)
    assert "1.5 2." in mcnb.picture(half, values=True).text()


def test_everything_is_escaped() -> None:
    mesh = Mesh(fake_devices(2), ("<b>&\"'",))
    picture = mcnb.picture(struct((2,), mesh, "<b>&\"'"), name="<script>x</script>")
    root = ElementTree.fromstring(picture.svg())
    title = root.find(f"{SVG}title")
    assert title is not None
    assert title.text == "<script>x</script>: float32[2]  P('<b>&\"\\'')"
    assert "<script>" not in picture.svg()
    assert picture.plot().texts[0].get_text().startswith("<script>x")


def test_an_svg_says_what_it_is_to_who_cannot_see_it() -> None:
    picture = mcnb.picture(struct((8, 4), mesh_of((4, 2), "ab"), "a"))
    root = ElementTree.fromstring(picture.svg())
    assert root.get("role") == "img"
    named = {e.get("id"): e.text for e in root.iter() if e.get("id")}
    title, description = (named[key] for key in str(root.get("aria-labelledby")).split())
    assert title == "float32[8,4]  P('a')"
    assert "Replicated over 'b' (2)" in str(description)
    bundle = picture._repr_mimebundle_()
    assert set(bundle) == {"image/svg+xml", "text/plain"}
    assert bundle["text/plain"] == picture.text() == str(picture)


def test_matplotlib_draws_into_given_axes_and_saves(tmp_path: Any) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2)
    picture = mcnb.picture(struct((8, 4), mesh_of((4, 2), "ab"), "a"))
    assert picture.plot(ax=left) is left
    assert not right.texts
    drawn = [text.get_text() for text in left.texts]
    assert drawn == svg_texts(picture)
    for kind in ("png", "svg", "pdf"):
        figure.savefig(tmp_path / f"p.{kind}")
        assert (tmp_path / f"p.{kind}").stat().st_size > 1000
    own = picture.plot()
    assert own.figure is not figure
    plt.close("all")


def test_a_sharding_without_a_mesh() -> None:
    text = mcnb.picture(SingleDeviceSharding(jax.devices()[0]), (4, 4)).text()
    assert "an array[4,4]" in text
    assert "│ P0.0 │" in text


@pytest.mark.parametrize(
    ("copies", "note"),
    [(1, None), (2, "Each part lies on 2 devices."), (3, "Each part lies on 3 devices.")],
)
def test_copies_that_no_mesh_explains_are_counted(copies: int, note: str | None) -> None:
    regions = tuple(
        Region(((i, i + 1),), tuple(Device(i, n) for n in range(copies))) for i in range(2)
    )
    layout = Layout((2,), "float32", 4, regions, processes=1, all_devices=2 * copies)
    said = [one for one in layout_scene(layout).notes if one.startswith("Each part")]
    assert said == ([] if note is None else [note])


def test_outside_a_notebook_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    mcnb.show(struct((8, 4), mesh_of((4, 2), "ab"), None, "b"), name="w", bounds=True)
    assert capsys.readouterr().out.splitlines()[0] == "w: float32[8,4]  P(None, 'b')"
