"""A cell on processes whose replies are known: when it has ended, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.cluster import execution, stopping
from mcnb.cluster.execution import Execution, Watcher
from mcnb.cluster.history import Cell
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.result import Result
from mcnb.cluster.stopping import PressedAgainError, Presses
from mcnb.errors import CellError, ClusterError
from mcnb.lockstep.model import Caught, LastLaunch, ProcessExit, ProcessState, Verdict
from mcnb.messages import ProcessError, Progress, Reply
from mcnb.options import Options
from mcnb.worker.capture import LastOutput
from tests.support.verdicts import FINISHED, at, exited, killed, states

NUMBER = 7
MINE = ProcessError("ValueError", "mine", 2, "traceback")
DIVERGED = ProcessError("LockstepError", "missing", 2, "traceback")
FULL = Caught("OSError: disk full", "OSError", "line 2", 1, 0)
MISSING = Verdict("missing", states(at(), FINISHED))


@dataclass
class Call:
    """A call to processes, of which some reply at once, some later and some never.

    Args:
        answers: The answers so far.
        later: Answers of which one more arrives after each wait.
        never: The processes that never reply.
        inactive: Whether all processes without a reply are inactive.
    """

    answers: dict[int, Any] = field(default_factory=dict)
    later: dict[int, Any] = field(default_factory=dict)
    never: Sequence[int] = ()
    inactive: bool = False
    waits: Mapping[int, Any] = field(default_factory=dict)
    stage: str = ""
    replaceable: bool = False
    clock: Callable[[], float] = lambda: 3.0
    timeouts: list[float] = field(default_factory=list)

    @property
    def waiting(self) -> set[int]:
        return {*self.later, *self.never}

    def follow(self, policy: Callable[[], float | None]) -> bool:
        while self.waiting and (timeout := policy()) is not None:
            self.timeouts.append(timeout)
            if self.later:
                k = next(iter(self.later))
                self.answers[k] = self.later.pop(k)
            elif len(self.timeouts) > 5:
                raise AssertionError("the cell does not end")
        return not self.waiting

    def progress(self, k: int) -> Progress:
        return Progress(line=10 + k, waits_s=0.5 * (k == 1))

    def all_inactive(self, for_s: float) -> bool:
        return self.inactive


class Referee:
    verdict: Verdict | None = None
    noted: tuple[tuple[object, ...], ...] = ((), (), ())

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        return () if self.verdict is None else (self.verdict,)

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []
        self.waiting: dict[int, object] = {}

    def begin(self, targets: tuple[int, ...]) -> int:
        self.heard.append(("begin", targets))
        return NUMBER

    def finish(self, k: int, *, busy: bool = False, caught: Sequence[Caught] = ()) -> None:
        self.heard.append(("finish", k, busy, *caught))

    def fail(self, k: int, error: str, *, busy: bool = False) -> None:
        self.heard.append(("fail", k, error, busy))

    def die(self, k: int, how: ProcessExit) -> None:
        self.heard.append(("die", k, how))

    def last_launch(self, k: int) -> LastLaunch:
        return LastLaunch("jit(step)", f"line {k + 3}", made=True)

    def waits(self) -> dict[int, object]:
        return self.waiting

    def states(self) -> dict[int, ProcessState]:
        return {0: at(), 1: ProcessState("runs"), 2: ProcessState("runs")}


class Processes:
    """Two processes that are called once for the cell, and perhaps again to settle."""

    def __init__(self, *calls: Call | Exception) -> None:
        self.calls = list(calls)
        self.called: list[tuple[Any, ...]] = []
        self.exits: dict[str, ProcessExit] = {}
        self.deaths: list[dict[int, ProcessExit]] = []
        self.options = Options(processes=3)
        self.referee = Referee()
        self.client = self
        self.told, self.late = 0, ()

    def note_late_verdicts(self) -> None:
        """There are none."""

    def wake(self) -> None:
        """Nobody waits."""

    def call(self, function: Any, *args: Any, processes: Any = None) -> Call:
        self.called.append((function.__name__, args, processes))
        call = self.calls.pop(0)
        if isinstance(call, Exception):
            raise call
        return call

    def died(self) -> dict[int, ProcessExit]:
        return self.deaths.pop(0) if len(self.deaths) > 1 else self.deaths[0]

    def last_words(self, k: int) -> LastOutput:
        return LastOutput("said\n", "out\n", "")


class Stopper:
    """Notes what is asked of it."""

    asked: list[Any]

    def __init__(self, processes: Any, outcome: Outcome, presses: Presses, show: Any) -> None:
        self.outcome = outcome
        self.presses = presses

    def stop(self, pending: Any) -> None:
        if self.presses.again:
            raise PressedAgainError
        self.asked.append("stop")
        self.outcome.stopped = dict.fromkeys(sorted(pending.waiting))

    def abort(self, pending: Any) -> None:
        self.asked.append("abort")

    def verify(self, *, ended: bool, heal: bool, salt: int) -> None:
        assert salt == NUMBER
        self.asked.append(("verify", {"ended": ended, "heal": heal}))


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the stopper of the test's cell was asked to do."""
    asked: list[Any] = []
    monkeypatch.setattr(execution, "Stopper", Stopper)
    monkeypatch.setattr(Stopper, "asked", asked, raising=False)
    monkeypatch.setattr(execution, "time", SimpleNamespace(sleep=lambda seconds: None))
    return asked


