"""The notebook kernel's end of a fork server: orders, reports, and the idle one."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcnb.errors import ClusterError
from mcnb.launchers import forkserver_client
from mcnb.launchers.exits import FORKSERVER
from mcnb.launchers.forkserver import Spec, python_command
from mcnb.launchers.forkserver_client import ForkServerClient, give_back, preload, take
from mcnb.lockstep.model import ExitSource, ProcessExit

HANG_S = 120.0
GONE = (
    "The fork server, which starts and monitors the processes, has ended, and the processes with "
    "it. To restart the cluster (variables are lost): %mcjax restart"
)


class Orders:
    """The pipe to a fork server, which obeys the order to end at once."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.closed = False

    def write(self, line: bytes) -> None:
        if self.closed:
            raise ValueError("write to closed file")
        if self.process.returncode is not None:
            raise BrokenPipeError
        self.process.unread += line

    def flush(self) -> None:
        *lines, self.process.unread = self.process.unread.split(b"\n")
        for line in lines:
            self.process.orders.append(json.loads(line))
            if self.process.orders[-1]["do"] == "end" and self.process.answers:
                self.process.report(ended=True)

    def close(self) -> None:
        self.closed = True
        if self.process.obeys:
            self.process.end(0)


class Process:
    """A fork server's process: it starts nothing, and reports what a test lets it report."""

    all: list[Process]

    def __init__(self, command: list[str], **given: Any) -> None:
        self.command, self.given = command, given
        self.orders: list[dict[str, Any]] = []
        self.unread = b""
        self.returncode: int | None = None
        self.answers = self.obeys = True
        read, write = os.pipe()
        self.stdin, self.stdout = Orders(self), os.fdopen(read, "rb")
        self._reports = os.fdopen(write, "wb")
        Process.all.append(self)

    def report(self, **report: Any) -> None:
        self._reports.write(json.dumps(report).encode() + b"\n")
        self._reports.flush()

    def end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._reports.close()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired("fork server", timeout)
        return self.returncode

    def kill(self) -> None:
        self.end(-signal.SIGKILL)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Process]]:
    """All fork servers that have been started, in order."""
    monkeypatch.setattr(Process, "all", [], raising=False)
    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(forkserver_client, "_idle", None)
    before = set(threading.enumerate())
    yield Process.all
    forkserver_client.close_idle()
    for process in Process.all:
        process.end(0)
    for reader in set(threading.enumerate()) - before:
        reader.join(HANG_S)
    for process in Process.all:
        process.stdout.close()


@pytest.fixture
def client(processes: list[Process]) -> Iterator[ForkServerClient]:
    client = ForkServerClient({"MINE": "1"})
    yield client
    client.close()


class Exits:
    """The ends of processes that a cluster was told of."""

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[tuple[str, ProcessExit]] = queue.SimpleQueue()

    def __call__(self, name: str, how: ProcessExit) -> None:
        self._told.put((name, how))

    def next(self) -> tuple[str, ProcessExit]:
        return self._told.get(timeout=HANG_S)

    def nothing(self) -> bool:
        return self._told.empty()


@pytest.mark.parametrize("gently", [True, False])
def test_a_fork_server_is_apart_from_its_notebook(gently: bool, processes: list[Process]) -> None:
    client = ForkServerClient({"MINE": "1"}, gently=gently)
    [process] = processes
    words = ["--gently"] if gently else []
    assert process.command == [*python_command("mcnb.launchers.forkserver"), *words]
    assert process.given == {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "env": {"MINE": "1"},
        "cwd": "/",
        "start_new_session": True,
    }
    assert client.alive
    client.close()
    assert not client.alive


def test_orders_name_the_cluster(client: ForkServerClient, processes: list[Process]) -> None:
    folder = Path("/cluster")
    spec = Spec("process 0", "mcnb.worker", ["-x"], {"A": "1"}, "/", "/cluster/0", 0o22)
    client.begin(folder, Exits())
    client.start(folder, spec)
    client.signal(folder, "process 0", 2)
    client.end(remove=False, grace_s=3.0)
    assert processes[0].orders == [
        {"do": "begin", "folder": "/cluster"},
        {
            "do": "start",
            "cluster": "/cluster",
            "name": "process 0",
            "module": "mcnb.worker",
            "arguments": ["-x"],
            "env": {"A": "1"},
            "cwd": "/",
            "output": "/cluster/0",
            "umask": 0o22,
            "graceful": True,
        },
        {"do": "signal", "cluster": "/cluster", "name": "process 0", "number": 2},
        {"do": "end", "remove": False, "grace_s": 3.0},
    ]


