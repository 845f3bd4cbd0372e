"""Describing the variables of a process: those with values, and those that have none."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcnb.messages import LEAKED_TRACER, Leaf, Variable
from mcnb.pictures import show
from mcnb.worker import survey

LARGE = 1_000_000


def leaked() -> Any:
    """Return a tracer that a traced function has left in a list."""
    saved = []

    @jax.jit
    def keeps(x: Any) -> Any:
        saved.append(x)
        return x

    keeps(jnp.ones(3))
    return saved[0]


class Secretive:
    """An object of the learner's that raises an error for whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __call__(self) -> None:
        """Do nothing."""


class Failed:
    """An array whose computation has failed, as `jax.live_arrays` returns it."""

    def __init__(self) -> None:
        data = SimpleNamespace(nbytes=12, unsafe_buffer_pointer=self.fail)
        self.addressable_shards = [SimpleNamespace(device=jax.local_devices()[0], data=data)]

    def fail(self) -> int:
        raise RuntimeError("INTERNAL: the computation failed")

    def is_deleted(self) -> bool:
        return False

    def is_ready(self) -> bool:
        return True


def shell(**names: Any) -> Any:
    return SimpleNamespace(user_ns=names, user_ns_hidden={})


@pytest.fixture(params=["overview", "variables"])
def described(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the variables of a process, as the panel and as `%mcjax vars` have them."""
    monkeypatch.setattr(survey, "interruptible", lambda *_: contextlib.nullcontext())

    def describe(**names: Any) -> dict[str, Variable]:
        if request.param == "overview":
            found = survey.overview(shell(**names)).variables
        else:
            found = survey.variables(shell(**names), 1)
        return {one.name: one for one in found}

    return describe


def kinds(variable: Variable) -> list[tuple[str, str]]:
    return [(leaf.path, leaf.kind) for leaf in variable.leaves]


def test_a_leaked_tracer_is_described_and_so_are_the_others(described: Any) -> None:
    tracer = leaked()
    found = described(n=3, saved=[tracer, 2], tracer=tracer, x=np.arange(3))
    assert found["n"] == Variable("n", "int", (Leaf("", "int", "3"),))
    assert found["tracer"] == Variable(
        "tracer", type(tracer).__qualname__, (Leaf("", LEAKED_TRACER),)
    )
    assert found["saved"].leaves == (Leaf("[0]", LEAKED_TRACER), Leaf("[1]", "int", "2"))
    assert kinds(found["x"]) == [("", "NumPy int64[3]")]
    assert found["x"].leaves[0].digests.keys() == {"0"}


def test_the_position_of_an_array_behind_a_tracer_is_kept(described: Any) -> None:
    _, array = described(saved=[leaked(), np.ones(2, np.float32)])["saved"].leaves
    assert array.digests.keys() == {"1"}


def test_a_variable_that_can_not_be_described_leaves_the_others(described: Any) -> None:
    found = described(keys={1: "a", "b": 2}, n=3, own=Secretive())
    assert [*found] == ["keys", "n", "own"]
    assert found["n"].leaves == (Leaf("", "int", "3"),)
    [leaf] = found["keys"].leaves
    assert found["keys"].type == "dict"
    assert leaf.kind.startswith("can't be described: ValueError: Comparator raised exception ")
    assert "\n" not in leaf.kind
    assert kinds(found["own"]) == [("", "Secretive")]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([0] * LARGE, "list of 1000000 items"),
        ((0,) * LARGE, "tuple of 1000000 items"),
        (dict.fromkeys(range(LARGE), 0), "dict of 1000000 items"),
        (deque([0]) * LARGE, "deque of 1000000 items"),
    ],
)
def test_a_large_container_is_one_leaf_and_takes_no_time(
    value: Any, kind: str, described: Any
) -> None:
    described(warm=[0])
    began = time.process_time()
    found = described(large=value, held={"n": 1, "x": value})
    # To visit all items would take seconds.
    assert time.process_time() - began < 0.5
    assert found["large"].leaves == (Leaf("", kind),)
    assert found["held"].leaves == (Leaf("['n']", "int", "1"), Leaf("['x']", kind))
    assert not found["held"].truncated


def test_the_most_leaves_that_are_compared(described: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_LEAVES", 4)
    monkeypatch.setattr(survey, "MOST_NODES", 8)
    found = described(all=[1, 2, 3, 4], halves=[[1, 2], [3, 4], [5]], items=[1, 2, 3, 4, 5])
    assert [leaf.text for leaf in found["all"].leaves] == ["1", "2", "3", "4"]
    assert not found["all"].truncated
    assert [leaf.text for leaf in found["halves"].leaves] == ["1", "2", "3", "4"]
    assert found["halves"].truncated
    assert found["items"].leaves == (Leaf("", "list of 5 items"),)


def test_the_most_nodes_that_are_visited(described: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_NODES", 6)
    found = described(deep=[[1], [2], [3], [4]])["deep"]
    assert found.truncated
    assert kinds(found)[:2] == [("[0][0]", "int"), ("[1][0]", "int")]


def test_a_tree_is_walked_once(described: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[Any] = []
    walk = jax.tree_util.tree_leaves_with_path

    def counts(tree: Any, is_leaf: Any) -> Any:
        walked.append(tree)
        return walk(tree, is_leaf=is_leaf)

    monkeypatch.setattr(jax.tree_util, "tree_leaves_with_path", counts)
    described(a=[1], b={"c": 2})
    assert walked == [[1], {"c": 2}]


def test_only_leaves_with_elements_are_digested(described: Any) -> None:
    found = described(b=True, n=3, s="text", y=np.float32(1), z={1, 2})
    digested = {name: [*one.leaves[0].digests] for name, one in found.items()}
    assert digested == {"b": [], "n": [], "s": [], "y": ["0"], "z": []}
    assert [one.leaves[0].text for one in found.values()] == [
        *("True", "3", "'text'", repr(np.float32(1)), "{1, 2}")
    ]


def test_a_leaked_tracer_is_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "interruptible", lambda *_: contextlib.nullcontext())
    here = shell(saved=[leaked(), np.float32([1, 2])])
    found = survey.variable(here, 1, "saved")
    assert found is not None
    assert [leaf.kind for leaf in found.leaves] == [LEAKED_TRACER, "NumPy float32[2]"]
    assert survey.answer(here, 1, "0", None) == ["", (), ()]
    assert survey.answer(here, 1, "1", [0]) == ["float32", [2], ["0000803f00000040"]]
    survey.forget(here, 1)
    assert survey.answer(here, 1, "1", [0]) == ["", (), ()]


def test_an_array_whose_computation_failed_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = jax.device_put(np.ones(4, np.float32), jax.local_devices()[0])
    monkeypatch.setattr(jax, "live_arrays", lambda: [Failed(), held, Failed()])
    assert survey._bytes_of_arrays() == {jax.local_devices()[0]: 16}


def test_a_mesh_that_can_not_be_drawn_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (jax.make_mesh((1,), (name,)) for name in "ab")
    draw = show.scene_of

    def fails(mesh: Any, name: str) -> Any:
        if mesh == first:
            raise RuntimeError("mesh")
        return draw(mesh, name=name)

    monkeypatch.setattr(show, "scene_of", fails)
    assert [*survey.overview(shell(first=first, second=second)).meshes] == ["second"]


@pytest.fixture(autouse=True)
def nothing_is_kept() -> Iterator[None]:
    yield
    survey._compared.clear()
