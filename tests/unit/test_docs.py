"""The pages for readers: their links, their pictures, and the size of the first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.support.markdown import LINK, anchors

README, DOCS = ROOT / "README.md", ROOT / "docs"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / ".github" / "SECURITY.md",
    *sorted(DOCS.glob("*.md")),
    ROOT / "notebooks" / "README.md",
]
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"(?ms)^```.*?^```", "", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for words, target in LINK.findall(prose(page)):
        name, _, anchor = target.partition("#")
        if name.startswith("https://"):
            continue
        path = page.parent / name if name else page
        assert path.exists(), (words, target)
        assert not anchor or anchor in anchors(path), (words, target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_are_there_and_described(page: Path) -> None:
    for words, path in PICTURE.findall(prose(page)):
        assert (page.parent / path).is_file(), path
        assert len(words.split()) >= 8, words  # said for who can't see it


def test_there_are_pictures() -> None:
    shown = [path for page in PAGES for _, path in PICTURE.findall(prose(page))]
    assert len(shown) >= 5


def test_the_first_page_is_short() -> None:
    assert len(README.read_bytes()) <= 6_000


def test_the_moving_picture_is_small_and_has_a_still_one() -> None:
    path = ROOT / "notebooks" / "images" / "readme_session.gif"
    assert path.stat().st_size <= 1_000_000
    with Image.open(path) as moving, Image.open(path.with_suffix(".png")) as still:
        assert (moving.format, moving.size) == ("GIF", still.size)
        assert getattr(moving, "n_frames", 1) >= 20


def test_each_page_is_in_the_list() -> None:
    listed = {target for _, target in LINK.findall((DOCS / "README.md").read_text())}
    assert {path.name for path in DOCS.glob("*.md")} - listed == {"README.md"}


def test_each_paragraph_stands_on_one_page() -> None:
    seen: dict[str, str] = {}
    for page in PAGES:
        for paragraph in prose(page).split("\n\n"):
            if len(paragraph.split()) >= 12:
                assert seen.setdefault(paragraph, page.name) == page.name, paragraph
