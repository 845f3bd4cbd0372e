"""The panel that stands by itself: what it says of a cluster, and when it is brought up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from mcnb.cluster import cluster as clusters
from mcnb.errors import ClusterError
from mcnb.messages import Leaf, ProcessError, Variable
from mcnb.notebook import overview, panel
from mcnb.notebook.display import preformatted
from mcnb.notebook.overview import MOST_PICTURES, NO_CLUSTER, contents_of
from mcnb.pictures.scene import Scene
from mcnb.pictures.show import scene_of
from mcnb.worker.survey import Overview

AUTO = (jax.sharding.AxisType.Auto,)  # the default is another one in newer versions
MESH = scene_of(jax.sharding.AbstractMesh((2,), ("a",), axis_types=AUTO))


def variable(text: str) -> Variable:
    return Variable("n", "int", (Leaf("", "int", text),))


def of(text: str, bytes_in_use: int = 96, meshes: Mapping[str, Scene] | None = None) -> Overview:
    return Overview((variable(text),), ((bytes_in_use, 0),) * 2, dict(meshes or {}))


class Cluster:
    """A cluster whose processes answer at once, or not."""

    def __init__(self, answers: Mapping[int, Overview | ProcessError], processes: int = 4) -> None:
        self.answers = dict(answers)
        self.options = SimpleNamespace(processes=processes)
        self.asked = 0

    def ask_idle(
        self, function: Any, *, processes: range, within_s: float
    ) -> dict[int, Overview | ProcessError]:
        assert function.__name__ == "overview"
        self.asked += 1
        return {k: one for k, one in self.answers.items() if k in processes}

    def status(self) -> str:
        return "4 processes x 2 CPU devices: ready"


def text_of(cluster: Cluster) -> str:
    return contents_of(cluster).text  # type: ignore[arg-type]


def test_what_it_says() -> None:
    cluster = Cluster({k: of(str(k // 3), 96 + k // 3, {"mesh": MESH}) for k in range(4)})
    assert (
        text_of(cluster)
        == """\
4 processes x 2 CPU devices: ready
[0-2] memory in use: 96 B on each device
[3] memory in use: 97 B on each device

Abstract mesh 'a': 2
→ 'a': 2
  0   1
┌───┬───┐
│ 0 │ 1 │
└───┴───┘
2 places for devices, and no devices yet.
Axis types: 'a' Auto.

name  on the processes  bytes per device  what it is
n     differs on 3                        int 0"""
    )


def test_processes_that_do_not_answer() -> None:
    assert (
        text_of(Cluster({0: of("1"), 3: of("1")}))
        == """\
4 processes x 2 CPU devices: ready
Processes 1,2 did not answer within 2 s
[0,3] memory in use: 96 B on each device

name  on the processes  bytes per device  what it is
n     same on these 2                     int 1"""
    )
    assert text_of(Cluster({})) == "4 processes x 2 CPU devices: ready"


def test_processes_that_answer_with_an_error_are_not_silent() -> None:
    mine, another = (
        ProcessError(name, f"{text}\nmore of it", None, "traceback")
        for name, text in (("ValueError", "mine"), ("TypeError", "another"))
    )
    assert (
        text_of(Cluster({0: mine, 1: of("1"), 2: mine, 3: another}))
        == """\
4 processes x 2 CPU devices: ready
Processes 0,2 can't describe their variables: ValueError: mine
Process 3 can't describe its variables: TypeError: another
[1] memory in use: 96 B on each device

name  on the processes  bytes per device  what it is
n     same on these 1                     int 1"""
    )
    assert (
        text_of(Cluster({0: mine, 1: mine, 3: mine}))
        == """\
4 processes x 2 CPU devices: ready
Process 2 did not answer within 2 s
Processes 0,1,3 can't describe their variables: ValueError: mine"""
    )


