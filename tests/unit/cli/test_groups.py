"""The guard: which process groups it kills if `mcnb run` is killed itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mcnb.cli.groups import Guard, signal_group


class Script:
    """The guard's process, which runs only when the pipe is closed, within this process."""

    def __init__(self, command: list[str], **given: Any) -> None:
        self.command, self.given = command, given
        self.read, write = os.pipe()
        self.stdin = os.fdopen(write, "wb", buffering=0)
        self.killed = False

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stdin.close()
        with os.fdopen(os.dup(self.read)) as lines:
            monkeypatch.setattr(sys, "stdin", lines)
            exec(self.command[-1], {})

    def kill(self) -> None:
        self.killed = True

    def communicate(self) -> None:
        assert self.killed


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Script]]:
    """The processes of all guards."""
    started: list[Script] = []

    def popen(command: list[str], **given: Any) -> Script:
        started.append(Script(command, **given))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    yield started
    for script in started:
        script.stdin.close()
        os.close(script.read)


def test_the_groups_that_are_left_are_killed(
    started: list[Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[int, int]] = []

    def killpg(group: int, number: int) -> None:
        killed.append((group, number))
        if group == 3:
            raise ProcessLookupError

    monkeypatch.setattr(os, "killpg", killpg)
    guard = Guard()
    for leader in (1, 2, 3, 4):
        guard.add(leader)
    guard.remove(2)
    with monkeypatch.context() as patch:
        started[0].run(patch)
    assert sorted(killed) == [(1, 9), (3, 9), (4, 9)]


def test_ctrl_c_does_not_reach_the_guard(started: list[Script]) -> None:
    guard = Guard()
    assert started[0].given["start_new_session"] is True
    guard.close()
    assert started[0].killed


def test_a_guard_that_was_killed_is_no_error(started: list[Script]) -> None:
    guard = Guard()
    os.close(started[0].read)
    guard.add(1)
    guard.remove(1)
    started[0].read = os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize("error", [ProcessLookupError, PermissionError, None])
def test_a_group_that_has_ended_needs_no_signal(
    error: type[OSError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def killpg(group: int, number: int) -> None:
        told.append((group, number))
        if error is not None:
            raise error

    monkeypatch.setattr(os, "killpg", killpg)
    signal_group(7, signal.SIGTERM)
    assert told == [(7, signal.SIGTERM)]
