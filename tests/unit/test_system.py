"""Addresses, ports, threads and permissions of this host."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import mcnb
from mcnb import _system
from mcnb._system import (
    RunningClock,
    address_toward,
    check_listen,
    current_umask,
    die_with_parent,
    is_own,
    outward_address,
    remove_folder,
    reserve_port,
    reserved_port,
    threads_for,
)
from mcnb.errors import OptionError


def test_addresses() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")
    assert address_toward([]) == address_toward(["127.0.0.1", "localhost"]) == "127.0.0.1"
    assert is_own(outward_address())
    with pytest.raises(mcnb.ClusterError) as unknown:
        address_toward(["no-such-host.invalid"])
    assert str(unknown.value) == (
        "The host name no-such-host.invalid can't be resolved on this host"
    )


@pytest.mark.parametrize(
    ("cores", "devices", "threads"),
    [(2, 1, 8), (2, 4, 32), (2, 100, 64), (128, 4, 128), (None, 0, 1)],
)
def test_threads_are_enough_for_collectives_that_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, devices: int, threads: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert threads_for(devices) == threads


@pytest.mark.parametrize("status", ["Umask:\t0027", "Name:\tpython", None])
def test_the_umask_is_read_and_stays(monkeypatch: pytest.MonkeyPatch, status: str | None) -> None:
    """The system's own file of a process may not tell it, or may not be there."""

    def read_text(self: Path) -> str:
        assert str(self) == "/proc/self/status"
        if status is None:
            raise FileNotFoundError
        return f"Name:\tpython\n{status}\nState:\tR (running)\n"

    monkeypatch.setattr(Path, "read_text", read_text)
    before = os.umask(0o027)
    try:
        assert current_umask() == 0o027
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_a_port_is_reserved_for_one_that_shares_it_until_it_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[socket.socket] = []

    def reserve(host: str) -> tuple[socket.socket, int]:
        made.append(reserve_port(host)[0])
        return made[0], made[0].getsockname()[1]

    monkeypatch.setattr(_system, "reserve_port", reserve)
    with reserved_port() as port, socket.socket() as stranger, socket.socket() as coordinator:
        assert made[0].getsockname() == ("127.0.0.1", port)
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        coordinator.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        coordinator.bind(("127.0.0.1", port))
    assert made[0].fileno() == -1
    reservation, port = reserve_port("0.0.0.0")
    with reservation:
        assert reservation.getsockname() == ("0.0.0.0", port)


def test_the_address_that_other_hosts_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the way to the first host that is not this one."""
    addresses = {"here": "127.0.0.1", "there": "192.0.2.7", "elsewhere": "192.0.2.8"}
    monkeypatch.setattr(socket, "gethostbyname", addresses.__getitem__)
    monkeypatch.setattr(_system, "local_end", lambda host: f"the way to {host}")
    assert address_toward(["here", "there", "elsewhere"]) == "the way to 192.0.2.7"
    assert address_toward(["here"]) == "127.0.0.1"
    assert outward_address() == "the way to 192.0.2.1"

    def unreachable(host: str) -> str:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(_system, "local_end", unreachable)
    assert outward_address() == "127.0.0.1"


def test_who_listens_has_an_address_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    check_listen("")
    check_listen("127.0.0.1")
    addresses = {
        "eth0": [
            SimpleNamespace(family=socket.AF_INET, address="192.0.2.5"),
            SimpleNamespace(family=socket.AF_INET6, address="fe80::1"),
        ],
        "lo": [SimpleNamespace(family=socket.AF_INET, address="127.0.0.1")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    with pytest.raises(OptionError) as refused:
        check_listen("192.0.2.1")
    assert str(refused.value) == (
        "--listen 192.0.2.1: this machine has no such address. It has: 127.0.0.1, 192.0.2.5"
    )


@pytest.mark.parametrize(
    ("platform", "calls"), [("linux", [(1, signal.SIGKILL, 0, 0, 0)]), ("darwin", [])]
)
def test_a_process_dies_with_its_parent_where_the_system_can(
    monkeypatch: pytest.MonkeyPatch, platform: str, calls: list[Any]
) -> None:
    made: list[Any] = []
    library = SimpleNamespace(prctl=lambda *values: made.append(values))
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: library)
    monkeypatch.setattr(sys, "platform", platform)
    die_with_parent()
    assert made == calls


def test_a_process_kills_itself_if_its_parent_has_ended_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[Any] = []
    monkeypatch.setattr(_system, "prctl", lambda *values: None)
    monkeypatch.setattr(os, "kill", lambda *values: killed.append(values))
    die_with_parent(os.getppid())
    assert killed == []
    die_with_parent(os.getpid())
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_a_clock_that_stands_still_in_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(_system.time, "monotonic", lambda: now)
    clock = RunningClock(2.0)
    assert clock() == 0
    told = []
    for step in (0.5, 2.0, 310.0, 0.25):
        now += step
        told.append(clock())
    assert told == [0.5, 2.5, 4.5, 4.75]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a folder and a file in it."""
    folder = tmp_path / "folder"
    (folder / "startup").mkdir(parents=True)
    (folder / "file").write_text("text")
    return folder


def test_a_process_writes_while_its_folder_is_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmdir, times = os.rmdir, 0

    def rmdir_after_the_process(path: Any, **given: Any) -> None:
        nonlocal times
        if Path(path).name == "folder" and times < 3:
            times += 1
            (folder / "startup").mkdir()
            (folder / "startup" / "README").write_text("text")
        rmdir(path, **given)

    monkeypatch.setattr(os, "rmdir", rmdir_after_the_process)
    remove_folder(folder)
    assert (folder.exists(), times) == (False, 3)
    remove_folder(folder)  # there is none


def test_a_folder_that_cannot_be_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10))
    monkeypatch.setattr(_system.time, "monotonic", lambda: next(clock))
    tried = 0

    def remove(path: Path, *, ignore_errors: bool) -> None:
        nonlocal tried
        tried += 1

    monkeypatch.setattr(shutil, "rmtree", remove)
    remove_folder(folder)
    assert (folder.exists(), tried) == (True, 3)  # after 0, 1 and 2 s
