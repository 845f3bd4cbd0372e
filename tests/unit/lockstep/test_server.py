"""The referee's end of the wire: strangers, noise, and messages that cross on the way."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.errors import LockstepError
from mcnb.lockstep.client import Client
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
