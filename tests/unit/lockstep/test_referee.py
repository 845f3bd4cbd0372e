"""The referee against a brute-force model of n processes that explores every schedule."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcnb.lockstep.model import Doing, Launch, Meeting, Race, Verdict
from mcnb.lockstep.referee import MOST_MEETINGS, Go, Referee, Stop

PROGRAMS = 50_000
# So many are tried, and are of all kinds, however slow the machine is.
LEAST_PROGRAMS = 1_000
SEED = 20261121

# A launch of the model: its name, and who has to take part.
Op = tuple[str, tuple[int, ...]]
ENDS: tuple[Doing, ...] = ("finished", "raised", "left", "died")


@dataclass(frozen=True)
class Program:
    """What each process launches, in its order, and how it ends."""

    ops: tuple[tuple[Op, ...], ...]
    ends: tuple[Doing, ...]


def random_program(draw: random.Random) -> Program:
    """Return a program that can finish, or one with up to two mistakes."""
    count = draw.randint(2, 5)
    ops: list[list[Op]] = [[] for _ in range(count)]
    for _ in range(draw.randint(0, 6)):
        participants = tuple(sorted(draw.sample(range(count), draw.randint(2, count))))
        for k in participants:
            ops[k].append((draw.choice("ab") if k == participants[0] else "?", participants))
        name = ops[participants[0]][-1][0]
        for k in participants:
            ops[k][-1] = (name, participants)
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        k = draw.randrange(count)
        own = ops[k]
        mistake = draw.choice(("drop", "double", "swap", "name", "partners", "end"))
        if not own:
            continue
        i = draw.randrange(len(own))
        if mistake == "drop":
            del own[i]
        elif mistake == "double":
            own.insert(i, own[i])
        elif mistake == "swap":
            j = draw.randrange(len(own))
            own[i], own[j] = own[j], own[i]
        elif mistake == "name":
            own[i] = ("c", own[i][1])
        elif mistake == "partners":
            others = [p for p in range(count) if p != k]
            chosen = draw.sample(others, draw.randint(1, len(others)))
            own[i] = (own[i][0], tuple(sorted((k, *chosen))))
        else:
            del own[i:]
    return Program(tuple(map(tuple, ops)), tuple(draw.choice(ENDS) for _ in range(count)))


def final_positions(program: Program) -> set[tuple[int, ...]]:
    """Return how far the processes can come, by every schedule there is."""

    @cache
    def explore(positions: tuple[int, ...]) -> frozenset[tuple[int, ...]]:
        ends: set[tuple[int, ...]] = set()
        for k, position in enumerate(positions):
            if position == len(program.ops[k]):
                continue
            op = program.ops[k][position]
            if all(
                positions[p] < len(program.ops[p]) and program.ops[p][positions[p]] == op
                for p in op[1]
            ):
                ends |= explore(tuple(at + (p in op[1]) for p, at in enumerate(positions)))
        return frozenset(ends) or frozenset((positions,))

    return set(explore((0,) * len(program.ops)))


def could_be_released(waiting: dict[int, Op], free: frozenset[int], start: int) -> bool:
    """Return whether some future of the free processes releases a waiting one: tried out, all."""
    seen = set()
    stack = [(frozenset(waiting.items()), free)]
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        still, wild = dict(state[0]), state[1]
        if start not in still:
            return True
        for op in set(still.values()):
            if all(p in wild or still.get(p) == op for p in op[1]):
                rest = {p: other for p, other in still.items() if p not in op[1]}
                stack.append((frozenset(rest.items()), wild | set(op[1])))
    return False


def check(program: Program, draw: random.Random) -> Verdict | None:
    """Run a program under a referee in a random order, and compare with the model."""
    [model] = final_positions(program)  # no schedule comes further than another
    count = len(program.ops)
    referee = Referee(count)
    positions = [0] * count
    waiting: dict[int, Op] = {}
    stopped: set[int] = set()
    running = set(range(count))
    ended: set[int] = set()

    def obey(rulings: list[Any]) -> None:
        for ruling in rulings:
            members = {k for k, _ in ruling.waiters}
            if isinstance(ruling, Go):
                ops = {waiting[k] for k in members}
                assert len(ops) == 1, "launches that differ were let go"
                assert members == set(ops.pop()[1])
                for k in members:
                    del waiting[k]
                    positions[k] += 1
                    running.add(k)
                continue
            assert isinstance(ruling, Stop)
            free = frozenset(running - stopped)  # who has a verdict launches nothing more
            for k in members:
                assert not could_be_released(dict(waiting), free, k), "accused too early"
            for k in members:
                stopped.add(k)
                del waiting[k]
                running.add(k)  # to its end, by the verdict or after it was caught
            justify(ruling.verdict, ended, stopped)

    while running or waiting:
        # Whoever still waits could be released by somebody.
        for k in waiting:
            assert could_be_released(dict(waiting), frozenset(running), k), "not told"
        k = draw.choice(sorted(running))
        running.discard(k)
        if k not in stopped and positions[k] < len(program.ops[k]):
            op = program.ops[k][positions[k]]
            waiting[k] = op
            obey(referee.announce(k, 0, Launch(op[0], op[0], op[1])))
            continue
        ended.add(k)
        caught = draw.choice(("raised", "finished"))
        obey(referee.end(k, caught if k in stopped else program.ends[k]))
    assert tuple(positions) == model
    can_finish = all(at == len(ops) for at, ops in zip(model, program.ops, strict=True))
    assert (not stopped) == can_finish
    assert stopped == {k for k, at in enumerate(model) if at < len(program.ops[k])}
    return referee.verdict


def justify(verdict: Verdict, ended: set[int], stopped: set[int]) -> None:
    states = verdict.states
    if verdict.kind in ("missing", "died"):
        assert ended & set(states)
        if verdict.kind == "died":
            assert any(state.doing == "died" for state in states.values())
    elif verdict.kind == "cycle":
        assert len(verdict.ring) >= 3
        for k, p in zip(verdict.ring, (*verdict.ring[1:], verdict.ring[0]), strict=True):
            mine, theirs = states[k].launch, states[p].launch
            assert mine is not None
            assert theirs is not None
            assert p in mine.participants
            assert (mine.program, mine.participants) != (theirs.program, theirs.participants)
    else:
        assert verdict.kind == "mismatch"
        launches = {
            (state.launch.program, state.launch.participants)
            for state in states.values()
            if state.launch is not None
        }
        assert len(launches) > 1
    for k in stopped & set(states):
        assert states[k].doing == "waits"


def test_up_to_fifty_thousand_random_programs(budget_s: float) -> None:
    kinds: dict[str | None, int] = {}
    began = time.thread_time()
    for number in range(PROGRAMS):
        if number >= LEAST_PROGRAMS and time.thread_time() - began > budget_s:
            break
        draw = random.Random(SEED + number)
        program = random_program(draw)
        try:
            verdict = check(program, draw)
        except AssertionError as error:
            raise AssertionError(f"program {number}: {program}: {error}") from error
        kind = None if verdict is None else verdict.kind
        kinds[kind] = kinds.get(kind, 0) + 1
    # The programs are of all kinds, or the test says little.
    made = sum(kinds.values())
    for kind, share in ((None, 0.1), ("mismatch", 0.02), ("missing", 0.02), ("died", 0.01)):
        assert kinds.get(kind, 0) >= share * made > 0, kinds
    if made == PROGRAMS:
        assert kinds.get("cycle", 0) >= 20, kinds


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_random_programs(draw: random.Random) -> None:
    check(random_program(draw), draw)


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_events_changes_nothing(draw: random.Random) -> None:
    program = random_program(draw)
    first, second = check(program, draw), check(program, draw)
    assert (first is None) == (second is None)


@settings(max_examples=500, deadline=None)
@given(st.randoms(use_true_random=False))
def test_programs_of_several_threads(draw: random.Random) -> None:
    """Each process has two threads that launch the same, in an order of their own."""
    count = draw.randint(2, 4)
    threads = [
        [("a" + str(i), tuple(range(count))) for i in range(draw.randint(0, 3))],
        [("b" + str(i), tuple(range(count))) for i in range(draw.randint(0, 3))],
    ]
    referee = Referee(count)
    left = {(k, t): list(ops) for k in range(count) for t, ops in enumerate(threads)}
    alive = {key for key, ops in left.items() if ops}
    waiting: dict[tuple[int, int], Op] = {}
    orders: list[list[str]] = [[] for _ in range(count)]
    while alive:
        k, t = draw.choice(sorted(alive - set(waiting)))
        op = left[k, t][0]
        others = any(key[0] == k and key != (k, t) and key not in waiting for key in alive)
        waiting[k, t] = op
        rulings = referee.announce(k, t, Launch(op[0], op[0], op[1]), alone=not others)
        for ruling in rulings:
            assert isinstance(ruling, Go), "all of them can finish"
            for key in ruling.waiters:
                orders[key[0]].append(waiting.pop(key)[0])
                left[key].pop(0)
                if not left[key]:
                    alive.discard(key)
                    # The thread has ended: the process is alone if its other one waits.
                    rest = [other for other in alive if other[0] == key[0]]
                    if all(other in waiting for other in rest):
                        assert referee.quiet(key[0]) == []
    assert all(order == orders[0] for order in orders)
    assert [ruling for k in range(count) for ruling in referee.end(k, "finished")] == []


def launch(name: str, *participants: int) -> Launch:
    return Launch(name, name, participants)


def test_missing() -> None:
    referee = Referee(3)
    assert referee.announce(0, 0, launch("f", 0, 1, 2), line=4) == []
    assert referee.announce(2, 0, launch("f", 0, 1, 2), line=4) == []
    [stop] = referee.end(1, "finished")
    assert isinstance(stop, Stop)
    assert stop.waiters == ((0, 0), (2, 0))
    assert stop.verdict.kind == "missing"
    assert [state.doing for state in stop.verdict.states.values()] == ["waits", "finished", "waits"]


def test_who_comes_later_is_told_as_well() -> None:
    referee = Referee(3)
    referee.announce(0, 0, launch("f", 0, 1, 2), line=4)
    [first] = referee.end(1, "raised", error="ValueError: mine")
    [second] = referee.announce(2, 0, launch("g", 1, 2), line=5)
    assert isinstance(first, Stop)
    assert isinstance(second, Stop)
    assert first.waiters == ((0, 0),)
    assert second.waiters == ((2, 0),)
    assert second.verdict.kind == "missing"
    assert second.verdict.states[2].line == 5
    assert second.verdict.states[1].error == "ValueError: mine"


def test_a_ring() -> None:
    referee = Referee(3)
    referee.announce(0, 0, launch("f", 0, 1))
    referee.announce(1, 0, launch("g", 1, 2))
    [stop] = referee.announce(2, 0, launch("h", 0, 2))
    assert isinstance(stop, Stop)
    assert stop.verdict.kind == "cycle"
    assert stop.verdict.ring == (0, 1, 2)


def test_two_that_wait_for_each_other_differ() -> None:
    referee = Referee(3)
    referee.announce(0, 0, launch("f", 0, 1))
    [stop] = referee.announce(1, 0, launch("g", 0, 1, 2))
    assert isinstance(stop, Stop)
    assert stop.verdict.kind == "mismatch"


def test_not_invited() -> None:
    referee = Referee(2)
    referee.begin([0])
    [stop] = referee.announce(0, 0, launch("f", 0, 1))
    assert isinstance(stop, Stop)
    assert stop.verdict.kind == "not invited"
    assert stop.verdict.states[1].doing == "not invited"


def test_what_all_launch_after_a_verdict_goes_on() -> None:
    referee = Referee(2)
    referee.announce(0, 0, launch("f", 0, 1), line=1)
    [stop] = referee.announce(1, 0, launch("g", 0, 1), line=2)
    assert isinstance(stop, Stop)
    assert stop.waiters == ((0, 0), (1, 0))
    assert referee.announce(0, 1, launch("h", 0, 1), line=3) == []
    assert referee.announce(1, 1, launch("h", 0, 1), line=3) == [Go(((0, 1), (1, 1)))]
    assert referee.announce(0, 2, launch("f", 0, 1), line=4) == []
    [again] = referee.announce(1, 2, launch("g", 0, 1), line=5)
    assert isinstance(again, Stop)
    # It is another divergence, because they had made a launch together.
    assert {k: state.line for k, state in again.verdict.states.items()} == {0: 4, 1: 5}
    assert referee.verdicts == [replace(stop.verdict, over=True), again.verdict]
    assert referee.verdict == again.verdict
    referee.begin([0, 1])
    assert (referee.verdicts, referee.verdict, referee.diverged(0)) == ([], None, False)


def test_who_had_not_reached_it_receives_the_verdict_once() -> None:
    referee = Referee(4)
    both, all_of_them = launch("h", 2, 3), launch("f", 0, 1, 2, 3)
    referee.announce(0, 0, all_of_them, line=1)
    [stop] = referee.announce(1, 0, launch("g", 0, 1, 2, 3), line=2)
    assert isinstance(stop, Stop)
    assert stop.waiters == ((0, 0), (1, 0))
    # What the others do without those who have it goes on.
    assert referee.announce(2, 0, both) == []
    assert referee.announce(3, 0, both) == [Go(((2, 0), (3, 0)))]
    assert referee.announce(0, 1, all_of_them, line=3) == []
    [late] = referee.announce(2, 1, all_of_them, line=1)
    assert isinstance(late, Stop)
    assert late.waiters == ((2, 1),)
    assert {k: state.line for k, state in late.verdict.states.items()} == {
        0: 1,
        1: 2,
        2: 1,
        3: None,
    }
    assert referee.announce(1, 1, all_of_them, line=3) == []
    assert referee.announce(2, 2, all_of_them, line=3) == []
    [last] = referee.announce(3, 1, all_of_them, line=1)
    assert isinstance(last, Stop)
    assert last.waiters == ((3, 1),)
    together = ((0, 1), (1, 1), (2, 2), (3, 2))
    assert referee.announce(3, 2, all_of_them, line=3) == [Go(together)]


def test_who_is_several_launches_behind_receives_each_verdict() -> None:
    referee = Referee(3)
    f, g, last = (launch(name, 0, 1, 2) for name in ("f", "g", "last"))
    for first, second in ((f, g), (g, f)):  # process 0 is slow, and has announced none of them
        referee.announce(1, 0, first)
        [stop] = referee.announce(2, 0, second)
        assert isinstance(stop, Stop)
        assert stop.waiters == ((1, 0), (2, 0))
    referee.announce(1, 0, last)
    referee.announce(2, 0, last)
    for own in (f, g):
        [late] = referee.announce(0, 0, own)
        assert isinstance(late, Stop)
        assert late.waiters == ((0, 0),)
    assert referee.announce(0, 0, last) == [Go(((0, 0), (1, 0), (2, 0)))]


def test_a_process_that_goes_on_is_waited_for_until_it_ends() -> None:
    referee = Referee(3)
    referee.announce(0, 0, launch("f", 0, 1))
    [stop] = referee.announce(1, 0, launch("g", 0, 1))
    assert isinstance(stop, Stop)
    assert stop.waiters == ((0, 0), (1, 0))
    assert referee.announce(2, 0, launch("h", 1, 2)) == []
    assert referee.end(0, "raised", error="LockstepError") == []
    [last] = referee.end(1, "raised", error="LockstepError")
    assert isinstance(last, Stop)
    assert last.waiters == ((2, 0),)
    assert last.verdict.kind == "mismatch"


def test_what_is_told_to_go_on_is_refused_without_the_others() -> None:
    referee = Referee(2)
    referee.announce(0, 0, launch("f", 0, 1))
    referee.end(1, "finished")
    [again] = referee.announce(0, 0, launch("g", 0, 1))
    assert isinstance(again, Stop)
    assert again.verdict.states[0].launch == launch("f", 0, 1)
    assert referee.begin([0, 1]) == []
    assert referee.verdict is None
    assert referee.announce(0, 0, launch("f", 0, 1)) == []
    assert referee.announce(1, 0, launch("f", 0, 1)) == [Go(((0, 0), (1, 0)))]


def test_a_process_that_is_still_busy_is_not_missing() -> None:
    referee = Referee(2)
    referee.announce(0, 0, launch("f", 0, 1))
    assert referee.end(1, "finished", busy=True) == []
    [stop] = referee.quiet(1)
    assert isinstance(stop, Stop)
    assert stop.verdict.kind == "missing"


def test_a_thread_of_an_earlier_cell_meets_its_partner_in_the_next() -> None:
    referee = Referee(2)
    referee.begin([0, 1])
    referee.end(0, "finished", busy=True)
    referee.end(1, "finished", busy=True)
    assert referee.announce(0, 7, launch("f", 0, 1)) == []
    referee.begin([0, 1])
    assert referee.announce(1, 8, launch("f", 0, 1)) == [Go(((0, 7), (1, 8)))]


def test_who_was_interrupted_is_free() -> None:
    referee = Referee(2)
    referee.announce(0, 0, launch("f", 0, 1))
    referee.withdraw(0, 0)
    assert referee.announce(1, 0, launch("g", 0, 1)) == []
    assert referee.announce(0, 0, launch("g", 0, 1)) == [Go(((0, 0), (1, 0)))]
    referee.withdraw(0, 0)


@pytest.mark.parametrize("end", ["left", "died"])
def test_who_is_gone_stays_gone(end: Doing) -> None:
    referee = Referee(2)
    referee.end(1, end)
    referee.begin([0, 1])
    [stop] = referee.announce(0, 0, launch("f", 0, 1))
    assert isinstance(stop, Stop)
    assert stop.verdict.kind == ("missing" if end == "left" else "died")


BOTH = launch("f", 0, 1, 2)


def meet(referee: Referee, *lines: str, what: Launch = BOTH) -> None:
    """Let all processes make a launch, each from the lines of a stack, from the outermost."""
    for k, stack in enumerate(lines):
        referee.announce(k, 0, what, 1, stack=tuple(stack.split()))


def test_a_launch_from_different_lines_is_remembered() -> None:
    referee = Referee(3)
    meet(referee, "a:1 b:9", "a:1 b:9", "a:1 b:9")
    assert referee.meetings == []
    meet(referee, "a:2 b:9", "a:3 b:9", "a:2 b:9")
    meet(referee, "a:2 b:9", "a:3 b:9", "a:2 b:9")  # once is enough
    meet(referee, "a:4", "a:4 b:9", "a:4 b:8")
    stacks = [{0: ("a:2", "b:9"), 1: ("a:3", "b:9"), 2: ("a:2", "b:9")}]
    stacks += [{0: ("a:4",), 1: ("a:4", "b:9"), 2: ("a:4", "b:8")}]
    assert referee.meetings == [
        Meeting(BOTH, 2, {0: "a:2", 1: "a:3", 2: "a:2"}, dict.fromkeys(range(3), "b:9"), stacks[0]),
        Meeting(BOTH, 4, {0: "a:4", 1: "b:9", 2: "b:8"}, {0: "a:4", 1: "b:9", 2: "b:8"}, stacks[1]),
    ]
    assert referee.verdict is None
    referee.begin([0, 1, 2])
    assert referee.meetings == []


def test_a_launch_without_lines_is_not_remembered() -> None:
    referee = Referee(3)
    meet(referee, "a:1", "", "a:2")
    assert referee.meetings == []


def test_no_more_launches_are_remembered_than_a_person_would_read() -> None:
    referee = Referee(3)
    for i in range(2 * MOST_MEETINGS):
        meet(referee, f"a:{i}", "b:1", "b:1")
    assert len(referee.meetings) == MOST_MEETINGS


# What processes 0 to 2 launch, by the line of each launch, before they part; the lines at which
# they part, or how they end; and the launch since which they are in different steps, by its lines.
PARTINGS: dict[str, tuple[list[str], list[str], list[str] | None]] = {
    "an extra launch": (["1 1 1", "2 3 3", "3 3 3"], ["3", "4", "4"], ["2", "3", "3"]),
    "an extra launch, and the others have ended": (
        ["1 1 1", "2 3 3", "3 3 3"],
        ["3", "finished", "finished"],
        ["2", "3", "3"],
    ),
    "an extra launch in each round": (
        ["1 1 1", "2 3 3", "3 1 1", "1 3 3", "2 1 1", "3 3 3"],
        ["1", "finished", "finished"],
        ["2", "3", "3"],
    ),
    "two branches with one launch, and an extra launch in each round": (
        ["1 1 1", "5 6 6", "2 3 3", "3 1 1", "1 3 3", "2 1 1", "3 3 3"],
        ["1", "finished", "finished"],
        ["2", "3", "3"],
    ),
    "a missing launch": (["1 1 1", "2 3 2", "3 3 3"], ["3", "4", "3"], ["2", "3", "2"]),
    "a missing launch, and the process has ended": (
        ["2 3 2", "3 3 3"],
        ["3", "finished", "3"],
        ["2", "3", "2"],
    ),
    "no launch from different lines": (["1 1 1"], ["2", "3", "3"], None),
    "a loop that is longer": (["1 1 1", "1 1 1"], ["1", "2", "2"], None),
    "two branches with one launch": (["2 3 3", "4 4 4"], ["5", "6", "6"], None),
    "two branches with one launch, and an extra launch": (
        ["2 3 3", "4 4 4", "5 6 6", "6 6 6"],
        ["6", "7", "7"],
        ["5", "6", "6"],
    ),
    "all in other branches": (["1 2 3"], ["4", "5", "6"], None),
    "two branches, and then the other way around": (["2 3 3", "3 2 2"], ["3", "4", "4"], None),
    "an extra launch after two branches": (
        ["3 3 2", "2 3 3"],
        ["3", "4", "4"],
        ["2", "3", "3"],
    ),
}


@pytest.mark.parametrize("what", PARTINGS)
def test_where_processes_got_out_of_step(what: str) -> None:
    before, last, expected = PARTINGS[what]
    referee = Referee(3)
    for lines in before:
        meet(referee, *lines.split())
    rulings: list[Any] = []
    for k, line in enumerate(last):
        if line == "finished":
            rulings += referee.end(k, "finished")
        else:
            rulings += referee.announce(k, 0, launch(line, 0, 1, 2), stack=(line,))
    assert referee.verdict is not None
    parted = referee.verdict.parted
    assert (parted and [*parted.own.values()]) == expected
    first = next(k for k, line in enumerate(last) if line != "finished")
    visits = {k: sum(each.split()[k] == last[first] for each in before) for k in range(3)}
    assert {k: state.visits for k, state in referee.verdict.states.items()} == visits


def test_visits_are_kept_when_a_process_ends() -> None:
    referee = Referee(3)
    meet(referee, "1", "1", "1")
    referee.announce(0, 0, BOTH, stack=("1",))
    referee.end(1, "finished")
    referee.end(2, "raised", error="ValueError: mine")
    assert referee.verdict is not None
    assert [state.visits for state in referee.verdict.states.values()] == [1, 1, 1]


# The launches of processes 0 to 2 in the order of their announcement, as "process:launch", with the
# race that is found: its process, the others, and the launches.
RACES: dict[str, tuple[str, tuple[int, tuple[int, ...], str] | None]] = {
    "the same order": ("0:a 0:b 1:a 1:b 2:a 2:b", None),
    "one after the other": ("0:a 1:a 2:a 0:b 2:b 1:b", None),
    "another order": ("0:a 0:b 1:b 2:b", (0, (1, 2), "ab")),
    "another order on the last process": ("0:a 1:a 0:b 1:b 2:b", (0, (2,), "ab")),
    "another order, before the end of a third": ("0:c 0:a 1:c 1:a 2:a", (0, (2,), "ca")),
    "another order, and both wait": ("0:a 0:b 1:b 1:a 2:b", (0, (1, 2), "ab")),
    "without a process in common": ("0:x 0:b 1:b 2:b", None),
    "a barrier": ("0:| 0:b 1:b 2:b", None),
    "before a barrier": ("0:a 0:| 1:| 2:|", None),
}


@pytest.mark.parametrize("what", RACES)
def test_launches_in_different_orders_are_noted(what: str) -> None:
    announced, expected = RACES[what]
    named = {name: launch(name, 0, 1, 2) for name in "abc"}
    named |= {"x": launch("x", 0, 3), "|": Launch.barrier("saved", (0, 1, 2))}
    referee = Referee(4)
    for ticket, one in enumerate(announced.split()):
        k, name = one.split(":")
        place = f"train.py:{'abcx|'.index(name) + 1}"
        referee.announce(int(k), ticket, named[name], 1, place, alone=False)
    lines = {name: f"train.py:{line}" for line, name in enumerate("abcx|", 1)}
    assert referee.races == (
        []
        if expected is None
        else [
            Race(
                *expected[:2],
                (named[expected[2][0]].name, named[expected[2][1]].name),
                (lines[expected[2][0]], lines[expected[2][1]]),
            )
        ]
    )
    assert referee.verdict is None
    referee.begin([0, 1, 2])
    assert referee.races == []


def test_only_one_race_is_noted_with_the_lines_of_a_cell() -> None:
    referee = Referee(2)
    for _ in range(2):
        for ticket, (k, name) in enumerate(((0, "a"), (0, "b"), (1, "b"), (1, "a"))):
            referee.announce(k, ticket, launch(name, 0, 1), 3 + ticket, alone=False)
    names = launch("a", 0, 1).name, launch("b", 0, 1).name
    assert referee.races == [Race(0, (1,), names, ("line 3", "line 4"))]
