"""Who can listen in: a stranger on this machine who knows a port can neither read nor send."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from jupyter_client.session import Session

import mcnb
from mcnb.lockstep.server import Server
from tests.conftest import once, wait_until

pytestmark = once
HEARD_S = 1.0
# Only ends what hangs, on however busy a machine.
HANG_S = 120
NOBODY = 65534


@pytest.fixture(scope="module")
def cluster() -> Iterator[mcnb.Cluster]:
    with mcnb.Cluster(2, 1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tcp_cluster() -> Iterator[mcnb.Cluster]:
    """A cluster whose folder has too long a name for Unix sockets."""
    with tempfile.TemporaryDirectory() as folder, mcnb.Cluster(2, 1) as cluster:
        long = Path(folder, "a" * 100)
        long.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(long))
            cluster.restart()
        yield cluster


def folder_of(cluster: mcnb.Cluster) -> Path:
    """Return the folder that a cluster's processes share."""
    processes = cluster._lifetime.processes
    assert processes is not None
    return processes.launcher.folder


def connection_of(cluster: mcnb.Cluster) -> dict[str, Any]:
    """Return what ipyparallel's client knows of a cluster's controller."""
    file = folder_of(cluster) / "security" / "ipcontroller-client.json"
    known: dict[str, Any] = json.loads(file.read_text())
    return known


@pytest.fixture
def folder(cluster: mcnb.Cluster) -> Path:
    return folder_of(cluster)


@pytest.fixture
def connection(tcp_cluster: mcnb.Cluster) -> dict[str, Any]:
    return connection_of(tcp_cluster)


def controller_ports(connection: Mapping[str, Any]) -> set[int]:
    """Return the ports at which a cluster's controller listens, the known and the others."""
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    [controller] = {c.pid for c in listening if c.laddr.port == connection["iopub"]}
    return {c.laddr.port for c in listening if c.pid == controller}


@contextlib.contextmanager
def subscribed(ports: set[int], server_key: bytes = b"") -> Iterator[zmq.Socket[bytes]]:
    """Subscribe to all that is published at ports."""
    with zmq.Context() as context, context.socket(zmq.SUB) as ear:
        ear.linger = 0
        if server_key:
            ear.curve_serverkey = server_key
            ear.curve_publickey, ear.curve_secretkey = zmq.curve_keypair()
        ear.subscribe(b"")
        for port in ports:
            ear.connect(f"tcp://127.0.0.1:{port}")
        yield ear


def test_nobody_hears_what_is_published(
    tcp_cluster: mcnb.Cluster, connection: dict[str, Any]
) -> None:
    ports = controller_ports(connection)
    assert {connection["iopub"], connection["notification"]} <= ports
    wrong, _ = zmq.curve_keypair()
    known = connection["curve_serverkey"].encode()
    with (
        subscribed(ports) as stranger,
        subscribed(ports, wrong) as other,
        # Who may read the connection file is no stranger, and hears: there is something to hear.
        subscribed({connection["iopub"]}, known) as friend,
    ):

        def heard() -> bool:
            # Long enough for a report, which has the newest lines.
            tcp_cluster.run("import time; print('secret'); time.sleep(0.4)").raise_for_errors()
            return bool(friend.poll(100))

        assert wait_until(heard, HANG_S)
        assert heard()
        assert not stranger.poll(HEARD_S * 1000)
        assert not other.poll(10)


def test_nobody_has_anything_executed(
    tcp_cluster: mcnb.Cluster, connection: dict[str, Any], tmp_path: Path
) -> None:
    """A request for an engine, as ipyparallel's client sends it, to each of the queues."""
    done = tmp_path / "done"
    code = f"open({str(done)!r}, 'w').close()"

    def ask(server_key: bytes, wait_s: float = HEARD_S) -> None:
        session = Session(key=connection["key"].encode(), username="stranger")
        with zmq.Context() as context, context.socket(zmq.DEALER) as mouth:
            mouth.linger = 0
            mouth.identity = b"stranger"
            if server_key:
                mouth.curve_serverkey = server_key
                mouth.curve_publickey, mouth.curve_secretkey = zmq.curve_keypair()
            mouth.connect(f"tcp://127.0.0.1:{connection['mux']}")
            content = {"code": code, "silent": False, "user_expressions": {}, "allow_stdin": False}
            engine = tcp_cluster._lifetime.processes.client._client._engines[0]  # type: ignore[union-attr]
            # A stranger may be cut off before the request is sent, which then waits for ever.
            mouth.sndtimeo = round(1000 * wait_s)
            with contextlib.suppress(zmq.Again):
                session.send(mouth, "execute_request", content=content, ident=engine.encode())
                wait_until(done.exists, wait_s)

    ask(b"")
    ask(zmq.curve_keypair()[0])
    assert not done.exists()
    assert tcp_cluster.run("print(1)").stdout == {0: "1\n", 1: "1\n"}
    # No stranger: the request as such is a good one.
    ask(connection["curve_serverkey"].encode(), HANG_S)
    assert done.exists()


