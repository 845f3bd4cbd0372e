"""The fork server: its orders and reports, and what a forked process must not share."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import psutil
import pytest

from mcnb.launchers import forkserver
from mcnb.launchers.forkserver import (
    CELLS,
    CONTROLLER,
    PROCESSES,
    ForkServer,
    Spec,
    _as_if_imported_now,
)
from tests.unit.launchers.test_forkserver_preload import Imports

HANG_S = 120.0


@pytest.fixture
def numpys_state() -> Iterator[None]:
    state = np.random.get_state()
    yield
    np.random.set_state(state)


@pytest.mark.usefixtures("numpys_state")
def test_processes_draw_random_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)

    def drawn() -> float:
        np.random.seed(7)  # as in the process that all are forked from
        _as_if_imported_now()
        return np.random.rand()

    assert len({np.random.RandomState(7).rand(), drawn(), drawn()}) == 3


@pytest.mark.usefixtures("numpys_state")
@pytest.mark.parametrize("value", ["3", None])
def test_the_number_of_devices_is_that_of_the_process(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    else:
        monkeypatch.setenv("JAX_NUM_CPU_DEVICES", value)
    updated: list[tuple[str, Any]] = []
    monkeypatch.setattr(jax.config, "update", lambda *given: updated.append(given))
    _as_if_imported_now()
    assert updated == ([] if value is None else [("jax_num_cpu_devices", 3)])


ONE = Spec("process 0", "mcnb.worker", ["-x"], {"MINE": "1"}, "/here", "/here/process-0", 0o22)


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> Imports:
    """Import nothing, and leave the garbage collector as it is."""
    imports = Imports()
    monkeypatch.setattr(forkserver, "importlib", imports)
    fake = dict.fromkeys(("enable", "disable", "freeze"), lambda: None)
    monkeypatch.setattr(forkserver, "gc", SimpleNamespace(**fake))
    return imports


class System:
    """Processes that end when they are killed, and on SIGHUP unless they are stubborn."""

    def __init__(self) -> None:
        self.signals: list[tuple[str, int, str]] = []
        self.running: set[int] = set()
        self.stubborn: set[int] = set()
        self.groups = True
        self.orphans: list[int] = []
        self.ended: list[tuple[int, int]] = []
        self.now = 0.0

    def kill(self, pid: int, number: int, what: str = "process") -> None:
        self.signals.append((what, pid, signal.Signals(number).name))
        deadly = number == signal.SIGKILL or (number == signal.SIGHUP and pid not in self.stubborn)
        if deadly and pid in self.running:  # it may be a zombie already
            self.end(pid, number)

    def killpg(self, pid: int, number: int) -> None:
        if not self.groups:
            raise ProcessLookupError
        self.kill(pid, number, "group")

    def end(self, pid: int, status: int) -> None:
        self.running.remove(pid)
        self.ended.append((pid, status))

    def waitpid(self, pid: int, options: int) -> tuple[int, int]:
        assert (pid, options) == (-1, os.WNOHANG)
        if self.ended:
            return self.ended.pop(0)
        if not self.running:
            raise ChildProcessError
        return 0, 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < HANG_S

    def children(self) -> list[Any]:
        """Return the first orphan: when it ends, its own children become orphans."""

        def kill(pid: int) -> None:
            self.orphans.remove(pid)
            self.kill(pid, signal.SIGKILL, "orphan")

        return [SimpleNamespace(kill=lambda pid=pid: kill(pid)) for pid in self.orphans[:1]]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()
    for name in ("kill", "killpg", "waitpid"):
        monkeypatch.setattr(os, name, getattr(system, name))
    clock = SimpleNamespace(monotonic=lambda: system.now, sleep=system.sleep)
    monkeypatch.setattr(forkserver, "time", clock)
    # By this clock, real threads would take a time of their own to end.
    monkeypatch.setattr(forkserver, "_TASKS", Path("no-tasks"))
    process = SimpleNamespace(children=system.children)
    fake = SimpleNamespace(Process=lambda: process, NoSuchProcess=psutil.NoSuchProcess)
    monkeypatch.setattr(forkserver, "psutil", fake)
    return system


class Server(ForkServer):
    """A fork server that forks and executes nothing, and notes what it reports."""

    def __init__(self) -> None:
        super().__init__(gently=False)
        self.selector.close()
        self.reports: list[dict[str, Any]] = []

    def order(self, **order: Any) -> None:
        assert self._obey(json.dumps(order).encode() + b"\n")

    def start(self, folder: Path | str, spec: Spec) -> None:
        self.order(do="start", cluster=str(folder), **asdict(spec))

    def _report(self, **report: Any) -> None:
        self.reports.append(json.loads(json.dumps(report)))


class Starts:
    """How each process was started; the reason why they can't be forked, and an error."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Spec]] = []
        self.asked: list[str] = []
        self.why_not = ""
        self.error: OSError | None = None


