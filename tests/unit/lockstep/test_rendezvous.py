"""How the processes of a job find their referee, and how long it stays."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from mcnb.errors import ClusterError
from mcnb.lockstep import rendezvous, server
from mcnb.lockstep.ranks import Identity
from mcnb.lockstep.rendezvous import find, leave, main, meeting_point
from mcnb.lockstep.wire import Address
from tests.support.timing import running_clock_by

OLD, ADDRESS = (Address(host="10.0.0.1", port=port, key="secret") for port in (1, 2))
JOB = Identity(0, 2, "10.0.0.1:99", one_host=False)
HERE = Identity(0, 2, "[::1]:99")


def test_the_folder_is_one_that_all_hosts_share_and_only_the_user_can_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    paths = [
        meeting_point(HERE, {}),
        meeting_point(JOB, {}),
        meeting_point(JOB, {"MCNB_FOLDER": ""}),
        meeting_point(HERE, {"MCNB_FOLDER": str(tmp_path / "mine" / "own")}),
    ]
    assert [str(path.relative_to(tmp_path)) for path in paths] == [
        f"temporary/mcnb-{os.getuid()}/_1_99.referee",
        "home/.cache/mcnb/10.0.0.1_99.referee",
        "home/.cache/mcnb/10.0.0.1_99.referee",
        "mine/own/_1_99.referee",
    ]
    assert [path.parent.stat().st_mode & 0o777 for path in paths] == [0o700] * 4


@pytest.mark.parametrize("kind", ["of a group", "of others", "a link", "a file"])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "shared"
    if kind == "a link":
        (tmp_path / "other").mkdir(mode=0o700)
        folder.symlink_to("other")
    elif kind == "a file":
        folder.touch(mode=0o600)
    else:
        folder.mkdir()
        folder.chmod(0o750 if kind == "of a group" else 0o701)
    with pytest.raises(ClusterError) as raised:
        meeting_point(JOB, {"MCNB_FOLDER": str(folder)})
    assert str(raised.value) == (
        f"{folder} must be accessible to you alone, because a key is stored in it: chmod 700 "
        f"{folder}, or name another one in MCNB_FOLDER"
    )


def test_an_address_replaces_that_of_the_last_job(tmp_path: Path) -> None:
    path = tmp_path / "job.referee"
    leave(OLD, path)
    path.with_suffix(".new").write_text("{")  # of a job that was killed
    path.with_suffix(".new").chmod(0o644)
    leave(ADDRESS, path)
    assert find(path) == ADDRESS
    assert [(one.name, one.stat().st_mode & 0o777) for one in tmp_path.iterdir()] == [
        ("job.referee", 0o600)
    ]


def test_an_address_that_appears_late_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.referee"
    now = 0.0
    steps: Iterator[object] = iter(
        (
            lambda: None,
            lambda: path.write_text(json.dumps(asdict(ADDRESS))[:-1]),  # by a slow file system
            lambda: leave(ADDRESS, path),
        )
    )

    def sleep(seconds: float) -> None:
        nonlocal now
        now += 30.0
        step: Any = next(steps)
        step()

    monkeypatch.setattr(rendezvous, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(rendezvous, "RunningClock", running_clock_by(lambda: now))
    with pytest.raises(ClusterError) as raised:
        find(path, wait_s=20.0)
    assert str(raised.value) == (
        f"Process 0 stored the referee's address in {tmp_path}, which this host does not see. Name "
        "a folder that all hosts share, and that only you can access, in MCNB_FOLDER"
    )
    assert find(path, wait_s=70.0) == ADDRESS


class Job:
    """The referee of a job of two processes: its input and output, and who is connected.

    Attributes:
        looks: Who is connected each time that the referee looks; the last counts from then on.
        ended: Whether the referee has waited for the end of process 0.
        stayed: For how long the referee has stayed after process 0.
    """

    address = ADDRESS

    def __init__(self, path: Path, stdin: TextIO, process_0: TextIO) -> None:
        self.path = path
        self.looks: list[set[int]] = [set()]
        self.served: list[tuple[int, str]] = []
        self.stayed = 0.0
        self.process_0 = process_0
        self.stdin = stdin
        self.ended = False
        self.looked = 0

    def run(self, host: str = "") -> None:
        """Run the referee."""
        clock = SimpleNamespace(monotonic=lambda: self.stayed, sleep=self.sleep)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", self)
            patch.setattr(sys, "stdout", self)
            patch.setattr(server, "Server", self.serve)
            patch.setattr(rendezvous, "time", clock)
            patch.setattr(rendezvous, "POLL_S", 0.001)
            assert main(["2", str(self.path), host]) == 0

    def serve(self, count: int, host: str) -> contextlib.nullcontext[Job]:
        self.served.append((count, host))
        return contextlib.nullcontext(self)

    @property
    def present(self) -> set[int]:
        self.looked += 1
        assert self.looked < 100, "it looks for ever"
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def sleep(self, _: float) -> None:
        self.stayed += 1.0

    def fileno(self) -> int:
        return self.stdin.fileno()

    def read(self) -> str:
        self.ended = self.path.exists()
        return self.stdin.read()

    def write(self, text: str) -> None:
        assert text.strip() == ""

    def flush(self) -> None:
        assert find(self.path) == ADDRESS  # before process 0 is told to go on

    def close(self) -> None:
        """End process 0, which has waited for the others."""
        assert self.looks == [{0}]
        self.looks = [set()]
        self.process_0.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    own, other = os.pipe()
    with os.fdopen(own) as stdin, os.fdopen(other, "w") as process_0:
        yield Job(tmp_path / "job.referee", stdin, process_0)


def test_process_0_waits_for_all_others(job: Job) -> None:
    # Process 1 connects late: process 0 alone does not mean that the others are gone.
    job.looks = [{0}, {0}, {0, 1}, {0, 1}, {0}]
    job.run("10.0.0.1")
    assert (job.served, job.stayed, job.path.exists()) == ([(2, "10.0.0.1")], 0.0, False)
    assert job.ended  # and found the file until then


@pytest.mark.parametrize(
    ("looks", "stayed"),
    [([{1}, {1}, {1}, set()], 3.0), ([{1}], rendezvous.LINGER_S), ([set()], 0.0)],
)
def test_the_referee_stays_a_while_for_those_who_come_after_process_0(
    job: Job, looks: list[set[int]], stayed: float
) -> None:
    job.looks = looks
    job.process_0.close()
    job.run()
    assert (job.stayed, job.path.exists()) == (stayed, False)


def test_the_address_of_the_next_job_is_left_alone(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.looks = [{1}, set()]
    job.process_0.close()
    monkeypatch.setattr(job, "sleep", lambda _: leave(OLD, job.path))
    job.run()
    assert job.path.exists()
    assert find(job.path) == OLD