def test_reports_reach_the_cluster(client: ForkServerClient, processes: list[Process]) -> None:
    exits = Exits()
    client.begin(Path("/cluster"), exits)
    assert client.why_not is None
    processes[0].report(why_not="not here")
    processes[0].report(name="process 1", failed="No room")
    processes[0].report(name="process 0", status=-9)
    assert exits.next() == ("process 1", ProcessExit(ExitSource.NOT_STARTED, reason="No room"))
    assert exits.next() == ("process 0", ProcessExit(ExitSource.OBSERVED, -9))
    assert client.why_not == "not here"


def test_a_cluster_that_has_ended_is_told_nothing_more(
    client: ForkServerClient, processes: list[Process]
) -> None:
    first, second = Exits(), Exits()
    client.begin(Path("/first"), first)
    client.end(remove=False)
    processes[0].report(name="process 0", status=1)
    assert first.next()[0] == "process 0"
    client.end()
    processes[0].report(name="process 1", status=1)
    client.end()  # what was reported before this has been read
    client.begin(Path("/second"), second)
    processes[0].report(name="process 2", status=1)
    assert second.next()[0] == "process 2"
    assert first.nothing()


def test_a_fork_server_that_is_killed_is_reported(
    client: ForkServerClient, processes: list[Process]
) -> None:
    exits = Exits()
    client.begin(Path("/cluster"), exits)
    processes[0].kill()
    assert exits.next() == (FORKSERVER, ProcessExit(ExitSource.OBSERVED))
    for order in (client.end, lambda: client.signal(Path("/cluster"), "process 0", 2)):
        with pytest.raises(ClusterError) as caught:
            order()
        assert str(caught.value) == GONE


def test_a_fork_server_that_is_killed_while_it_ends_a_cluster(
    client: ForkServerClient, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Process, "report", lambda self, **_: self.kill())
    with pytest.raises(ClusterError) as caught:
        client.end()
    assert str(caught.value) == GONE


def test_a_fork_server_that_does_not_answer_is_killed(
    client: ForkServerClient, processes: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver_client, "ENDING_S", 0.0)
    processes[0].answers = False
    with pytest.raises(ClusterError) as caught:
        client.end()
    assert str(caught.value) == GONE
    assert processes[0].returncode == -signal.SIGKILL


@pytest.mark.parametrize(("obeys", "code"), [(True, 0), (False, -signal.SIGKILL)])
def test_closing_a_fork_server_is_no_loss(
    obeys: bool, code: int, client: ForkServerClient, processes: list[Process]
) -> None:
    exits = Exits()
    processes[0].obeys = obeys
    client.begin(Path("/cluster"), exits)
    client.close()
    client.close()
    assert processes[0].returncode == code
    assert exits.nothing()
    with pytest.raises(ClusterError) as caught:
        client.begin(Path("/cluster"), exits)
    assert str(caught.value) == GONE


ENV = {"MINE": "1", "JAX_NUM_CPU_DEVICES": "2", "NPROC": "64"}
OTHER_DEVICES = {"MINE": "1", "JAX_NUM_CPU_DEVICES": "3", "NPROC": "96"}
ANOTHER = {"MINE": "2"}


def test_a_fork_server_is_kept_for_the_next_cluster(processes: list[Process]) -> None:
    one = take(ENV)
    assert one.env == {"MINE": "1"}
    assert take(ENV) is not one  # it is taken
    give_back(one, 2.0)
    assert processes[0].orders == [{"do": "end", "remove": True, "grace_s": 2.0}]
    assert one.alive
    assert take(OTHER_DEVICES) is one
    assert take(OTHER_DEVICES) is not one
    assert [process.returncode for process in processes] == [None] * 3


def test_one_fork_server_is_kept_and_the_others_end(processes: list[Process]) -> None:
    first, second = take(ENV), take(ANOTHER)
    give_back(first)
    give_back(second)
    assert [process.returncode for process in processes] == [0, None]
    assert take(ENV) is not second
    assert take(ANOTHER) is second


@pytest.mark.parametrize("killed", ["taken", "idle"])
def test_a_fork_server_that_was_killed_is_not_used_again(
    killed: str, processes: list[Process]
) -> None:
    one = take(ENV)
    if killed == "taken":
        processes[0].kill()
    give_back(one)
    assert processes[0].stdout.closed == (killed == "taken")  # nothing is left of it
    processes[0].kill()
    assert take(ENV) is not one
    assert len(processes) == 2


def test_a_notebook_preloads_one_fork_server(processes: list[Process]) -> None:
    preload(ENV)
    preload(OTHER_DEVICES)
    assert [process.command[-1] for process in processes] == ["--gently"]
    preload(ANOTHER, gently=False)
    assert [process.returncode for process in processes] == [0, None]
    assert processes[1].command[-1] == "mcnb.launchers.forkserver"
    take(ANOTHER)
    assert len(processes) == 2
    preload(ENV)
    forkserver_client.close_idle()
    assert [process.returncode for process in processes] == [0, None, 0]
