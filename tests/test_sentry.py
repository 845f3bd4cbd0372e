"""Sentries and the referee's server, with launches of nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from mcnb.errors import LockstepError
from mcnb.lockstep.launches import Launch
from mcnb.lockstep.places import Place
from mcnb.lockstep.sentry import Sentry
from mcnb.lockstep.server import Server
from mcnb.lockstep.wire import Channel, Message

from .conftest import wait_until

F, G, LONG = (Launch(f"jit({name})", name, (0, 1)) for name in ("f", "g", "long"))
LOCAL = Launch("jit(local)", "local", (0,))


def learners_of(process: int) -> Callable[[FrameType], bool]:
    """Tell the two processes' threads apart, which run in one here."""

    def is_learners(frame: FrameType) -> bool:
        named = frame.f_code.co_name.startswith("learner")
        return named and frame.f_locals.get("process") == process

    return is_learners


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    host = "127.0.0.1" if request.param == "tcp" else ""
    with Server(2, folder=Path(os.path.relpath(tmp_path)), host=host) as server:
        assert bool(server.address.path) == (request.param == "unix")
        yield server


@pytest.fixture
def sentries(server: Server) -> Iterator[list[Sentry]]:
    both = [Sentry(server.address, k, learners_of(k)) for k in range(2)]
    yield both
    for sentry in both:
        sentry.close()


class Learner:
    """A thread that launches something, and what came of it."""

    def __init__(self, sentry: Sentry, *launches: Launch, order: list[str] | None = None) -> None:
        self.made: list[str] = [] if order is None else order
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.learner_runs, args=(sentry, launches))
        self.thread.start()

    def learner_runs(self, sentry: Sentry, launches: tuple[Launch, ...]) -> None:
        process = sentry.process  # noqa: F841
        try:
            for launch in launches:
                with sentry.passing(launch, Place(1)):
                    self.made.append(launch.name)
        except BaseException as error:
            self.error = error

    def joined(self) -> Learner:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self


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


def test_a_wrong_key_is_refused(server: Server, sentries: list[Sentry]) -> None:
    with pytest.raises((PermissionError, ValueError, OSError)):
        Sentry(replace(server.address, key="wrong"), 0, learners_of(0))
    running = [Learner(sentry, F) for sentry in sentries]
    assert [one.joined().made for one in running] == [["jit(f)"], ["jit(f)"]]


def test_noise_disturbs_nobody(server: Server, sentries: list[Sentry]) -> None:
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"[1,2,3]\n", b'["hello",1]\n', b"\x00" * 100 + b"\n"):
        with contextlib.closing(server.address.connect()) as connection:
            connection.sendall(noise)
            connection.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1000):
                    pass
    running = [Learner(sentry, F) for sentry in sentries]
    assert [one.joined().made for one in running] == [["jit(f)"], ["jit(f)"]]


def test_the_socket_is_this_users_alone(tmp_path: Path) -> None:
    with Server(1) as server:
        path = Path(server.address.path)
        assert path.parent.stat().st_mode & 0o077 == 0
        assert socket.AF_UNIX
    assert not path.parent.exists()


@pytest.fixture
def channels(server: Server) -> Iterator[list[Channel]]:
    """The first connection of each of two sentries, by hand."""
    channels = [Channel(server.address, k, "launches") for k in range(2)]
    for channel in channels:
        channel.send(["launch", 0, F.as_data()], ["launch", 1, G.as_data()])
    yield channels
    for channel in channels:
        channel.close()
        channel.socket.close()


def at(ticket: int, number: int, *, alone: bool = True, tickets: tuple[int, ...] = ()) -> Message:
    return ["at", ticket, number, 1, "", alone, list(tickets), True]


def test_quiet_that_crossed_a_go_on_the_way_counts_for_nothing(
    server: Server, channels: list[Channel]
) -> None:
    for channel in channels:
        channel.send(at(0, 0))
    assert [channel.receive() for channel in channels] == [[["go", 0]], [["go", 0]]]
    channels[0].send(at(1, 0))
    # It saw its only thread wait with ticket 0; that one has run on, and will come.
    channels[1].send(["quiet", 0, False, [0]])
    assert not wait_until(lambda: server.verdict, 0.2)
    channels[1].send(at(1, 0))
    assert [channel.receive() for channel in channels] == [[["go", 1]], [["go", 1]]]


def test_who_judged_itself_alone_before_it_heard_of_a_go_is_not_alone(
    server: Server, channels: list[Channel]
) -> None:
    channels[0].send(at(0, 0, alone=False))
    channels[1].send(at(0, 0))
    assert [channel.receive() for channel in channels] == [[["go", 0]], [["go", 0]]]
    # The thread with ticket 0 has been let go: it may come to what process 1 waits for.
    channels[0].send(at(1, 1, tickets=(0,)))
    channels[1].send(at(1, 0))
    assert not wait_until(lambda: server.verdict, 0.2)
    channels[0].send(at(2, 0, tickets=(1,)))
    assert [channel.receive() for channel in channels] == [[["go", 2]], [["go", 1]]]


def test_quiet_after_a_cell_counts_for_nothing_in_the_next(
    server: Server, channels: list[Channel]
) -> None:
    first = server.begin([0, 1])
    for k in range(2):
        server.finish(k, busy=True)
    second = server.begin([0, 1])
    channels[0].send(at(0, 0))
    # Its threads of the first cell have ended; the second cell is still on the way to it.
    channels[1].send(["quiet", first, True, []])
    assert not wait_until(lambda: server.verdict, 0.2)
    channels[1].send(["quiet", second, True, []])
    server.finish(1, busy=True)
    assert wait_until(lambda: server.verdict)
    assert server.verdict is not None
    assert server.verdict.kind == "missing"


def test_who_runs_a_cell_is_not_quiet_whatever_its_frames_tell(
    server: Server, sentries: list[Sentry]
) -> None:
    """Nothing in the frames of what mcnb evaluates itself is the learner's."""
    cell = server.begin([0, 1])
    for sentry in sentries:
        sentry.begin(cell)
    waiting = Learner(sentries[1], F)  # a thread of process 1; its main thread is this one
    other = Learner(sentries[0], G)
    sentries[0].finish()
    server.finish(0, busy=True)
    assert wait_until(lambda: len(server.waits()) == 2)
    assert not wait_until(lambda: server.verdict, 0.2)
    sentries[1].finish()
    server.finish(1, busy=True)
    assert [type(one.joined().error) for one in (waiting, other)] == [LockstepError] * 2
