"""The interactive page with an array's layout for each mesh and spec."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.pictures.explore import Choice, Explorer, choices, explore, layout_for, meshes
from mcnb.pictures.inspect import layout_of
from tests.unit.pictures.test_show import mesh_of

SVG = "{http://www.w3.org/2000/svg}"


def test_all_meshes_of_some_devices() -> None:
    assert meshes(1) == [(1,)]
    assert meshes(6) == [(6,), (3, 2), (2, 3)]
    assert meshes(16) == [
        *[(16,), (8, 2), (4, 4), (2, 8)],
        *[(4, 2, 2), (2, 4, 2), (2, 2, 4)],
    ]
    assert len(choices(8, 2)) == 3 + 9 + 9 + 27


@given(
    st.sampled_from([choice for rank in (1, 2, 3) for choice in choices(8, rank)]),
    st.lists(st.sampled_from([1, 2, 4, 6, 8]), min_size=3, max_size=3),
)
def test_a_layout_is_the_one_that_jax_chooses(choice: Choice, sizes: list[int]) -> None:
    rank = max([2, *(at + 1 for at in choice.dims if at is not None)])
    shape = tuple(sizes[:rank])
    mesh = mesh_of(choice.sizes, "xyz"[: len(choice.sizes)])
    spec = eval(choice.spec(rank), {"P": P})
    try:
        ours = layout_for(choice, shape, "float32", 4, 2)
    except mcnb.PictureError:
        with pytest.raises(mcnb.PictureError):
            layout_of(NamedSharding(mesh, spec), shape, "float32")
        return
    theirs = layout_of(NamedSharding(mesh, spec), shape, "float32")
    # The devices of the test are in one process, or in as many as they are.
    place = {device: device.id for device in (*ours.devices, *theirs.devices)}
    assert [(r.bounds, [place[d] for d in r.devices]) for r in ours.regions] == [
        (r.bounds, [place[d] for d in r.devices]) for r in theirs.regions
    ]
    assert (ours.spec, ours.split, ours.replicated()) == (
        theirs.spec,
        theirs.split,
        theirs.replicated(),
    )
    assert (ours.copies, ours.bytes) == (theirs.copies, theirs.bytes)


class Page(HTMLParser):
    """The parts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.chosen: list[str] = []
        self.hidden: list[str | None] = []
        self.data = ""
        self._tag: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag, dict(attrs)
        if tag == "label" and "hidden" in self._tag[1]:
            self.hidden.append(self._tag[1]["data-axis"])

    def handle_data(self, data: str) -> None:
        tag, attributes = self._tag
        if tag == "option" and "selected" in attributes:
            self.chosen.append(data)
        if tag == "script" and attributes.get("type") == "application/json":
            self.data = data
        self._tag = ("", {})


def data_of(explorer: Explorer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Page(explorer.html()).data)["meshes"]
    return found


def test_the_page_has_a_picture_for_each_choice() -> None:
    explorer = explore((6, 4))
    data = data_of(explorer)
    assert [mesh["sizes"] for mesh in data] == [[8], [4, 2], [2, 4], [2, 2, 2]]
    views = {f"{mesh['sizes']} {key}": v for mesh in data for key, v in mesh["views"].items()}
    assert len(views) == len(explorer.pictures) == 48
    assert views["[2, 4] 0r"]["code"] == (
        "mesh = jax.make_mesh((2, 4), ('x', 'y'))\n"
        "x = jax.device_put(x, jax.NamedSharding(mesh, jax.P('x', None)))"
    )
    root = ElementTree.fromstring(views["[2, 4] 0r"]["svg"])
    assert [one.text for one in root.iter(f"{SVG}title")] == [
        "float32[6,4]  P('x', None)",
        "[0:3, 0:4]: float32[3,4], 48 B, on P0-1.0-1",
        "[3:6, 0:4]: float32[3,4], 48 B, on P2-3.0-1",
    ]
    assert views["[4, 2] 0r"] == {
        "text": "An array of shape (6, 4) can't be split as P('x', None): dimension 0 has 6 "
        "elements, which can't be split evenly into 4 parts",
        "code": "",
    }


