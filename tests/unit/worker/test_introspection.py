"""Completing and describing names of a process: what is found, and that no code of it runs."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from mcnb.output.terminal import without_escapes
from mcnb.worker import introspection
from mcnb.worker.introspection import MOST_MATCHES, card, complete, describe, resolve

MISSING = introspection._MISSING


class Launches:
    """An object of the learner's, which computes wherever it is asked something."""

    __slots__ = ("ran", "slot")

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.slot = jnp.ones(2)

    @property
    def total(self) -> Any:
        """Return a sum."""
        self.ran.append("total")
        return jnp.sum(self.slot)

    def __getattr__(self, name: str) -> Any:
        self.ran.append(name)
        raise AttributeError(name)

    def __repr__(self) -> str:
        self.ran.append("repr")
        return "repr"


@pytest.fixture
def mine() -> Launches:
    return Launches()


@pytest.fixture(scope="module")
def bare_shell() -> Iterator[Any]:
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    yield shell
    atexit.unregister(shell.atexit_operations)
    shell.atexit_operations()


@pytest.fixture
def shell(bare_shell: Any, mine: Launches) -> Any:
    x = jnp.ones((4, 2))

    def double(value: int, times: int = 2) -> int:
        """Multiply a number."""
        return value * times

    bare_shell.reset(new_session=False)
    bare_shell.user_ns.update(x=x, mine=mine, params={"w": x, "layers": [x, 3]}, steps=3)
    bare_shell.user_ns.update(jnp=jnp, held=[mine], double=double)
    return bare_shell


def texts(shell: Any, source: str) -> list[str]:
    """Return what a person sees: the source with each completion in place."""
    found = complete(shell, source, len(source))
    assert len({one.start for one in found}) <= 1
    return [source[: one.start] + one.text for one in found]


@pytest.mark.parametrize(
    ("source", "first", "count"),
    [
        ("para", "params", 1),
        ("x.shar", "x.sharding", 1),
        ("x.sharding.memory_k", "x.sharding.memory_kind", 1),
        ("f(x.sharding.memory_k", "f(x.sharding.memory_kind", 1),
        ("y = jnp.cums", "y = jnp.cumsum", 1),
        ("params['w'].shar", "params['w'].sharding", 1),
        ("params['w'].sharding.memory_k", "params['w'].sharding.memory_kind", 1),
        ('params["layers"][0].sharding.memory_k', 'params["layers"][0].sharding.memory_kind', 1),
        ("params['", "params['layers", 2),
        ("for i in range(3):\n    y = para", "for i in range(3):\n    y = params", 1),
        ("double(3, ti", "double(3, times=", 1),
        ("mine.to", "mine.total", 1),
        ("mine.slot.nda", "", 0),
    ],
)
def test_what_is_completed(source: str, first: str, count: int, shell: Any, mine: Launches) -> None:
    found = [text for text in texts(shell, source) if "%" not in text]
    assert (found[:1], len(found)) == ([first] if first else [], count)


@pytest.mark.parametrize(
    "source",
    [
        "mine.total.",
        "mine.total.sh",
        "x.T.sh",
        "x.mT.sh",
        "x['",
        "nothing.sh",
        "1 +",
        ").",
        "held[0].total.sh",
        "x[0].sh",
    ],
)
def test_nothing_is_computed_to_complete(source: str, shell: Any, mine: Launches) -> None:
    assert [text for text in texts(shell, source) if ".sh" in text] == []
    assert "total" not in mine.ran


def test_the_cursor_may_be_anywhere(shell: Any) -> None:
    source = "a = para + 1\nb = 2"
    (one,) = complete(shell, source, source.index(" + 1"))
    assert (one.start, one.text) == (4, "params")


def test_many_completions_are_cut(shell: Any) -> None:
    shell.user_ns.update({f"one_of_many_{k}": k for k in range(2 * MOST_MATCHES)})
    assert len(complete(shell, "one_of_many_", 12)) == MOST_MATCHES


def plain(shell: Any, name: str, detail: int = 0) -> str:
    return without_escapes(describe(shell, name, detail).get("text/plain", ""))


def test_an_array_is_described_by_its_layout(shell: Any) -> None:
    assert plain(shell, "x") == (
        "Type:     jax.Array\n"
        "Shape:    (4, 2)\n"
        "Dtype:    float32\n"
        "Sharding: all of it on one device of this process\n"
        "Bytes:    32"
    )
    assert plain(shell, "params") == (
        "Type:   dict\n"
        "Arrays: 2, of 64 bytes in all: ['layers'][0] float32[4,2], ['w'] float32[4,2]\n"
        "Others: 1"
    )


