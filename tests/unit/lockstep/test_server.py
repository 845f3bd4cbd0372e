"""The referee's end of the wire: strangers, noise, and messages that cross on the way."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.errors import LockstepError
from mcnb.lockstep.client import Client
from mcnb.lockstep.model import Detail, Doing, ProcessState
from mcnb.lockstep.server import Server
from mcnb.lockstep.wire import Channel, Message
from tests.conftest import wait_until
from tests.support.clients import HANG_S, F, G, Learner, learners_of


def test_a_wrong_key_is_refused(server: Server, clients: list[Client]) -> None:
    with pytest.raises((PermissionError, ValueError, OSError)):
        Client(replace(server.address, key="wrong"), 0, learners_of(0))
    running = [Learner(client, F) for client in clients]
    assert [one.joined().made for one in running] == [["jit(f)"], ["jit(f)"]]


def test_noise_disturbs_nobody(server: Server, clients: list[Client]) -> None:
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"[1,2,3]\n", b'["hello",1]\n', b"\x00" * 100 + b"\n"):
        with contextlib.closing(server.address.connect()) as connection:
            connection.sendall(noise)
            connection.settimeout(HANG_S)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1000):
                    pass
    running = [Learner(client, F) for client in clients]
    assert [one.joined().made for one in running] == [["jit(f)"], ["jit(f)"]]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files, which is empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sockets without a file")
@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_a_server_without_a_folder_makes_no_file(temporary: Path, host: str) -> None:
    with Server(1, host=host) as server:
        assert (server.address.host, server.address.path[:1]) == (host, "" if host else "\0")
        assert list(temporary.iterdir()) == []
        client = Client(server.address, 0, learners_of(0))
        assert Learner(client, replace(F, participants=(0,))).joined().made == ["jit(f)"]
        client.close()


def test_elsewhere_the_socket_is_in_a_folder_of_its_own(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcnb.lockstep.listener.sys", SimpleNamespace(platform="darwin"))
    with Server(1):
        [folder] = temporary.iterdir()
        assert folder.stat().st_mode & 0o077 == 0
    assert list(temporary.iterdir()) == []


def test_a_connection_of_no_known_kind_is_refused(server: Server, clients: list[Client]) -> None:
    role: Any = ["launches"]
    with pytest.raises(PermissionError):
        Channel(server.address, 0, role)
    running = [Learner(client, F) for client in clients]
    assert [one.joined().made for one in running] == [["jit(f)"], ["jit(f)"]]


@pytest.fixture
def channels(server: Server) -> Iterator[list[Channel]]:
    """The first connection of each of two clients, by hand."""
    channels = [Channel(server.address, k, "launches") for k in range(2)]
    for channel in channels:
        channel.send(["launch", 0, asdict(F)], ["launch", 1, asdict(G)], ["stack", 0, 1, "", []])
    yield channels
    for channel in channels:
        channel.close()
        channel.socket.close()


def at(ticket: int, number: int, *, alone: bool = True, tickets: tuple[int, ...] = ()) -> Message:
    return ["at", ticket, number, 0, alone, list(tickets), True]


def test_quiet_that_crossed_a_go_on_the_way_counts_for_nothing(
    server: Server, channels: list[Channel]
) -> None:
    for channel in channels:
        channel.send(at(0, 0))
    assert [channel.receive() for channel in channels] == [[["go", 0]], [["go", 0]]]
    channels[0].send(at(1, 0))
    # It saw its only thread wait with ticket 0; that one has run on, and will come.
    channels[1].send(["quiet", 0, False, [0]])
    assert not wait_until(lambda: server.verdict, 0.2)
    channels[1].send(at(1, 0))
    assert [channel.receive() for channel in channels] == [[["go", 1]], [["go", 1]]]


def test_who_judged_itself_alone_before_it_heard_of_a_go_is_not_alone(
    server: Server, channels: list[Channel]
) -> None:
    channels[0].send(at(0, 0, alone=False))
    channels[1].send(at(0, 0))
    assert [channel.receive() for channel in channels] == [[["go", 0]], [["go", 0]]]
    # The thread with ticket 0 has been let go: it may come to what process 1 waits for.
    channels[0].send(at(1, 1, tickets=(0,)))
    channels[1].send(at(1, 0))
    assert not wait_until(lambda: server.verdict, 0.2)
    channels[0].send(at(2, 0, tickets=(1,)))
    assert [channel.receive() for channel in channels] == [[["go", 2]], [["go", 1]]]


def test_quiet_after_a_cell_counts_for_nothing_in_the_next(
    server: Server, channels: list[Channel]
) -> None:
    first = server.begin([0, 1])
    for k in range(2):
        server.finish(k, busy=True)
    second = server.begin([0, 1])
    channels[0].send(at(0, 0))
    # Its threads of the first cell have ended; the second cell is still on the way to it.
    channels[1].send(["quiet", first, True, []])
    assert not wait_until(lambda: server.verdict, 0.2)
    channels[1].send(["quiet", second, True, []])
    server.finish(1, busy=True)
    assert wait_until(lambda: server.verdict)
    assert server.verdict is not None
    assert server.verdict.kind == "missing"


def test_who_runs_a_cell_is_not_quiet_whatever_its_frames_tell(
    server: Server, clients: list[Client]
) -> None:
    """Nothing in the frames of what mcnb evaluates itself is the learner's."""
    cell = server.begin([0, 1])
    for client in clients:
        client.begin(cell)
    waiting = Learner(clients[1], F)  # a thread of process 1; its main thread is this one
    other = Learner(clients[0], G)
    clients[0].finish()
    server.finish(0, busy=True)
    assert wait_until(lambda: len(server.waits()) == 2)
    assert not wait_until(lambda: server.verdict, 0.2)
    clients[1].finish()
    server.finish(1, busy=True)
    assert [type(one.joined().error) for one in (waiting, other)] == [LockstepError] * 2


