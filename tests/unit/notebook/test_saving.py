"""Views of widgets, which are taken out of a notebook when it is saved."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.notebook import saving
from mcnb.notebook.saving import MARK, TEXT, VIEW, without_views

MODEL = {"version_major": 2, "version_minor": 0, "model_id": "0" * 32}


def output(text: str, *, ours: bool) -> dict[str, Any]:
    data = {TEXT: text, VIEW: MODEL}
    return {
        "output_type": "display_data",
        "data": data,
        "metadata": {**(MARK if ours else {}), "theirs": 1},
    }


def notebook(*outputs: dict[str, Any]) -> dict[str, Any]:
    cell = {
        "cell_type": "code",
        "execution_count": 1,
        "id": "one",
        "metadata": {},
        "outputs": list(outputs),
        "source": "mcnb.panel()",
    }
    content = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return {"type": "notebook", "format": "json", "content": content}


def outputs_of(model: dict[str, Any]) -> Any:
    return model["content"]["cells"][0]["outputs"]


def test_a_view_of_ours_leaves_its_text() -> None:
    model = notebook(output("Which?", ours=True))
    without_views(model, path="one.ipynb", contents_manager=None)
    assert outputs_of(model) == [
        {"output_type": "display_data", "data": {TEXT: "Which?"}, "metadata": {"theirs": 1}}
    ]


def test_a_view_without_a_text_is_removed() -> None:
    """It has asked whether widgets are drawn."""
    model = notebook(output("", ours=True), output("Which?", ours=True))
    without_views(model)
    assert [one["data"] for one in outputs_of(model)] == [{TEXT: "Which?"}]


def test_what_is_not_ours_stays() -> None:
    model = notebook(
        output("IntSlider(value=0)", ours=False),
        {"output_type": "stream", "name": "stdout", "text": "mcnb"},
        {"output_type": "display_data", "data": {TEXT: ""}, "metadata": {}},
        {"output_type": "display_data", "data": {VIEW: MODEL}, "metadata": dict(MARK)},
    )
    before = copy.deepcopy(model)
    without_views(model)
    assert model == before


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"type": "file", "content": "text"},
        {"type": "notebook"},
        {"type": "notebook", "content": None},
        {"type": "notebook", "content": {"cells": [{}, None, {"outputs": None}]}},
        notebook({"data": None, "metadata": None}),
        notebook({"data": {TEXT: "", VIEW: MODEL}, "metadata": "mcnb"}),
    ],
)
def test_what_is_not_understood_is_saved_as_it_is(model: dict[str, Any]) -> None:
    before = copy.deepcopy(model)
    without_views(model)
    assert model == before


def test_a_cell_that_is_not_understood_does_not_keep_the_others() -> None:
    model = notebook(output("Which?", ours=True))
    model["content"]["cells"].insert(0, {"cell_type": "markdown"})
    without_views(model)
    assert model["content"]["cells"][1]["outputs"][0]["data"] == {TEXT: "Which?"}


def test_the_server_saves_and_signs_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filemanager = pytest.importorskip("jupyter_server.services.contents.filemanager")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "lessons").mkdir()
    manager = filemanager.FileContentsManager(root_dir=str(tmp_path / "lessons"))
    assert saving._jupyter_server_extension_points() == [{"module": "mcnb.notebook.saving"}]
    saving._load_jupyter_server_extension(SimpleNamespace(contents_manager=manager))
    model = notebook(output("Which?", ours=True))
    model["content"]["cells"][0]["metadata"]["trusted"] = True
    manager.save(model, "one.ipynb")
    text = (tmp_path / "lessons" / "one.ipynb").read_text()
    assert "Which?" in text
    assert "0" * 32 not in text
    again = manager.get("one.ipynb")["content"]["cells"][0]
    manager.notary.store.close()
    assert again["metadata"]["trusted"]
    assert again["outputs"][0]["data"] == {TEXT: "Which?"}
