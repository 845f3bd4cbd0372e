"""A cluster seen from the notebook: what it remembers, runs again, and does about a loss."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import mcnb
from mcnb.cluster import cluster as clusters
from mcnb.cluster import execution
from mcnb.cluster.cluster import Cluster
from mcnb.cluster.history import Cell, Push
from mcnb.cluster.lifetime import Absence
from mcnb.cluster.outcome import Outcome
from mcnb.cluster.result import Result
from mcnb.errors import CellError, ClusterError, OptionError
from mcnb.messages import ProcessError, Reply
from mcnb.options import CONNECTED, Options

MINE = ProcessError("ValueError", "mine", 2, "traceback")


class Lifetime:
    """Processes that exist as long as nobody ends them; notes what is done to them."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.untouched = False

    def ready(self) -> str:
        self.untouched = False
        return "processes"

    def start(self, tell: Any = None) -> None:
        self.done.append("start")

    def end(self, absence: Absence) -> None:
        self.done.append(f"end: {absence.value}")

    def lose(self) -> str:
        self.done.append("lose")
        return "All were restarted"


class Execution:
    """Runs no cell, but fails those whose source says so."""

    asked_by_ctrl_c = False
    ran: list[Any]
    outcome: Outcome

    def __init__(self, processes: object, watcher: object = None, debugger: object = None) -> None:
        assert processes == "processes"

    def raise_debugger_error(self) -> None:
        """There is none."""

    def catching_ctrl_c(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()

    def run(self, cell: Cell) -> Result:
        self.ran.append(cell)
        if cell.source == "broken":
            raise ClusterError("the connection broke.")
        error = MINE if cell.source == "fails" else None
        return Result({k: Reply(error=error) for k in cell.targets}, 3, self.outcome)

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], targets: tuple[int, ...]
    ) -> tuple[Result, dict[int, Any]]:
        self.ran.append((function.__name__, *args, targets))
        return Result({}, 3, self.outcome), dict.fromkeys(targets, 5)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cells and calls that the cluster has executed."""
    ran: list[Any] = []
    monkeypatch.setattr(execution, "Execution", Execution)
    monkeypatch.setattr(Execution, "ran", ran, raising=False)
    monkeypatch.setattr(Execution, "outcome", Outcome(), raising=False)
    return ran


@pytest.fixture
def lifetime() -> Lifetime:
    return Lifetime()


@pytest.fixture
def cluster(lifetime: Lifetime, ran: list[Any]) -> Cluster:
    """Three processes that mcnb started."""
    del ran
    cluster = Cluster(processes=3)
    either: Any = lifetime
    cluster._lifetime = either
    return cluster


def test_a_cell_has_the_settings_of_the_cluster_unless_it_has_its_own(
    lifetime: Lifetime, ran: list[Any]
) -> None:
    cluster = Cluster(processes=3, checked=False, values=True)
    either: Any = lifetime
    cluster._lifetime = either
    cluster.run("a")
    cluster.run("b", processes="0,2", label="9", first_line=4, checked=True, values=False)
    cluster.run("c", timeout=2)
    assert ran == [
        Cell("a", (0, 1, 2), "1", 1, False, None, True),
        Cell("b", (0, 2), "9", 4, True, None, False),
        Cell("c", (0, 1, 2), "3", 1, False, 2.0, True),
    ]


def test_a_syntax_error_reaches_no_process_and_no_replay(cluster: Cluster, ran: list[Any]) -> None:
    result = cluster.run("x = = 1", processes=1)
    assert [error.name for error in result.errors.values()] == ["SyntaxError"]
    assert cluster.last is result
    assert (list(result.errors), ran, cluster.replayable) == ([1], [], "0 cells")


def test_a_replay_runs_what_succeeded_in_its_order_and_where_it_ran(
    cluster: Cluster, lifetime: Lifetime, ran: list[Any]
) -> None:
    cluster.run("a")
    cluster.push({"n": 3}, processes=[1])
    cluster.run("fails")
    cluster.run("b", processes=2)
    cluster.run("c\n  # mcnb: no-replay, it takes an hour")
    before = list(ran)
    ran.clear()
    told: list[str] = []
    assert cluster.restart(replay=True, tell=told.append) is None
    assert told == ["Replaying 1 of 2: In[1]", "Replaying 2 of 2: In[3]"]
    assert lifetime.done == ["end: was interrupted during its restart", "start"]
    assert ran == [before[0], before[1], before[3]]
    assert before[1] == ("push", {"n": 3}, (1,))
    assert str(cluster.replay) == (
        "2 cells ran again: In[1], In[3]. Restored variables: n. Left out, because it had failed "
        "before: In[2]. Left out, as marked: In[4]"
    )
    assert cluster.replayable == "2 cells: In[1], In[3]"  # what was replayed is history, too


def test_a_replay_ends_at_the_first_cell_that_fails(
    cluster: Cluster, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in "abcd":
        cluster.run(source)
    cluster.push({"n": 3})
    ran.clear()
    run = Execution.run

    def run_or_fail(self: Execution, cell: Cell) -> Result:
        result = run(self, cell)
        return Result({0: Reply(error=MINE)}, 3) if cell.source == "b" else result

    monkeypatch.setattr(Execution, "run", run_or_fail)
    failed = cluster.restart(replay=True)
    assert failed is not None
    assert failed.errors == {0: MINE}
    assert [cell.source for cell in ran] == ["a", "b"]
    assert str(cluster.replay) == (
        "1 cell ran again: In[1]. In[2] failed, and 2 cells after it did not run"
    )


def test_a_replay_of_some_cells_goes_on_after_one_that_fails(
    cluster: Cluster, ran: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in "abcde":
        cluster.run(source)
    ran.clear()
    run = Execution.run

    def run_or_fail(self: Execution, cell: Cell) -> Result:
        result = run(self, cell)
        return Result({0: Reply(error=MINE)}, 3) if cell.source in "bd" else result

    monkeypatch.setattr(Execution, "run", run_or_fail)
    told: list[str] = []
    assert cluster.to_replay("In[2-4],1") == "4 cells: In[1], In[2], In[3], In[4]"
    failed = cluster.restart(replay="In[2-4],1", keep_going=True, tell=told.append)
    assert failed is not None
    assert told[-1] == "Replaying 4 of 4: In[4]"
    assert [cell.source for cell in ran] == ["a", "b", "c", "d"]
    assert str(cluster.replay) == (
        "2 cells ran again: In[1], In[3]. In[2], In[4] failed. Left out, as not named: In[5]"
    )
    with pytest.raises(OptionError) as caught:
        cluster.restart(replay="In[4-2]")
    assert str(caught.value) == (
        "--replay In[4-2]: name cells by the numbers in their prompts, with ranges and commas "
        "between them. For example: --replay In[1-5],In[8]"
    )


def test_a_restart_without_a_replay_runs_nothing(cluster: Cluster, ran: list[Any]) -> None:
    cluster.run("a")
    ran.clear()
    assert cluster.restart() is None
    assert (ran, cluster.replay, cluster.replayable) == ([], None, "1 cell: In[1]")
    cluster.run("b")
    assert cluster.replayable == "1 cell: In[2]"


def test_new_processes_that_nothing_has_used_are_not_started_twice(
    cluster: Cluster, lifetime: Lifetime
) -> None:
    lifetime.untouched = True
    cluster.restart()
    assert (lifetime.done, lifetime.untouched) == ([], False)


def test_processes_of_another_tool_are_not_restarted(lifetime: Lifetime) -> None:
    cluster = Cluster.of(Options(processes=3, launcher=CONNECTED))
    either: Any = lifetime
    cluster._lifetime = either
    with pytest.raises(ClusterError) as caught:
        cluster.restart()
    assert str(caught.value) == (
        "These processes were not started by mcnb. Restart them with the tool that started them; "
        "then: %mcjax connect"
    )
    assert lifetime.done == []


def test_what_ran_before_a_stop_is_kept_until_the_next_cell(
    cluster: Cluster, lifetime: Lifetime
) -> None:
    cluster.run("a")
    cluster.stop()
    assert (lifetime.done, cluster.replayable) == (["end: was stopped"], "1 cell: In[1]")
    cluster.run("b")
    assert cluster.replayable == "1 cell: In[2]"


def test_a_cell_that_leaves_the_processes_broken_has_them_replaced(
    cluster: Cluster, lifetime: Lifetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run("a")
    monkeypatch.setattr(Execution, "outcome", Outcome(interrupted=True, intact=False))
    assert not cluster.run("b").ok
    assert (lifetime.done, cluster.replayable) == (["lose"], "1 cell: In[1]")


def test_a_broken_connection_is_told_with_what_is_done_about_it(
    cluster: Cluster, lifetime: Lifetime
) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster.run("broken")
    assert str(caught.value) == "the connection broke. All were restarted"
    assert (lifetime.done, cluster._execution) == (["lose"], None)


def test_cells_whose_computations_never_ended_are_not_run_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.run("a")
    cluster.run("b")
    monkeypatch.setattr(Execution, "outcome", Outcome(cut=True, endless=frozenset({"1"})))
    cluster.run("c")
    assert cluster.replayable == "2 cells: In[2], In[3]"


def test_a_cell_that_ctrl_c_ended_is_neither_history_nor_a_failure(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Execution, "asked_by_ctrl_c", True)
    with pytest.raises(KeyboardInterrupt):
        cluster.run("a")
    assert cluster.last is not None
    assert (cluster.replayable, cluster._history.left_out()) == ("0 cells", [])


def test_code_of_mcnbs_own_is_not_remembered(cluster: Cluster) -> None:
    last = cluster.run("a")
    assert cluster.examine("fails", timeout=1.0).errors
    assert (cluster.last, cluster.replayable) == (last, "1 cell: In[1]")
    assert cluster._history.left_out() == []


def test_an_error_of_a_process_is_an_answer(cluster: Cluster) -> None:
    answers = {0: "one", 2: MINE}
    pending = SimpleNamespace(answers=answers, answered=lambda within_s: False)
    client = SimpleNamespace(call=lambda function, *args, processes: pending)
    either: Any = cluster._lifetime
    either.processes = SimpleNamespace(exits={}, asked=None, client=client)
    assert cluster.ask_idle(print, processes=range(3), within_s=1.0) == answers
    # Process 1 has not answered yet: it is not asked again.
    assert cluster.ask_idle(print, processes=range(3), within_s=1.0) == {}


def test_values_are_pulled_and_pushed_by_process(cluster: Cluster, ran: list[Any]) -> None:
    assert cluster.pull("x", processes=[2, 0]) == {0: 5, 2: 5}
    values = {"n": 3}
    cluster.push(values)
    values["n"] = 4  # what was pushed is what is pushed again
    assert ran == [("pull", "x", (0, 2)), ("push", {"n": 3}, (0, 1, 2))]
    assert cluster._history.steps == [Push({"n": 3}, (0, 1, 2))]
    with pytest.raises(CellError) as caught:
        cluster.push({"n": 1, "a b": 2})
    assert str(caught.value) == "'a b' is not a valid variable name"
    assert len(ran) == 2


def test_there_is_no_cluster_until_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "current", None)
    with pytest.raises(ClusterError) as caught:
        mcnb.current_cluster()
    assert str(caught.value) == "There is no cluster yet. Start one: %mcjax start -n 4 -d 2"
