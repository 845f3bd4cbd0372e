"""The processes of a cluster: their start, interrupts, aborts, heals, deaths and end."""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb._system import RunningClock
from mcnb.cluster import workers
from mcnb.cluster.workers import HEAL_S, Pending, Processes, WorkerClient
from mcnb.errors import ClusterError
from mcnb.launchers import registry
from mcnb.launchers.exits import CONTROLLER, FORKSERVER
from mcnb.lockstep.model import ProcessExit
from mcnb.messages import Healed, ProcessError, Progress
from mcnb.options import CONNECTED, Options
from mcnb.worker.join import Location
from tests.support.verdicts import exited, killed

MINE = ProcessError("OSError", "no route to host", None, "traceback")


class Launcher:
    """Starts nothing; notes what is asked of it, in the order of all that is asked."""

    folder = None
    host = ""
    exit_delay_s = 0.0
    watched = True
    numbered = True
    patient = False
    reason = ""

    def __init__(self, done: list[Any]) -> None:
        self.done = done

    def begin(self, exits: Any, on_exit: Any) -> None:
        self.done.append("begin")

    def signal(self, k: int, number: int) -> None:
        self.done.append(("signal", k, number))

    def exit_of(self, k: int) -> None:
        return None

    def failure(self) -> str:
        return self.reason

    def output_lines(self) -> str:
        return " Its output:\nqueued"

    def output(self, name: str) -> str:
        return f"/folder/{name}" if self.watched else ""

    def close(self, grace_s: float | None = None) -> None:
        self.done.append(("close launcher", grace_s))


class Server:
    """A referee that notes what is asked of it."""

    address = "address"

    def __init__(self, done: list[Any]) -> None:
        self.done = done
        self.present = {0}

    def interrupt(self, k: int, attempt: int) -> None:
        self.done.append(("interrupt", k, attempt))

    def abort(self, ports: list[int]) -> None:
        self.done.append(("abort", ports))

    def close(self) -> None:
        self.done.append("close referee")


class Client:
    """A client of processes whose answers are known."""

    def __init__(self, done: list[Any]) -> None:
        self.done = done
        self.where: list[Location] = []
        self.indices = {0: 0, 1: 1}
        self.joined: dict[int, Any] = {0: (5001, ""), 1: (0, "")}
        self.pending: Any = None

    def connect(self) -> None:
        self.done.append("connect")

    def ask(self, function: Any, *args: Any, processes: Any = None) -> dict[int, Any]:
        self.done.append((function.__name__, args, processes))
        return {0: 77} if function.__name__ == "hold_port" else self.joined

    def call(self, function: Any, *args: Any) -> Any:
        self.done.append((function.__name__, args))
        return self.pending

    def notice(self) -> None:
        self.done.append("notice")

    def close(self) -> None:
        self.done.append("close client")


@pytest.fixture
def done() -> list[Any]:
    """What was asked of the launcher, the referee and the client, in this order."""
    return []


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch, done: list[Any]) -> Launcher:
    launcher = Launcher(done)
    monkeypatch.setattr(registry, "create_launcher", lambda options: launcher)
    monkeypatch.setattr(workers, "Server", lambda *args, **more: Server(done))
    monkeypatch.setattr(workers, "WorkerClient", lambda *args: Client(done))
    losses = SimpleNamespace(add=None, close=lambda: done.append("close losses"))
    monkeypatch.setattr(workers, "ExitReporter", lambda *args: losses)
    return launcher


def started(done: list[Any], options: Options | None = None, **joined: Any) -> Any:
    processes: Any = Processes(options or Options(processes=2))
    processes.client.joined |= {int(k[1:]): answer for k, answer in joined.items()}
    processes.start()
    done.clear()
    return processes


@pytest.mark.parametrize(
    ("watched", "options", "alone"),
    [
        (True, Options(processes=2), ""),
        (False, Options(processes=2), "leaves"),
        (False, Options(processes=2, launcher=CONNECTED, arguments=("{process}",)), "forgets"),
    ],
)
def test_processes_are_told_what_to_do_when_they_are_left_alone(
    launcher: Launcher, done: list[Any], watched: bool, options: Options, alone: str
) -> None:
    launcher.watched = watched
    Processes(options).start()
    assert done == [
        "begin",
        "connect",
        ("hold_port", ("127.0.0.1",), [0]),
        (
            "join",
            ("127.0.0.1:77", 2, "address", {0: 0, 1: 1}, alone, [], options.arguments),
            None,
        ),
    ]


def test_the_coordinator_is_on_the_host_of_process_0(launcher: Launcher, done: list[Any]) -> None:
    processes: Any = Processes(Options(processes=2))
    processes.client.where = [Location("a", "10.0.0.2", 0, ""), Location("b", "10.0.0.3", 1, "")]
    processes.start()
    assert done[2] == ("hold_port", ("10.0.0.2",), [0])
    assert done[3][1][0] == "10.0.0.2:77"


