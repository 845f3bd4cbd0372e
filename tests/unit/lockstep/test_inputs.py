"""Values that processes pass to launches that do not communicate: which unequal ones are found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep import inputs
from mcnb.lockstep.comparison import differing_elements
from mcnb.lockstep.inputs import Inputs
from mcnb.lockstep.model import Launch, SharedValue
from mcnb.lockstep.values import BLOCK, Replicas, slice_name
from mcnb.lockstep.wire import Message
from tests.unit.lockstep.test_values import Everywhere

FOUR = " ".join(f"P{k}.{i}" for k in range(4) for i in range(2))
INIT = Launch("jit(init)", "1", (0,), ("key<fry>[]",), devices=FOUR)


def entry(value: object) -> Message:
    """Return a value as a process tells it."""
    return Replicas(lambda: [(np.asarray(value), Everywhere())]).inputs(common=False, whole=False)[
        "0"
    ]


def take(
    found: Inputs,
    process: int,
    *values: object,
    line: int = 3,
    launch: Launch = INIT,
    names: Sequence[str] = ("key",),
    before: int = 0,
    exact: bool = True,
) -> None:
    told = {slice_name(i): entry(value) for i, value in enumerate(values)}
    found.passed(process, launch, f"line {line}", (), before, names, told, exact=exact)


def texts(found: Inputs) -> list[dict[int, str]]:
    return [{k: value.text for k, value in one.values.items()} for one in found.unequal]


def test_equal_values_are_not_found() -> None:
    found = Inputs()
    for before in range(3):
        for k in range(4):
            take(found, k, [1, 2], 3.0, before=before)
    assert found.unequal == ()


def test_the_first_element_that_differs_is_found_on_all_processes() -> None:
    found = Inputs()
    for k in (2, 0, 3, 1):
        take(found, k, 1, [[1, 2], [3, 4 + (k == 1)]], names=["seed", "w"])
    [one] = found.unequal
    assert (one.launch, one.name, one.where) == (INIT, "w", "line 3")
    assert one.values == {k: SharedValue(1, (1, 1), "5" if k == 1 else "4") for k in range(4)}


def test_an_argument_without_a_name_has_its_position() -> None:
    found = Inputs()
    for k in range(2):
        take(found, k, 1, k)
    assert [one.name for one in found.unequal] == ["1"]


def test_launches_from_other_lines_and_of_other_programs_are_not_compared() -> None:
    found = Inputs()
    take(found, 0, 1, line=3)
    take(found, 1, 2, line=4)
    take(found, 2, 3, launch=Launch("jit(init)", "2", (2,), devices=FOUR))
    take(found, 3, 4, launch=Launch("jit(other)", "1", (3,), devices=FOUR))
    assert found.unequal == ()


def test_the_first_launch_is_compared_with_the_first() -> None:
    found = Inputs()
    for value in range(5):  # process 0 makes more launches than the others
        take(found, 0, value, before=value)
    for value in range(3):
        for k in (1, 2, 3):
            take(found, k, value, before=value)
    assert found.unequal == ()
    take(found, 1, 7, before=3)
    assert texts(found) == [{0: "3", 1: "7"}]


def test_one_finding_for_each_line() -> None:
    found = Inputs()
    for before, line in ((0, 3), (0, 4), (1, 3), (1, 4)):
        for k in range(4):
            take(found, k, k == line, line=line, before=before)
    assert [(one.where, one.values[3].text) for one in found.unequal] == [("line 3", "True")]


def test_rounding_counts_on_request() -> None:
    for exact in (False, True):
        found = Inputs()
        for k in range(2):
            take(found, k, np.float32(1 + 1e-7 * k), exact=exact)
        assert len(found.unequal) == exact


def test_of_larger_arrays_only_the_digests_are_known() -> None:
    found = Inputs()
    for k in range(4):
        take(found, k, np.full(BLOCK + 1, k % 2))
    assert texts(found) == [
        {0: "one value", 1: "another value", 2: "one value", 3: "another value"}
    ]
    assert differing_elements("0", {0: ["i4", [9], ""]}, {0: "a"}, exact=True) == {}


def test_arrays_of_other_shapes_differ() -> None:
    found = Inputs()
    take(found, 0, [1, 2])
    take(found, 1, [1, 2, 3])
    assert texts(found) == [{0: "one value", 1: "another value"}]


def test_a_new_cell_begins_with_nothing() -> None:
    found = Inputs()
    take(found, 0, 1)
    found.clear()
    take(found, 1, 2)
    assert found.unequal == ()
    take(found, 0, 1)
    assert len(found.unequal) == 1
    found.clear()
    assert found.unequal == ()


def test_a_program_without_end_is_not_remembered_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inputs, "MOST_WAITING", 10)
    monkeypatch.setattr(inputs, "MOST_FOUND", 2)
    found = Inputs()
    for line in range(95):
        take(found, 0, 1, line=line)
    for line in range(90, 95):
        take(found, 1, 2, line=line)
    assert [one.where for one in found.unequal] == ["line 90", "line 91"]


@given(st.lists(st.lists(st.integers(0, 1), max_size=4), min_size=2, max_size=4), st.randoms())
def test_values_differ_if_two_processes_passed_others_the_same_time(
    made: list[list[int]], random: np.random.Generator
) -> None:
    order = [k for k, own in enumerate(made) for _ in own]
    random.shuffle(order)
    found, left = Inputs(), [enumerate(own) for own in made]
    for k in order:
        before, value = next(left[k])
        take(found, k, value, before=before)
    most = max(map(len, made))
    differ = any(len({own[n] for own in made if n < len(own)}) > 1 for n in range(most))
    assert bool(found.unequal) == differ
