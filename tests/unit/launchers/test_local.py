"""Processes of this machine: how a start is tried again, and what each process is given."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
from ipyparallel.cluster.launcher import MPIEngineSetLauncher

from mcnb.errors import ClusterError
from mcnb.launchers import local
from mcnb.launchers.exits import CONTROLLER, FORKSERVER
from mcnb.launchers.forkserver import Spec
from mcnb.launchers.local import ForkedCluster, ForkedController, ForkedEngines, LocalLauncher
from mcnb.lockstep.model import ProcessExit
from mcnb.options import Options


class ForkServer:
    """A fork server that starts nothing, and notes what is asked of it."""

    why_not: str | None = None
    alive = True
    dead = False

    def __init__(self) -> None:
        self.done: list[Any] = []

    def begin(self, folder: Path, on_exit: object) -> None:
        if self.dead:
            raise ClusterError("it has ended")
        self.done.append(("begin", folder, on_exit))

    def start(self, folder: Path, spec: Spec) -> None:
        self.done.append((folder, spec))

    def signal(self, folder: Path, name: str, number: int) -> None:
        self.done.append(("signal", folder, name, number))

    def end(self, *, remove: bool = True) -> None:
        self.done.append(("end", remove))


@pytest.fixture
def forkserver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ForkServer:
    forkserver = ForkServer()

    def take(env: dict[str, str]) -> ForkServer:
        assert env["JAX_NUM_CPU_DEVICES"] == "3"
        return forkserver

    def give_back(given: ForkServer, grace_s: float | None = None) -> None:
        assert given is forkserver
        forkserver.done.append(("give back", grace_s))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(local, "take", take)
    monkeypatch.setattr(local, "give_back", give_back)
    return forkserver


class Launcher(LocalLauncher):
    """A launcher whose controller can't be started a number of times."""

    failures: int = 0
    error: Exception = RuntimeError("the controller ended")
    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def _cluster(self, exits: Any) -> Any:
        return SimpleNamespace(exits=exits)

    def _start(self, cluster: Any) -> None:
        self.forkserver.done.append("start")  # type: ignore[attr-defined]
        cluster.exits[f"try {self.failures}"] = ProcessExit()
        if self.failures:
            self.failures -= 1
            self.meanwhile()
            raise self.error


OPTIONS = Options(processes=2, devices_per_process=3)


def on_exit(name: str, how: ProcessExit) -> None:
    del name, how


def test_the_folder_is_known_to_the_fork_server_from_the_beginning(forkserver: ForkServer) -> None:
    launcher = Launcher(OPTIONS)
    assert launcher.folder.is_dir()
    assert launcher.folder.name.startswith("mcnb-")
    assert [done[:2] for done in forkserver.done] == [("begin", launcher.folder)]
    launcher.close(2.0)
    assert forkserver.done[1:] == [("give back", 2.0)]
    assert not launcher.folder.exists()
    assert launcher.closed