def cell(*targets: int, **more: Any) -> Cell:
    return Cell("x = 1", targets or (0, 1, 2), "4", 2, **more)


def executing(processes: Processes, watcher: Watcher | None = None) -> Execution:
    either: Any = processes
    return Execution(either, watcher)


def run(processes: Processes, *targets: int, press: bool = False, **more: Any) -> Result:
    one = executing(processes)
    if press:
        one.interrupt()
    return one.run(cell(*targets, **more))


def replies(**more: Any) -> dict[int, Any]:
    return {k: Reply(**more) for k in range(3)}


def test_a_cell_is_called_with_all_that_belongs_to_it(asked: list[Any]) -> None:
    processes = Processes(Call({0: Reply(value="1"), 2: Reply(value="3")}))
    result = run(processes, 0, 2, values=False)
    assert processes.called == [("run_cell", (NUMBER, "x = 1", "4", 2, True, False, False), (0, 2))]
    assert (result.value, result.ok, result.text()) == ({0: "1", 2: "3"}, True, "")
    assert asked == []


def test_the_referee_hears_once_how_each_process_ended() -> None:
    answers = {2: Reply(busy=True, caught=(FULL,)), 0: Reply(error=MINE, busy=True)}
    processes = Processes(Call({1: Reply(error=DIVERGED)}, later=answers))
    run(processes)
    assert processes.referee.heard == [
        ("begin", (0, 1, 2)),
        ("finish", 1, False),
        ("finish", 2, True, FULL),
        ("fail", 0, "ValueError: mine (line 2)", True),
    ]


def test_processes_that_wait_for_others_are_looked_at_more_often() -> None:
    processes = Processes(call := Call(later=replies()))
    run(processes)
    assert call.timeouts == [execution.TICK_S] * 3
    processes = Processes(call := Call(later=replies()))
    processes.referee.waiting = {0: object()}
    run(processes)
    assert call.timeouts == [execution.SHORT_TICK_S] * 3


def test_a_process_that_can_not_run_a_cell_is_named() -> None:
    processes = Processes(Call({0: Reply(), 1: MINE, 2: Reply()}))
    with pytest.raises(ClusterError) as caught:
        run(processes)
    assert str(caught.value) == "process 1 could not run the cell. ValueError: mine (line 2)"
    assert ("finish", 1, False) in processes.referee.heard


def test_what_waits_for_a_process_that_raised_is_stopped(asked: list[Any]) -> None:
    answers = {0: Reply(error=MINE), 1: Reply(), 2: Reply()}  # the last after the interrupt
    result = run(Processes(Call(answers, never=[2], inactive=True)))
    assert asked == ["stop"]
    assert (result.stopped, result.interrupted, result.time_limit) == ((2,), False, None)


