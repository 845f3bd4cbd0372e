"""The gallery's stored pictures are what is drawn today, on every version of JAX."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT

STORED = ROOT / "notebooks"
TO_SCALE = "straggler"  # its times are another run's


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
        assert any(re.fullmatch(r"The cell took .* on 4 processes", text) for text in texts)
        # A process that gets no core is not looked at while it sleeps at line 4.
        assert any(re.fullmatch(r"Python, line \d", text) for text in texts)
        assert texts.count("waiting, line 5") >= 3
    assert "Python, line 4" in stored[TO_SCALE]


def test_the_readmes_pictures_are_there() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", readme)
    assert len(shown) >= 5
    for words, path in shown:
        assert (ROOT / path).is_file(), path
        assert len(words.split()) >= 8, words  # said for who can't see it