@pytest.fixture
def starts(system: System, imports: Imports, monkeypatch: pytest.MonkeyPatch) -> Starts:
    starts = Starts()
    pids = itertools.count(11)

    def start(how: str, spec: Spec) -> int:
        if starts.error is not None:
            raise starts.error
        starts.done.append((how, spec))
        system.running.add(pid := next(pids))
        return pid

    monkeypatch.setattr(forkserver, "fork", lambda spec: start("fork", spec))
    monkeypatch.setattr(forkserver, "_execute", lambda spec: start("execute", spec))
    monkeypatch.setattr(
        forkserver, "why_not", lambda spec: starts.asked.append(spec.name) or starts.why_not
    )
    return starts


@pytest.fixture
def server(starts: Starts, tmp_path: Path) -> Iterator[Server]:
    server = Server()
    server.order(do="begin", folder=str(tmp_path))
    yield server
    server.preload.stop()


TWO = replace(ONE, name="process 1")
OTHER = replace(ONE, name="controller", module="mcnb.launchers.controller", graceful=False)


def test_an_order_may_arrive_in_pieces(server: Server) -> None:
    lines = b'{"do": "begin", "folder": "/a"}\n{"do": "begin", "folder": "/b"}\n'
    assert server._obey(lines[:10])
    assert server._obey(lines[10:40])
    assert server.folder == "/a"
    assert server._obey(lines[40:])
    assert server.folder == "/b"
    assert not server._obey(b"")  # the notebook kernel has closed the pipe


def test_processes_are_forked_with_what_they_need(
    server: Server, starts: Starts, imports: Imports, tmp_path: Path
) -> None:
    server.start(tmp_path, OTHER)
    server.preload.stop()
    assert imports.names[: len(CONTROLLER)] == [*CONTROLLER]
    server.start(tmp_path, ONE)
    server.start(tmp_path, TWO)
    assert starts.done == [("fork", OTHER), ("fork", ONE), ("fork", TWO)]
    assert server.running == {"controller": 11, "process 0": 12, "process 1": 13}
    assert server.preload.left == [*CELLS]
    # New threads are looked for after each import, and only then.
    assert starts.asked == ["controller", "process 0"]
    assert server.reports == [{"why_not": ""}, {"why_not": ""}]


def test_the_other_modules_are_imported_while_the_controller_starts(
    server: Server, imports: Imports, tmp_path: Path
) -> None:
    server.start(tmp_path, OTHER)
    assert server.preload._thread is not None
    server.preload._thread.join(HANG_S)
    assert imports.names == [*CONTROLLER, *PROCESSES]
    server.start(tmp_path, ONE)
    assert server.preload._thread is None  # or the next one could not be forked


def test_processes_that_cannot_be_forked_are_executed(
    server: Server, starts: Starts, imports: Imports, tmp_path: Path
) -> None:
    starts.why_not = "not here"
    for spec in (OTHER, ONE):
        server.start(tmp_path, spec)
    assert starts.done == [("execute", OTHER), ("execute", ONE)]
    assert server.reports == [{"why_not": "not here"}]
    server.preload.stop()
    assert imports.names == [*CONTROLLER]  # nobody needs more


def test_a_cluster_that_has_ended_starts_nothing(
    server: Server, starts: Starts, tmp_path: Path
) -> None:
    server.start("/another", ONE)
    assert (starts.done, server.running, server.reports) == ([], {}, [])


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (FileNotFoundError(2, "No such file", "/gone"), "No such file: /gone"),
        (OSError(11, "No room"), "No room"),
    ],
)
def test_a_process_that_cannot_be_started_is_reported(
    error: OSError, failed: str, server: Server, starts: Starts, tmp_path: Path
) -> None:
    starts.error = error
    server.start(tmp_path, ONE)
    assert server.reports == [{"why_not": ""}, {"name": "process 0", "failed": failed}]
    assert (server.running, server.graceful) == ({}, set())


