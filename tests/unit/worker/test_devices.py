"""Devices of several hosts and processes, for code that was written for one."""

from __future__ import annotations

import re
from typing import Any

import jax
import pytest
from jax.sharding import AxisType, Mesh

from mcnb.worker.devices import accept_device_count, allow_cpu_hosts
from tests.support.fake_devices import FakeDevice

REFUSAL = (
    "`jax.make_mesh` does not support multi-slice topologies. Please use "
    "jax.experimental.mesh_utils.create_hybrid_device_mesh"
)


class OnHost(FakeDevice):
    device_kind = "cpu"

    def __init__(self, number: int, platform: str = "cpu") -> None:
        super().__init__(number, number // 2)
        self.platform = platform
        self.slice_index = number // 4


def on_two_hosts(platform: str = "cpu") -> list[Any]:
    return [OnHost(number, platform) for number in range(8)]


@pytest.fixture(autouse=True, params=["axis_shapes", "axis_sizes"])
def sizes(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Let `jax.make_mesh` refuse several slices, as JAX 0.10.2 does, and allow CPU hosts.

    Its first parameter has the name of JAX 0.10.2, or that of JAX 0.12.
    """
    original = jax.make_mesh

    def refuse(sizes: Any, axis_names: Any, axis_types: Any, devices: Any) -> Mesh:
        if len({getattr(device, "slice_index", 0) for device in devices or jax.devices()}) > 1:
            raise ValueError(REFUSAL)
        return original(sizes, axis_names, axis_types, devices=devices)

    def older(
        axis_shapes: Any, axis_names: Any, axis_types: Any = None, *, devices: Any = None
    ) -> Mesh:
        return refuse(axis_shapes, axis_names, axis_types, devices)

    def newer(
        axis_sizes: Any, axis_names: Any, axis_types: Any = None, *, devices: Any = None
    ) -> Mesh:
        return refuse(axis_sizes, axis_names, axis_types, devices)

    name = str(request.param)
    monkeypatch.setattr(jax, "make_mesh", older if name == "axis_shapes" else newer)
    allow_cpu_hosts()
    return name


def ids(mesh: Mesh) -> list[list[int]]:
    return [[device.id for device in row] for row in mesh.devices]


def test_cpus_of_two_hosts_are_one_slice() -> None:
    mesh = jax.make_mesh((4, 2), ("x", "y"), devices=on_two_hosts())
    assert ids(mesh) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert (mesh.axis_names, mesh.axis_types) == (("x", "y"), (AxisType.Explicit,) * 2)
    types = (AxisType.Auto, AxisType.Explicit)
    mesh = jax.make_mesh((3, 2), ("x", "y"), axis_types=types, devices=on_two_hosts())
    assert (ids(mesh), mesh.axis_types) == ([[0, 1], [2, 3], [4, 5]], types)


def test_arguments_may_be_named(sizes: str) -> None:
    named: dict[str, Any] = {sizes: (2, 4), "axis_names": ("x", "y")}
    mesh = jax.make_mesh(**named, devices=on_two_hosts())
    assert ids(mesh) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_other_devices_are_refused_as_before() -> None:
    with pytest.raises(ValueError, match=re.escape(REFUSAL)):
        jax.make_mesh((4, 2), ("x", "y"), devices=on_two_hosts("gpu"))


def test_other_meshes_are_jaxs_own() -> None:
    assert jax.make_mesh((1,), ("x",)).shape == {"x": 1}
    with pytest.raises(ValueError, match="Number of devices"):
        jax.make_mesh((10_000,), ("x",))


def test_it_is_done_once() -> None:
    before = jax.make_mesh
    allow_cpu_hosts()
    assert jax.make_mesh is before


def test_the_number_of_devices_may_be_set_to_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    updated: list[tuple[str, object]] = []
    monkeypatch.setattr(jax.config, "update", lambda *given: updated.append(given), raising=False)
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    accept_device_count()
    for given in (("jax_num_cpu_devices", 8), ("jax_num_cpu_devices", 4), ("jax_enable_x64", 8)):
        jax.config.update(*given)
    assert updated == [("jax_num_cpu_devices", 4), ("jax_enable_x64", 8)]
    accept_device_count()
    jax.config.update("jax_enable_x64", False)
    assert len(updated) == 3