def test_a_property_that_computes_nothing_is_described_by_its_value(shell: Any) -> None:
    assert plain(shell, "x.shape").startswith("Type:        tuple\nString form: (4, 2)\n")
    assert "memory_kind" in plain(shell, "x.sharding")


def test_other_names_are_described_as_ipython_does(shell: Any) -> None:
    assert plain(shell, "double").startswith(
        "Signature: double(value: 'int', times: 'int' = 2) -> 'int'\n"
        "Docstring: Multiply a number.\n"
    )
    assert "return value * times" in plain(shell, "double", 1)
    assert "String form: 3\n" in plain(shell, "steps")
    assert plain(shell, "%time").startswith("Docstring:")
    assert plain(shell, "nothing") == plain(shell, "x.nothing") == ""


@pytest.mark.parametrize("name", ["mine", "held", "mine.total", "mine.total.shape", "mine.nothing"])
def test_nothing_is_computed_to_describe(name: str, shell: Any, mine: Launches) -> None:
    text = plain(shell, name)
    assert not {"total", "repr", "nothing"} & {*mine.ran}
    assert ("Return a sum" in text) is (name == "mine.total")
    assert "String form: " not in text.replace("String form: <property", "")


def test_ipython_describes_as_before_afterwards(shell: Any) -> None:
    plain(shell, "mine")
    assert "String form" in without_escapes(shell.object_inspect_mime("mine")["text/plain"])


def test_arrays_of_other_kinds() -> None:
    mesh = jax.make_mesh((1,), ("a",), devices=jax.devices()[:1])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    deleted = jnp.ones(3)
    deleted.delete()
    found = {
        "key": card(jax.random.key(0)).splitlines()[2],
        "deleted": card(deleted).splitlines()[-1],
        "one device": card(jax.device_put(jnp.ones(4), sharding)).splitlines()[3],
        "NumPy": card(np.ones(3)),
        "none": card(None),
        "text": card("text"),
        "a tracer": "",
    }
    jax.jit(lambda v: found.update({"a tracer": card(v)}) or v)(1.0)
    assert found == {
        "key": "Dtype:    key<fry>",
        "deleted": "Deleted: its elements were donated to a computation, or deleted",
        "one device": "Sharding: all of it on one device of this process",
        "NumPy": "",
        "none": "",
        "text": "",
        "a tracer": "",
    }


def test_an_array_of_several_processes() -> None:
    devices = [SimpleNamespace(process_index=k // 2) for k in range(8)]
    for device in devices:
        device.client = SimpleNamespace(process_index=lambda: 1)
    sharding = SimpleNamespace(
        device_set=devices,
        spec=jax.sharding.PartitionSpec("a", None),
        mesh=SimpleNamespace(shape={"a": 4, "b": 2}),
        memory_kind="pinned_host",
        shard_shape=lambda shape: (shape[0] // 4, shape[1]),
    )
    array = SimpleNamespace(sharding=sharding, shape=(8, 2), dtype=np.dtype(np.float32))
    assert introspection._placement(array) == {
        "Sharding": "P('a', None) on the mesh a=4, b=2, in pinned_host memory",
        "Devices": "8, of 4 processes",
        "Bytes": "64, of which 16 on each device",
    }
    sharding.device_set = devices[:1]
    assert introspection.layout(array) == (
        "all of it on one device of process 0, in pinned_host memory"
    )


def test_many_arrays_are_counted() -> None:
    one = jnp.ones(2)
    text = card({f"w{k}": one for k in range(10)})
    assert text.endswith("['w4'] float32[2], +5 more")


def test_names_are_resolved_without_the_learners_code(mine: Launches) -> None:
    names = {"mine": mine, "x": jnp.ones(2), "np": np}
    assert resolve(names, "np.linalg.norm") is np.linalg.norm
    assert resolve(names, "mine.slot.ndim") == 1
    assert resolve(names, "mine.__init__").__func__ is Launches.__init__
    assert resolve({"x": {"a": [1, 2]}}, "x['a'][-1]") == 2
    refused = "mine.total", "mine.nothing", "x.T", "x.real", "x[0]", "np.nothing", "nothing", ""
    for name in (*refused, "mine.__init__()", "[1][0]", "1 +", "np.linalg['norm']", "x['']"):
        assert resolve(names, name) is MISSING
    assert mine.ran == []