def test_a_signal_reaches_a_running_process_of_this_cluster(
    server: Server, system: System, tmp_path: Path
) -> None:
    server.start(tmp_path, ONE)
    for cluster, name in (("/another", "process 0"), (tmp_path, "process 1"), (tmp_path, ONE.name)):
        server.order(do="signal", cluster=str(cluster), name=name, number=int(signal.SIGINT))
    assert system.signals == [("process", 11, "SIGINT")]


def test_all_that_ended_are_reported_once_and_orphans_are_not(
    server: Server, system: System, tmp_path: Path
) -> None:
    for spec in (OTHER, ONE, TWO):
        server.start(tmp_path, spec)
    server.reports.clear()
    system.running.add(99)  # what a process had started
    system.end(12, signal.SIGKILL)
    system.end(99, 0)
    system.end(11, 3 << 8)
    server._reap()
    assert server.reports == [
        {"name": "process 0", "status": -9},
        {"name": "controller", "status": 3},
    ]
    assert server.running == {"process 1": 13}
    system.end(13, 0)
    server._reap()
    server._reap()
    assert server.reports[2:] == [{"name": "process 1", "status": 0}]


@pytest.mark.parametrize(("grace_s", "waited_s"), [(None, 1.0), (0, 0.0), (4.0, 4.0)])
def test_the_processes_may_exit_before_all_are_killed(
    grace_s: float | None, waited_s: float, server: Server, system: System, tmp_path: Path
) -> None:
    for spec in (OTHER, ONE, TWO):
        server.start(tmp_path, spec)
    server.reports.clear()
    system.stubborn.add(13)
    server.order(do="end", remove=False, grace_s=grace_s)
    assert {pid for _, pid, name in system.signals if name == "SIGHUP"} == {12, 13}
    killed = {pid for _, pid, name in system.signals if name == "SIGKILL"}
    assert killed == ({11, 12, 13} if grace_s == 0 else {11, 13})
    assert system.now == pytest.approx(waited_s, abs=0.02)
    assert server.reports[-1] == {"ended": True}
    assert sorted(report["name"] for report in server.reports[:-1]) == [
        "controller",
        "process 0",
        "process 1",
    ]
    assert (server.running, server.graceful, server.folder) == ({}, set(), str(tmp_path))


def test_nobody_waits_for_the_controller(server: Server, system: System, tmp_path: Path) -> None:
    for spec in (OTHER, ONE):
        server.start(tmp_path, spec)
    server.order(do="end", remove=False)
    assert system.signals == [("group", 12, "SIGHUP"), ("group", 11, "SIGKILL")]
    assert system.now < 0.1


@pytest.mark.parametrize("remove", [True, False])
def test_a_cluster_that_ends_takes_its_folder_with_it(
    remove: bool, server: Server, starts: Starts, tmp_path: Path
) -> None:
    folder = tmp_path / "cluster"
    (folder / "log").mkdir(parents=True)
    server.order(do="begin", folder=str(folder))
    server.order(do="end", remove=remove)
    assert folder.exists() == (not remove)
    server.start(folder, ONE)
    assert len(starts.done) == (not remove)


def test_what_processes_had_started_ends_with_them(
    server: Server, system: System, tmp_path: Path
) -> None:
    server.start(tmp_path, ONE)
    system.orphans += [98, 99]
    system.running |= {98, 99}
    server.order(do="end", remove=True)
    assert system.signals == [
        ("group", 11, "SIGHUP"),
        ("orphan", 98, "SIGKILL"),
        ("orphan", 99, "SIGKILL"),
    ]
    assert server.reports[1:] == [{"name": "process 0", "status": -1}, {"ended": True}]


def test_a_process_that_does_not_lead_its_group_yet_ends_alone(
    server: Server, system: System, tmp_path: Path
) -> None:
    server.start(tmp_path, ONE)
    system.groups = False
    server.order(do="end", remove=False)
    assert system.signals == [("process", 11, "SIGHUP")]


class Selector:
    """What happens to the fork server, one thing after another."""

    def __init__(self, *happens: Callable[[], list[Any]]) -> None:
        self.happens = [*happens]
        self.timeouts: list[float | None] = []

    def select(self, timeout: float | None) -> list[Any]:
        self.timeouts.append(timeout)
        return [(key, 1) for key in self.happens.pop(0)()]


