"""Launchers of ipyparallel: their options, their folder, and how a job begins and ends."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ipyparallel.cluster.launcher import PBSEngineSetLauncher

from mcnb.errors import ClusterError, OptionError
from mcnb.launchers import batch, local
from mcnb.launchers.batch import FOLDER, LOOK_S, BatchLauncher, _said, split_words
from mcnb.options import Options


def test_words_as_in_a_shell() -> None:
    assert split_words("--time=5 -p 'a b'") == ["--time=5", "-p", "a b"]
    with pytest.raises(OptionError) as unclosed:
        split_words("-p 'a")
    assert str(unclosed.value) == "--options -p 'a: No closing quotation"


class ForkServer:
    """A fork server that starts nothing."""

    def begin(self, folder: Path, on_exit: object) -> None:
        del folder, on_exit


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, on a machine with a batch system."""
    monkeypatch.setattr(local, "take", lambda env: ForkServer())
    monkeypatch.setattr(local, "give_back", lambda forkserver, grace_s=None: None)
    monkeypatch.setattr(batch, "outward_address", lambda: "127.0.0.1")
    monkeypatch.setattr(shutil, "which", lambda command: f"/bin/{command}")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv(FOLDER, raising=False)
    return tmp_path


def pbs(**given: Any) -> BatchLauncher:
    return BatchLauncher(Options(2, 1, launcher="pbs", **given), PBSEngineSetLauncher)


def test_a_command_that_is_missing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda command: None if command == "qdel" else command)
    with pytest.raises(ClusterError) as caught:
        pbs()
    assert str(caught.value) == ("--launcher pbs needs the command qdel, which is not installed")


def test_hosts_share_a_folder_of_the_user_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = pbs(launcher_options="-q 'my queue'")
    assert launcher.folder.parent == home / ".cache" / "mcnb"
    assert launcher.folder.parent.stat().st_mode & 0o777 == 0o700
    assert (launcher.host, launcher.patient) == ("127.0.0.1", True)
    assert launcher.engine_traits() == {
        "batch_file_name": str(launcher.folder / "pbs.job"),
        "submit_command": ["qsub", "-q", "my queue"],
    }
    assert launcher.output("controller") == str(launcher.folder / "controller")
    assert launcher.output("process 0") == ""  # it is on another host
    launcher.close()
    monkeypatch.setenv(FOLDER, str(home / "shared" / "mine"))
    other = pbs()
    assert other.folder.parent == home / "shared" / "mine"
    other.close()


def test_the_user_chooses_the_address(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "outward_address", lambda: "10.0.0.7")
    launcher = pbs(listen="127.0.0.1")
    assert launcher.host == "127.0.0.1"
    launcher.close()


class Jobs:
    """A cluster whose engines are a job."""

    output_file = ""

    def __init__(self, error: Exception | None = None) -> None:
        self.done: list[Any] = []
        self.error = error
        self.engine_set = self
        self.log = ""

    def start_controller_sync(self) -> None:
        self.done.append("controller")

    def start_engines_sync(self, n: int) -> None:
        self.done.append(n)
        if self.error is not None:
            raise self.error

    def stop_engines_sync(self) -> None:
        self.done.append("stop")
        raise RuntimeError("the job has ended")

    def get_output(self) -> str:
        return self.log


def test_a_job_is_submitted_once_and_ended(home: Path) -> None:
    launcher, jobs = pbs(), Jobs()
    either: Any = jobs
    launcher.cluster = either
    launcher._start(either)
    assert jobs.done == ["controller", 2]
    listener = launcher._listener
    assert listener is not None
    socket.create_connection(listener.getsockname()).close()  # as a process does
    launcher.close()
    assert jobs.done == ["controller", 2, "stop"]
    assert listener.fileno() == -1  # which ends the processes
    assert not launcher.folder.exists()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (subprocess.CalledProcessError(1, "qsub", b"", b"no such queue\n"), "no such queue"),
        (subprocess.CalledProcessError(1, "qsub", "not now\n", ""), "not now"),
        (FileNotFoundError(2, "No such file", "qsub"), "[Errno 2] No such file: 'qsub'"),
    ],
)
def test_a_job_that_is_refused(error: Exception, said: str, home: Path) -> None:
    assert _said(error) == said
    launcher, jobs = pbs(), Jobs(error)
    either: Any = jobs
    launcher.cluster = either
    with pytest.raises(ClusterError) as caught:
        launcher._start(either)
    assert str(caught.value) == f"pbs could not start the processes: {said}"
    launcher.close()


def test_a_start_that_is_closed_submits_nothing(home: Path) -> None:
    launcher, jobs = pbs(), Jobs()
    either: Any = jobs
    launcher.cluster = either
    launcher.closed = True
    launcher._start(either)
    assert jobs.done == ["controller", "stop"]
    launcher.close()


@pytest.mark.parametrize(
    ("patient", "code", "ended"),
    [(False, None, False), (False, 0, True), (False, 3, True), (True, 3, False)],
)
def test_only_a_command_that_runs_here_is_known_to_have_ended(
    patient: bool, code: int | None, ended: bool
) -> None:
    """The command that submits a job ends at once."""
    launcher: Any = SimpleNamespace(patient=patient, engine_set=SimpleNamespace(poll=lambda: code))
    assert BatchLauncher.has_ended(launcher) == ended


def test_a_job_that_ended_too_early_is_looked_for_now_and_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(batch, "time", clock)
    ended: list[bool] = [False, True]
    monkeypatch.setattr(BatchLauncher, "has_ended", lambda self: ended.pop(0))
    launcher, jobs = pbs(), Jobs()
    assert launcher.failure() == ""  # nothing is submitted yet
    either: Any = jobs
    launcher.cluster = either
    jobs.log = "no room\n"
    assert launcher.failure() == ""
    clock.now += LOOK_S / 2
    assert launcher.failure() == ""
    clock.now += LOOK_S
    assert launcher.failure() == (
        "The pbs job ended before its processes had connected. Its output:\nno room"
    )
    assert ended == []
    (tmp_path / "log").write_text("from the file\n")
    jobs.output_file = str(tmp_path / "log")
    assert launcher.output_lines() == " Its output:\nfrom the file"
    launcher.close()