def test_nobody_disturbs_the_controller(
    tcp_cluster: mcnb.Cluster, connection: dict[str, Any]
) -> None:
    # The last is how ZeroMQ's own greeting begins.
    noises = (b"\x00" * 100, b"GET / HTTP/1.1\r\n\r\n", b"\xff" + b"\x00" * 8 + b"\x01\x7f")
    for port in controller_ports(connection):
        for noise in noises:
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(noise)
    assert tcp_cluster.run("import jax; print(jax.device_count())").stdout == {0: "2\n", 1: "2\n"}


def test_a_controller_on_this_machine_has_no_ports(cluster: mcnb.Cluster) -> None:
    """It listens on Unix sockets in the folder, which keeps strangers out."""
    connection, sockets = connection_of(cluster), folder_of(cluster) / "s"
    assert connection["interface"] == f"ipc://{sockets}"
    assert connection["curve_serverkey"] is None
    used = {c.laddr: c.pid for c in psutil.net_connections("unix") if c.laddr and c.pid}
    own = {path: pid for path, pid in used.items() if path.startswith(f"{sockets}:")}
    assert {f"{sockets}:{connection[of]}" for of in ("mux", "iopub", "notification")} <= {*own}
    # The controller and its child.
    for pid in {*own.values()}:
        assert psutil.Process(pid).net_connections("inet") == []


def test_the_folder_is_its_owners_alone(cluster: mcnb.Cluster, folder: Path) -> None:
    cluster.run("1").raise_for_errors()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    keys = [path for path in (folder / "security").iterdir() if path.is_file()]
    assert keys
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in keys} == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_has_no_way_in(cluster: mcnb.Cluster, folder: Path) -> None:
    """To the folder with the keys, all sockets in it, and the processes' environments."""
    pids = list(cluster.pull("__import__('os').getpid()").values())
    tries = [
        f"os.listdir({str(folder)!r})",
        f"open({str(folder / 'security' / 'ipcontroller-client.json')!r})",
        *(
            f"socket.socket(socket.AF_UNIX).connect({str(path)!r})"
            for path in folder.iterdir()
            if path.is_socket()
        ),
        *(f"open('/proc/{pid}/environ').read()" for pid in pids),
    ]
    for one in tries:
        done = subprocess.run(
            [sys.executable, "-S", "-c", f"import os, socket; os.setuid({NOBODY}); {one}"],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert "PermissionError" in done.stderr, (one, done.stderr)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sockets without a file")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_socket_without_a_file_is_this_users_alone() -> None:
    """That of `mcnb run` has no folder that keeps other users out."""
    with Server(1) as server:
        heard = []
        for user in (NOBODY, os.geteuid()):
            code = (
                f"import os, socket; os.setuid({user}); s = socket.socket(socket.AF_UNIX)\n"
                f"s.connect({server.address.path!r}); print(s.recv(1000))"
            )
            done = subprocess.run(
                [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True
            )
            heard.append(done.stdout)
        assert heard[0] == "b''\n"
        assert "nonce" in heard[1]


def test_the_referee_tells_a_stranger_nothing() -> None:
    """Over TCP: there is a nonce, whose answer needs the key; then the connection ends."""
    with Server(1, host="127.0.0.1") as server:
        said: list[bytes] = []

        def knock(word: bytes) -> None:
            with socket.create_connection((server.address.host, server.address.port)) as stranger:
                stranger.settimeout(HANG_S)
                stranger.sendall(word)
                while data := stranger.recv(1000):
                    said.append(data)

        for word in (
            b'["hello","control",0,"n","' + b"0" * 64 + b'"]\n',
            b'["launch",0,{}]\n',
            b'["left"]\n',
        ):
            knocking = threading.Thread(target=knock, args=(word,))
            knocking.start()
            knocking.join(HANG_S)
            assert not knocking.is_alive()
        assert len(said) == 3
        assert all(json.loads(line)[0] == "nonce" for line in said)
        assert server.present == set()
        assert server.verdict is None
