"""Clients and their referee from cell to cell: verdicts, interrupts, barriers, values and ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mcnb.errors import LockstepError
from mcnb.lockstep import client as clients_of
from mcnb.lockstep import server as servers
from mcnb.lockstep.client import Client
from mcnb.lockstep.model import Detail, Launch, ProcessExit, ProcessState
from mcnb.lockstep.server import Server
from mcnb.lockstep.source import Place
from mcnb.lockstep.values import Replicas
from tests.conftest import wait_until
from tests.support.clients import HANG_S, LOCAL, F, G, learners_of
from tests.unit.lockstep.test_values import Everywhere

SAVED = Launch.barrier("saved", (0, 1))
MISSING = (
    "missing: process 0 is waiting in jit(f), line {}; process 1 finished the cell without "
    "reaching it"
)


class Pair:
    """Two processes in one, each of which notes what happens to it."""

    def __init__(self, server: Server, values: bool | None = None) -> None:
        self.server = server
        self.told: list[tuple[Any, ...]] = []
        self.rerouted: list[bool] = []
        self.clients = [
            Client(
                server.address,
                k,
                learners_of(k),
                detail=self.detail,
                abort=partial(self.note, "abort", k),
                gone=partial(self.note, "gone", k),
                interrupt=partial(self.note, "interrupt", k),
                values=values,
                reroute=self.rerouted.append,
            )
            for k in range(2)
        ]

    def detail(self, place: Place, _: object, handled: object, earlier: object) -> Detail:
        return Detail(f"source of {place.line}", handling=str(handled or ""))

    def note(self, *what: Any) -> None:
        self.told.append(what)

    def begin(self, *, holding: bool = True) -> int:
        cell = self.server.begin([0, 1])
        for client in self.clients:
            client.begin(cell, holding=holding)
        return cell

    def both(self, learner: Callable[[int], None]) -> None:
        """Let each process run something in a thread of its own."""
        threads = [threading.Thread(target=learner, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
            assert not thread.is_alive()

    def meet(self, *launches: Launch, **more: Any) -> list[BaseException | None]:
        """Let each process make its launch, or both the same; return what each of them raises."""
        errors: list[BaseException | None] = [None, None]

        def learner_meets(process: int) -> None:
            each = {name: value[process] for name, value in more.items()}
            launch = launches[process % len(launches)]
            try:
                self.clients[process].make(launch, Place(1), int, **each)
            except LockstepError as error:
                errors[process] = error

        self.both(learner_meets)
        return errors

    def run_cell(self, *steps: tuple[Launch, Launch]) -> list[list[str]]:
        """Run a cell with a line for each step; return the beginning of each error of a process."""
        cell = self.server.begin([0, 1])
        assert self.server.verdicts == ()
        errors: list[list[str]] = [[], []]

        def learner_runs(process: int) -> None:
            self.clients[process].begin(cell)
            for line, launches in enumerate(steps, 1):
                try:
                    self.clients[process].make(launches[process], Place(line), int)
                except LockstepError as error:
                    errors[process].append(str(error)[:10])

        self.both(learner_runs)
        return errors


@pytest.fixture
def make_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Pair]]:
    monkeypatch.setattr(clients_of, "LOOK_S", 0.002)
    pairs: list[Pair] = []

    def make(values: bool | None = None, **more: Any) -> Pair:
        pairs.append(Pair(Server(2, folder=tmp_path, **more), values))
        return pairs[-1]

    yield make
    for pair in pairs:
        for client in pair.clients:
            client.close()
        pair.server.close()


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair()


def test_each_divergence_of_a_cell_has_its_own_details(pair: Pair) -> None:
    for _ in range(2):
        errors = pair.run_cell((F, G), (F, F), (G, F), (F, F))
        assert errors == [["mismatch: "] * 2] * 2
        first, second = pair.server.verdicts
        assert (first.over, second.over) == (True, True)
        for verdict, line in ((first, 1), (second, 3)):
            assert verdict.details == dict.fromkeys(range(2), Detail(f"source of {line}"))
        assert pair.server.verdict == second


def test_who_goes_on_without_the_others_is_told_what_happened_before(pair: Pair) -> None:
    for _ in range(2):
        pair.begin()
        pair.server.finish(1)
        said = []
        for line in (3, 5):
            with pytest.raises(LockstepError) as raised:
                pair.clients[0].make(F, Place(line), int)
            said.append(str(raised.value))
        assert said == [MISSING.format(3), f"diverged earlier: {MISSING.format(3)}"]
        [verdict] = pair.server.verdicts
        assert verdict.details == {0: Detail("source of 3")}


def test_the_first_error_of_a_process_and_the_last_of_another_thread_are_kept(pair: Pair) -> None:
    client = pair.clients[0]
    pair.server.finish(1)
    errors = []
    for _ in range(2):
        with pytest.raises(LockstepError) as raised:
            client.make(F, Place(3), int)
        errors.append(raised.value)
    assert (client.error, client.error_of_thread) == (errors[0], None)
    [of_thread, _] = pair.meet(F, LOCAL)
    assert (client.error, client.error_of_thread) == (errors[0], of_thread)


def test_records_are_of_what_was_announced_up_to_a_limit(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_of, "MOST_RECORDS", 3)
    client = pair.clients[0]
    for line in range(5):
        client.make(LOCAL, Place(line), int)
    records = client.take_records()
    assert [(one.launch, one.line, one.waited) for one in records] == [
        (LOCAL, line, 0.0) for line in range(3)
    ]
    pair.begin(holding=False)
    client.make(SAVED, Place(1), int)  # threads may overtake it, so that it says nothing
    client.make(F, Place(2), int)
    assert [(one.launch, one.line, one.waited) for one in client.take_records()] == [(F, 2, 0.0)]
    assert client.take_records() == ()


def test_an_exception_that_the_launch_handles_is_known(pair: Pair) -> None:
    pair.server.finish(1)
    try:
        raise OSError("disk full")
    except OSError:
        with pytest.raises(LockstepError, match="line 3, while handling disk full; process 1 "):
            pair.clients[0].make(F, Place(3), int)


def test_only_the_block_is_suspended(pair: Pair) -> None:
    pair.server.finish(1)
    with pair.clients[0].suspended():
        pair.clients[0].make(F, Place(2), int)
    with pytest.raises(LockstepError, match="line 3"):
        pair.clients[0].make(F, Place(3), int)


def test_launches_of_other_threads_go_on_while_a_barrier_waits(pair: Pair) -> None:
    over = threading.Event()
    waits = partial(over.wait, HANG_S)

    def learner_waits(process: int) -> None:
        pair.clients[process].make(SAVED, Place(1), waits)

    def learner_launches(process: int) -> None:
        pair.clients[process].make(F, Place(2), partial(made.append, process))

    made: list[int] = []
    threads = [
        threading.Thread(target=target, args=(k,))
        for target in (learner_waits, learner_launches)
        for k in range(2)
    ]
    for thread in threads:
        thread.start()
    passed = wait_until(lambda: len(made) == 2)
    over.set()
    for thread in threads:
        thread.join(HANG_S)
    assert passed


def test_what_the_server_asks_of_processes(pair: Pair) -> None:
    cell = pair.begin()
    pair.server.abort([7001, 7002])
    pair.server.interrupt(1, attempt=2)
    expected = [("abort", k, [7001, 7002]) for k in range(2)] + [("interrupt", 1, cell, 2)]
    assert wait_until(lambda: len(pair.told) == 3)
    assert sorted(pair.told, key=str) == expected


def test_since_when_a_process_waits(pair: Pair) -> None:
    began = time.monotonic()
    waiting = threading.Thread(target=pair.meet, args=(F, LOCAL))
    waiting.start()
    assert wait_until(pair.server.waits)
    [(k, waits)] = pair.server.waits().items()
    assert (k, waits.state) == (0, ProcessState("waits", F, 1))
    assert began < waits.since < time.monotonic()
    pair.clients[1].make(F, Place(1), int)
    waiting.join(HANG_S)
    assert pair.server.waits() == {}
    assert pair.server.states()[0] == ProcessState("runs", launches=1)
    again = threading.Thread(target=pair.meet, args=(F, LOCAL))
    made = time.monotonic()
    again.start()
    assert wait_until(pair.server.waits)
    assert pair.server.waits()[0].since > made
    pair.clients[1].make(F, Place(1), int)
    again.join(HANG_S)


def test_what_was_let_pass_is_forgotten_in_the_next_cell(pair: Pair) -> None:
    for _ in range(2):
        pair.begin(holding=False)
        pair.clients[0].make(F, Place(1), int)
        assert wait_until(pair.server.waits)
    pair.begin()
    assert pair.server.waits() == {}
    assert pair.server.states() == dict.fromkeys(range(2), ProcessState("runs"))


@pytest.mark.parametrize(
    ("error", "how"),
    [("", "exited without reaching it"), ("OSError: disk full", "raised OSError: disk full")],
)
def test_how_a_script_ends_is_told_even_if_its_process_dies_after_that(
    pair: Pair, error: str, how: str
) -> None:
    pair.clients[1].close(error)
    assert wait_until(lambda: pair.server.present == {0})
    with pytest.raises(LockstepError) as raised:
        pair.clients[0].make(F, Place(3), int)
    said = str(raised.value).partition(". Hint")[0]
    waits = "process 0 is waiting in jit(f), line 3"
    assert said in (f"missing: {waits}; process 1 {how}", f"missing: process 1 {how}; {waits}")


def test_a_script_that_goes_without_notice_has_died(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair(how=lambda k: ProcessExit(status=3 + k))
    pair.clients[1]._channel.close()
    with pytest.raises(LockstepError, match=r"^died: process 1 ended with exit code 4; process 0 "):
        pair.clients[0].make(F, Place(3), int)


def test_in_a_notebook_the_cluster_is_told_who_was_lost(make_pair: Callable[..., Pair]) -> None:
    lost: list[int] = []
    pair = make_pair(cells=True, lost=lost.append)
    assert [state.doing for state in pair.server.states().values()] == ["not invited"] * 2
    pair.begin()
    pair.clients[1].close("OSError: disk full")
    assert wait_until(lambda: pair.server.present == {0})
    pair.server.close()  # which waits until it has told
    assert lost == [1]
    assert pair.server.states()[1].doing == "runs"  # until the cluster knows more


def test_only_who_did_not_close_learns_that_the_referee_is_gone(pair: Pair) -> None:
    pair.clients[0].close()
    pair.server.close()
    assert wait_until(lambda: pair.told)
    pair.clients[1].make(F, Place(1), int)
    assert pair.told == [("gone", 1)]


def test_a_barrier_whose_time_is_over_is_passed_by_all(pair: Pair) -> None:
    """The coordination service raises the error, in those that come later as well."""
    made: list[str] = []
    for round_ in "ab":
        pair.begin()
        soon = time.monotonic() + 0.02
        pair.clients[0].make(SAVED, Place(1), partial(made.append, f"0{round_}"), until=soon)
        pair.clients[1].make(SAVED, Place(2), partial(made.append, f"1{round_}"))
    assert made == ["0a", "1a", "0b", "1b"]
    assert pair.server.verdict is None
    assert pair.meet(SAVED) == [None, None]


def test_a_barrier_that_was_missed_is_forgotten_in_the_next_cell(pair: Pair) -> None:
    pair.begin()
    pair.clients[0].make(SAVED, Place(1), int, until=time.monotonic() + 0.02)
    pair.begin()
    assert pair.meet(SAVED, SAVED) == [None, None]
    assert [record.began is not None for record in pair.clients[1].take_records()] == [True]


def test_a_brief_barrier_has_no_verdict_and_a_long_one_has(pair: Pair) -> None:
    pair.begin()
    pair.server.finish(1)
    made: list[int] = []
    until = time.monotonic() + 0.02
    pair.clients[0].make(SAVED, Place(1), partial(made.append, 1), until=until)
    assert (made, pair.server.verdict) == ([1], None)
    with pytest.raises(LockstepError, match=r"^missing: process 0 is waiting in wait_at_barrier"):
        pair.clients[0].make(SAVED, Place(1), int, until=time.monotonic() + HANG_S)


class Noted(Replicas):
    """Arguments that note how they are digested."""

    def __init__(self, value: Any, before: int = 0) -> None:
        super().__init__(lambda: [(np.full(3, value), Everywhere())], before)
        self.whole: list[bool] = []

    def digests(self, *, whole: bool = True) -> dict[str, str]:
        self.whole.append(whole)
        return super().digests(whole=whole)


@pytest.mark.parametrize(
    ("values", "before", "digested"),
    [
        (True, 0, [True]),
        (True, 9, [True]),
        (None, 0, [False]),
        (None, 9, []),
        (False, 0, []),
    ],
)
def test_which_launches_compare_values(
    make_pair: Callable[..., Pair], values: bool | None, before: int, digested: list[bool]
) -> None:
    pair = make_pair(values)
    each = [Noted(value, before) for value in (1, 2)]
    errors = pair.meet(F, replicas=each)
    assert [one.whole for one in each] == [digested, digested]
    value = ". What differs: the value of argument 0 at [0]: 1 on process 0; 2 on process 1. "
    assert [error is not None and value in str(error) for error in errors] == [bool(digested)] * 2


def test_what_may_be_rounding_is_compared_exactly_only_if_asked_for(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair()
    for values, differs in ((None, False), (True, True), (None, False)):
        for client in pair.clients:
            client.begin(0, values=values)
        errors = pair.meet(F, replicas=[Noted(1.0), Noted(1.0 + 1e-6)])
        assert [error is not None for error in errors] == [differs] * 2
    assert pair.rerouted == [True, True, False, False]


def test_a_sampled_launch_has_the_next_one_compared(
    make_pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SAMPLED_S", 0.0)
    monkeypatch.setattr(servers, "SAMPLED_SHARE", 1e9)
    pair = make_pair()
    whole = []
    for launch in (F, G, F, F):
        each = [Noted(1, before=5) for _ in range(2)]
        assert pair.meet(launch, replicas=each) == [None, None]
        whole.append(each[0].whole)
    # Each launch is a sample here: the first one of each computation has no digests yet.
    assert whole == [[], [], [False], [False]]
    assert pair.rerouted == [False] * 8


def test_a_sample_is_one_launch(
    make_pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SAMPLED_S", 0.0)
    pair = make_pair()
    monkeypatch.setattr(servers, "SAMPLED_S", 3600.0)  # after the first launch, none for long
    whole = []
    for _ in range(3):
        each = [Noted(1, before=5) for _ in range(2)]
        assert pair.meet(F, replicas=each) == [None, None]
        whole.append(each[0].whole)
    assert whole == [[], [False], []]
    assert pair.rerouted == [False, False]


def test_a_thread_that_goes_on_after_its_cell_is_missed_once_it_ends(pair: Pair) -> None:
    errors: list[str] = []

    def learner(process: int, *launches: Launch) -> None:
        if process == 1:
            pair.clients[1].begin(cell)
        try:
            for number, launch in enumerate(launches, 4):
                pair.clients[process].make(launch, Place(number), lambda: None)
        except LockstepError as error:
            errors.append(str(error))

    cell = pair.server.begin([0, 1])
    pair.clients[0].begin(cell)
    first = threading.Thread(target=learner, args=(0, F))
    first.start()
    assert wait_until(lambda: 0 in pair.server.waits())
    pair.server.finish(0, busy=pair.clients[0].finish())
    assert wait_until(lambda: pair.clients[0]._told_alone)  # all its threads wait
    second = threading.Thread(target=learner, args=(1, F, G))
    second.start()
    for thread in (first, second):
        thread.join(HANG_S)
        assert not thread.is_alive()
    assert errors == [
        "missing: process 1 is waiting in jit(g), line 5; process 0 finished the cell without "
        "reaching it"
    ]


def test_a_thread_that_waits_at_the_end_of_its_cell_may_go_on(pair: Pair) -> None:
    """Another process reaches its launch before the end of the cell is reported."""
    cell = pair.begin()
    made: list[int] = []

    def learner(process: int, times: int) -> None:
        for number in range(times):
            pair.clients[process].make(F, Place(4), partial(made.append, number))

    threads = [threading.Thread(target=learner, args=(0, 2))]
    threads[0].start()
    assert wait_until(lambda: 0 in pair.server.waits())
    busy = pair.clients[0].finish()
    pair.clients[1].begin(cell)
    threads.append(threading.Thread(target=learner, args=(1, 1)))
    threads[1].start()
    assert wait_until(lambda: len(made) == 2)
    pair.server.finish(0, busy=busy)
    learner(1, 1)
    for thread in threads:
        thread.join(HANG_S)
        assert not thread.is_alive()
    assert (busy, sorted(made), pair.server.verdict) == (True, [0, 0, 0, 1], None)
