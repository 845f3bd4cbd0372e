"""Sentries and the referee's server, with launches of nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from mcnb.errors import LockstepError
from mcnb.lockstep.client import Sentry
from mcnb.lockstep.model import Launch
from mcnb.lockstep.server import Server
from mcnb.lockstep.source import Place

from .conftest import wait_until
from .two_ends import LOCAL, LONG, F, G, Learner


def test_what_all_launch_goes_ahead(sentries: list[Sentry]) -> None:
    learners = [Learner(sentry, F, G, F) for sentry in sentries]
    assert [one.joined().made for one in learners] == [["jit(f)", "jit(g)", "jit(f)"]] * 2
    records = sentries[0].take_records()
    assert [record.launch for record in records] == [F, G, F]
    assert all(record.began is not None and record.waited >= 0 for record in records)
    assert sentries[0].take_records() == ()


def test_what_differs_goes_nowhere(server: Server, sentries: list[Sentry]) -> None:
    learners = [Learner(sentries[0], F), Learner(sentries[1], G)]
    errors = [one.joined().error for one in learners]
    assert [type(error) for error in errors] == [LockstepError, LockstepError]
    assert str(errors[0]) == str(errors[1])
    assert str(errors[0]).startswith(
        "mismatch: process 0 waits at line 1 in jit(f); process 1 waits at line 1 in jit(g). "
        "What differs: the computation: jit(f) on process 0; jit(g) on process 1"
    )
    assert all(one.made == [] for one in learners)
    assert server.verdict is not None
    [record] = sentries[0].take_records()
    assert (record.launch, record.began) == (F, None)


def test_a_launch_without_partners_needs_nobody(sentries: list[Sentry]) -> None:
    assert Learner(sentries[0], LOCAL).joined().made == ["jit(local)"]
    assert [record.launch for record in sentries[0].take_records()] == [LOCAL]


def test_suspended(sentries: list[Sentry]) -> None:
    with sentries[0].suspended(), sentries[0].passing(F, Place(1)):
        pass
    assert sentries[0].take_records() == ()


def test_two_threads_in_another_order(sentries: list[Sentry]) -> None:
    orders: list[list[str]] = [[], []]
    errors: list[BaseException | None] = []

    def learner_starts_two(process: int, *launches: Launch) -> None:
        for _ in range(20):
            order = orders[process]
            two = [Learner(sentries[process], launch, order=order) for launch in launches]
            errors.extend(one.joined().error for one in two)

    threads = [
        threading.Thread(target=learner_starts_two, args=(0, F, G)),
        threading.Thread(target=learner_starts_two, args=(1, G, F)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == [None] * 80
    # On both in the same order, whichever it was: as their devices need it.
    assert orders[0] == orders[1]
    assert len(orders[0]) == 40


def test_a_thread_that_still_runs_may_come(server: Server, sentries: list[Sentry]) -> None:
    go = threading.Event()

    def learner_comes_later() -> None:
        process = 1  # noqa: F841
        go.wait()
        with sentries[1].passing(F, Place(2)):
            pass

    later = threading.Thread(target=learner_comes_later)
    later.start()
    waiting = Learner(sentries[0], F)
    server.finish(1, busy=sentries[1].finish())
    assert wait_until(lambda: server.waits())
    assert not wait_until(lambda: server.verdict, 0.3)
    go.set()
    later.join()
    assert waiting.joined().made == ["jit(f)"]


def test_a_thread_that_ends_will_not_come(server: Server, sentries: list[Sentry]) -> None:
    go = threading.Event()

    def learner_does_not_come() -> None:
        process = 1  # noqa: F841
        go.wait()

    other = threading.Thread(target=learner_does_not_come)
    other.start()
    waiting = Learner(sentries[0], F)
    busy = sentries[1].finish()
    assert busy
    server.finish(1, busy=busy)
    assert wait_until(lambda: server.waits())
    go.set()
    other.join()
    error = waiting.joined().error
    assert str(error) == (
        "missing: process 0 waits at line 1 in jit(f); process 1 finished without it"
    )


def test_a_thread_that_was_let_go_and_ends_is_missed(sentries: list[Sentry]) -> None:
    """Both of its threads waited, so that it was alone; then one ends without another launch."""
    errors: list[BaseException | None] = []

    def learner_has_two(process: int) -> None:
        two = [Learner(sentries[process], launch) for launch in (F, G)]
        for one in two:
            one.thread.join()
            errors.append(one.error)

    thread = threading.Thread(target=learner_has_two, args=(0,))
    thread.start()
    assert Learner(sentries[1], G).joined().made == ["jit(g)"]
    other = Learner(sentries[1], LONG).joined()
    thread.join(20)
    assert [type(error) for error in (*errors, other.error)] == [
        LockstepError,
        type(None),
        LockstepError,
    ]


def test_what_was_let_pass_unchecked_leaves_the_next_cell_alone(
    server: Server, sentries: list[Sentry]
) -> None:
    for holding in (False, True):
        cell = server.begin([0, 1])
        for sentry in sentries:
            sentry.begin(cell, holding=holding)
        learners = [Learner(sentry, F, F, F) for sentry in sentries]
        assert [one.joined().error for one in learners] == [None, None]
        for sentry in sentries:
            assert not sentry.finish()
    learners = [Learner(sentries[0], F), Learner(sentries[1], G)]
    assert [type(one.joined().error) for one in learners] == [LockstepError, LockstepError]


def test_who_joins_a_thread_that_waits_waits_too(sentries: list[Sentry]) -> None:
    errors: list[BaseException | None] = []

    def learner_joins(launch: Launch, sentry: Sentry) -> None:
        process = sentry.process  # noqa: F841
        inner = Learner(sentry, launch)
        inner.thread.join()
        errors.append(inner.error)

    pairs = zip((F, G), sentries, strict=True)
    threads = [threading.Thread(target=learner_joins, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [type(error) for error in errors] == [LockstepError, LockstepError]


def interrupted_when(condition: Callable[[], object]) -> threading.Thread:
    """Send this process the signal of Ctrl-C as soon as something holds."""

    def interrupt() -> None:
        if wait_until(condition):
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread


def test_an_interrupt_is_heard_at_once(server: Server, sentries: list[Sentry]) -> None:
    thread = interrupted_when(server.waits)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), sentries[0].passing(F, Place(1)):
        raise AssertionError
    assert time.monotonic() - began < 5
    thread.join()
    # It is as if it had never come.
    assert server.waits() == {}
    learners = [Learner(sentry, G) for sentry in sentries]
    assert [one.joined().made for one in learners] == [["jit(g)"], ["jit(g)"]]


def test_an_interrupt_that_comes_too_late_lets_the_launch_be_made(
    server: Server, sentries: list[Sentry], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The go is on its way, but this process does not read it before the interrupt.
    receive = sentries[0]._channel.receive

    def slow() -> object:
        assert wait_until(lambda: other.made)
        raise KeyboardInterrupt

    monkeypatch.setattr(sentries[0]._channel, "receive", slow)
    other = Learner(sentries[1], F)
    made = []
    with pytest.raises(KeyboardInterrupt), sentries[0].passing(F, Place(1)):
        made.append("f")
    assert made == ["f"]
    monkeypatch.setattr(sentries[0]._channel, "receive", receive)
    learners = [Learner(sentry, G) for sentry in sentries]
    assert [one.joined().made for one in learners] == [["jit(g)"], ["jit(g)"]]


def test_a_launch_in_the_middle_of_a_launch(sentries: list[Sentry]) -> None:
    made: list[list[str]] = [[], []]

    def learner_nests(k: int) -> None:
        with sentries[k].passing(F, Place(1)), sentries[k].passing(G, Place(2)):
            made[k].append("both")
        with sentries[k].passing(F, Place(3)):
            made[k].append("f")

    threads = [threading.Thread(target=learner_nests, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert made == [["both", "f"]] * 2


def test_who_does_not_hold_back_is_followed_all_the_same(
    server: Server, sentries: list[Sentry]
) -> None:
    cell = server.begin([0, 1])
    for sentry in sentries:
        sentry.begin(cell, holding=False)
    for launch in (F, G, F):
        for sentry in sentries:
            with sentry.passing(launch, Place(1)):
                pass
    with sentries[0].passing(F, Place(4)):
        pass
    assert wait_until(lambda: server.waits())
    assert server.verdict is None
    with sentries[1].passing(G, Place(5)):
        pass
    assert wait_until(lambda: server.verdict)
    verdict = server.verdict
    assert verdict is not None
    assert {k: stand.line for k, stand in verdict.stands.items()} == {0: 4, 1: 5}
    assert verdict.stands[0].launches == 3


def test_a_process_that_goes_is_missed(sentries: list[Sentry]) -> None:
    waiting = Learner(sentries[0], F)
    sentries[1].close()
    assert str(waiting.joined().error) == (
        "missing: process 0 waits at line 1 in jit(f); process 1 ended without it"
    )


def test_without_a_referee_nobody_is_held_back(server: Server, sentries: list[Sentry]) -> None:
    waiting = Learner(sentries[0], F)
    assert wait_until(server.waits)
    server.close()
    assert waiting.joined().made == ["jit(f)"]
    assert Learner(sentries[0], G).joined().made == ["jit(g)"]