def key(data: str, text: bytes = b"") -> Any:
    """Return what can be read, with its text."""
    read, write = os.pipe()
    os.write(write, text)
    os.close(write)
    return SimpleNamespace(data=data, fd=read)


def serve(server: Server, *happens: Callable[[], list[Any]]) -> list[float | None]:
    """Let a fork server serve until all of this has happened; return how long it waited each time.

    With no events, it is alone in the end, as if its parent had ended.
    """
    opened: list[Any] = []

    def noted(events: Callable[[], list[Any]]) -> list[Any]:
        opened.extend(found := events())
        return found

    selector: Any = Selector(*(lambda events=events: noted(events) for events in happens))
    server.selector = selector
    server._serve(None)
    assert selector.happens == []
    for one in opened:
        os.close(one.fd)
    return list(selector.timeouts)


def test_orders_are_obeyed_until_the_notebook_closes_the_pipe(server: Server) -> None:
    order = b'{"do": "begin", "folder": "/a"}\n'
    serve(server, lambda: [key("order", order)], lambda: [key("order")])
    assert server.folder == "/a"


def test_a_notebook_that_ends_is_noticed_though_the_pipe_stays_open(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(server, lambda: [key("notebook gone"), key("order", b"never read")])

    def orphaned() -> list[Any]:
        monkeypatch.setattr(os, "getppid", lambda: server.parent + 1)
        return []

    serve(server, orphaned)


def test_an_end_is_reported_when_it_wakes_the_fork_server(
    server: Server, system: System, tmp_path: Path
) -> None:
    server.start(tmp_path, ONE)

    def ends() -> list[Any]:
        system.end(11, 0)
        return [key("wake", b"\0")]

    serve(server, ends, lambda: [key("notebook gone")])
    assert server.reports[-1] == {"name": "process 0", "status": 0}


def test_rarely_needed_modules_are_imported_in_a_pause(
    server: Server, imports: Imports, tmp_path: Path
) -> None:
    server.start(tmp_path, ONE)
    assert server.preload.left == [*CELLS]
    gone = lambda: [key("notebook gone")]  # noqa: E731
    assert serve(server, lambda: [key("wake", b"\0")], gone) == [forkserver.IDLE_S] * 2
    assert server.preload._thread is None
    assert serve(server, list, gone)[0] == forkserver.IDLE_S
    assert server.preload._thread is not None
    server.preload._thread.join(HANG_S)
    assert imports.names[-len(CELLS) :] == [*CELLS]
    assert serve(server, gone) == [None]


def test_what_can_not_be_forked_needs_no_modules(server: Server) -> None:
    server.why_not = "not here"
    assert serve(server, lambda: [key("notebook gone")]) == [None]


def test_without_a_report_of_the_system_the_parent_is_looked_at(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    assert server._watch_parent() == forkserver.PARENT_POLL_S


def test_the_last_folder_is_found_in_orders_that_nobody_has_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [
        b'gin", "folder": "/a"}\n{"do": "signal", "cluster": "/a", "name": "x", "number": 2}\n',
        b'{"do": "begin", "folder": "/b"}\n{"do": "begin", "folder": "/half',
    ]

    def read(fd: int, size: int) -> bytes:
        assert fd == 0
        if not pieces:
            raise BlockingIOError  # another process keeps the pipe open
        return pieces.pop(0)

    blocking: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "set_blocking", lambda *given: blocking.append(given))
    monkeypatch.setattr(os, "read", read)
    server.pending = b'{"do": "be'
    server._find_last_folder()
    assert (server.folder, blocking) == ("/b", [(0, False)])


def test_reports_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[int, bytes]] = []
    server = ForkServer(gently=True)
    server.selector.close()
    monkeypatch.setattr(os, "write", lambda *given: written.append(given))
    server._report(name="process 0", status=-9)
    assert written == [(1, b'{"name": "process 0", "status": -9}\n')]

    def refuse(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", refuse)  # the notebook kernel has ended
    server._report(ended=True)


@pytest.mark.parametrize("gently", [True, False])
def test_the_command_line_says_how_gently_to_import(
    gently: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []

    def make(*, gently: bool) -> SimpleNamespace:
        made.append(gently)
        return SimpleNamespace(run=lambda: None)

    monkeypatch.setattr(forkserver, "ForkServer", make)
    monkeypatch.setattr("sys.argv", ["forkserver", *(["--gently"] if gently else [])])
    forkserver.main()
    assert made == [gently]
