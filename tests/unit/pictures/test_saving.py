"""Pictures as files: each format, and a page that follows the theme of the system."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest

import mcnb
from mcnb.pictures.drawing import color_of, drawing_of
from mcnb.pictures.explore import explore
from mcnb.pictures.pages import THEME, whole_page
from mcnb.pictures.picture import Picture
from tests.unit.pictures.test_drawing import GALLERY


def picture() -> Picture:
    return GALLERY["array"]()


def test_svg_text_and_page_are_those_of_the_picture(tmp_path: Path) -> None:
    for suffix, whole in [
        (".svg", picture().svg()),
        (".txt", f"{picture().text()}\n"),
        (".html", whole_page(picture().scene.title, picture().html())),
        (".SVG", picture().svg()),
    ]:
        file = tmp_path / f"layout{suffix}"
        picture().save(file)
        assert file.read_text(encoding="utf-8") == whole


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_equal_pictures_are_equal_files_and_no_figures(tmp_path: Path, suffix: str) -> None:
    figures = plt.get_fignums()
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    picture().save(str(one))
    picture().save(other)
    assert one.read_bytes() == other.read_bytes()
    assert plt.get_fignums() == figures


def test_an_image_has_two_pixels_for_each_of_the_drawing(tmp_path: Path) -> None:
    picture().save(tmp_path / "layout.png")
    pixels = np.asarray(matplotlib.image.imread(tmp_path / "layout.png"))
    drawing = drawing_of(picture().scene)
    assert pixels.shape[1] == pytest.approx(2 * drawing.width, abs=1)
    assert pixels.shape[0] == pytest.approx(2 * drawing.height, abs=1)
    colors = {tuple(color) for color in np.round(255 * pixels[..., :3]).astype(int).reshape(-1, 3)}
    for k in range(4):
        assert tuple(int(color_of(k)[i : i + 2], 16) for i in (1, 3, 5)) in colors


def test_a_name_without_a_known_end_gets_a_sentence(tmp_path: Path) -> None:
    for name in ("layout.gif", "layout"):
        with pytest.raises(mcnb.PictureError) as caught:
            picture().save(tmp_path / name)
        assert str(caught.value) == (
            f"{name} must end in .html, .pdf, .png, .svg or .txt, which says the format of the "
            "picture"
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("thing", [picture(), explore((8, 4))], ids=["picture", "explorer"])
def test_a_page_is_dark_where_the_system_is(tmp_path: Path, thing: Picture) -> None:
    thing.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert ":root{color-scheme:light dark}" in page
    [dark] = re.findall(
        r"@media\(prefers-color-scheme:dark\)\{:root \.mcnb-picture\{(.*?)\}\}", page
    )
    assert dark == "".join(f"--mcnb-{name}:{color};" for name, (_, color) in THEME.items())
    assert thing.html() in page
    # Nothing is fetched from elsewhere.
    assert {*re.findall(r"https?://[^\\\"' ]+", page)} <= {"http://www.w3.org/2000/svg"}


def test_a_title_is_text() -> None:
    assert "<title>P(&#x27;a&#x27;) &lt;b&gt;</title>" in whole_page("P('a') <b>", "")
