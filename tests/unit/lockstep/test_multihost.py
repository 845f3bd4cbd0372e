"""What JAX's functions exchange is shown as each process has passed it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from mcnb.lockstep.model import Launch
from mcnb.lockstep.multihost import as_passed, barrier_name, exchange_at, synchronizes

JAX = Path(jax.__file__).parent
MULTIHOST = str(JAX / "experimental/multihost_utils.py")
# JAX's functions, as far as frames tell them apart: what they are given, and what they launch.
SOURCES = {
    MULTIHOST: (
        "def _handle_array_process_allgather(inp, tiled):\n    return launch()\n"
        "def process_allgather(in_tree, tiled=False):\n"
        "    def _pjit(inp):\n        return _handle_array_process_allgather(inp, tiled)\n"
        "    return tree_map(_pjit, in_tree)\n"
        "def broadcast_one_to_all(in_tree):\n    return launch()\n"
        "def sync_global_devices(name):\n    return launch()\n"
    ),
    str(JAX / "_src/api.py"): (
        "def device_put(x, device=None):\n"
        "    return tree_map(lambda leaf: process_allgather(leaf, True), x)\n"
    ),
    str(JAX / "_src/traceback_util.py"): (
        "def reraise_with_filtered_traceback(*args):\n    return device_put(*args)\n"
    ),
}
MESH = "{'processes': 4, 'local_devices': 2}"
W, B = np.ones((3, 2), np.float32), np.zeros(5, np.float32)


def functions(look: Any) -> Any:
    """Return JAX's functions, which call `look` with the frame that launches."""
    names: dict[str, Any] = {
        "launch": lambda: look(sys._getframe(1)),
        "tree_map": jax.tree.map,
    }
    for filename, source in SOURCES.items():
        exec(compile(source, filename, "exec"), names)
    return SimpleNamespace(**names)


@pytest.mark.parametrize(
    ("name", "given", "paths"),
    [
        ("process_allgather", W, [""]),
        ("process_allgather", {"b": B, "w": [W]}, ["['b']", "['w'][0]"]),
        ("device_put", W, [""]),
        ("reraise_with_filtered_traceback", (B, W), ["[0]", "[1]"]),
    ],
)
def test_the_arrays_that_are_exchanged(name: str, given: Any, paths: list[str]) -> None:
    found: list[Any] = []
    getattr(functions(lambda frame: found.append(exchange_at(frame))), name)(given)
    assert [one.path() for one in found] == paths
    assert all(one.given is given for one in found)
    assert [one.array is leaf for one, leaf in zip(found, jax.tree.leaves(given), strict=True)] == [
        True for _ in paths
    ]


def test_what_is_broadcast_is_exchanged_at_once() -> None:
    jaxs = functions(exchange_at)
    found = jaxs.broadcast_one_to_all({"w": W})
    assert (found.given, found.array) == ({"w": W}, None)


def test_an_array_with_shards_elsewhere_is_gathered_as_it_is() -> None:
    spread = SimpleNamespace(is_fully_addressable=False)
    assert functions(exchange_at)._handle_array_process_allgather(spread, True) is None


def test_a_converted_array_has_no_place_in_a_tree() -> None:
    found = functions(exchange_at).process_allgather(W)
    assert found._replace(array=W.copy()).path() == ""
    assert found._replace(given={"w": W}, array=W.copy()).path() is None


def test_other_functions_exchange_nothing() -> None:
    assert exchange_at(sys._getframe()) is None
    names: dict[str, Any] = {"launch": lambda: exchange_at(sys._getframe(1))}
    exec(compile(SOURCES[MULTIHOST], "learners_multihost.py", "exec"), names)
    assert names["broadcast_one_to_all"]([]) is None


@pytest.mark.parametrize(
    ("name", "given", "arguments", "shown"),
    [
        ("process_allgather", np.ones(128), ("f32[512]",), ("f32[128]",)),
        ("process_allgather", np.ones((3, 2)), ("f32[4,3,2]",), ("f32[3,2]",)),
        ("process_allgather", 1.5, ("f32[4]",), ("f32[]",)),
        ("broadcast_one_to_all", (), ("f32[4,3,2]", "key<fry>[4]"), ("f32[3,2]", "key<fry>[]")),
    ],
)
def test_each_process_is_shown_what_it_passes(
    name: str, given: Any, arguments: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    launch = Launch(name, "1", (0, 1, 2, 3), arguments, mesh=MESH)

    def look(frame: FrameType) -> Launch:
        return as_passed(launch, frame)

    jaxs = functions(look)
    if name == "process_allgather":  # as JAX calls it for each array
        assert jaxs._handle_array_process_allgather(given, True).arguments == shown
    else:
        assert getattr(jaxs, name)(given).arguments == shown


def test_a_mesh_of_the_programs_own_is_no_exchange() -> None:
    launch = Launch("jit(f)", "1", (0, 1), ("f32[8]",), mesh="{'x': 8}")
    assert functions(lambda frame: as_passed(launch, frame)).broadcast_one_to_all([]) is launch
    stacked = Launch("jit(f)", "1", (0, 1), ("f32[8]",), mesh=MESH)
    assert as_passed(stacked, sys._getframe()) is stacked


@pytest.mark.parametrize(
    ("filename", "expected"),
    [("/jax/experimental/multihost_utils.py", "'it\\'s \"saved\"'"), ("train.py", "")],
)
def test_the_name_of_a_barrier(filename: str, expected: str) -> None:
    names: dict[str, Any] = {"look": lambda: barrier_name(sys._getframe())}
    source = "def sync_global_devices(name):\n    return look()\n"
    exec(compile(source, filename, "exec"), names)
    assert names["sync_global_devices"]('it\'s "saved"') == expected
    assert synchronizes(names["sync_global_devices"].__code__) is bool(expected)
    assert barrier_name(sys._getframe()) == ""
    assert not synchronizes(None)
