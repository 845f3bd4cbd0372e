"""Healing a process: meshes, shardings and arrays on new devices, and what is said of the rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from mcnb.lockstep import _jax
from mcnb.messages import Healed
from mcnb.recovery import heal as healing
from mcnb.recovery.heal import copied, heal, living, moved_mesh, moved_sharding
from tests.support.fake_devices import fake_devices

pytestmark = pytest.mark.usefixtures("small_heap")
OLD, NEW = fake_devices(6), fake_devices(12)[6:]
MOVED = {id(old): (old, new) for old, new in zip(OLD, NEW, strict=True)}


def test_a_mesh_keeps_its_shape_its_names_and_its_order() -> None:
    types = (AxisType.Explicit, AxisType.Auto)
    old = Mesh(OLD[::-1].reshape(3, 2), ("a", "b"), axis_types=types)
    new = moved_mesh(old, MOVED)
    assert new.devices.tolist() == NEW[::-1].reshape(3, 2).tolist()
    assert (new.axis_names, new.axis_types) == (("a", "b"), types)


def test_a_mesh_that_is_not_on_old_devices_is_left_alone() -> None:
    strange = np.array([OLD[0], NEW[0]], dtype=object)
    for other in (Mesh(strange, ("a",)), Mesh(np.empty((), dtype=object), ()), OLD, None):
        assert moved_mesh(other, MOVED) is None


def test_a_sharding_keeps_its_spec_on_the_new_mesh() -> None:
    old, new = Mesh(OLD.reshape(3, 2), ("a", "b")), Mesh(NEW.reshape(3, 2), ("a", "b"))
    sharding = NamedSharding(old, PartitionSpec("b", None))
    moved = moved_sharding(sharding, {**MOVED, id(old): (old, new)})
    assert moved.mesh is new
    assert moved.spec == PartitionSpec("b", None)
    assert moved_sharding(sharding, MOVED) is None  # its mesh was not moved


def test_a_sharding_on_one_device_is_moved_to_the_new_one() -> None:
    sharding = SingleDeviceSharding(OLD[3])
    assert moved_sharding(sharding, MOVED).device_set == {NEW[3]}
    assert moved_sharding(SingleDeviceSharding(NEW[3]), MOVED) is None


@pytest.mark.parametrize("data", [np.arange(6.0).reshape(2, 3), np.arange(9)[::3], np.float32(3.5)])
def test_a_copy_is_aligned_and_shares_nothing(data: Any) -> None:
    data = np.asarray(data)
    copy = copied(data)
    assert (copy.dtype, copy.shape, copy.tolist()) == (data.dtype, data.shape, data.tolist())
    assert copy.ctypes.data % 64 == 0
    assert not np.shares_memory(copy, data)


def test_living_objects_are_listed_under_the_first_class_that_they_are_of() -> None:
    class Base: ...

    class Derived(Base): ...

    base, derived = Base(), Derived()
    assert living(Derived, Base) == [[derived], [base]]
    assert living(Base) == [[base, derived]]


class Aborted:
    """An array whose computation was aborted: it has no value."""

    @property
    def addressable_shards(self) -> list[Any]:
        return [Aborted()]

    device = None

    @property
    def data(self) -> Any:
        raise RuntimeError("aborted")

    def is_deleted(self) -> bool:
        return False

    def delete(self) -> None:
        raise RuntimeError("aborted")


@pytest.fixture
def arrays(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arrays that a heal finds; the devices stay, and nothing is shut down."""
    arrays: list[Any] = []
    monkeypatch.setattr(_jax, "all_arrays", lambda: list(arrays))
    monkeypatch.setattr(_jax, "shut_down", lambda keep_client: None)
    monkeypatch.setattr(healing.gc, "unfreeze", lambda: None)
    return arrays


def test_arrays_are_replaced_wherever_they_are_held(arrays: list[Any]) -> None:
    old = jnp.arange(3)
    weak = jnp.asarray(2.0)
    deleted = jnp.ones(2)
    deleted.delete()
    arrays += [old, weak, deleted, jnp.ones(4)]  # no name leads to the last one
    names: dict[str, Any] = {"x": old, "model": {"w": (old, 1)}, "weak": weak, "gone": deleted}
    rejoined: list[bool] = []
    assert heal(names, lambda: rejoined.append(names["x"].is_deleted())) == Healed(arrays=2)
    assert rejoined == [False]
    assert names["x"] is names["model"]["w"][0]
    assert names["x"] is not old
    assert (names["x"].tolist(), names["x"].dtype) == ([0, 1, 2], old.dtype)
    assert (names["x"].committed, names["weak"].weak_type) == (False, True)
    assert (old.is_deleted(), names["gone"].is_deleted()) == (True, True)


def test_arrays_without_a_value_are_named(arrays: list[Any]) -> None:
    lost, kept = Aborted(), jax.device_put(jnp.arange(2), jax.devices()[0])
    arrays += [lost, Aborted(), kept]
    names: dict[str, Any] = {"z": [lost], "x": kept}
    assert heal(names, lambda: None) == Healed(arrays=1, lost=("z[0]",))
    assert names["x"].committed


def test_what_can_not_be_restored_is_named(arrays: list[Any]) -> None:
    old = jnp.arange(3)
    arrays.append(old)

    def generate(v: Any) -> Any:
        while True:
            yield v

    generator = generate(old)
    next(generator)
    step = jax.jit(lambda v: v + 1).lower(np.ones(2)).compile()
    names = {"generator": generator, "step": step}
    healed = heal(names, lambda: None)
    assert healed.stale[-1] == "step: compile it again"
    assert "generator: create it again" in healed.stale


@pytest.mark.parametrize("was", [OLD[2], NEW[2], None])
def test_the_default_device_is_the_new_one(
    arrays: list[Any], monkeypatch: pytest.MonkeyPatch, was: Any
) -> None:
    del arrays
    updated: dict[str, Any] = {}
    present = [OLD.tolist()]
    config = SimpleNamespace(jax_default_device=was, update=updated.__setitem__)
    with monkeypatch.context() as patched:
        patched.setattr(jax, "devices", lambda: present[-1])
        patched.setattr(jax, "config", config)
        patched.setattr(healing, "device_names", lambda devices: [*map(str, range(len(devices)))])
        heal({}, lambda: present.append(NEW.tolist()))
    assert updated == ({"jax_default_device": NEW[2]} if was is OLD[2] else {})
