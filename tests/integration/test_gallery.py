"""The gallery's stored pictures are what is drawn today, on every version of JAX."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.conftest import ROOT

STORED = ROOT / "notebooks"


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that draws the gallery."""
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "tools" / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    gallery = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gallery", gallery)
    spec.loader.exec_module(gallery)
    return gallery


def test_what_was_measured_has_all_that_a_launch_has(gallery: Any) -> None:
    measured = json.loads(gallery.MEASURED.read_text())["straggler"]
    assert gallery.to_data(gallery.from_data(measured)) == measured


@pytest.mark.thorough("draws all pictures")
def test_the_gallery_is_what_is_drawn(gallery: Any, tmp_path: Path) -> None:
    gallery.main([str(tmp_path)])
    made = {path.stem: path.read_text() for path in tmp_path.glob("images/gallery/*.svg")}
    stored = {path.stem: path.read_text() for path in STORED.glob("images/gallery/*.svg")}
    assert made.keys() == stored.keys()
    assert {name for name in made if made[name] != stored[name]} == set()
    assert (tmp_path / "gallery.md").read_text() == (STORED / "gallery.md").read_text()
    # The picture to scale, from times that were measured once, shows what its title says.
    texts = {element.text for element in ElementTree.fromstring(made["straggler"]).iter()}
    assert {"P2: Python, line 4", *(f"P{k}: waiting, line 5" for k in (0, 1, 3))} <= texts
