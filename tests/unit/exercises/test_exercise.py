"""What exercises share: hints for values of another kind, meshes, arrays and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from mcnb.exercises.exercise import hint_for, mesh_of, of_function, sharded, shared_folder


@pytest.mark.parametrize(
    ("seen", "hint"),
    [
        ("no function", "define a function, with def."),
        ("a list is no function", "define a function, with def."),
        ("an error", "3 of an error"),
        ((1, 2), "3 of (1, 2)"),
        (7, "3 of 7"),
    ],
)
def test_a_hint_asks_for_a_function_only_if_there_is_none(seen: object, hint: str) -> None:
    def own(seen: object, expected: object) -> str:
        return f"{expected} of {seen}"

    assert of_function(own)(seen, 3) == hint
    assert of_function(own).__name__ == "own"


@pytest.mark.parametrize(
    ("form", "seen", "fits"),
    [
        (int, 3, True),
        (int, "3", False),
        ((int, str), (3, "a"), True),
        ((int, str), (3, 4), False),
        ((int, str), [3, "a"], False),
        ((int, str), (3, "a", 5), False),
        ((int, str), (3,), False),
        ((int, (int, int)), (1, (2, 3)), True),
        ((int, (int, int)), (1, 2), False),
    ],
)
def test_a_hint_for_values_of_a_form(form: object, seen: object, fits: bool) -> None:
    @hint_for(form, "another form is wanted.")
    def own(seen: object, expected: object, *_: int) -> str:
        return f"{expected} of {seen}"

    assert own(seen, 3, 4, 2) == (f"3 of {seen}" if fits else "another form is wanted.")


def test_a_mesh_of_processes_by_their_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []
    auto = jax.sharding.AxisType.Auto
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    monkeypatch.setattr(
        jax, "make_mesh", lambda sizes, axes, axis_types: made.append((sizes, axes, axis_types))
    )
    mesh_of(["host", "chip"])
    mesh_of("abc", [2, 2, 2])
    assert made == [
        ((4, 2), ("host", "chip"), (auto, auto)),
        ((2, 2, 2), ("a", "b", "c"), (auto, auto, auto)),
    ]


def test_an_array_from_values_that_every_process_has() -> None:
    whole = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    mesh = mesh_of(["x", "y"], [1, 1])
    made = sharded(whole, mesh, None, "x")
    assert np.array_equal(made, whole)
    assert made.sharding == jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "x"))


def test_a_folder_that_process_0_makes_and_removes(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[np.ndarray[Any, Any]] = []

    def broadcast(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return what process 0 gives, in the type that sums give."""
        sent.append(data)
        assert data.shape == sent[0].shape
        return sent[0].astype(np.int32)

    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", broadcast)
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    with shared_folder() as made:
        assert [*made.iterdir()] == []
        monkeypatch.setattr(jax, "process_index", lambda: 1)
        with shared_folder() as other:
            assert other == made
        # It is not for another process to remove what process 0 may still use.
        assert made.is_dir()
        (made / "file").touch()
    assert not made.exists()
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    sent.clear()
    folders: list[Path] = []

    def fail() -> None:
        with shared_folder() as folder:
            folders.append(folder)
            assert folder.is_dir()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not folders[0].exists()
