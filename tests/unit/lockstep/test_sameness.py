"""Which launches are the same computation, also for the referee and for a cell's records."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep.model import Collective, Launch, LaunchRecord
from mcnb.lockstep.referee import Go, Referee
from mcnb.lockstep.sameness import Sameness, with_common_programs

SUM = Launch("jit(f)", "1", (0, 1), lowered="a", collectives=(Collective("all-reduce", 4),))
SIZES = {"1": 4, "2": 4, "3": 8, "4": 8}  # a program says what it sends
LAUNCHES = [
    replace(SUM, program=program, lowered=lowered, collectives=(Collective("all-reduce", size),))
    for (program, size), lowered in product(SIZES.items(), ("", "a", "b", "c"))
]


def related(one: Launch, other: Launch) -> bool:
    lowered = (one.lowered, one.collectives) == (other.lowered, other.collectives)
    return one.program == other.program or bool(one.lowered and lowered)


@given(st.lists(st.sampled_from(LAUNCHES), max_size=8))
def test_classes_are_the_least_in_which_related_launches_are_together(
    launches: list[Launch],
) -> None:
    same = Sameness()
    known: dict[Launch, str] = {}
    for launch in launches:
        merged = same.add(launch)
        before, known = known, {one: same.program(one) for one in {*known, launch}}
        if not merged:
            assert all(known[one] == program for one, program in before.items())
    classes = [{one} for one in set(launches)]
    while joined := next(
        (
            (a, b)
            for a, b in product(classes, classes)
            if a is not b and any(related(*pair) for pair in product(a, b))
        ),
        None,
    ):
        classes.remove(joined[1])
        joined[0].update(joined[1])
    assert len(set(known.values())) == len(classes)
    assert all(len({known[one] for one in members}) == 1 for members in classes)


def test_one_lowered_program_with_the_same_collectives_goes_ahead() -> None:
    referee = Referee(2)
    assert referee.announce(0, 0, SUM) == []
    assert referee.announce(1, 0, replace(SUM, program="2")) == [Go(((0, 0), (1, 0)))]


def test_a_launch_of_others_may_complete_a_meeting() -> None:
    referee = Referee(3)
    pair = replace(SUM, program="1", lowered="", participants=(0, 1))
    assert referee.announce(0, 0, replace(pair, program="1")) == []
    assert referee.announce(2, 0, replace(SUM, program="2", participants=(2, 0))) == []
    assert referee.announce(1, 0, replace(pair, program="2"), alone=False) == []
    # This one shows that programs 1 and 2 are the same.
    rulings = referee.announce(2, 1, replace(SUM, program="1", participants=(1, 2)), alone=False)
    assert rulings == [Go(((0, 0), (1, 0)))]


def test_one_lowered_program_with_other_collectives_is_stopped() -> None:
    referee = Referee(2)
    referee.announce(0, 0, SUM)
    other = replace(SUM, program="2", collectives=(Collective("all-reduce", 8),))
    [stop] = referee.announce(1, 0, other)
    assert not isinstance(stop, Go)
    assert stop.verdict.kind == "mismatch"


def test_a_verdict_does_not_tell_programs_of_one_class_apart() -> None:
    one, same = (replace(SUM, program=program, participants=(0, 1, 2)) for program in ("1", "2"))
    referee = Referee(3)
    referee.announce(0, 0, one)
    referee.announce(1, 0, same)
    referee.announce(2, 0, replace(one, name="jit(g)", program="3", lowered=""))
    assert referee.verdict is not None
    assert [state.launch for state in referee.verdict.states.values()][:2] == [one, one]


def test_a_third_launch_shows_that_two_that_wait_are_the_same() -> None:
    everyone = replace(SUM, participants=(0, 1, 2))
    referee = Referee(3)
    assert referee.announce(0, 0, everyone) == []
    other = replace(everyone, program="2", lowered="b")
    assert referee.announce(1, 5, other, alone=False) == []  # another thread may come
    rulings = referee.announce(2, 0, replace(everyone, program="2"))
    assert rulings == [Go(((0, 0), (1, 5), (2, 0)))]


def test_records_of_the_same_computation_have_one_program() -> None:
    other = replace(SUM, program="2")
    apart = replace(SUM, program="3", lowered="")
    records = [LaunchRecord(k, launch, 3, 0, 1) for k, launch in enumerate((SUM, other, apart))]
    common = with_common_programs(records)
    assert [record.launch.program for record in common] == ["1", "1", "3"]
    assert [record.process for record in common] == [0, 1, 2]
    assert with_common_programs(records[::2]) == tuple(records[::2])