@pytest.mark.parametrize(
    ("error", "inactive"), [(None, True), (MINE, False)], ids=["no error", "not inactive"]
)
def test_what_may_still_reply_is_not_stopped(
    asked: list[Any], error: ProcessError | None, inactive: bool
) -> None:
    run(Processes(Call({0: Reply(error=error)}, {1: Reply(), 2: Reply()}, inactive=inactive)))
    assert asked == []


@pytest.mark.parametrize("press", [True, False])
def test_a_cell_that_is_ended_tells_what_each_process_did(asked: list[Any], press: bool) -> None:
    processes = Processes(Call(replies(), never=[0, 1, 2]))
    result = run(processes, press=press, timeout=2.0)
    assert asked == ["stop", ("verify", {"ended": True, "heal": False})]
    assert (result.interrupted, result.time_limit) == (press, None if press else 2.0)
    assert result.verdict == Verdict(
        "stalled",
        {0: at(), 1: ProcessState("hangs", line=11), 2: ProcessState("runs", line=12)},
    )


def test_a_time_limit_that_is_not_over_ends_no_cell(asked: list[Any]) -> None:
    assert run(Processes(Call(later=replies())), timeout=3.0).ok
    assert asked == []


def test_a_verdict_is_not_replaced_where_the_user_ends_the_cell() -> None:
    processes = Processes(Call(replies(), never=[0]))
    processes.referee.verdict = MISSING
    assert run(processes, press=True).verdict == MISSING


def test_a_press_after_the_last_reply_interrupts_nothing(asked: list[Any]) -> None:
    result = run(Processes(Call(replies())), press=True)
    assert asked == [("verify", {"ended": True, "heal": False})]
    assert (result.interrupted, result.outcome.pressed_late, result.ok) == (False, True, True)


def test_a_late_press_interrupts_a_cell_whose_processes_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def replace(self: Stopper, **how: Any) -> None:
        self.outcome.intact = False

    monkeypatch.setattr(Stopper, "verify", replace)
    assert run(Processes(Call(replies())), press=True).interrupted


def test_a_second_press_gives_the_processes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SAME_PRESS_S", -1.0)
    one = executing(Processes(Call(replies(), never=[2, 1])))
    one.interrupt()
    one.interrupt()
    outcome = one.run(cell()).outcome
    assert (outcome.intact, outcome.given_up, outcome.interrupted) == (False, True, True)
    assert (outcome.unfreed, outcome.pressed_late) == ((1, 2), False)


def test_a_watcher_that_asks_again_and_again_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "SAME_PRESS_S", -1.0)

    def watch(pending: Any) -> None:
        one.interrupt()
        one.interrupt()

    one = executing(Processes(Call(replies(), never=[0])), watch)
    result = one.run(cell())
    assert (result.interrupted, result.outcome.given_up) == (True, False)


@pytest.mark.parametrize(
    ("answers", "settled", "happened"),
    [
        (replies(), dict.fromkeys(range(3), True), "returned"),
        (replies(), {0: True, 1: False, 2: True}, "failed"),
        ({**replies(), 1: Reply(error=MINE)}, dict.fromkeys(range(3), True), "failed"),
    ],
)
def test_a_divergence_with_the_check_off_is_settled_and_healed(
    asked: list[Any], answers: dict[int, Any], settled: dict[int, Any], happened: str
) -> None:
    processes = Processes(Call(answers), Call(settled))
    processes.referee.verdict = MISSING
    result = run(processes, checked=False)
    assert [name for name, *_ in processes.called] == ["run_cell", "settle"]
    assert asked == [("verify", {"ended": False, "heal": True})]
    assert result.verdict is not None
    assert result.verdict.happened == happened


def test_launches_that_went_ahead_and_hang_are_aborted(asked: list[Any]) -> None:
    processes = Processes(Call(replies()), Call({0: True}, never=[1, 2], inactive=True))
    processes.referee.verdict = MISSING
    run(processes, checked=False)
    assert asked == ["abort", ("verify", {"ended": False, "heal": True})]