def test_a_fork_server_without_a_folder_is_given_back(
    forkserver: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        Launcher(OPTIONS)
    assert forkserver.done == [("give back", None)]


def test_a_fork_server_that_was_killed_fails_the_start(forkserver: ForkServer) -> None:
    forkserver.dead = True
    launcher = Launcher(OPTIONS)
    with pytest.raises(ClusterError, match=r"^it has ended$"):
        launcher.begin({}, on_exit)


def test_a_controller_that_starts_is_started_once(forkserver: ForkServer) -> None:
    launcher = Launcher(OPTIONS)
    launcher.begin({}, on_exit)
    assert forkserver.done[1:] == [("begin", launcher.folder, on_exit), "start"]


@pytest.mark.parametrize("error", [RuntimeError("it ended"), TimeoutError("it is slow")])
def test_a_controller_whose_ports_are_taken_is_started_again(
    error: Exception, forkserver: ForkServer
) -> None:
    launcher = Launcher(OPTIONS)
    launcher.failures, launcher.error = 2, error
    exits: dict[str, ProcessExit] = {}
    launcher.begin(exits, on_exit)
    assert forkserver.done[1:] == [
        ("begin", launcher.folder, on_exit),
        "start",
        ("end", False),
        "start",
        ("end", False),
        "start",
    ]
    assert [*exits] == ["try 0"]  # those of the failed tries are forgotten


def test_the_third_failure_is_the_last(forkserver: ForkServer) -> None:
    launcher = Launcher(OPTIONS)
    launcher.failures = 3
    (launcher.folder / "controller.err").write_text("no such port\n")
    with pytest.raises(ClusterError) as caught:
        launcher.begin({}, on_exit)
    assert str(caught.value) == (
        "ipyparallel's controller could not be started: the controller ended. Its last lines:\n"
        "no such port"
    )
    assert forkserver.done.count("start") == 3


def test_what_was_closed_asks_nothing_of_a_fork_server_that_may_serve_another_cluster(
    forkserver: ForkServer,
) -> None:
    launcher = Launcher(Options(processes=2, devices_per_process=3))
    launcher.close()
    before = list(forkserver.done)
    with pytest.raises(ClusterError) as caught:
        launcher.begin({}, lambda *_: None)
    assert str(caught.value) == "The cluster was closed while it started"
    assert forkserver.done == before


def test_a_start_that_is_closed_is_not_tried_again(forkserver: ForkServer) -> None:
    launcher = Launcher(OPTIONS)
    launcher.failures, launcher.meanwhile = 1, launcher.close
    with pytest.raises(ClusterError):
        launcher.begin({}, on_exit)
    assert forkserver.done.count("start") == 1


def test_a_launcher_asks_its_fork_server(forkserver: ForkServer) -> None:
    launcher = Launcher(OPTIONS)
    assert (launcher.alive, launcher.unforked) == (True, "")
    forkserver.alive, forkserver.why_not = False, "not here"
    assert (launcher.alive, launcher.unforked) == (False, "not here")
    launcher.signal(1, 2)
    assert forkserver.done[1:] == [("signal", launcher.folder, "process 1", 2)]
    assert launcher.output("process 1") == str(launcher.folder / "process-1")


def test_each_process_has_an_environment_and_a_umask_of_its_own(
    forkserver: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"HOME": "/home/ada", "IPYTHONDIR": "/home/ada/.ipython"})
    monkeypatch.setattr(local, "current_umask", lambda: 0o022)
    launcher = Launcher(Options(2, 3, env={"MINE": "1"}))
    cluster = ForkedCluster(launcher, {})
    cluster.start_process(CONTROLLER, ["mcnb.launchers.controller", "-x"], {"HOME": "/there"})
    cluster.start_process("process 1", ["mcnb.worker", "-y", "-z"], {"IPYTHONDIR": "/there"})
    (folder, controller), (_, process) = forkserver.done[1:]
    assert folder == launcher.folder
    assert (controller.module, controller.arguments) == ("mcnb.launchers.controller", ["-x"])
    assert (process.module, process.arguments) == ("mcnb.worker", ["-y", "-z"])
    # The controller's files are the user's alone, and it has no cell to clean up after.
    assert (controller.umask, controller.graceful) == (0o077, False)
    assert (process.umask, process.graceful) == (0o022, True)
    assert controller.cwd == process.cwd == str(tmp_path)
    assert process.output == str(folder / "process-1")
    assert controller.env["HOME"] == "/there"
    own = {name: process.env[name] for name in ("HOME", "MINE", "JAX_NUM_CPU_DEVICES")}
    assert own == {"HOME": "/home/ada", "MINE": "1", "JAX_NUM_CPU_DEVICES": "3"}
    assert process.env["IPYTHONDIR"] == str(folder / "ipython")
    assert process.env["MCNB_OUTPUT"] == process.output


def test_each_process_asks_for_its_index() -> None:
    started: list[Any] = []
    parent = SimpleNamespace(start_process=lambda *given: started.append(given))
    engines: Any = SimpleNamespace(
        args=["mcnb.worker", "-x"],
        parent=parent,
        get_env=lambda: {"MINE": "1"},
        notify_start=started.append,
    )
    asyncio.run(ForkedEngines.start(engines, 2))
    assert started == [
        ("process 0", ["mcnb.worker", "-x", "--IPEngine.id=0"], {"MINE": "1"}),
        ("process 1", ["mcnb.worker", "-x", "--IPEngine.id=1"], {"MINE": "1"}),
        {},
    ]


@pytest.mark.parametrize(("host", "address"), [("", "127.0.0.1"), ("10.0.0.7", "10.0.0.7")])
def test_a_controller_listens_where_its_engines_are(host: str, address: str) -> None:
    assert words_of_controller(sockets="", launcher=SimpleNamespace(host=host)) == [
        "mcnb.launchers.controller",
        "--profile-dir=/cluster",
        "--work-dir=.",
        "--HeartMonitor.expected=3",
        f"--ip={address}",
        f"--location={address}",
        "--IPController.enable_curve=True",
        *local.CONTROLLER_ARGS,
    ]