def test_a_mesh_of_its_own_on_each_process() -> None:
    meshes = [scene_of(jax.sharding.AbstractMesh((k + 1,), ("a",))) for k in range(9)]
    cluster = Cluster({k: of("1", 0, {"own": meshes[k]}) for k in range(9)}, processes=9)
    contents = contents_of(cluster)  # type: ignore[arg-type]
    assert [one.scene.title for one in contents.pictures] == [
        f"On P{k}: Abstract mesh 'a': {k + 1}" for k in range(MOST_PICTURES)
    ]
    assert contents.about.splitlines()[-1] == f"{MOST_PICTURES} of 9 meshes are drawn"


def test_html_is_for_a_notebook_that_somebody_has_open(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = contents_of(Cluster({0: of("'<'", 1, {"m": MESH})}, 1))  # type: ignore[arg-type]
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    assert contents.data() == {"text/plain": contents.text}
    monkeypatch.setenv("JPY_SESSION_NAME", "one.ipynb")
    page = contents.data()["text/html"]
    assert page.startswith(f"<div>{preformatted(contents.about)}<div")
    assert page.count("<svg") == 1
    assert "&#x27;&lt;&#x27;" in page
    assert contents.data()["text/plain"] == contents.text


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is displayed and updated, in a notebook that somebody has open."""
    texts: list[str] = []

    def display(data: Mapping[str, str], raw: bool, display_id: bool) -> Any:
        texts.append(data["text/plain"])
        return SimpleNamespace(update=lambda data, raw: texts.append(data["text/plain"]))

    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(overview, "display", display)
    monkeypatch.setattr(overview, "somebody_looks", lambda _: True)
    monkeypatch.setattr(overview, "is_available", lambda: False)
    monkeypatch.setattr(overview, "get_ipython", lambda: SimpleNamespace(kernel=None))
    monkeypatch.setattr(overview, "REST_S", 0.0)
    monkeypatch.setattr(overview, "_shown", None)
    yield texts
    clusters.current = None


def after_a_cell(*runs: bool) -> None:
    """End cells, one after the other; another one runs by the time of a look, or does not."""

    async def ends() -> None:
        for one in runs:
            overview.refresh_soon(lambda one=one: one)  # type: ignore[misc]
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(ends())


def test_it_is_brought_up_to_date_when_cells_have_ended(shown: list[str]) -> None:
    cluster = Cluster(dict.fromkeys(range(4), of("1")))
    clusters.current = cluster  # type: ignore[assignment]
    overview.panel()
    after_a_cell(False)
    assert (len(shown), cluster.asked) == (1, 2)  # nothing is different
    cluster.answers[2] = of("2")
    after_a_cell(True)
    assert (len(shown), cluster.asked) == (1, 2)  # the next cell runs already
    after_a_cell(False, False, False)
    assert (len(shown), cluster.asked) == (2, 3)  # of cells in a row, after the last one
    assert shown[1].endswith("differs on 2                        int 1")
    clusters.current = None
    after_a_cell(False)
    assert shown[2:] == [NO_CLUSTER]


def test_where_nobody_looks_it_stays_as_it_is(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(dict.fromkeys(range(4), of("1")))
    clusters.current = cluster  # type: ignore[assignment]
    monkeypatch.setattr(overview, "somebody_looks", lambda _: False)
    overview.panel()
    after_a_cell(False)
    assert (len(shown), cluster.asked) == (1, 1)


def test_a_terminal(
    shown: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clusters.current = Cluster({})  # type: ignore[assignment]
    monkeypatch.setattr(overview, "get_ipython", lambda: None)
    overview.panel()
    assert (capsys.readouterr().out, shown) == ("4 processes x 2 CPU devices: ready\n", [])


def test_no_cluster(shown: list[str]) -> None:
    with pytest.raises(ClusterError):
        overview.panel()
    assert shown == []


def test_strips_stand_above_it_where_widgets_are_drawn(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters.current = Cluster({})  # type: ignore[assignment]
    stood: list[int] = []
    monkeypatch.setattr(overview, "is_available", lambda: True)
    monkeypatch.setattr(overview, "stand", lambda: stood.append(len(shown)))
    overview.panel()
    assert (stood, len(shown)) == ([0], 1)
    assert overview.stand is not panel.stand