def test_after_the_time_limit_nobody_waits_for_launches_that_went_ahead(asked: list[Any]) -> None:
    processes = Processes(Call(replies(), never=[1]), Call({0: True}, never=[1, 2]))
    processes.referee.verdict = MISSING
    assert run(processes, checked=False, timeout=2.0).outcome.time_limit == 2.0
    assert asked == ["stop", "abort", ("verify", {"ended": True, "heal": True})]


def test_processes_that_diverged_and_hang_with_the_check_off_are_stopped(asked: list[Any]) -> None:
    processes = Processes(Call(replies(), never=[1], inactive=True), Call({0: True}))
    processes.referee.verdict = MISSING
    result = run(processes, checked=False)
    assert asked[0] == "stop"
    assert result.verdict is not None
    assert result.verdict.happened == "hung"


def test_a_divergence_that_was_checked_is_verified_and_not_healed(asked: list[Any]) -> None:
    processes = Processes(Call(replies()))
    processes.referee.verdict = MISSING
    assert run(processes).verdict == MISSING
    assert asked == [("verify", {"ended": False, "heal": False})]


def test_the_last_output_of_a_process_that_died_is_its_reply(asked: list[Any]) -> None:
    processes = Processes(Call({0: Reply(), 2: Reply()}, never=[1]))
    processes.exits = {"process 1": exited(3)}
    processes.deaths = [{1: exited(3)}]
    result = run(processes)
    assert asked == []
    ended = replace(exited(3), last=LastLaunch("jit(step)", "line 4", made=True))
    assert (result.exits, result.outcome.intact) == ({1: ended}, False)
    assert result.stdout == {0: "", 1: "said\nout\n", 2: ""}
    assert result.verdict == Verdict("died", processes.referee.states())
    assert processes.referee.heard[-1] == ("die", 1, ended)


def test_deaths_that_follow_from_the_first_are_not_told() -> None:
    processes = Processes(Call({}, never=[0, 1, 2]))
    processes.exits = {"process 2": exited(3)}
    all_died = {2: exited(3), 0: killed(6), 1: exited(3)}
    processes.deaths = [{2: exited(3)}, all_died]
    exits = run(processes).exits
    assert {k: replace(how, last=None) for k, how in exits.items()} == {1: exited(3), 2: exited(3)}
    assert [how.last for how in exits.values()] == [
        LastLaunch("jit(step)", "line 4", made=True),
        LastLaunch("jit(step)", "line 5", made=True),
    ]


def test_what_was_aborted_with_the_check_off_is_not_settled_again(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: Stopper, pending: Any) -> None:
        self.outcome.cut = True

    monkeypatch.setattr(Stopper, "stop", stop)
    processes = Processes(Call(replies(), never=[1], inactive=True))
    processes.referee.verdict = MISSING
    result = run(processes, checked=False)
    assert len(processes.called) == 1
    assert asked == [("verify", {"ended": False, "heal": True})]
    assert result.verdict is not None
    assert result.verdict.happened == "hung"


def test_a_death_with_the_check_off_is_a_crash(asked: list[Any]) -> None:
    processes = Processes(Call({0: Reply(), 2: Reply()}, never=[1]))
    processes.referee.verdict = MISSING
    processes.exits, processes.deaths = {"process 1": exited(3)}, [{1: exited(3)}]
    result = run(processes, checked=False)
    assert result.verdict is not None
    assert (result.verdict.kind, result.verdict.happened, asked) == ("missing", "crashed", [])


def test_a_call_of_ones_own_returns_values_and_errors_by_process() -> None:
    processes = Processes(Call({2: 5, 0: MINE}))
    result, values = executing(processes).call(run, ("x",), (0, 2))
    assert processes.called == [("run", (NUMBER, "x"), (0, 2))]
    assert list(values.items()) == [(0, MINE), (2, 5)]
    assert (result.errors, result.count) == ({0: MINE}, 3)


def test_a_value_that_can_not_be_sent_is_no_broken_cluster() -> None:
    with pytest.raises(CellError) as caught:
        executing(Processes(TypeError("cannot pickle"))).call(run, (object(),), (0,))
    assert str(caught.value) == "A value can't be sent: cannot pickle"
