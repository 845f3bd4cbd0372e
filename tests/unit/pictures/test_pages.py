"""Pictures in pages: themes, tooltips, words, and contrasts that can be read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mcnb
from mcnb.cluster.result import Result
from mcnb.launchers.base import process_environment
from mcnb.messages import Display, Reply
from mcnb.notebook import display as showing
from mcnb.options import Options
from mcnb.pictures.drawing import (
    NOBODY,
    PAPER,
    Drawing,
    color_of,
    contrast,
    drawing_of,
    paler,
    text_on,
)
from mcnb.pictures.pages import STYLE, THEME, for_notebook, in_page
from mcnb.pictures.scene import Cell, Grid, Scene, Table
from mcnb.pictures.svg import MOST_WORDS, words_of
from tests.unit.pictures.test_drawing import GALLERY
from tests.unit.pictures.test_show import SVG, mesh_of, struct

OPENED = "JPY_SESSION_NAME"
READABLE = 4.5  # of text that is not large: WCAG 2.1, section 1.4.3
PLATE = 0.88  # how much of what is below it a plate covers
LIGHT = {light: light for light, _ in THEME.values()}
DARK = dict(THEME.values())


def grounds(drawing: Drawing, x: float, y: float) -> tuple[str, ...]:
    """Return the colours of the uppermost box at a place, or that of the paper."""
    for box in reversed(drawing.boxes):
        if box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height:
            return box.colors
    return (PAPER,)


def mixed(upper: str, lower: str, share: float) -> str:
    parts = (
        round(share * int(upper[i : i + 2], 16) + (1 - share) * int(lower[i : i + 2], 16))
        for i in (1, 3, 5)
    )
    return "#" + "".join(f"{part:02X}" for part in parts)


def contrasts(drawing: Drawing, theme: dict[str, str]) -> Iterator[tuple[str, float]]:
    """Yield the least contrast of each word of a picture in a theme."""
    for label in drawing.labels:
        word = label.color if label.color == PAPER else theme.get(label.color, label.color)
        below = [theme.get(one, one) for one in grounds(drawing, label.x, label.y)]
        if label.plate:
            below = [mixed(theme[label.plate], one, PLATE) for one in below]
        assert len(below) == 1 or label.plate, label
        yield label.text, min(contrast(word, one) for one in below)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", GALLERY)
def test_every_word_of_a_picture_can_be_read(name: str, theme: dict[str, str]) -> None:
    found = dict(contrasts(drawing_of(GALLERY[name]().scene), theme))
    assert found
    assert {text: ratio for text, ratio in found.items() if ratio < READABLE} == {}


def test_words_on_the_colours_of_processes_can_be_read() -> None:
    colors = [color_of(k) for k in range(8)]
    for color in (*colors, *map(paler, colors)):
        assert contrast(text_on(color), color) >= READABLE
    for theme in (LIGHT, DARK):
        for color in (PAPER, NOBODY):
            assert contrast(theme[text_on(color)], theme[color]) >= READABLE


def test_the_parts_of_a_picture_can_be_told_from_the_page() -> None:
    """WCAG 2.1, section 1.4.11, asks for 3; yellow and its like on white have a word each."""
    for k in range(8):
        assert contrast(color_of(k), DARK[PAPER]) >= 3


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_has_the_picture_as_it_is_and_as_text() -> None:
    picture = GALLERY["array"]()
    page = Page(picture.html())
    assert picture.svg() in picture.html()
    assert page.tags[:4] == [
        ("div", {"class": "mcnb-picture"}),
        ("style", {}),
        ("pre", {"class": "mcnb-text"}),
        ("svg", page.tags[3][1]),
    ]
    assert page.text.startswith(f"{STYLE}{picture.text()}")
    assert "<pre" not in in_page(picture.svg())


def test_every_colour_that_a_theme_changes_is_changed_where_it_is_used() -> None:
    """All that is not the colour of a process, nor stands on one."""
    kept = {color_of(k) for k in range(8)} | {paler(color_of(k)) for k in range(8)} | {"#000000"}
    for name, make in GALLERY.items():
        for one in ElementTree.fromstring(make().svg()).iter():
            for part in ("fill", "stroke"):
                color = one.get(part, "none")
                if color in kept or color == "none" or color.startswith("url("):
                    continue
                if color == PAPER and part == "fill" and one.tag == f"{SVG}text":
                    continue
                assert f'[{part}="{color}"]{{{part}:var(--mcnb-' in STYLE, (name, color)
    assert f':not(text)[fill="{PAPER}"]{{fill:var(--mcnb-paper)}}' in STYLE


def test_a_dark_theme_is_one_of_jupyterlab_of_a_site_of_colab_or_of_vs_code() -> None:
    [where] = re.findall(r"\}([^{}]+)\{--mcnb-paper:#181818;", STYLE)
    assert where.split(",") == [
        '[data-jp-theme-light="false"] .mcnb-picture',
        '[data-theme="dark"] .mcnb-picture',
        'html[theme="dark"] .mcnb-picture',
        "body.vscode-dark .mcnb-picture",
    ]


def test_parts_are_told_in_words() -> None:
    picture = mcnb.picture(struct((8, 4), mesh_of((4, 2), "ab"), "a"))
    assert words_of(picture.scene) == [
        "down, dim 0: 8, split over 'a' (4); across, dim 1: 4, whole.",
        "[0:2, 0:4]: float32[2,4], 32 B, on P0.0-1.",
        "[2:4, 0:4]: float32[2,4], 32 B, on P1.0-1.",
        "[4:6, 0:4]: float32[2,4], 32 B, on P2.0-1.",
        "[6:8, 0:4]: float32[2,4], 32 B, on P3.0-1.",
    ]
    root = ElementTree.fromstring(picture.svg())
    [description] = [one.text for one in root.iter(f"{SVG}desc")]
    assert str(description).endswith(words_of(picture.scene)[-1])
    hints = [one.text for one in root.iter(f"{SVG}title")][1:]
    assert [f"{hint}." for hint in hints] == words_of(picture.scene)[1:]
    of_any_type = mcnb.picture(NamedSharding(mesh_of((4, 2), "ab"), P("a", "b")), (4, 2))
    assert words_of(of_any_type.scene)[4] == "[1:2, 1:2]: 1 element, on P1.1."
    number = mcnb.picture(struct((), mesh_of((4, 2), "ab")))
    assert words_of(number.scene) == ["float32[], 4 B, on P0-3.0-1."]
    mesh = mcnb.picture(mesh_of((4, 2), "ab"))
    assert words_of(mesh.scene)[0] == "down, 'a': 4; across, 'b': 2."
    assert words_of(mesh.scene)[4].startswith("'a' = 1, 'b' = 1: P")


def test_before_and_after_are_told_apart_in_words() -> None:
    mesh = mesh_of((4, 2), "ab")
    change = mcnb.picture(struct((8, 8), mesh, "a"), NamedSharding(mesh, P(None, "a")))
    said = words_of(change.scene)
    assert said[0] == (
        "before: P('a'); down, dim 0: 8, split over 'a' (4); across, dim 1: 8, whole."
    )
    assert said[5] == (
        "after: P(None, 'a'); down, dim 0: 8, whole; across, dim 1: 8, split over 'a' (4)."
    )
    assert said[10:] == ["from: each, to: each other, bytes: 32 B."]


def test_values_are_told_in_words() -> None:
    array = jax.device_put(np.arange(6.0, dtype=np.float32).reshape(2, 3), jax.devices()[0])
    picture = mcnb.picture(array, values=True)
    assert words_of(picture.scene)[1:] == [
        "[0:2, 0:3]: float32[2,3], 24 B, on P0.0: 0. 1. 2.; 3. 4. 5."
    ]


def test_of_very_many_parts_some_are_told() -> None:
    row = tuple(Cell((0,), ("P0",), hint=f"part {i}") for i in range(MOST_WORDS + 3))
    table = Table(("what", ""), (("here", ""),))
    said = words_of(Scene("", parts=(Grid((row, (None, Cell((1,), ("P1",))))), table)))
    assert said[0] == "part 0."
    assert said[MOST_WORDS:] == ["And 4 more."]


def plain() -> dict[str, Any]:
    return {"image/svg+xml": GALLERY["mesh"]().svg(), "text/plain": GALLERY["mesh"]().text()}


def test_a_notebook_that_somebody_has_opened_gets_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OPENED, raising=False)
    assert for_notebook(plain()) == plain() == GALLERY["mesh"]()._repr_mimebundle_()
    monkeypatch.setenv(OPENED, "lessons/01.ipynb")
    found = for_notebook(plain())
    assert list(found) == ["text/html", "image/svg+xml", "text/plain"]
    assert found == {"text/html": GALLERY["mesh"]().html(), **plain()}
    assert GALLERY["mesh"]()._repr_mimebundle_() == found


def test_what_a_process_displays_is_put_into_a_page_by_the_notebook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process has no notebook of its own, and other hosts know nothing of it."""
    shown: list[Any] = []
    monkeypatch.setattr(showing, "display", lambda data, **_: shown.append(data))
    monkeypatch.setenv(OPENED, "lessons/01.ipynb")
    picture = Display(plain(), {}, is_value=False)
    showing.show(Result({k: Reply((picture,)) for k in range(2)}, count=2))
    assert shown[-1] == {"text/html": GALLERY["mesh"]().html(), **plain()}
    assert OPENED not in process_environment(Options(), os.environ)


@pytest.mark.parametrize(
    "data",
    [
        {"text/plain": "4"},
        {"image/svg+xml": "<svg>of another library</svg>", "text/plain": "a plot"},
        {**plain(), "text/html": "<b>with a page of its own</b>"},
    ],
)
def test_what_is_no_picture_of_mcnbs_stays_as_it_is(
    data: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPENED, "lessons/01.ipynb")
    assert for_notebook(data) == data


def test_pictures_on_one_page_are_told_apart_by_their_ids() -> None:
    ids = [
        attributes["id"]
        for name in ("mesh", "array")
        for _, attributes in Page(GALLERY[name]().html()).tags
        if "id" in attributes and not str(attributes["id"]).startswith("stripes")
    ]
    assert len(ids) == len({*ids}) == 4