def test_an_address_that_is_taken_leaves_no_launcher(
    launcher: Launcher, done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise OSError("address in use")

    monkeypatch.setattr(workers, "Server", refuse)
    with pytest.raises(OSError, match="address in use"):
        Processes(Options(processes=2))
    assert done == [("close launcher", None)]


@pytest.mark.parametrize(
    ("watched", "k", "attempt", "signalled"),
    [(True, 0, 1, False), (True, 0, 2, True), (True, 1, 1, True), (False, 1, 2, False)],
)
def test_a_signal_follows_an_interrupt_that_may_not_arrive(
    launcher: Launcher, done: list[Any], watched: bool, k: int, attempt: int, signalled: bool
) -> None:
    launcher.watched = watched
    started(done).interrupt(k, attempt)
    told: list[Any] = [("interrupt", k, attempt)]
    assert done == told + [("signal", k, signal.SIGINT)] * signalled


def test_the_ports_of_communicators_are_aborted(launcher: Launcher, done: list[Any]) -> None:
    assert started(done, k1=(4001, "")).abort()
    assert done == [("abort", [4001, 5001])]


@pytest.mark.parametrize("joined", [{"k0": (0, "")}, {"k1": (4001, "an unknown JAX")}])
def test_what_can_not_be_aborted_is_not(
    launcher: Launcher, done: list[Any], joined: dict[str, Any]
) -> None:
    processes = started(done, **joined)
    assert (processes.abort(), done) == (False, [])
    assert processes.unchecked == joined.get("k1", (0, ""))[1]


def test_the_order_in_which_processes_died_is_kept(launcher: Launcher, done: list[Any]) -> None:
    processes = started(done)
    for name, how in (("process 1", exited(3)), ("process 0", killed(6)), (CONTROLLER, killed(9))):
        processes._notice_exit(name, how)
    processes._notice_exit("process 1", killed(15))  # the first report counts
    assert list(processes.died().items()) == [(1, exited(3)), (0, killed(6))]
    assert done == ["notice"] * 4


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (CONTROLLER, "The controller, which connects the processes, was killed by SIGTERM"),
        (FORKSERVER, "The fork server, which monitors the processes, was killed by SIGTERM"),
    ],
)
def test_what_takes_all_processes_with_it_is_named(
    launcher: Launcher, done: list[Any], name: str, said: str
) -> None:
    processes = started(done)
    processes.exits = {name: killed(15), "process 1": exited(3)}
    with pytest.raises(ClusterError) as caught:
        processes.died()
    assert str(caught.value) == said


@pytest.mark.parametrize("watched", [True, False])
def test_processes_are_ended_in_order(launcher: Launcher, done: list[Any], watched: bool) -> None:
    launcher.watched = watched
    started(done).close(0.2)
    end = ["close client", ("close launcher", 0.2), "close referee"]
    # Processes that nobody watches exit when the referee closes.
    unwatched = ["close losses", "close client", "close referee", *end[1:]]
    assert done == (end if watched else unwatched)


class Healing:
    """A call to heal, with the answers so far."""

    def __init__(self, answers: dict[int, Any], *, inactive: bool = False) -> None:
        self.clock: Callable[[], float] = lambda: 0.0
        self.answers = answers
        self.waiting = {0, 1} - set(answers)
        self.inactive = inactive

    def all_inactive(self, for_s: float) -> bool:
        return self.inactive


def followed_once(pending: Any, policy: Any) -> bool:
    policy()
    return not pending.waiting


def test_healed_processes_have_new_ports(launcher: Launcher, done: list[Any]) -> None:
    processes = started(done)
    processes.client.pending = Healing({1: (Healed(2), 0), 0: (Healed(1), 6001)})
    assert list(processes.heal(0, followed_once).items()) == [(0, Healed(1)), (1, Healed(2))]
    assert processes.abort()
    assert done[1:] == [("heal", ("127.0.0.1:77", 2)), ("abort", [6001])]


@pytest.mark.parametrize(
    ("answers", "more", "after_s", "exits", "why"),
    [
        ({0: MINE}, {}, 0.0, {}, "OSError: no route to host"),
        ({0: MINE}, {}, 0.0, {"process 1": exited(3)}, "OSError: no route to host"),
        ({}, {}, 0.0, {"process 1": exited(3)}, "a process ended"),
        (
            {0: (Healed(), 0)},
            {"inactive": True},
            0.0,
            {},
            "process 1 waited for the others and made no progress",
        ),
        ({}, {}, HEAL_S + 7.9, {}, ""),
        ({}, {}, HEAL_S + 8.1, {}, "both processes did not finish within 128 s"),
    ],
)
def test_why_processes_could_not_be_healed(
    launcher: Launcher,
    done: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[int, Any],
    more: dict[str, Any],
    after_s: float,
    exits: dict[str, ProcessExit],
    why: str,
) -> None:
    processes = started(done)
    processes.client.pending = pending = Healing(answers, **more)
    processes.exits = exits
    pending.clock = lambda: after_s

    def follow(pending: Any, policy: Any) -> None:
        policy()
        pending.answers = {k: (Healed(), 0) for k in (0, 1)}
        pending.waiting = set()

    if not why:
        assert processes.heal(2 * 10**9, follow) == {0: Healed(), 1: Healed()}
        return
    with pytest.raises(ClusterError) as caught:
        processes.heal(2 * 10**9, follow)
    assert str(caught.value) == f"the processes could not be healed: {why}"
    assert pending.answers == answers


