"""What is asked about values that differ, and of whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest

from mcnb.lockstep import comparison, values
from mcnb.lockstep.comparison import Comparison, Question, differ_by_more_than_rounding
from mcnb.lockstep.model import SharedValue
from mcnb.lockstep.values import BLOCK, Replicas, digest, slice_name
from mcnb.lockstep.wire import Message
from tests.support.fake_devices import fake_devices
from tests.unit.lockstep.test_values import OnProcess0, compared, replicas


def texts(found: Mapping[int, SharedValue]) -> list[str]:
    return [value.text for _, value in sorted(found.items())]


def test_only_who_holds_a_slice_is_asked() -> None:
    it = Comparison({2: {"0": "a"}, 1: {"1": "c"}, 0: {"0": "b"}}, exact=True)
    assert it.question == Question((0, 2), "0")
    it.hear(1, ["", [], []])  # an answer that nobody has asked for
    it.hear(0, ["int8", [2], ["a"]])
    assert it.question == Question((0, 2), "0")
    it.hear(2, ["int8", [2], ["b"]])
    assert it.question == Question((0, 2), "0", (0,))


@pytest.mark.parametrize("other", [["int8", [3], ["b"]], ["int16", [2], ["b"]]])
def test_values_of_other_shapes_and_types_have_no_elements_in_common(other: Message) -> None:
    it = Comparison({0: {"0": "a"}, 1: {"0": "b"}}, exact=True)
    it.hear(0, ["int8", [2], ["a"]])
    it.hear(1, other)
    assert it.question is None
    assert it.found == {
        0: SharedValue(0, (), "one value"),
        1: SharedValue(0, (), "another value"),
    }


def test_many_values_of_which_only_digests_are_known() -> None:
    it = Comparison({k: {"0": text} for k, text in enumerate("abcdeab")}, exact=True)
    it.give_up()
    one, two, three, more = "one value", "another value", "a third value", "yet another value"
    assert texts(it.found) == [one, two, three, more, more, one, two]


def test_of_an_array_with_many_differences_no_more_blocks_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "BLOCKS_TOGETHER", 1)
    monkeypatch.setattr(comparison, "MOST_BLOCKS", 2)
    a = np.ones(4 * BLOCK, np.float32)
    found, asked = compared(replicas(a), replicas(a * np.float32(1 + 1e-6)), exact=False)
    assert found == {}
    assert [one.blocks for one in asked] == [None, (0,), (1,)]


def test_each_is_compared_with_each() -> None:
    """Neighbours differ by no more than rounding, but the first and the last do."""
    found, _ = compared(*(replicas(v) for v in (1.0, 1.0003, 1.0006)), exact=False)
    assert texts(found) == ["1.0", "1.0003", "1.0006"]
    assert compared(*(replicas(v) for v in (1.0, 1.0001, 1.0002)), exact=False)[0] == {}


def test_the_element_that_tells_most_processes_apart_is_shown() -> None:
    each = ([1, 8, 3, 3], [1, 4, 4, 4], [1, 8, 5, 5])
    found, _ = compared(*(replicas(np.array(v, np.float32)) for v in each), exact=True)
    assert texts(found) == ["3.0", "4.0", "5.0"]
    assert {one.index for one in found.values()} == {(2,)}


def test_rounding_is_that_of_the_largest_element() -> None:
    one, other = np.array([-1e4, 1.0], np.float32), np.array([-1e4, 2.0], np.float32)
    assert differ_by_more_than_rounding(one, other).tolist() == [False, False]
    assert differ_by_more_than_rounding(one[1:], other[1:]).tolist() == [True]
    beside_infinity = [np.array([np.inf, v], np.float32) for v in (1.0, 2.0)]
    assert differ_by_more_than_rounding(*beside_infinity).tolist() == [False, True]


def test_an_element_of_a_slice_has_its_index_in_the_whole_array() -> None:
    name = slice_name(1, ((4, 6), (8, 11)))
    it = Comparison({0: {name: "a"}, 3: {name: "b"}}, exact=True)
    for blocks, answers in ((None, ("a", "b")), ((0,), ("000000000000", "000000000700"))):
        assert it.question == Question((0, 3), name, blocks)
        for k, answer in zip((0, 3), answers, strict=True):
            it.hear(k, ["int8", [2, 3], [answer]])
    assert it.found == {0: SharedValue(1, (5, 9), "0"), 3: SharedValue(1, (5, 9), "7")}


@dataclass
class Shard:
    index: tuple[slice, ...]
    data: Any


@dataclass
class GlobalArray:
    """What of an array on devices of several processes is looked at, as process 0 sees it."""

    whole: np.ndarray[Any, Any]
    sharding: OnProcess0
    is_fully_replicated: bool = False
    is_fully_addressable: bool = False
    deleted: bool = False
    shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.shape = self.whole.shape

    @property
    def addressable_shards(self) -> list[Shard]:
        held = self.sharding.addressable_devices_indices_map(self.shape).values()
        return [Shard(index, self.whole[index]) for index in held]

    def is_deleted(self) -> bool:
        return self.deleted


def spread(*spec: Any, per_process: int = 1) -> OnProcess0:
    """Return a sharding over two rows of two devices."""
    mesh = jax.sharding.Mesh(fake_devices(4, per_process).reshape(2, 2), ("a", "b"))
    return OnProcess0(jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)))


@pytest.fixture
def global_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "Array", GlobalArray)


VALUES = np.arange(8, dtype=np.int32).reshape(4, 2)
FIRST = slice_name(0, ((0, 2), (0, 2)))


@pytest.mark.usefixtures("global_arrays")
def test_a_launch_without_communication_tells_what_several_processes_hold_on_request() -> None:
    pairs = [
        (GlobalArray(VALUES, spread("b")), None),
        (GlobalArray(VALUES, spread(("a", "b"))), None),  # of which each process has its own part
        (VALUES, spread()),
    ]
    own = Replicas(lambda: pairs)
    assert [*own.inputs(common=False, whole=False)] == ["2"]
    assert {name: one[1:] for name, one in own.inputs(common=True, whole=False).items()} == {
        FIRST: ["int32", [2, 2], VALUES[:2].tobytes().hex()],
        "2": ["int32", [4, 2], VALUES.tobytes().hex()],
    }


@pytest.mark.usefixtures("global_arrays")
def test_of_a_large_array_that_several_processes_hold_the_first_block_is_told() -> None:
    large = GlobalArray(np.arange(BLOCK + 9, dtype=np.int8), spread())
    own = Replicas(lambda: [(large, None)])
    [part] = own.inputs(common=True, whole=False).values()
    assert part[0] == digest(large.whole[:BLOCK])
    assert part[1:] == ["int8", [BLOCK + 9], large.whole[:BLOCK].tobytes().hex()]
    [whole] = own.inputs(common=True, whole=True).values()
    assert whole == [digest(large.whole), "int8", [BLOCK + 9], ""]


@pytest.mark.usefixtures("global_arrays")
def test_the_shards_of_an_array_that_several_processes_hold_are_compared() -> None:
    # Processes 0 and 2 hold the first rows.
    own = Replicas(lambda: [(GlobalArray(VALUES, spread("b")), spread("a"))])
    assert [*own.digests()] == [FIRST]
    assert own.answer(FIRST, [0]) == ["int32", [2, 2], [VALUES[:2].tobytes().hex()]]
    assert Replicas(lambda: [(GlobalArray(VALUES, spread(("a", "b"))), None)]).digests() == {}


@pytest.mark.usefixtures("global_arrays")
def test_the_devices_of_one_process_have_nothing_in_common_with_others() -> None:
    # Processes 0 and 1 have a row of devices each, and hold their half of the array twice.
    array = GlobalArray(VALUES, spread("a", per_process=2))
    assert Replicas(lambda: [(array, None)]).digests() == {}
    shared = GlobalArray(VALUES, spread("b", per_process=2))
    own, second = Replicas(lambda: [(shared, None)]), slice_name(0, ((2, 4), (0, 2)))
    assert [*own.digests()] == [FIRST, second]
    assert own.answer(second, [0]) == ["int32", [2, 2], [VALUES[2:].tobytes().hex()]]


@pytest.mark.usefixtures("global_arrays")
def test_a_replicated_array_is_compared_as_a_whole_and_a_deleted_one_is_not() -> None:
    array = GlobalArray(VALUES, spread(), is_fully_replicated=True)
    deleted = GlobalArray(VALUES, spread(), is_fully_replicated=True, deleted=True)
    assert [*Replicas(lambda: [(deleted, None), (array, None)]).digests()] == ["1"]


def test_a_part_of_a_value_is_compared_as_that_part() -> None:
    own = Replicas(lambda: [(VALUES, spread("b", None)), (VALUES + 1, spread(None, "b"))])
    second = slice_name(1, ((0, 4), (0, 1)))
    assert [*own.digests()] == [FIRST, second]
    assert own.answer(second, [0]) == ["int32", [4, 1], [(VALUES[:, :1] + 1).tobytes().hex()]]
    other = Replicas(lambda: [(np.full((4, 2), 9, np.int32), spread("b", None))])
    found, _ = compared(own, other)
    assert found == {0: SharedValue(0, (0, 0), "0"), 1: SharedValue(0, (0, 0), "9")}


def test_the_last_part_of_a_value_is_compared_as_that_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Process 0 holds the last rows, or half.
    mesh = jax.sharding.Mesh(fake_devices(4, 1)[::-1].reshape(2, 2), ("a", "b"))
    last = OnProcess0(jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("b")))
    name = slice_name(0, ((2, 4), (0, 2)))
    rows = Replicas(lambda: [(VALUES, last)])
    assert rows.answer(name, [0]) == ["int32", [2, 2], [VALUES[2:].tobytes().hex()]]
    monkeypatch.setattr(values, "MOST_BYTES", BLOCK * 4)
    large = np.zeros(4 * BLOCK, np.float32)
    half = Replicas(lambda: [(large, last)])
    before = half.digests(whole=False)
    for at, counts in ((0, False), (3 * BLOCK, False), (2 * BLOCK, True)):
        large[at] = 1.0
        assert (half.digests(whole=False) != before) is counts


def test_values_are_digested_once_at_each_launch_and_the_time_is_taken() -> None:
    digested: list[int] = []
    own = Replicas(lambda: [(VALUES, spread())], digested=lambda: digested.append(1))
    assert own.seconds == 0.0
    own.digests()
    assert (digested, own.seconds > 0) == ([1], True)
    own.answer(FIRST, None)
    assert digested == [1]


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1])
def test_no_element_at_the_edge_of_a_block_is_left_out(at: int) -> None:
    one = np.zeros(2 * BLOCK, np.int32)
    other = one.copy()
    other[at] = 7
    found, _ = compared(replicas(one), replicas(other))
    assert found == {0: SharedValue(0, (at,), "0"), 1: SharedValue(0, (at,), "7")}


def test_the_size_of_all_arguments_decides_which_part_of_them_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(values, "MOST_BYTES", 2 * BLOCK * 4)
    two = [np.zeros(2 * BLOCK, np.float32) for _ in range(2)]
    part = replicas(*two).digests(whole=False)
    two[1][BLOCK] = 1.0  # in the block that counts the next time
    assert replicas(*two).digests(whole=False) == part
    assert replicas(two[1]).digests(whole=False)["0"] != part["1"]
