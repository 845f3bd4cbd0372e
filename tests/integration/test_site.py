"""The site of the documentation: builds without a warning, and all its links lead somewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import mcnb
from tests.conftest import ROOT, once
from tests.support.jupyterlab import browser_page

pytestmark = [pytest.mark.thorough("builds the documentation"), once]

LESSONS = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
PAGES = [
    "README",
    "CHANGELOG",
    "CONTRIBUTING",
    "docs/api",
    *(f"docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md"))),
    "docs/course/sources",
    "notebooks/README",
    "notebooks/gallery",
    *(f"notebooks/{name}" for name in LESSONS),
    "tests/corpus/README",
]


class Page(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.refers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if (tag, name) in (("a", "href"), ("img", "src"), ("link", "href"), ("script", "src")):
                self.refers.append(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built as the workflow builds it."""
    out = tmp_path_factory.mktemp("site") / "html"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "docs.py"), "--out", str(out)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Return what each page has, but for the templates that the theme brings."""
    found = (path for path in site.rglob("*.html") if "_static" not in path.parts)
    return {path: Page(path.read_text()) for path in found}


def test_every_page_is_there_and_no_other(site: Path, pages: dict[Path, Page]) -> None:
    written = {str(path.relative_to(site).with_suffix("")) for path in pages}
    assert written == {*PAGES, "index", "genindex", "search"}


def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    dead = []
    for path, page in pages.items():
        for link in page.refers:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link == "":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            known = target not in pages or not anchor or anchor in pages[target].anchors
            if not target.is_file() or not known:
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []


def test_the_interface_is_complete(pages: dict[Path, Page], site: Path) -> None:
    anchors = pages[site / "docs" / "api.html"].anchors
    public = set(mcnb.__all__) - {"load_ipython_extension"}
    assert {f"mcnb.{name}" for name in public} <= anchors


def test_lessons_have_their_stored_outputs(site: Path) -> None:
    text = (site / "notebooks" / "05_lockstep.html").read_text()
    assert "LockstepError" in text
    assert "The cluster is intact; all variables are kept" in text


# The words in the cells of tables that begin on one line and end on another one.
BROKEN = """() => [...document.querySelectorAll(".bd-content :is(td, th)")].flatMap(cell => {
  const found = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  for (let text; (text = texts.nextNode()); )
    for (const word of text.data.matchAll(/[A-Za-z0-9]+/g)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(one => Math.round(one.top)));
      if (lines.size > 1) found.push(word[0]);
    }
  return found;
})"""


@pytest.mark.parametrize("width", [1280, 360])
def test_every_page_fits_its_window(site: Path, pages: dict[Path, Page], width: int) -> None:
    with browser_page(width=width, height=900) as page:
        for path in pages.keys() - {site / "index.html"}:  # it leads on to another one at once
            page.goto(path.as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert (path.name, wide, page.evaluate(BROKEN)) == (path.name, width, [])