def test_a_heal_that_was_followed_to_its_end_is_checked(
    launcher: Launcher, done: list[Any]
) -> None:
    processes = started(done)
    processes.client.pending = Healing({0: (Healed(), 0), 1: MINE})
    with pytest.raises(ClusterError, match="OSError: no route to host"):
        processes.heal(0, lambda pending, policy: True)


class Engines(dict[int, Any]):
    """ipyparallel's client, with engines in the order in which they came."""

    def __init__(self, *ids: int) -> None:
        super().__init__({k: SimpleNamespace(targets=k) for k in ids})
        self.ids = list(ids)
        self._queue_handlers: dict[str, Any] = {"apply_reply": None}


class Located(WorkerClient):
    """A client whose processes say where they are."""

    found: list[Location]

    def ask(self, function: Any, *args: Any, **more: Any) -> dict[int, Any]:
        return dict(enumerate(self.found))


def client_of(launcher: Launcher, *ids: int, **exits: ProcessExit) -> Located:
    either: Any = launcher
    either.connect = lambda: Engines(*ids)
    either.rank_variables = ()
    return Located(Options(processes=len(ids)), either, exits, None)


def test_engines_with_the_indices_of_their_processes_are_sorted(launcher: Launcher) -> None:
    client = client_of(launcher, 2, 0, 1)
    client.connect()
    assert (client.indices, client.where) == ({0: 0, 1: 1, 2: 2}, [])


def test_ranks_decide_where_engines_have_other_numbers(launcher: Launcher) -> None:
    launcher.numbered = launcher.watched = False
    client = client_of(launcher, 7, 4, 5)
    client.found = [Location("a", "10.0.0.2", rank, f"/{rank}") for rank in (2, 0, 1)]
    client.connect()
    assert client.indices == {5: 0, 7: 1, 4: 2}
    assert [one.rank for one in client.where] == [0, 1, 2]
    assert [client.output(f"process {k}") for k in (0, 2, 3)] == ["/0", "/2", ""]
    assert client.output(CONTROLLER) == ""


def test_output_of_watched_processes_is_where_the_launcher_says(launcher: Launcher) -> None:
    assert client_of(launcher, 0).output("process 3") == "/folder/process 3"


def test_why_a_start_can_not_succeed_is_told_at_once(launcher: Launcher) -> None:
    launcher.reason = "sbatch: no such partition"
    with pytest.raises(ClusterError, match=r"^sbatch: no such partition$"):
        client_of(launcher, 0)._check(float("inf"), "start")


def test_a_process_that_ends_during_the_start_is_named(launcher: Launcher) -> None:
    client = client_of(launcher, 0, 1, **{CONTROLLER: killed(15)})
    with pytest.raises(ClusterError) as caught:
        client._check(RunningClock(), "start")
    assert str(caught.value) == ("ipyparallel's controller was killed by SIGTERM during the start.")


@pytest.mark.parametrize("patient", [False, True])
def test_processes_that_do_not_come_in_time_are_named(launcher: Launcher, patient: bool) -> None:
    launcher.patient = patient  # processes in a queue may take as long as they like
    launcher.numbered = launcher.watched = False
    client = client_of(launcher, 0, 5, 6)
    client._client = Engines(5, 6)
    late: Any = lambda: 300.1  # noqa: E731 (a clock)
    if patient:
        client._check(late, "start")
        return
    with pytest.raises(ClusterError) as caught:
        client._check(late, "start")
    assert str(caught.value) == ("process 2 did not start within 300 seconds. Its output:\nqueued")


class Reply:
    """An answer that has arrived, or an error in its place."""

    def __init__(self, value: Any, **data: Any) -> None:
        self.value = value
        self.data = data

    def add_done_callback(self, callback: Any) -> None:
        callback(self)

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def test_only_the_last_reply_wakes_who_waits() -> None:
    inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
    pending = Pending({k: Reply(10 * k) for k in range(3)}, inbox)
    assert inbox.qsize() == 1
    assert pending.follow(lambda: 0.0)
    assert pending.answers == {0: 0, 1: 10, 2: 20}


def test_an_engine_that_is_not_mcnbs_can_not_be_reached() -> None:
    pending = Pending({1: Reply(ImportError("no mcnb"))}, queue.SimpleQueue())
    with pytest.raises(ClusterError, match=r"^process 1 could not be reached: no mcnb$"):
        pending.wait(0)


def test_a_process_that_has_reported_nothing_has_made_no_progress() -> None:
    newest = Progress(line=3)
    results = {0: Reply(1), 1: Reply(1, pause=None), 2: Reply(1, progress=newest)}
    pending = Pending(results, queue.SimpleQueue())
    assert [pending.progress(k) for k in range(3)] == [Progress(), Progress(), newest]