def test_a_verdict_that_can_not_be_described_is_given(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain(*_: object) -> None:
        raise KeyError("argument")

    monkeypatch.setattr("mcnb.lockstep.server.explain", explain)
    waiting = Learner(clients[0], F)
    clients[1].close()
    assert str(waiting.joined().error) == (
        "missing: the processes diverged. mcnb failed to describe how: KeyError: 'argument'"
    )
    assert waiting.made == []


def synced(channel: Channel) -> None:
    """Wait until the server has heard all that was sent before."""
    channel.send(["sync", 99])
    assert channel.receive() == [["synced", 99]]


@pytest.mark.parametrize("error", ["", "OSError: disk full"])
def test_an_end_that_is_reported_after_the_news_that_all_is_quiet(
    server: Server, channels: list[Channel], error: str
) -> None:
    cell = server.begin(k for k in range(2))
    channels[0].send(at(0, 0))
    # Its last thread has ended before the notebook kernel hears of the end of the cell.
    channels[1].send(["quiet", cell, True, []])
    for channel in channels:
        synced(channel)
    assert server.verdict is None
    if error:
        server.fail(1, error, busy=True)
    else:
        server.finish(1, busy=True)
    assert server.verdict is not None
    assert server.verdict.kind == "missing"
    doing: Doing = "raised" if error else "finished"
    assert server.verdict.states[1] == ProcessState(doing, error=error)


def test_an_end_that_is_reported_after_a_thread_has_gone_on(
    server: Server, channels: list[Channel]
) -> None:
    """The thread waited when the cell ended, and may come again: nobody is missing."""
    cell = server.begin(k for k in range(2))
    channels[1].send(at(0, 0), ["quiet", cell, True, [0]])
    synced(channels[1])
    channels[0].send(at(0, 0))
    assert [channel.receive() for channel in channels] == [[["go", 0]], [["go", 0]]]
    server.finish(1, busy=True)
    channels[0].send(at(1, 0))
    synced(channels[0])
    assert server.verdict is None
    channels[1].send(at(1, 0))
    assert [channel.receive() for channel in channels] == [[["go", 1]], [["go", 1]]]


def test_a_process_waits_since_its_first_thread_does(
    server: Server, channels: list[Channel]
) -> None:
    channels[0].send(at(0, 0, alone=False))
    synced(channels[0])
    between = time.monotonic()
    channels[0].send(at(1, 1, alone=False))
    synced(channels[0])
    assert server.waits()[0].since < between
    server.fail(0, "OSError: disk full", busy=True)
    assert server.waits() == {}


def test_who_is_not_given_the_next_cell_ends_the_wait_of_an_earlier_thread(
    server: Server, clients: list[Client]
) -> None:
    waiting = Learner(clients[0], F)
    assert wait_until(server.waits)
    server.begin([0])
    assert str(waiting.joined().error).startswith(
        "not invited: process 0 is waiting in jit(f), line 1; process 1 was not given this cell. "
    )


def test_quiet_in_a_cell_counts_for_nothing_in_the_next(
    server: Server, channels: list[Channel]
) -> None:
    first = server.begin([0, 1])
    for k in range(2):
        server.finish(k, busy=True)
    server.begin([0, 1])
    channels[0].send(at(0, 0))
    synced(channels[0])
    channels[1].send(["quiet", first, False, []])
    synced(channels[1])
    assert server.verdict is None


def test_who_waits_for_a_thread_that_a_verdict_has_ended_is_interrupted(
    server: Server, channels: list[Channel]
) -> None:
    controls = [Channel(server.address, k, "control") for k in range(2)]
    for control in controls:
        control.socket.settimeout(HANG_S)
    for number, channel in enumerate(channels):
        channel.send(at(0, number))
    assert [control.receive() for control in controls] == [[["explain", 0, None]]] * 2
    for channel in channels:
        channel.send(["detail", 0, asdict(Detail())])
    assert [channel.receive()[0][:2] for channel in channels] == [["stop", 0]] * 2
    # A thread of process 0 waits for a launch again, and none of process 1 does.
    channels[0].send(at(1, 0))
    channels[0].send(["quiet", 0, False, [1]])
    synced(channels[0])
    server.abort([7001])
    assert [control.receive() for control in controls] == [[["abort", [7001]]]] * 2
    channels[0].send(["back", 1])
    assert controls[0].receive() == [["backed", 1]]
    channels[1].send(["quiet", 0, False, []])
    assert controls[1].receive() == [["interrupt", 0, 1]]
    for control in controls:
        control.close()
        control.socket.close()
