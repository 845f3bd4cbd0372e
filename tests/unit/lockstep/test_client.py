"""clients and the referee's server, with launches of nothing."""

from __future__ import annotations

import dis
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import pytest

from mcnb.errors import LockstepError, McnbError
from mcnb.lockstep import client as clients_of
from mcnb.lockstep.client import Client
from mcnb.lockstep.model import Launch
from mcnb.lockstep.server import Server
from mcnb.lockstep.source import Place
from mcnb.lockstep.wire import Channel
from tests.conftest import wait_until
from tests.support.clients import HANG_S, LOCAL, LONG, F, G, Learner
from tests.support.timing import shortest, since

IN_THE_MIDDLE = (
    "a signal handler or a finalizer launched jit(g) in the middle of the launch of jit(f), which "
    "has to come first. Set a flag in the handler, and launch at the end of a step"
)


def test_what_all_launch_goes_ahead(clients: list[Client]) -> None:
    learners = [Learner(client, F, G, F) for client in clients]
    assert [one.joined().made for one in learners] == [["jit(f)", "jit(g)", "jit(f)"]] * 2
    records = clients[0].take_records()
    assert [record.launch for record in records] == [F, G, F]
    assert all(record.began is not None and record.waited >= 0 for record in records)
    assert clients[0].take_records() == ()


def test_what_differs_goes_nowhere(server: Server, clients: list[Client]) -> None:
    learners = [Learner(clients[0], F), Learner(clients[1], G)]
    errors = [one.joined().error for one in learners]
    assert [type(error) for error in errors] == [LockstepError, LockstepError]
    assert str(errors[0]) == str(errors[1])
    assert str(errors[0]).startswith(
        "mismatch: process 0 is waiting in jit(f), line 1; process 1 is waiting in jit(g), line 1. "
        "Hint: "
    )
    assert all(one.made == [] for one in learners)
    assert server.verdict is not None
    [record] = clients[0].take_records()
    assert (record.launch, record.began) == (F, None)


def test_a_launch_without_partners_needs_nobody(clients: list[Client]) -> None:
    assert Learner(clients[0], LOCAL).joined().made == ["jit(local)"]
    assert [record.launch for record in clients[0].take_records()] == [LOCAL]


def test_suspended(clients: list[Client]) -> None:
    with clients[0].suspended():
        assert clients[0].make(F, Place(1), lambda: "made") == "made"
    assert clients[0].take_records() == ()


