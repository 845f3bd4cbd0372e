"""A client of the controller: what it does where that is slow, silent, or closed under it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, ClassVar

import ipyparallel
import pytest
from ipyparallel.error import unwrap_exception, wrap_exception

from mcnb.cluster.workers import CONNECT_TRIES, Pending, WorkerClient
from mcnb.errors import ClusterError
from mcnb.options import Options
from tests.conftest import wait_until
from tests.support.clients import HANG_S


class Starting:
    """A way to have processes, of which the controller does not answer at first."""

    numbered = True
    host = ""

    def __init__(self, silent: int, ids: list[int]) -> None:
        self.silent = silent
        self.ids = ids
        self.asked = 0

    def connect(self) -> Any:
        self.asked += 1
        if self.asked <= self.silent:
            raise TimeoutError("Hub connection request timed out")
        return Client(self.ids)

    def failure(self) -> str:
        return ""

    def queued(self) -> str:
        return ""


class Client(dict[int, Any]):
    def __init__(self, ids: list[int]) -> None:
        super().__init__({k: SimpleNamespace(targets=k) for k in ids})
        self.ids = ids
        self.closed = False
        self._queue_handlers: dict[str, Any] = {"apply_reply": None}

    def close(self) -> None:
        self.closed = True


def reach(start: Starting) -> WorkerClient:
    return WorkerClient(Options(processes=2), start, {}, None)  # type: ignore[arg-type]


def test_a_controller_that_does_not_answer_one_client_is_asked_by_another() -> None:
    start = Starting(CONNECT_TRIES - 1, [0, 1])
    one = reach(start)
    one.connect()
    assert (start.asked, one.indices) == (CONNECT_TRIES, {0: 0, 1: 1})


def test_one_that_never_answers_is_given_up() -> None:
    start = Starting(CONNECT_TRIES, [0, 1])
    with pytest.raises(TimeoutError, match="Hub connection request timed out"):
        reach(start).connect()
    assert start.asked == CONNECT_TRIES


class Queued(Starting):
    """A job that a scheduler has not started."""

    def queued(self) -> str:
        return "the scheduler starts the job"


def test_what_a_start_waits_for() -> None:
    one = WorkerClient(Options(processes=4), Queued(0, []), {}, None)  # type: ignore[arg-type]
    assert one.waits_for() == "ipyparallel's controller answers"
    for aim, absent, waits in (
        ("start", [0, 1, 2, 3], "the scheduler starts the job"),
        ("start", [1, 2], "processes 1,2 start"),
        ("start", [3], "process 3 starts"),
        ("connect to the others", [0, 1, 2, 3], "all 4 processes connect to the others"),
        ("connect to the others", [3], "process 3 connects to the others"),
    ):
        one._awaited = aim, absent
        assert one.waits_for() == waits


def test_what_is_closed_while_it_waits_for_processes_waits_no_longer() -> None:
    one = reach(Starting(0, [0]))
    failures: list[BaseException] = []

    def connect() -> None:
        try:
            one.connect()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    assert wait_until(lambda: one.waits_for() == "process 1 starts", HANG_S)
    one.close()
    thread.join(HANG_S)
    assert not thread.is_alive()
    assert isinstance(failures[0], ClusterError)
    assert str(failures[0]) == "The cluster was closed while it started"


class Queue(WorkerClient):
    """A client whose queue drops some messages.

    Args:
        dropped: How many messages to each process are lost.
    """

    def __init__(self, dropped: list[int]) -> None:
        super().__init__(Options(processes=len(dropped)), Starting(0, []), {}, None)  # type: ignore[arg-type]
        self.asked = [0] * len(dropped)
        self._dropped = dropped

    def call(self, function: Any, *args: Any, processes: Any = None) -> Pending:
        results: dict[int, Any] = {}
        for k in range(len(self.asked)) if processes is None else processes:
            self.asked[k] += 1
            results[k] = Future()
            if self.asked[k] > self._dropped[k]:
                results[k].set_result((function, args, k))
        return Pending(results, self._inbox)


def test_a_process_that_does_not_reply_is_asked_again() -> None:
    client = Queue([0, 1, 3])
    answers = client.ask(len, "host", again_s=0.01)
    assert answers == {k: (len, ("host",), k) for k in range(3)}
    assert client.asked == [1, 2, 4]


class Died:
    """ipyparallel's result of a call to an engine that it takes for dead."""

    data: ClassVar[dict[str, Any]] = {}

    def add_done_callback(self, callback: Callable[[object], object]) -> None:
        callback(self)

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        try:
            raise ipyparallel.EngineError("Engine 1 died while running task '0123'")
        except ipyparallel.EngineError:
            raise unwrap_exception(wrap_exception()) from None


@pytest.mark.parametrize("reported", [False, True])
def test_a_death_that_ipyparallel_reports_is_a_death(reported: bool) -> None:
    """The reason of the exit follows: from the launcher, or from who asks for it."""
    inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
    lost: list[int] = []
    pending = Pending({1: Died()}, inbox, lost.append if reported else None)
    assert pending.wait(0)
    assert (pending.waiting, pending.answers) == ({1}, {})
    assert not pending.wait(0)
    assert lost == ([1] if reported else [])
