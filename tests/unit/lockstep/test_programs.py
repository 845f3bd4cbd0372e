"""How a computation of JAX is described, and what of a call is known to its thread."""

from __future__ import annotations

import sys
from types import CodeType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.dispatch import xla_primitive_callable

from mcnb.lockstep import programs
from mcnb.lockstep.model import Launch
from mcnb.lockstep.programs import (
    Call,
    call_under_way,
    describe,
    device_names,
    is_public,
    launches_once,
)
from tests.support.fake_devices import FakeDevice


def devices_of(*processes: int) -> list[Any]:
    """Return devices of these processes, whose numbers say nothing."""
    devices: list[Any] = [FakeDevice(10 * i, k) for i, k in enumerate(processes)]
    client = SimpleNamespace(devices=lambda: devices[::-1], process_index=lambda: 1)
    for device in devices:
        device.client = client
    return devices


def test_devices_are_named_by_process_and_position() -> None:
    devices = devices_of(1, 0, 1, 0, 1)
    assert device_names(devices) == ["P1.0", "P0.0", "P1.1", "P0.1", "P1.2"]
    assert device_names(devices[4:1:-1]) == ["P1.2", "P0.1", "P1.1"]


def test_the_description_of_a_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "HloModule jit_f, input_output_alias={ {}: (1, {}, may-alias) }\n"
        "ENTRY main {\n  p0 = f32[8,4] parameter(0)\n  p1 = u8[3] parameter(1)\n"
        "  p2 = u32[2] parameter(2)\n"
        "  ROOT r = f32[8,4] all-reduce(p0), replica_groups={{0,1}}, to_apply=add\n}\n"
    )
    devices = devices_of(0, 1)
    known = {
        "devices_of": devices,
        "program_text": text,
        "lowered": "lowered",
        "constants_of": [],
        "closed_over": [],
    }
    for name, value in known.items():
        monkeypatch.setattr(programs._jax, name, lambda _, value=value: value)
    mesh = jax.sharding.Mesh(np.array(devices), ("a",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    execute = SimpleNamespace(
        name="jit(f)",
        kept_var_idx={0, 2, 3},
        in_handler=SimpleNamespace(in_shardings=[object(), spread]),
    )
    args = (jnp.ones((8, 4)), 1.5, np.ones(3, np.uint8), jax.random.key(0), np.ones(1))
    described = describe(execute, args)
    [collective] = described.collectives
    assert (collective.kind, collective.bytes, collective.groups) == ("all-reduce", 128, ((0, 1),))
    assert described == Launch(
        "jit(f)",
        described.program,
        (0, 1),
        ("f32[8,4]", "u8[3]", "key<fry>[]"),
        ("", "P('a',)"),
        "{'a': 2}",
        "P0.0 P1.0",
        described.collectives,
        "lowered",
        (1,),
    )


def f(x: Any, params: Any, n: int = 3, *, mode: Any = "fast", weights: Any = None) -> None:
    """Stand in for the learner's function."""


def call(self: Any) -> Call:
    """Stand in for the function of JAX that launches a computation."""
    return call_under_way(sys._getframe())


def cache_miss(execute: Any, names: Any, fun: Any, args: Any, kwargs: Any) -> Any:
    p = SimpleNamespace(arg_names=names)  # noqa: F841  (as JAX calls it)
    return call(execute)


@pytest.fixture
def called_by_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs._jax, "call_code", lambda: call.__code__)


EXECUTE = SimpleNamespace(kept_var_idx={0, 2})
NAMES = ("x", "params['w']", "params.b")
HELD = (np.ones(2), {"w": 1})


@pytest.mark.usefixtures("called_by_jax")
@pytest.mark.parametrize(
    ("fun", "args", "kwargs", "static"),
    [
        (f, (*HELD, 4), {"mode": "slow"}, {"n": "4", "mode": "'slow'"}),
        (f, HELD, {}, {}),
        (f, HELD, {"weights": [jnp.ones(1)], "mode": (1, np.ones(1))}, {}),
        (f, HELD, {"mode": "x" * 200}, {"mode": "'" + "x" * 99}),
        (f, (), {"other": 1}, None),
        (dict, (), {"mode": 1}, None),  # it tells nobody its parameters
    ],
)
def test_the_arguments_of_a_call(
    fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], static: dict[str, str] | None
) -> None:
    found = cache_miss(EXECUTE, NAMES, fun, args, kwargs)
    parameters = () if fun is dict else ("x", "params", "n", "mode", "weights")
    given = dict(zip(parameters, args, strict=False))
    assert found == (EXECUTE, static, ("x", "params.b"), parameters, given, False, fun)


@pytest.mark.usefixtures("called_by_jax")
def test_the_arguments_of_a_function_of_jax_are_kept() -> None:
    found = cache_miss(EXECUTE, ("a", "b"), jnp.dot, HELD, {})
    assert (found.names, found.parameters[:2]) == (("a",), ("a", "b"))
    assert (found.given, found.of_jax) == ({"a": HELD[0], "b": HELD[1]}, True)


@pytest.mark.usefixtures("called_by_jax")
def test_the_arguments_of_an_operation_have_no_names() -> None:
    operation = xla_primitive_callable(jax.lax.neg_p)
    assert cache_miss(EXECUTE, ("args[0]",), operation, HELD[:1], {}) == (
        EXECUTE,
        None,
        (),
        (),
        {},
        False,
        None,
    )


@pytest.mark.usefixtures("called_by_jax")
def test_a_launch_that_no_compiled_function_makes() -> None:
    assert call(EXECUTE) == (EXECUTE, None, (), (), {}, False, None)
    assert call_under_way(sys._getframe()) == (None, None, (), (), {}, False, None)
    assert call_under_way(None) == (None, None, (), (), {}, False, None)


FOLDER = jax.__file__.rpartition("/")[0]


def code(name: str, filename: str) -> CodeType:
    return f.__code__.replace(co_name=name, co_filename=filename)


@pytest.mark.parametrize(
    ("codes", "once"),
    [
        ([], True),
        ([code("sum", f"{FOLDER}/numpy/reductions.py")], True),
        ([code("device_put", f"{FOLDER}/api.py")], False),
        ([code("sum", f"{FOLDER}/numpy/a.py"), code("tree_map", f"{FOLDER}/tree.py")], False),
        ([code("process_allgather", f"{FOLDER}/experimental/multihost_utils.py")], False),
        ([code("step", f"{FOLDER}-trainer/step.py"), code("sum", f"{FOLDER}/a.py")], False),
    ],
)
def test_whether_a_call_makes_one_launch(codes: list[CodeType], once: bool) -> None:
    assert launches_once(codes) is once


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("psum", True),
        ("device_put", True),
        ("process_allgather", True),
        ("normal", True),
        ("pi", False),
        ("numpy", False),
        ("_src", False),
        ("__dir__", False),
        ("train_step", False),
    ],
)
def test_functions_that_a_learner_knows(name: str, public: bool) -> None:
    assert is_public(name) is public
