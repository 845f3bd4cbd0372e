"""The lifetime of the processes: which cell gets which processes, and why there are none."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mcnb.cluster import lifetime, workers
from mcnb.cluster.lifetime import Absence, Lifetime
from mcnb.errors import ClusterError, OptionError
from mcnb.lockstep.model import ProcessExit
from mcnb.options import CONNECTED, Options
from tests.support.verdicts import exited

ANEW = (
    "Both processes are being restarted: their variables are lost. To restore them, re-run "
    "the cells that succeeded: %mcjax restart --replay"
)


class Processes:
    """Processes that can be closed once, and may have died."""

    unchecked = ""

    def __init__(self) -> None:
        self.exits: dict[str, ProcessExit] = {}
        self.graces: list[float | None] = []

    def died(self) -> dict[int, ProcessExit]:
        return {1: exited(3)}

    def close(self, grace_s: float | None = None) -> None:
        assert not self.graces
        self.graces.append(grace_s)


class Starts:
    """All starts so far; the next one raises `error`, if there is one."""

    def __init__(self) -> None:
        self.all: list[Processes] = []
        self.error: BaseException | None = None
        self.unchecked = ""
        self.preloads: list[tuple[str, int]] = []  # the platform, and how many starts came before

    def preload(self, env: Mapping[str, str], *, gently: bool) -> None:
        assert not gently
        self.preloads.append((env["JAX_PLATFORMS"], len(self.all)))

    def start(
        self, options: Options, accept: Callable[[Any], object], tell: Callable[[str], object]
    ) -> None:
        tell("Waiting for 10 s, until process 1 starts")
        if self.error is not None:
            raise self.error
        self.all.append(Processes())
        self.all[-1].unchecked = self.unchecked
        accept(self.all[-1])


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    starts = Starts()
    monkeypatch.setattr(lifetime, "preload", starts.preload)
    monkeypatch.setattr(workers, "start_processes", starts.start)
    return starts


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


OURS = Options(processes=2)
THEIRS = Options(processes=2, launcher=CONNECTED)


def test_a_fork_server_preloads_before_anything_else(starts: Starts) -> None:
    life = Lifetime(OURS)
    life.start()
    life.end(Absence.STOPPED)
    life.start()
    Lifetime(THEIRS).start()  # which no fork server starts
    assert starts.preloads == [("cpu", 0), ("cpu", 1)]


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO(), None])
def test_a_long_start_says_on_a_terminal_what_it_waits_for(
    stream: io.StringIO | None, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    Lifetime(OURS).start()
    if stream is not None:
        told = "mcnb: Waiting for 10 s, until process 1 starts\n"
        assert stream.getvalue() == (told if isinstance(stream, Terminal) else "")
    heard: list[str] = []
    Lifetime(OURS).start(heard.append)
    assert heard == ["Waiting for 10 s, until process 1 starts"]


def test_a_cluster_that_was_not_started_says_how_to_start_it() -> None:
    one = Lifetime(OURS)
    with pytest.raises(ClusterError) as caught:
        one.ready()
    assert str(caught.value) == "The cluster has not been started. Start it: %mcjax start"
    assert (one.running, one.state()) == (False, "it has not been started")


def test_processes_that_run_are_ready(starts: Starts) -> None:
    one = Lifetime(OURS)
    one.start()
    assert one.ready() is starts.all[0]
    assert (one.running, one.recovering, one.untouched, one.state()) == (
        True,
        False,
        False,
        "ready",
    )


@pytest.mark.parametrize(
    ("options", "said", "remedy"),
    [
        (OURS, "did not start: no such host", "\nWhen that is fixed: %mcjax start"),
        (THEIRS, "is not connected: no such host", ". To connect: %mcjax connect"),
    ],
)
def test_why_a_start_failed_is_said_again(
    starts: Starts, options: Options, said: str, remedy: str
) -> None:
    starts.error = OSError("no such host")
    one = Lifetime(options)
    with pytest.raises(ClusterError) as caught:
        one.start()
    assert str(caught.value) == f"The cluster {said}"
    assert (one.running, one.state()) == (False, f"it {said}")
    with pytest.raises(ClusterError) as again:
        one.ready()
    assert str(again.value) == f"The cluster {said}{remedy}"


def test_an_option_that_is_not_allowed_is_no_failed_start(starts: Starts) -> None:
    starts.error = OptionError("mine")
    one = Lifetime(OURS)
    with pytest.raises(OptionError, match="mine"):
        one.start()
    assert one.state() == "it has not been started"


def test_an_interrupted_start_says_so(starts: Starts) -> None:
    starts.error = KeyboardInterrupt()
    one = Lifetime(OURS)
    with pytest.raises(KeyboardInterrupt):
        one.start()
    assert one.absence_sentence() == (
        "The cluster was interrupted during its start. Start it: %mcjax start"
    )


def test_processes_that_were_ended_are_closed_once(starts: Starts) -> None:
    one = Lifetime(OURS)
    one.start()
    one.end(Absence.STOPPED)
    one.end(Absence.RESTART_INTERRUPTED)
    assert starts.all[0].graces == [None]
    assert (one.running, one.state()) == (False, "it was stopped")


def test_lost_processes_are_replaced_and_the_next_cell_gets_the_new_ones(starts: Starts) -> None:
    one = Lifetime(OURS)
    one.start()
    assert one.lose() == ANEW
    assert one.running
    assert one._recovery is not None
    one._recovery.result()
    assert (one.untouched, one.recovering) == (True, False)
    assert one.ready() is starts.all[1]
    assert starts.all[0].graces == [lifetime.LOST_GRACE_S]
    assert (one.untouched, one.state()) == (False, "ready")


def test_a_replacement_that_failed_is_told_to_the_next_cell(starts: Starts) -> None:
    one = Lifetime(OURS)
    one.start()
    starts.error = ClusterError("no such host")
    one.lose()
    with pytest.raises(ClusterError) as caught:
        one.ready()
    assert str(caught.value) == (
        "The cluster did not start: no such host\nWhen that is fixed: %mcjax start"
    )
    assert not one.running


def test_lost_processes_of_another_tool_are_not_replaced(starts: Starts) -> None:
    one = Lifetime(THEIRS)
    one.start()
    one.lose()
    with pytest.raises(ClusterError) as caught:
        one.ready()
    assert str(caught.value) == (
        "The cluster has lost its processes. Restart the engines (ipcluster stop, ipcluster "
        "start); then: %mcjax connect"
    )
    assert (len(starts.all), starts.all[0].graces, one.running) == (
        1,
        [lifetime.LOST_GRACE_S],
        False,
    )


def test_a_stop_ends_what_a_loss_has_started(starts: Starts) -> None:
    one = Lifetime(OURS)
    one.start()
    one.lose()
    one.end(Absence.STOPPED)
    assert [each.graces for each in starts.all] == [[lifetime.LOST_GRACE_S], [None]]
    assert (one.running, one.untouched, one.state()) == (False, False, "it was stopped")


def test_a_death_between_cells_is_told_and_mended(starts: Starts) -> None:
    one = Lifetime(OURS)
    one.start()
    starts.all[0].exits = {"process 1": exited(3)}
    assert one.state() == "broken: a process died"
    with pytest.raises(ClusterError) as caught:
        one.ready()
    assert str(caught.value) == (
        "Process 1 ended with exit code 3 after the previous cell, so this cell did not run. "
        f"{ANEW}"
    )
    assert one.ready() is starts.all[1]


def test_that_launches_are_not_checked_is_warned_of_once(starts: Starts) -> None:
    starts.unchecked = "this version of JAX is not known"
    one = Lifetime(OURS)
    with pytest.warns(RuntimeWarning, match="this version of JAX is not known"):
        one.start()
    one.end(Absence.STOPPED)
    one.start()
    assert one.running


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({"jax": "0.8.0", "jaxlib": "0.10.1"}, ""),
        ({"jax": "1.0", "jaxlib": "1.0.0rc1"}, ""),
        ({"jax": "0.7.2", "jaxlib": "0.8.0"}, "jax 0.7.2 is too old: mcnb needs 0.8 or newer"),
        ({"jax": "0.8.0", "jaxlib": "0.7.9"}, "jaxlib 0.7.9 is too old: mcnb needs 0.8 or newer"),
        ({"jax": "0.8.0"}, "jaxlib is not installed for this Python"),
    ],
)
def test_a_start_asks_for_a_new_enough_jax(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], expected: str
) -> None:
    def version(package: str) -> str:
        if package not in versions:
            raise lifetime.importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.setattr(lifetime.importlib.metadata, "version", version)
    if not expected:
        lifetime.check_jax()
        return
    with pytest.raises(ClusterError) as caught:
        lifetime.check_jax()
    assert (caught.value.what, caught.value.remedy) == (
        expected,
        'python -m pip install --upgrade "jax>=0.8" "jaxlib>=0.8"',
    )
