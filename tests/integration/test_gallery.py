"""The gallery's stored pictures are what is drawn today, on every version of JAX."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from mcnb.pictures.scenes.time import COLUMNS
from tests.conftest import ROOT

STORED = ROOT / "notebooks"
TO_SCALE = "straggler"  # its times are another run's
TITLE = r"The cell took (.*) on 4 processes"


@pytest.mark.thorough("draws all pictures")
def test_the_gallery_is_what_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "tools" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    gallery = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gallery", gallery)
    spec.loader.exec_module(gallery)
    gallery.main([str(tmp_path)])
    made = {path.stem: path.read_text() for path in tmp_path.glob("images/gallery/*.svg")}
    stored = {path.stem: path.read_text() for path in STORED.glob("images/gallery/*.svg")}
    assert made.keys() == stored.keys()
    assert {name for name in made if made[name] != stored[name]} <= {TO_SCALE}
    assert (tmp_path / "gallery.md").read_text() == (STORED / "gallery.md").read_text()
    for svg in (made[TO_SCALE], stored[TO_SCALE]):
        texts = [element.text or "" for element in ElementTree.fromstring(svg).iter()]
        [took] = {match[1] for text in texts if (match := re.fullmatch(TITLE, text))}
        # Each bar has a tooltip, but a label only where there is room for one. A process that gets
        # no core is not looked at while it sleeps at line 4.
        assert any(re.fullmatch(r"P\d: Python, line \d", text) for text in texts)
        waited = waits(texts)
        shown = {k for k in range(4) if f"P{k}: waiting, line 5" in texts}
        assert shown >= {k for k in waited if waited[k] > 2 * seconds_of(took) / COLUMNS}
        assert shown
    assert len(shown) >= 3
    assert "P2: Python, line 4" in texts


def waits(texts: list[str]) -> dict[int, float]:
    """Return how many seconds each process waited, from the last column of the picture's table."""
    first = texts.index("process") + 5
    rows = [texts[first + 5 * k :][:5] for k in range(4)]
    assert [row[0] for row in rows] == [f"P{k}" for k in range(4)]
    return {k: seconds_of(row[4]) for k, row in enumerate(rows)}


def seconds_of(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"ms": 1e-3, "s": 1.0}[unit]


def test_the_readmes_pictures_are_there() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", readme)
    assert len(shown) >= 5
    for words, path in shown:
        assert (ROOT / path).is_file(), path
        assert len(words.split()) >= 8, words  # said for who can't see it