@pytest.mark.parametrize(
    ("explorer", "chosen", "hidden"),
    [
        (explore((8, 4)), ["(4, 2)", "dimension 0", "dimension 1", NO := "no dimension"], ["2"]),
        (explore(8), ["(4, 2)", "dimension 0", "dimension 0", NO], ["2"]),
        (explore((8, 3)), ["(4, 2)", "dimension 0", "dimension 0", NO], ["2"]),
        (explore((4, 4), devices=2, processes=1), ["(2,)", "dimension 0", NO, NO], ["1", "2"]),
        (explore((5, 7)), ["(4, 2)", NO, NO, NO], ["2"]),
    ],
    ids=["two", "one", "one can't be split", "one axis", "none"],
)
def test_what_is_shown_first(explorer: Explorer, chosen: list[str], hidden: list[str]) -> None:
    page = Page(explorer.html())
    assert [text.removesuffix(": replicated") for text in page.chosen] == chosen
    assert page.hidden == hidden
    first = explorer.pictures[explorer.first()]
    assert isinstance(first, mcnb.Picture)
    assert first.svg() in explorer.html()
    assert str(explorer) == first.text()


def test_jupyter_and_a_file_have_the_same_page(tmp_path: Path) -> None:
    explorer = explore((8, 4), dtype="bfloat16")
    bundle = explorer._repr_mimebundle_()
    assert bundle == {"text/html": explorer.html(), "text/plain": str(explorer)}
    assert explorer.html() == explore((8, 4), dtype=jax.numpy.bfloat16).html()
    explorer.save(tmp_path / "layouts.html")
    text = (tmp_path / "layouts.html").read_text(encoding="utf-8")
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert explorer.html() in text
    # Nothing is fetched from elsewhere.
    addresses = re.findall(r"https?://[^\\\"' ]+", text)
    assert {*addresses} <= {"http://www.w3.org/2000/svg"}
    with pytest.raises(mcnb.PictureError) as caught:
        explorer.save(tmp_path / "layouts.png")
    assert str(caught.value) == (
        "layouts.png must end in .html, because an explorer is an HTML page"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"shape": (2, 2, 2, 2)},
            "mcnb.explore((2, 2, 2, 2)): the shape must have 1 to 3 dimensions, of 1 element or "
            "more. For example: mcnb.explore((8, 4))",
        ),
        (
            {"shape": (8, 0)},
            "mcnb.explore((8, 0)): the shape must have 1 to 3 dimensions, of 1 element or more. "
            "For example: mcnb.explore((8, 4))",
        ),
        (
            {"shape": ()},
            "mcnb.explore(()): the shape must have 1 to 3 dimensions, of 1 element or more. For "
            "example: mcnb.explore((8, 4))",
        ),
        (
            {"shape": "a"},
            "mcnb.explore('a'): the shape must have 1 to 3 dimensions, of 1 element or more. For "
            "example: mcnb.explore((8, 4))",
        ),
        (
            {"shape": (8, 4), "devices": "a"},
            "mcnb.explore((8, 4), devices='a', processes=4): there can be 1 to 16 devices, which "
            "the number of processes must divide. For example: mcnb.explore((8, 4), devices=8, "
            "processes=4)",
        ),
        (
            {"shape": (True, 4)},
            "mcnb.explore((True, 4)): the shape must have 1 to 3 dimensions, of 1 element or more. "
            "For example: mcnb.explore((8, 4))",
        ),
        (
            {"shape": (8, 4), "dtype": "float33"},
            "mcnb.explore((8, 4), dtype='float33'): there is no such type of elements. For "
            "example: mcnb.explore((8, 4), dtype='bfloat16')",
        ),
        (
            {"shape": 8, "devices": 32},
            "mcnb.explore(8, devices=32, processes=4): there can be 1 to 16 devices, which the "
            "number of processes must divide. For example: mcnb.explore((8, 4), devices=8, "
            "processes=4)",
        ),
        (
            {"shape": 8, "devices": 6},
            "mcnb.explore(8, devices=6, processes=4): there can be 1 to 16 devices, which the "
            "number of processes must divide. For example: mcnb.explore((8, 4), devices=8, "
            "processes=4)",
        ),
    ],
)
def test_what_is_too_much(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(mcnb.PictureError) as caught:
        explore(**arguments)
    assert str(caught.value) == said


def test_random_keys_are_elements() -> None:
    text = str(explore(jax.random.split(jax.random.key(0), 8)))
    assert text.startswith("key<fry>[8]  P(('x', 'y'))\n")
    assert "key<fry>[1] of 8 B on each" in text


def test_an_array_has_a_shape_and_a_type() -> None:
    explorer = explore(np.ones((8, 4), np.int16), devices=4)
    assert explorer.title == "int16[8,4] on 4 devices of 4 processes"
    same = explore((np.int64(8), 4), devices=np.int64(4), dtype="int16")
    assert explorer.html() == same.html()
    odd = explore((np.int64(9), 4)).html()
    assert "np.int64" not in odd
    assert odd == explore(n for n in (9, 4)).html()
