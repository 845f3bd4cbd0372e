"""Hosts for ssh, and errors of ssh with what to do about each."""

from __future__ import annotations

import shlex
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.errors import ClusterError
from mcnb.launchers import ssh
from mcnb.launchers.ssh import SshEngines, SshLauncher, spread
from mcnb.launchers.ssh_command import _login, _why_not, run_python
from mcnb.lockstep.model import ExitSource, ProcessExit


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "Host key verification failed",
            "ssh does not know the key of the host one:22 (Host key verification failed). Log in "
            "once and accept the key: ssh -p 22 one",
        ),
        (
            "ada@one: Permission denied (publickey)",
            "The host one:22 refused a login without a password: ada@one: Permission denied "
            "(publickey). Set up a key with ssh-copy-id, and try: ssh -o BatchMode=yes -p 22 one",
        ),
        (
            "Connection refused",
            "The host one:22 can't be reached: Connection refused. Try: ssh -o BatchMode=yes -p 22 "
            "one",
        ),
    ],
)
def test_why_a_host_is_not_reached(said: str, message: str) -> None:
    assert _why_not("one:22", said, "-p 22 one") == message


@given(st.integers(1, 40), st.integers(1, 9))
def test_processes_are_spread_evenly(processes: int, hosts: int) -> None:
    counts = spread(processes, [f"h{i}" for i in range(hosts)])
    assert sum(counts.values()) == processes
    assert len(counts) == min(processes, hosts)
    assert max(counts.values()) - min(counts.values()) <= 1


@given(st.integers(1, 20), st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
def test_a_host_that_is_named_twice_gets_twice_as_many(processes: int, hosts: list[str]) -> None:
    counts = spread(processes, hosts)
    assert sum(counts.values()) == processes
    for host, count in counts.items():
        named = hosts.count(host)
        assert processes // len(hosts) * named <= count <= -(-processes // len(hosts)) * named


def test_a_host_may_have_a_user_and_a_port() -> None:
    assert _login("ada@one:22", ["-v"]) == ["-v", "-p", "22", "ada@one"]
    assert _login("one", []) == ["one"]


def answer(
    monkeypatch: pytest.MonkeyPatch, code: int = 0, out: str = "", err: str = ""
) -> list[list[str]]:
    """Let each command of ssh end like this; return the commands."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, code, out, err)

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_code_runs_on_a_host_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, out="4\n", err="a banner\n")
    assert run_python("one:22", ["-v"], "print(2 * 2)", "a b") == "4\n"
    [command] = asked
    assert command[0] == "ssh"
    assert "-oBatchMode=yes" in command
    assert command[-5:-1] == ["-v", "-p", "22", "one"]
    assert shlex.split(command[-1]) == [sys.executable, "-P", "-c", "print(2 * 2)", "a b"]


@pytest.mark.parametrize(
    ("code", "err", "message"),
    [
        (
            255,
            "a banner\nssh: connect to host one port 22: Connection refused.\n",
            "The host one can't be reached: ssh: connect to host one port 22: Connection refused. "
            "Try: ssh -o BatchMode=yes one",
        ),
        (
            127,
            "bash: python: not found\n",
            "The host one can't run mcnb: bash: python: not found. It needs the same Python as "
            f"this one, at the same path, with mcnb: {sys.executable}",
        ),
        (
            1,
            "",
            "The host one can't run mcnb: exit code 1. It needs the same Python as this one, at "
            f"the same path, with mcnb: {sys.executable}",
        ),
    ],
)
def test_a_host_that_cannot_run_mcnb(
    code: int, err: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, code, "", err)
    with pytest.raises(ClusterError) as caught:
        run_python("one", [], "")
    assert str(caught.value) == message


def test_a_host_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ClusterError) as caught:
        run_python("one:22", [], "")
    assert str(caught.value) == (
        "The host one:22 does not answer. Try: ssh -o BatchMode=yes -p 22 one"
    )


@pytest.mark.parametrize(
    ("connections", "address"),
    [
        (["127.0.0.1 5 127.0.0.1 22"], "127.0.0.1"),
        (["10.0.0.7 5 10.0.0.8 22"], "10.0.0.7"),
        # The connection comes through a gateway, which does not pass on what comes back.
        (["10.9.9.9 5 10.0.0.8 22"], "192.168.0.7"),
        (["10.0.0.7 5 10.0.0.8 22", "127.0.0.1 5 127.0.0.1 22"], "10.0.0.7"),
        ([""], "127.0.0.1"),
    ],
)
def test_the_address_is_the_one_that_the_hosts_see(
    connections: list[str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = dict(enumerate(connections))
    monkeypatch.setattr(ssh, "run_python", lambda host, words, code: said.pop(host))
    monkeypatch.setattr(ssh, "is_own", {"127.0.0.1", "10.0.0.7"}.__contains__)
    monkeypatch.setattr(ssh, "outward_address", lambda: "192.168.0.7")
    hosts = [*said, *said]  # each is asked once
    launcher: Any = SimpleNamespace(options=SimpleNamespace(hosts=hosts), words=[])
    assert SshLauncher.find_host(launcher) == address
    assert not said


@pytest.mark.parametrize(
    ("codes", "ended", "reason"),
    [
        ([None, None], None, None),
        ([None, 0], 0, None),
        ([0, 3], 0, ProcessExit(ExitSource.LAUNCHER, 3)),
        ([None, 137], 137, ProcessExit(ExitSource.LAUNCHER, -9)),
        ([255, 3], 255, ProcessExit(ExitSource.DISCONNECTED, reason="one")),
        ([0, 255], 0, ProcessExit(ExitSource.DISCONNECTED, reason="two")),
    ],
)
def test_the_exit_reason_is_that_of_the_first_that_failed(
    codes: list[int | None], ended: int | None, reason: ProcessExit | None
) -> None:
    processes = [SimpleNamespace(poll=lambda code=code: code) for code in codes]
    engines: Any = SimpleNamespace(processes=processes, hosts={"one": 1, "two": 1})
    assert SshEngines.poll(engines) == ended
    assert SshEngines.first_exit(engines) == reason
