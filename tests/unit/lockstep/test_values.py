"""Replicated values: which elements differ, and what of it is worth a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep import comparison, values
from mcnb.lockstep.comparison import (
    Comparison,
    Question,
    differ_by_more_than_rounding,
    differ_exactly,
    differing_slices,
)
from mcnb.lockstep.model import Launch, SharedValue
from mcnb.lockstep.referee import Compare, Go, Referee, Stop
from mcnb.lockstep.values import BLOCK, NO_ANSWER, Replicas, digest, slice_name
from tests.support.fake_devices import fake_devices


@dataclass(frozen=True)
class Everywhere:
    """A sharding that is replicated over devices of several processes."""

    is_fully_replicated: bool = True
    is_fully_addressable: bool = False


@dataclass(frozen=True)
class OnProcess0:
    """A sharding over devices on paper, as process 0 sees it."""

    sharding: jax.sharding.Sharding
    is_fully_replicated: bool = False
    is_fully_addressable: bool = False

    def devices_indices_map(self, shape: tuple[int, ...]) -> Mapping[Any, Any]:
        return self.sharding.devices_indices_map(shape)

    def addressable_devices_indices_map(self, shape: tuple[int, ...]) -> Mapping[Any, Any]:
        indices = self.devices_indices_map(shape).items()
        return {device: index for device, index in indices if device.process_index == 0}


def replicas(*arguments: Any) -> Replicas:
    return Replicas(lambda: [(argument, Everywhere()) for argument in arguments])


def compared(
    *processes: Replicas, exact: bool = True, silent: int | None = None
) -> tuple[Mapping[int, SharedValue], list[Question]]:
    """Compare the arguments of processes; return what was found, and the questions."""
    digests = {k: one.digests() for k, one in enumerate(processes)}
    it = Comparison(digests, exact=exact)
    asked: list[Question] = []
    while it.question is not None:
        asked.append(question := it.question)
        for k in question.processes:
            if k == silent:
                it.give_up()
            else:
                it.hear(k, processes[k].answer(question.name, question.blocks))
    return it.found, asked


DTYPES = ("float32", "float64", "bfloat16", "float16", "int32", "uint8", "bool", "complex64")
SHAPES = ((), (1,), (7,), (3, 5), (0,), (2, 0), (BLOCK + 3,), (3, BLOCK), (70, 900))


@given(
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
    changes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6)), max_size=4),
    count=st.integers(2, 4),
)
def test_the_first_element_that_differs_is_found(
    shape: tuple[int, ...], dtype: str, changes: list[tuple[int, int]], count: int
) -> None:
    size = int(np.prod(shape))
    base = (np.arange(size) % 2).astype(np.dtype(dtype))
    values = [base.copy() for _ in range(count)]
    for k, at in changes:
        if size and k < count:
            values[k][at % size] = np.asarray(1 - (at % size) % 2).astype(base.dtype)
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        found, _ = compared(*(replicas(np.ones(2), one.reshape(shape)) for one in values))
    differ = [i for i in range(size) if len({str(one[i]) for one in values}) > 1]
    if not differ:
        assert found == {}
        return
    index = tuple(int(i) for i in np.unravel_index(differ[0], shape)) if shape else ()
    assert found == {k: SharedValue(1, index, str(one[differ[0]])) for k, one in enumerate(values)}


def test_only_differing_blocks_are_sent() -> None:
    a, b = np.zeros(10 * BLOCK, np.float32), np.zeros(10 * BLOCK, np.float32)
    b[[5 * BLOCK, 7 * BLOCK + 1]] = 1.0
    found, asked = compared(replicas(a), replicas(b))
    assert found[1] == SharedValue(0, (5 * BLOCK,), "1.0")
    assert asked == [Question((0, 1), "0"), Question((0, 1), "0", (5, 7))]


def test_the_first_argument_that_differs_is_named() -> None:
    same = np.ones(3, np.float32)
    found, _ = compared(replicas(same, 1.0, 2), replicas(same, 1.5, 3))
    assert found == {0: SharedValue(1, (), "1.0"), 1: SharedValue(1, (), "1.5")}


def test_bytes_may_differ_where_values_are_equal() -> None:
    a, b = np.zeros(2, np.float32), np.zeros(2, np.float32)
    a[0], b[0] = 0.0, -0.0
    a[1] = np.frombuffer(b"\x00\x00\xc0\x7f", np.float32)[0]
    b[1] = np.frombuffer(b"\x01\x00\xc0\x7f", np.float32)[0]
    assert np.isnan([a[1], b[1]]).all()
    assert digest(a) != digest(b)
    assert compared(replicas(a), replicas(b)) == (
        {},
        [Question((0, 1), "0"), Question((0, 1), "0", (0,))],
    )


@pytest.mark.parametrize(
    ("dtype", "small", "large"),
    [
        ("float64", 1e-12, 1e-6),
        ("float32", 1e-5, 1e-2),
        ("bfloat16", 2**-7, 0.2),
        ("float16", 2**-9, 0.2),
        ("complex64", 1e-5j, 1e-2j),
    ],
)
def test_rounding_is_no_difference_by_default(dtype: str, small: Any, large: Any) -> None:
    one = np.ones(3, np.dtype(dtype))
    for change, differs in ((small, False), (large, True)):
        other = one.copy()
        other[1] = other[1] + np.asarray(change).astype(one.dtype)
        assert differ_exactly(one, other).tolist() == [False, True, False]
        assert differ_by_more_than_rounding(one, other).tolist() == [False, differs, False]


def test_infinities_and_integers_are_not_rounded() -> None:
    one, other = np.array([np.inf, 1.0, np.nan]), np.array([1.0, np.nan, np.nan])
    assert differ_by_more_than_rounding(one, other).tolist() == [True, True, False]
    bits = np.array([1, 2], ml_dtypes.int4), np.array([1, 3], ml_dtypes.int4)
    assert differ_by_more_than_rounding(*bits).tolist() == [False, True]


def test_after_rounding_the_rest_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "BLOCKS_TOGETHER", 2)
    a = np.ones(5 * BLOCK, np.float32)
    b = a * np.float32(1 + 1e-6)
    b[4 * BLOCK + 1] = 2.0
    found, asked = compared(replicas(a), replicas(b), exact=False)
    assert found[1] == SharedValue(0, (4 * BLOCK + 1,), "2.0")
    assert [one.blocks for one in asked] == [None, (0, 1), (2, 3), (4,)]
    assert compared(replicas(a), replicas(a * np.float32(1 + 1e-6)), exact=False)[0] == {}


def test_keys_are_shown_as_their_words() -> None:
    one, other = jax.random.key(3), jax.random.key(4)
    found, _ = compared(replicas(one), replicas(other))
    assert found == {0: SharedValue(0, (), "[0 3]"), 1: SharedValue(0, (), "[0 4]")}
    found, _ = compared(replicas(jax.random.split(one, 3)), replicas(jax.random.split(other, 3)))
    assert found[0].index == (0,)
    assert compared(replicas(one), replicas(jax.random.key(3)))[0] == {}


def test_the_type_of_a_number_does_not_matter() -> None:
    assert replicas(1.5).digests() == replicas(np.float32(1.5)).digests()
    assert replicas(np.ones(2)).digests() == replicas(np.ones(2, np.float32)).digests()
    assert replicas(3).digests() == replicas(np.int32(3)).digests()


def test_a_process_that_does_not_answer() -> None:
    each = [replicas(np.full(3, k)) for k in (1, 1, 2, 3)]
    found, _ = compared(*each, silent=2)
    assert {k: one.text for k, one in found.items()} == {
        0: "one value",
        1: "one value",
        2: "another value",
        3: "a third value",
    }
    assert replicas(1.0).answer("7", None) == list(NO_ANSWER)
    it = Comparison({k: one.digests() for k, one in enumerate(each)}, exact=True)
    for k in range(4):
        it.hear(k, list(NO_ANSWER))
    assert it.question is None
    assert {*it.found} == {0, 1, 2, 3}


def test_what_may_be_rounding_passes_if_a_process_does_not_answer() -> None:
    each = [replicas(np.full(3, k)) for k in (1.0, 1.0, 1.0000001, 3.0)]
    found, asked = compared(*each, exact=False, silent=2)
    assert found == {}
    assert asked == [Question((0, 1, 2, 3), "0")]


def test_only_what_several_processes_hold_is_digested() -> None:
    # On one process, nothing is shared.
    mesh = jax.make_mesh((1,), ("a",), devices=jax.devices()[:1])
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    assert Replicas(lambda: [(np.ones(2), sharding), (2.0, None)]).digests() == {}


def test_slices_that_two_processes_hold_are_digested() -> None:
    # Processes 0 and 2 hold the first half, 1 and 3 the second, with one device each.
    mesh = jax.sharding.Mesh(fake_devices(4, per_process=1).reshape(2, 2), ("a", "b"))

    def digested(*spec: Any) -> list[str]:
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        return [*Replicas(lambda: [(np.arange(4), OnProcess0(sharding))]).digests()]

    assert digested("b") == [slice_name(0, ((0, 2),))]
    assert digested(("a", "b")) == []


def test_of_very_large_arguments_a_part_counts_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_BYTES", 4 * BLOCK)
    one = np.zeros(4 * BLOCK + 2, np.float32)
    for at, found_by in (
        (0, [0]),
        (5, [0]),
        (2 * BLOCK + 1, [2]),
        (4 * BLOCK + 1, [0, 1, 2, 3, 4]),
    ):
        other = one.copy()
        other[at] = 1
        each = [
            [
                Replicas(lambda v=v: [(v, Everywhere())], n).digests(whole=False)
                for v in (one, other)
            ]
            for n in range(5)
        ]
        assert [n for n, (a, b) in enumerate(each) if a != b] == found_by
        assert replicas(one).digests() != replicas(other).digests()


def test_values_of_this_process_alone_are_sent() -> None:
    mesh = jax.make_mesh((1,), ("a",), devices=jax.devices()[:1])
    here = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    split = jax.sharding.Mesh(fake_devices(4, per_process=1), "a")
    part = OnProcess0(jax.sharding.NamedSharding(split, jax.sharding.PartitionSpec("a")))
    pairs = [
        (np.int32(1), here),
        (np.arange(4, dtype=np.int8), part),  # this process's device takes only one element
        (jax.random.key(7), Everywhere()),
        (np.zeros(BLOCK + 1, np.int8), Everywhere()),
        (True, Everywhere()),
        (object(), Everywhere()),
    ]
    digested: list[int] = []
    found = Replicas(lambda: pairs, digested=lambda: digested.append(1)).inputs(
        common=False, whole=False
    )
    assert {name: one[1:] for name, one in found.items()} == {
        "1": ["int8", [4], "00010203"],
        "2": ["V8", [], "0000000007000000"],
        "3": ["int8", [BLOCK + 1], ""],
        "4": ["bool", [], "01"],
    }
    assert found["1"][0] == digest(np.arange(4, dtype=np.int8))
    assert digested == [1]


def test_of_many_values_the_elements_of_the_first_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_SENT_BYTES", 10)
    pairs = [(np.full(n, n, np.int8), Everywhere()) for n in (4, 7, 5, 2, 1)]
    found = Replicas(lambda: pairs).inputs(common=False, whole=False)
    assert [one[3] for one in found.values()] == ["04040404", "", "0505050505", "", "01"]
    assert [one[0] for one in found.values()] == [digest(value) for value, _ in pairs]


def test_an_argument_of_another_kind_is_left_out() -> None:
    class Odd:
        is_fully_addressable = is_fully_replicated = False

    pairs = [(object(), Everywhere()), (1.0, Odd()), (2.0, Everywhere())]
    assert {*Replicas(lambda: pairs).digests()} == {"2"}


def test_an_error_of_a_signal_handler_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise TimeoutError("late")

    monkeypatch.setattr(jax, "block_until_ready", late)  # it comes in the middle of a wait
    with pytest.raises(TimeoutError, match="late"):
        replicas(1.0).digests()


def test_slices_are_ordered_by_argument_and_start() -> None:
    names = [slice_name(10), slice_name(2, [(8, 16)]), slice_name(2, [(0, 8)]), slice_name(2)]
    digests = {0: dict.fromkeys(names, "a"), 1: dict.fromkeys(names, "b")}
    assert differing_slices(digests) == ["2", "2 0:8", "2 8:16", "10"]


@given(st.lists(st.dictionaries(st.sampled_from("0123"), st.sampled_from("ab")), max_size=4))
def test_slices_differ_if_two_processes_have_other_digests(each: list[dict[str, str]]) -> None:
    differing = differing_slices(dict(enumerate(each)))
    assert set(differing) == {
        name
        for one, other in itertools.combinations(each, 2)
        for name in one.keys() & other.keys()
        if one[name] != other[name]
    }


BOTH = Launch("jit(f)", "1", (0, 1))
VALUES = {0: SharedValue(0, (1,), "2"), 1: SharedValue(0, (1,), "3")}


def at_a_comparison() -> tuple[Referee, Compare]:
    referee = Referee(2)
    assert referee.announce(0, 5, BOTH, line=3, digests={"0": "a"}) == []
    [ruling] = referee.announce(1, 6, BOTH, line=3, digests={"0": "b"})
    assert isinstance(ruling, Compare)
    assert ruling == Compare(((0, 5), (1, 6)), {0: {"0": "a"}, 1: {"0": "b"}})
    return referee, ruling


def test_a_launch_waits_for_the_comparison() -> None:
    referee, ruling = at_a_comparison()
    assert referee.compared(ruling.waiters, {}) == [Go(ruling.waiters)]
    assert referee.verdict is None
    assert referee.announce(0, 7, BOTH) == []


def test_different_values_are_a_mismatch() -> None:
    referee, ruling = at_a_comparison()
    [stop] = referee.compared(ruling.waiters, VALUES)
    assert isinstance(stop, Stop)
    assert (stop.waiters, stop.verdict.kind) == (ruling.waiters, "mismatch")
    assert {k: state.value for k, state in stop.verdict.states.items()} == VALUES
    assert {state.line for state in stop.verdict.states.values()} == {3}
    # Whoever catches the verdict may go on.
    assert referee.announce(0, 8, BOTH) == []
    assert referee.announce(1, 8, BOTH) == [Go(((0, 8), (1, 8)))]
    referee.begin((0, 1))
    assert referee.announce(0, 9, BOTH) == []
    assert referee.announce(1, 9, BOTH) == [Go(((0, 9), (1, 9)))]


def test_digests_that_one_process_did_not_make_are_not_compared() -> None:
    referee = Referee(2)
    assert referee.announce(0, 0, BOTH, digests={"0": "a"}) == []
    assert referee.announce(1, 0, BOTH) == [Go(((0, 0), (1, 0)))]


def test_an_interrupt_ends_a_comparison() -> None:
    referee, ruling = at_a_comparison()
    referee.withdraw(1, 6)
    assert referee.compared(ruling.waiters, VALUES) == []
    assert referee.verdict is None
    [anew] = referee.announce(1, 7, BOTH, digests={"0": "b"})
    assert isinstance(anew, Compare)
    assert anew.waiters == ((0, 5), (1, 7))


def test_a_death_ends_a_comparison() -> None:
    referee, ruling = at_a_comparison()
    [stop] = referee.end(1, "died")
    assert isinstance(stop, Stop)
    assert stop.verdict.kind == "died"
    assert referee.compared(ruling.waiters, VALUES) == []


def test_a_second_thread_waits_with_the_first() -> None:
    referee, ruling = at_a_comparison()
    assert referee.announce(0, 8, BOTH, digests={"0": "a"}) == [ruling]
    assert referee.compared(ruling.waiters, {}) == [Go(ruling.waiters)]
    assert referee.announce(1, 9, BOTH) == [Go(((0, 8), (1, 9)))]
