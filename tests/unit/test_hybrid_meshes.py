"""The meshes of lesson 11, on devices that claim to be in several slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jupytext
import pytest
from jax.sharding import AxisType, Mesh

from tests.conftest import ROOT
from tests.support.fake_devices import FakeDevice

LESSON = ROOT / "notebooks" / "11_leaving_the_laptop.md"
NODES, GPUS = 2, 4


class Gpu(FakeDevice):
    platform = "gpu"
    device_kind = "a GPU"

    def __init__(self, number: int, process_index: int) -> None:
        super().__init__(number, process_index)
        self.slice_index = number // GPUS


def nodes(processes_per_node: int) -> list[Any]:
    """Return the GPUs of two nodes, each of which is a slice."""
    return [Gpu(i, i * processes_per_node // GPUS) for i in range(NODES * GPUS)]


def source_with(words: str) -> str:
    """Return the lesson's cell that has these words, without its magic."""
    [source] = [cell.source for cell in jupytext.read(LESSON).cells if words in cell.source]
    return "\n".join(line for line in source.splitlines() if not line.startswith("%"))


def hybrid(*args: Any, **options: Any) -> Mesh:
    names: dict[str, Any] = {}
    exec(source_with("def hybrid"), names)
    mesh: Mesh = names["hybrid"](*args, **options)
    return mesh


def numbers(mesh: Mesh) -> list[list[int]]:
    return [[device.id for device in row] for row in mesh.devices]


@pytest.mark.parametrize("processes_per_node", [1, GPUS])
def test_slices_lie_along_one_axis_whichever_processes_they_belong_to(
    processes_per_node: int,
) -> None:
    mesh = hybrid(nodes(processes_per_node), NODES)
    assert dict(mesh.shape) == {"across": NODES, "inside": GPUS}
    assert numbers(mesh) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_processes_can_stand_in_for_slices() -> None:
    mesh = hybrid(nodes(2), 2 * NODES, process_is_granule=True)
    assert numbers(mesh) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_make_mesh_raises_what_the_lesson_says() -> None:
    with pytest.raises(ValueError, match="does not support multi-slice topologies") as error:
        jax.make_mesh((NODES, GPUS), ("across", "inside"), devices=nodes(1))
    said = str(error.value).partition(". ")[0]
    assert said in LESSON.read_text()


def test_the_lessons_program_runs_on_several_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = nodes(1)
    program = source_with("%%writefile train.py")
    meshes = [line for line in program.splitlines() if line.startswith("mesh = ")]
    names: dict[str, Any] = {"jax": jax, "Mesh": Mesh}
    monkeypatch.setattr(jax, "devices", lambda: devices)
    exec("\n".join(meshes), names)
    mesh: Mesh = names["mesh"]
    members: Sequence[Any] = mesh.devices.tolist()
    assert members == devices
    assert mesh.axis_types == (AxisType.Auto,)
