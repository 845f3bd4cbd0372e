"""A client of the controller: what it does where that is slow, silent, or closed under it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.cluster.workers import CONNECT_TRIES, WorkerClient
from mcnb.errors import ClusterError
from mcnb.options import Options
from tests.conftest import wait_until


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


class Client(dict[int, Any]):
    def __init__(self, ids: list[int]) -> None:
        super().__init__({k: SimpleNamespace(targets=k) for k in ids})
        self.ids = ids
        self.closed = False

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
    assert wait_until(lambda: one._client is not None, 10)
    one.close()
    thread.join(10)
    assert not thread.is_alive()
    assert isinstance(failures[0], ClusterError)
    assert str(failures[0]) == "The cluster was closed while it started"
