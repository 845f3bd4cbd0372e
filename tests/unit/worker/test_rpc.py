"""Requests of the notebook kernel: each is code of its own for the referee and for interrupts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcnb.lockstep import _jax
from mcnb.lockstep.model import Caught, Launch, LaunchRecord
from mcnb.lockstep.trace import Trace
from mcnb.messages import Reply
from mcnb.pictures import show
from mcnb.worker import rpc, signals
from mcnb.worker.rpc import probe, pull, push, run_cell, scene, settle
from mcnb.worker.session import Ended

TRACE = Trace(begin=1.0, end=2.0)
LAUNCH = LaunchRecord(0, Launch("jit(f)", "1", (0, 1)), 3, 0.5, 1.0)
FULL = Caught("OSError: disk full", "OSError", "line 2", 1, 0)


class Shell:
    """A shell that keeps what is done around the code that it runs."""

    def __init__(self, **names: Any) -> None:
        self.user_ns = names
        self.done: list[Any] = []
        self.worker = SimpleNamespace(
            monitor=SimpleNamespace(watching=lambda label="": self.around("watched", label)),
            session=SimpleNamespace(
                begin=self.begin, end=self.end, suspended=lambda: self.around("suspended")
            ),
            record=SimpleNamespace(take=lambda: self.done.append("taken")),
        )

    @contextlib.contextmanager
    def around(self, *what: str) -> Iterator[None]:
        self.done.append(what)
        yield
        self.done.append(f"not {what[0]}")

    def begin(self, number: int, label: str = "", **options: Any) -> None:
        self.done.append(("begun", number, label, options))

    def end(self) -> Ended:
        self.done.append("ended")
        return Ended((LAUNCH,), True, (FULL,), TRACE)

    def run(self, *words: Any) -> Reply:
        self.done.append(("ran", *words))
        return Reply(value="8")


@pytest.fixture(autouse=True)
def cells(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers that interrupts are told."""
    numbers: list[int] = []
    monkeypatch.setattr(signals, "begin", numbers.append)
    return numbers


def test_a_cell_and_what_it_launched(cells: list[int]) -> None:
    shell: Any = Shell()
    told = run_cell(shell, 7, "x", "3", 2, False, True, True)
    assert told == Reply(value="8", launches=(LAUNCH,), busy=True, caught=(FULL,), trace=TRACE)
    assert shell.done == [
        ("watched", "3"),
        ("begun", 7, "3", {"checked": False, "values": True}),
        ("ran", "x", "3", 2, True),
        "not watched",
        "ended",
    ]
    assert cells == [7]


def test_arrays_leave_a_process_as_numpys(cells: list[int]) -> None:
    shell: Any = Shell(x={"w": jnp.arange(3), "n": (1, "a")})
    pulled = pull(shell, 7, "x")
    assert type(pulled["w"]) is np.ndarray
    assert (pulled["w"].tolist(), pulled["n"]) == ([0, 1, 2], (1, "a"))
    assert shell.done == [("watched", ""), ("begun", 7, "", {}), "not watched", "ended"]
    assert cells == [7]


def test_what_cannot_be_pulled_leaves_no_code_behind() -> None:
    shell: Any = Shell()
    with pytest.raises(NameError):
        pull(shell, 7, "x")
    assert shell.done[-1] == "ended"


@pytest.mark.parametrize(
    ("addressable", "replicated"), [(True, False), (False, True), (False, False)]
)
def test_an_array_of_which_others_have_parts(addressable: bool, replicated: bool) -> None:
    class Array(jax.Array):
        is_fully_addressable = addressable
        is_fully_replicated = replicated

        def __array__(self, *_: Any, **__: Any) -> Any:
            return np.ones(2)

    if addressable or replicated:
        assert np.array_equal(rpc._to_host("x", Array()), np.ones(2))
    else:
        with pytest.raises(ValueError, match=r"^x is not fully addressable: this process holds "):
            rpc._to_host("x", Array())


def test_a_push_sets_names(cells: list[int]) -> None:
    shell: Any = Shell(x=1, y=2)
    push(shell, 8, {"x": 3})
    assert shell.user_ns == {"x": 3, "y": 2}
    assert shell.done[-1] == "ended"
    assert cells == [8]


def test_a_picture_has_the_name_of_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "scene_of", lambda value, *args, **options: (value, args, options))
    shell: Any = Shell(x=1)
    assert scene(shell, 7, "x", (), {"name": "", "dtype": 3}) == (1, (), {"name": "x", "dtype": 3})
    assert scene(shell, 7, "x", ((8, 4),), {"name": "mine"}) == (1, ((8, 4),), {"name": "mine"})
    with pytest.raises(NameError):
        scene(shell, 7, "y", (), {})
    assert shell.done.count("taken") == 3
    assert shell.done.count("ended") == 3


class Computed:
    """An array whose computation succeeds or not."""

    def __init__(self, fate: BaseException | None = None, *, deleted: bool = False) -> None:
        self.fate = fate
        self.deleted = deleted
        self.waited = False

    def is_deleted(self) -> bool:
        return self.deleted

    def block_until_ready(self) -> Computed:
        self.waited = True
        if self.fate is not None:
            raise self.fate
        return self


@pytest.mark.parametrize(
    ("arrays", "succeed", "waits"),
    [
        ([], True, []),
        ([Computed(), Computed(ValueError(), deleted=True)], True, [True, False]),
        # One that fails does not end the wait for the others.
        ([Computed(ValueError()), Computed()], False, [True, True]),
        ([Computed(KeyboardInterrupt()), Computed()], False, [True, False]),
    ],
)
def test_whether_all_computations_succeed(
    arrays: list[Computed], succeed: bool, waits: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jax, "all_arrays", lambda: arrays)
    monkeypatch.setattr(jax, "block_until_ready", lambda array: array.block_until_ready())
    shell: Any = Shell()
    assert settle(shell) == succeed
    assert [array.waited for array in arrays] == waits


def test_a_probe_is_none_of_the_learners_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    shell: Any = Shell()

    def numbers(salt: int, budget_s: float) -> bool:
        assert ("suspended",) in shell.done
        assert "not suspended" not in shell.done
        if salt > 1:
            raise KeyboardInterrupt if salt == 2 else RuntimeError("connection closed by peer")
        return (salt, budget_s) == (1, 0.5)

    monkeypatch.setattr(rpc, "numbers_are_right", numbers)
    assert probe(shell, 1, 0.5)
    for salt in (2, 3):
        shell.done.clear()
        assert not probe(shell, salt, 0.5)