def test_two_threads_in_another_order(clients: list[Client]) -> None:
    orders: list[list[str]] = [[], []]
    errors: list[BaseException | None] = []

    def learner_starts_two(process: int, *launches: Launch) -> None:
        for _ in range(20):
            order = orders[process]
            two = [Learner(clients[process], launch, order=order) for launch in launches]
            errors.extend(one.joined().error for one in two)

    threads = [
        threading.Thread(target=learner_starts_two, args=(0, F, G)),
        threading.Thread(target=learner_starts_two, args=(1, G, F)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert errors == [None] * 80
    # On both in the same order, whichever it was: as their devices need it.
    assert orders[0] == orders[1]
    assert len(orders[0]) == 40


def test_a_thread_that_still_runs_may_come(server: Server, clients: list[Client]) -> None:
    go = threading.Event()

    def learner_comes_later() -> None:
        process = 1  # noqa: F841
        go.wait()
        clients[1].make(F, Place(2), lambda: None)

    later = threading.Thread(target=learner_comes_later)
    later.start()
    waiting = Learner(clients[0], F)
    server.finish(1, busy=clients[1].finish())
    assert wait_until(lambda: server.waits())
    assert not wait_until(lambda: server.verdict, 0.3)
    go.set()
    later.join()
    assert waiting.joined().made == ["jit(f)"]


def test_a_thread_that_ends_will_not_come(server: Server, clients: list[Client]) -> None:
    go = threading.Event()

    def learner_does_not_come() -> None:
        process = 1  # noqa: F841
        go.wait()

    other = threading.Thread(target=learner_does_not_come)
    other.start()
    waiting = Learner(clients[0], F)
    busy = clients[1].finish()
    assert busy
    server.finish(1, busy=busy)
    assert wait_until(lambda: server.waits())
    go.set()
    other.join()
    error = waiting.joined().error
    assert str(error) == (
        "missing: process 0 is waiting in jit(f), line 1; process 1 finished the cell without "
        "reaching it"
    )


def test_a_thread_that_was_let_go_and_ends_is_missed(clients: list[Client]) -> None:
    """Both of its threads waited, so that it was alone; then one ends without another launch."""
    errors: list[BaseException | None] = []

    def learner_has_two(process: int) -> None:
        two = [Learner(clients[process], launch) for launch in (F, G)]
        for one in two:
            one.thread.join()
            errors.append(one.error)

    thread = threading.Thread(target=learner_has_two, args=(0,))
    thread.start()
    assert Learner(clients[1], G).joined().made == ["jit(g)"]
    other = Learner(clients[1], LONG).joined()
    thread.join(HANG_S)
    assert [type(error) for error in (*errors, other.error)] == [
        LockstepError,
        type(None),
        LockstepError,
    ]


def test_what_was_let_pass_unchecked_leaves_the_next_cell_alone(
    server: Server, clients: list[Client]
) -> None:
    for holding in (False, True):
        cell = server.begin([0, 1])
        for client in clients:
            client.begin(cell, holding=holding)
        learners = [Learner(client, F, F, F) for client in clients]
        assert [one.joined().error for one in learners] == [None, None]
        for client in clients:
            busy = client.finish()
            assert not busy
            server.finish(client.process, busy=busy)
    learners = [Learner(clients[0], F), Learner(clients[1], G)]
    assert [type(one.joined().error) for one in learners] == [LockstepError, LockstepError]


def test_a_launch_that_does_not_wait_looks_at_no_other_thread(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_of, "LOOK_S", HANG_S)
    for client in clients:
        monkeypatch.setattr(client._threads, "others_run", pytest.fail)
    # One thread of each process launches; this one might, too.
    learners = [Learner(client, *[F, G] * 50) for client in clients]
    assert [one.joined().error for one in learners] == [None, None]


def test_a_process_whose_thread_waits_no_more_is_not_called_quiet(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    learners = [Learner(client, F) for client in clients]
    assert [one.joined().error for one in learners] == [None, None]
    monkeypatch.setattr(clients[0]._threads, "others_run", lambda *_, **__: False)
    monkeypatch.setattr(clients[0]._channel, "send", pytest.fail)
    for waited in ({}, {0: 1}):  # what waited when the look was planned
        clients[0]._look(waited)


def test_who_joins_a_thread_that_waits_waits_too(clients: list[Client]) -> None:
    errors: list[BaseException | None] = []

    def learner_joins(launch: Launch, client: Client) -> None:
        process = client.process  # noqa: F841
        inner = Learner(client, launch)
        inner.thread.join()
        errors.append(inner.error)

    pairs = zip((F, G), clients, strict=True)
    threads = [threading.Thread(target=learner_joins, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert [type(error) for error in errors] == [LockstepError, LockstepError]


class Interrupt(threading.Thread):
    """Sends this process the signal of Ctrl-C as soon as something holds; it is raised once.

    A signal that comes in the instant before the main thread waits in the system does not end that
    wait, so it is sent until it was heard.
    """

    def __init__(self, condition: Callable[[], object]) -> None:
        super().__init__()
        self.condition = condition
        self.heard = threading.Event()
        self.before = signal.signal(signal.SIGINT, self.raise_once)
        self.start()

    def raise_once(self, *_: object) -> None:
        if not self.heard.is_set():
            self.heard.set()
            raise KeyboardInterrupt

    def run(self) -> None:
        while not self.heard.is_set() and wait_until(self.condition, HANG_S):
            os.kill(os.getpid(), signal.SIGINT)
            self.heard.wait(1)

    def join(self, timeout: float | None = None) -> None:
        super().join(timeout)
        signal.signal(signal.SIGINT, self.before)


def test_an_interrupt_is_heard_at_once(server: Server, clients: list[Client]) -> None:
    main = threading.get_ident()

    def waits() -> bool:
        # Only then: an interrupt before that ends the launch on its way to the referee.
        frame = sys._current_frames()[main]
        return bool(server.waits()) and frame.f_code is Channel._receive.__code__

    def attempt() -> float:
        thread = Interrupt(waits)
        began = time.monotonic()
        made: list[str] = []
        with pytest.raises(KeyboardInterrupt):
            clients[0].make(F, Place(1), lambda: made.append("f"))
        assert not made
        took = since(began)
        thread.join()
        # It is as if it had never come.
        assert server.waits() == {}
        return took

    assert shortest(5, attempt) < 5
    learners = [Learner(client, G) for client in clients]
    assert [one.joined().made for one in learners] == [["jit(g)"], ["jit(g)"]]


def test_an_interrupt_that_comes_too_late_lets_the_launch_be_made(
    server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The go is on its way, but this process does not read it before the interrupt.
    hear = clients[0]._channel.hear

    def slow(_: object) -> bool:
        assert wait_until(lambda: other.made)
        raise KeyboardInterrupt

    monkeypatch.setattr(clients[0]._channel, "hear", slow)
    other = Learner(clients[1], F)
    made: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        clients[0].make(F, Place(1), lambda: made.append("f"))
    assert made == ["f"]
    monkeypatch.setattr(clients[0]._channel, "hear", hear)
    learners = [Learner(client, G) for client in clients]
    assert [one.joined().made for one in learners] == [["jit(g)"], ["jit(g)"]]


@contextmanager
def signalled_while_it_waits(
    server: Server, handler: Callable[..., object], then: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """Send this process a signal once its main thread waits for an answer."""
    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handler)

    def reads() -> bool:
        frame = sys._current_frames()[main]
        return bool(server.waits()) and frame.f_code is Channel._receive.__code__

    def run() -> None:
        wait_until(reads, HANG_S)
        signal.pthread_kill(main, signal.SIGUSR1)
        then()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(HANG_S)
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_handlers_launch_comes_after_the_one_that_waits(
    server: Server, clients: list[Client]
) -> None:
    made: list[str] = []
    others: list[Learner] = []
    called = threading.Event()

    def handler(*_: object) -> None:
        called.set()
        for launch in (G, LONG):
            clients[0].make(launch, Place(2), partial(made.append, launch.name))

    def then() -> None:
        assert called.wait(HANG_S)
        others.append(Learner(clients[1], F, G, LONG, F))

    with signalled_while_it_waits(server, handler, then):
        assert clients[0].make(F, Place(1), lambda: made.append("jit(f)") or "f") == "f"
    assert made == ["jit(f)", "jit(g)", "jit(long)"]
    clients[0].make(F, Place(3), lambda: None)
    assert others[0].joined().made == ["jit(f)", "jit(g)", "jit(long)", "jit(f)"]
    records = [(record.launch, record.line) for record in clients[0].take_records()]
    assert sorted(records, key=str) == sorted([(F, 1), (G, 2), (LONG, 2), (F, 3)], key=str)


@cache
def interruptible(code: CodeType) -> set[int]:
    """Return the offsets of the instructions before which CPython may call a signal handler.

    It does so at the beginning of a function, after a call, and when a loop goes on.
    """
    found = set()
    for one, following in pairwise(dis.get_instructions(code)):
        if one.opname == "RESUME" or one.opname.startswith("CALL"):
            found.add(following.offset)
        elif one.opname.startswith("JUMP_BACKWARD"):
            found.add(one.argval)
    return found


def learner_interrupted(client: Client, at: int, handler: Callable[[], None]) -> bool:
    """Launch F, and call a handler at a position in mcnb's code after the announcement.

    Returns:
        Whether there are so many positions.
    """
    process = client.process  # noqa: F841
    left = at
    before = sys.gettrace()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("client.py", "threads.py", "wire.py")):
            return None
        frame.f_trace_opcodes = True
        may = event == "opcode" and frame.f_lasti in interruptible(frame.f_code)
        if may and left >= 0 and any(slot.announced for slot in client._unmade.values()):
            left -= 1
            if left < 0:
                handler()
        return trace

    sys.settrace(trace)
    try:
        client.make(F, Place(1), lambda: None)
    finally:
        sys.settrace(before)
    return left < 0


def learner_handles(client: Client, made: list[str], errors: list[str]) -> None:
    try:
        client.make(G, Place(2), partial(made.append, "g"))
    except McnbError as error:
        errors.append(str(error))


def learner_is_handled_everywhere(clients: list[Client]) -> tuple[int, int]:
    """Let a handler interrupt each position once; return how many, and how many were refused."""
    process = clients[0].process  # noqa: F841
    refused = at = 0
    more = True
    while more:
        other = Learner(clients[1], F, G)
        made: list[str] = []
        errors: list[str] = []
        handler = partial(learner_handles, clients[0], made, errors)
        more = learner_interrupted(clients[0], at, handler)
        if not made:
            handler()
        assert (other.joined().made, made) == (["jit(f)", "jit(g)"], ["g"])
        assert errors in ([], [IN_THE_MIDDLE])
        refused += len(errors)
        at += 1
    return at, refused


def test_a_handlers_launch_comes_second_wherever_it_interrupts(clients: list[Client]) -> None:
    """Else the others wait for the result of the first, and this process for them."""
    at, refused = learner_is_handled_everywhere(clients)
    assert at > 50
    assert refused < at / 2


def test_what_the_launch_below_a_handler_raises_is_raised_there(
    server: Server, clients: list[Client]
) -> None:
    def fail() -> None:
        raise ValueError("of the launch")

    def handler(*_: object) -> None:
        clients[0].make(G, Place(2), lambda: None)

    other: list[Learner] = []
    with (
        signalled_while_it_waits(server, handler, lambda: other.append(Learner(clients[1], F, G))),
        pytest.raises(ValueError, match=r"^of the launch$"),
    ):
        clients[0].make(F, Place(1), fail)
    assert other[0].joined().made == ["jit(f)", "jit(g)"]


def test_a_handler_in_the_middle_of_native_code_may_not_launch(
    server: Server, clients: list[Client]
) -> None:
    errors: list[str] = []

    def handler(*_: object) -> None:
        with pytest.raises(McnbError) as raised:
            clients[0].make(G, Place(2), lambda: None)
        errors.append(str(raised.value))

    other: list[Learner] = []
    with signalled_while_it_waits(server, handler, lambda: other.append(Learner(clients[1], F))):
        clients[0].arrive(F, Place(1), sys._getframe())
    assert other[0].joined().made == ["jit(f)"]
    assert errors == [IN_THE_MIDDLE]


@pytest.mark.parametrize("error", [TimeoutError("late"), BrokenPipeError(), KeyError("k")])
def test_a_signal_handlers_error_ends_the_wait(
    server: Server, clients: list[Client], error: Exception
) -> None:
    def handler(*_: object) -> None:
        raise error

    made: list[str] = []
    with signalled_while_it_waits(server, handler), pytest.raises(type(error)) as raised:
        clients[0].make(F, Place(1), lambda: made.append("f"))
    assert (raised.value, made, server.waits()) == (error, [], {})
    learners = [Learner(client, G) for client in clients]
    assert [one.joined().made for one in learners] == [["jit(g)"], ["jit(g)"]]


@pytest.mark.parametrize("sent", [0, 10, 10_000])
def test_an_interrupt_in_the_middle_of_an_announcement(
    server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    channel = clients[0]._channel

    class Interrupted:
        def sendall(self, data: bytes) -> None:
            monkeypatch.setattr(channel, "socket", whole)
            whole.sendall(data[:sent])
            raise KeyboardInterrupt

    whole = channel.socket
    monkeypatch.setattr(channel, "socket", Interrupted())
    made: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        clients[0].make(F, Place(1), lambda: made.append("f"))
    assert (made, server.waits()) == ([], {})
    learners = [Learner(client, F, G) for client in clients]
    assert [one.joined().made for one in learners] == [["jit(f)", "jit(g)"]] * 2


def test_a_launch_in_the_middle_of_a_launch(clients: list[Client]) -> None:
    made: list[list[str]] = [[], []]

    def learner_nests(k: int) -> None:
        client = clients[k]
        client.make(F, Place(1), lambda: client.make(G, Place(2), lambda: made[k].append("both")))
        client.make(F, Place(3), lambda: made[k].append("f"))

    threads = [threading.Thread(target=learner_nests, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert made == [["both", "f"]] * 2


def test_who_does_not_hold_back_is_followed_all_the_same(
    server: Server, clients: list[Client]
) -> None:
    cell = server.begin([0, 1])
    for client in clients:
        client.begin(cell, holding=False)
    for launch in (F, G, F):
        for client in clients:
            client.make(launch, Place(1), lambda: None)
    clients[0].make(F, Place(4), lambda: None)
    assert wait_until(lambda: server.waits())
    assert server.verdict is None
    clients[1].make(G, Place(5), lambda: None)
    assert wait_until(lambda: server.verdict)
    verdict = server.verdict
    assert verdict is not None
    assert {k: state.line for k, state in verdict.states.items()} == {0: 4, 1: 5}
    assert verdict.states[0].launches == 3


def test_a_process_that_goes_is_missed(clients: list[Client]) -> None:
    waiting = Learner(clients[0], F)
    clients[1].close()
    assert str(waiting.joined().error) == (
        "missing: process 0 is waiting in jit(f), line 1; process 1 exited without reaching it"
    )


def test_without_a_referee_nobody_is_held_back(server: Server, clients: list[Client]) -> None:
    waiting = Learner(clients[0], F)
    assert wait_until(server.waits)
    server.close()
    assert waiting.joined().made == ["jit(f)"]
    assert Learner(clients[0], G).joined().made == ["jit(g)"]