def test_a_controller_with_unix_sockets_does_not_encrypt() -> None:
    assert words_of_controller(sockets="/cluster/s") == [
        "mcnb.launchers.controller",
        "--profile-dir=/cluster",
        "--work-dir=.",
        "--HeartMonitor.expected=3",
        "--IPController.transport=ipc",
        "--ip=/cluster/s",
        "--location=127.0.0.1",
        "--IPController.enable_curve=False",
        *local.CONTROLLER_ARGS,
    ]


def words_of_controller(**of_parent: Any) -> list[str]:
    """Return the module and the arguments of a controller for three engines."""
    words: Any = SimpleNamespace(parent=SimpleNamespace(n=3, **of_parent), profile_dir="/cluster")
    words._address_args = lambda: ForkedController._address_args(words)
    return ForkedController.find_args(words)


def test_a_path_that_is_too_long_is_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeroMQ says so itself, with the number that ipyparallel appends."""
    monkeypatch.delenv("IPP_CURVE_SERVERKEY", raising=False)
    longest = zmq.IPC_PATH_MAX_LEN - len("/s:65535")
    for length, fits in ((longest, True), (longest + 1, False)):
        folder = Path(tempfile.gettempdir(), "é" * 10)
        folder = Path(f"{folder}{'a' * (length - len(os.fsencode(folder)))}")
        assert local.unix_sockets(folder) == (f"{folder}/s" if fits else "")
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            # Without the folder, an address that can be one fails otherwise.
            with pytest.raises(zmq.ZMQError) as caught:
                router.bind(f"ipc://{folder}/s:65535")
            assert (caught.value.errno == errno.ENAMETOOLONG) is not fits


def test_where_the_client_would_encrypt_the_controller_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert local.unix_sockets(Path("/cluster")) == "/cluster/s"
    monkeypatch.setenv("IPP_CURVE_SERVERKEY", "x" * 40)
    assert local.unix_sockets(Path("/cluster")) == ""


def test_only_forked_engines_have_unix_sockets(forkserver: ForkServer) -> None:
    del forkserver
    launcher = Launcher(OPTIONS)
    assert ForkedCluster(launcher, {}).sockets == f"{launcher.folder}/s"
    assert ForkedCluster(launcher, {}, MPIEngineSetLauncher).sockets == ""


class Controller:
    """A controller that writes its connection files, or ends."""

    connection_info_timeout = 60.0

    def __init__(self, folder: Path) -> None:
        self.connection_files = {kind: folder / f"{kind}.json" for kind in ("client", "engine")}
        self.parent = SimpleNamespace(launcher=SimpleNamespace(closed=False), exits={})
        self.steps: list[Callable[[], object]] = []

    async def sleep(self, seconds: float) -> None:
        del seconds
        self.steps.pop(0)()

    def info(self, monkeypatch: pytest.MonkeyPatch, **given: float) -> dict[str, Any]:
        either: Any = self
        monkeypatch.setattr(local, "asyncio", SimpleNamespace(sleep=self.sleep))
        return asyncio.run(ForkedController.get_connection_info(either, **given))


def test_connection_files_are_read_when_both_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(tmp_path)
    texts = [("client", "{"), ("client", '{"a": 1}'), ("engine", ""), ("engine", '{"b": 2}')]
    controller.steps = [
        lambda kind=kind, text=text: controller.connection_files[kind].write_text(text)
        for kind, text in texts
    ]
    assert controller.info(monkeypatch) == {"client": {"a": 1}, "engine": {"b": 2}}
    assert json.loads(controller.connection_files["client"].read_text()) == {"a": 1}


@pytest.mark.parametrize("end", [CONTROLLER, FORKSERVER, "closed"])
def test_a_controller_that_ends_is_not_waited_for(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(tmp_path)
    parent = controller.parent
    if end == "closed":
        controller.steps = [lambda: setattr(parent.launcher, "closed", True)]
    else:
        controller.steps = [lambda: parent.exits.update({end: ProcessExit()})]
    with pytest.raises(RuntimeError, match=r"^the controller ended$"):
        controller.info(monkeypatch)


def test_a_controller_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeoutError, match=r"^the controller did not start in time$"):
        Controller(tmp_path).info(monkeypatch, timeout=-1.0)
