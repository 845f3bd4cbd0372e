"""Engines of an ipyparallel cluster that mcnb did not start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ipyparallel
import pytest

from mcnb.errors import ClusterError
from mcnb.launchers import existing
from mcnb.launchers.existing import ExistingLauncher, client_of, connection_file, engines_of
from mcnb.options import CONNECTED, Options

MEND = "Restart the engines: ipcluster stop, then ipcluster start"


@pytest.fixture
def security(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the connection files of the profile `mine`."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    folder = tmp_path / "profile_mine" / "security"
    folder.mkdir(parents=True)
    return folder


def test_the_connection_file_is_that_of_the_profile_and_the_id(security: Path) -> None:
    for name in ("ipcontroller-client.json", "ipcontroller-7-client.json"):
        (security / name).touch()
    mine = Options(profile="mine", launcher=CONNECTED)
    assert connection_file(mine) == security / "ipcontroller-client.json"
    assert connection_file(replace(mine, cluster_id="7")) == security / "ipcontroller-7-client.json"


def test_the_connection_file_is_in_the_folder_that_the_controller_was_given(
    security: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (security / "ipcontroller-client.json").touch()
    monkeypatch.setenv("HOME", str(security.parent.parent))
    folder = "~/profile_mine"
    options = Options(profile_dir=folder, launcher=CONNECTED)
    assert connection_file(options) == security / "ipcontroller-client.json"
    with pytest.raises(ClusterError) as caught:
        connection_file(replace(options, cluster_id="8"))
    assert str(caught.value) == (
        f"No running ipyparallel cluster was found in the folder {folder} and the id 8: there is "
        f"no connection file. Start one: ipcluster start --profile-dir={folder} --cluster-id=8 -n 4"
    )


@pytest.mark.parametrize(
    ("profile", "cluster_id", "said"),
    [
        (
            "mine",
            "8",
            "No running ipyparallel cluster was found for the profile mine and the id 8: there is "
            "no connection file. Start one: ipcluster start --profile=mine --cluster-id=8 -n 4",
        ),
        (
            "other",
            "",
            "No running ipyparallel cluster was found for the profile other: there is no "
            "connection file. Start one: ipcluster start --profile=other -n 4",
        ),
    ],
)
def test_a_cluster_that_was_not_started(
    profile: str, cluster_id: str, said: str, security: Path
) -> None:
    (security / "ipcontroller-client.json").touch()
    with pytest.raises(ClusterError) as caught:
        connection_file(Options(profile=profile, cluster_id=cluster_id, launcher=CONNECTED))
    assert str(caught.value) == said


class Answer:
    """The answer of an engine: a text, an error, or none."""

    def __init__(self, said: str | Exception | None) -> None:
        self.said = said

    def done(self) -> bool:
        return self.said is not None

    def get(self) -> str:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said or ""


class Client:
    """A client whose engines appear after some looks."""

    answers: dict[int, Answer]
    looks = 0

    def __init__(self, file: str, timeout: float) -> None:
        self.closed = False
        self.asked: list[Any] = []
        self._late = self.looks
        Client.last = self

    last: Client

    @property
    def ids(self) -> list[int]:
        self._late -= 1
        return [] if self._late >= 0 else [*self.answers]

    def __getitem__(self, engine: int) -> Any:
        def apply_async(work: object) -> Answer:
            self.asked.append(engine)
            return self.answers[engine]

        return SimpleNamespace(apply_async=apply_async)

    def wait(self, answers: list[Answer], timeout: float) -> None:
        assert timeout == existing.ANSWER_S

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[int, Answer]:
    """The engines, with the answer of each."""
    engines = {k: Answer("") for k in (2, 0, 1)}
    monkeypatch.setattr(ipyparallel, "Client", Client)
    monkeypatch.setattr(Client, "answers", engines, raising=False)
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(existing, "time", clock)
    return engines


def test_engines_that_start_late_are_waited_for(
    engines: dict[int, Answer], security: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (security / "ipcontroller-client.json").touch()
    monkeypatch.setattr(Client, "looks", 5)
    mine = Options(profile="mine", launcher=CONNECTED)
    assert engines_of(mine) == 3
    assert Client.last.closed


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (
            4,
            "The ipyparallel cluster has 3 engines, and -n 4 expects 4. When all have started: "
            "%mcjax connect -n 4",
        ),
        (
            2,
            "The ipyparallel cluster has 3 engines, and -n 2 expects 2. To connect to all, leave "
            "out -n",
        ),
    ],
)
def test_another_number_of_engines(
    count: int, said: str, engines: dict[int, Answer], security: Path
) -> None:
    (security / "ipcontroller-client.json").touch()
    mine = Options(profile="mine", launcher=CONNECTED)
    assert engines_of(mine, 3) == 3
    with pytest.raises(ClusterError) as caught:
        engines_of(mine, count)
    assert str(caught.value) == said
    assert Client.last.closed


def test_a_cluster_without_engines(engines: dict[int, Answer]) -> None:
    engines.clear()
    with pytest.raises(ClusterError) as caught:
        client_of(Path("file.json"))
    assert str(caught.value) == (
        "The ipyparallel cluster has no engines yet. When they have started: %mcjax connect"
    )
    assert Client.last.closed


def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TimeoutError("Hub connection request timed out\nand more")

    monkeypatch.setattr(ipyparallel, "Client", fail)
    with pytest.raises(ClusterError) as caught:
        client_of(Path("/there/file.json"))
    assert str(caught.value) == (
        "The ipyparallel cluster of the connection file file.json does not answer (Hub connection "
        "request timed out). If it has ended, start another: ipcluster start"
    )


@pytest.fixture
def launcher(security: Path, engines: dict[int, Answer]) -> ExistingLauncher:
    (security / "ipcontroller-client.json").write_text('{"interface": "tcp://127.0.0.1"}')
    return ExistingLauncher(Options(3, 1, launcher=CONNECTED, profile="mine"))


def test_all_engines_become_processes(launcher: ExistingLauncher) -> None:
    launcher.begin({}, lambda *_: None)
    assert (Client.last.asked, Client.last.closed) == ([0, 1, 2], True)
    assert (launcher.host, launcher.folder.is_dir()) == ("127.0.0.1", True)
    launcher.close()
    assert not launcher.folder.exists()


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (
            {1: Answer(None)},
            "Engine 1 of 3 did not answer within 60 seconds. It may be busy, or left over from an "
            f"earlier run. {MEND}",
        ),
        (
            {0: Answer(None), 2: Answer(None)},
            "Engines 0,2 of 3 did not answer within 60 seconds. They may be busy, or left over "
            "from "
            f"an earlier run. {MEND}",
        ),
        ({2: Answer("has used JAX already")}, f"Engine 2 has used JAX already. {MEND}"),
        (
            {1: Answer(ImportError("No module named 'mcnb'\nmore"))},
            f"Engine 1 can't run mcnb: No module named 'mcnb'. {MEND}",
        ),
        ({1: Answer(KeyError())}, f"Engine 1 can't run mcnb: KeyError. {MEND}"),
    ],
)
def test_engines_that_cannot_become_processes(
    answers: dict[int, Answer], said: str, launcher: ExistingLauncher, engines: dict[int, Answer]
) -> None:
    engines.update(answers)
    with pytest.raises(ClusterError) as caught:
        launcher.begin({}, lambda *_: None)
    assert str(caught.value) == said
    assert Client.last.closed
    launcher.close()


@pytest.mark.parametrize(
    ("interface", "listen", "host"),
    [
        ("tcp://*", "", "10.0.0.7"),
        ("tcp://0.0.0.0", "", "10.0.0.7"),
        ("tcp://10.0.0.9", "", "toward 10.0.0.9"),
        ("tcp://*", "127.0.0.1", "127.0.0.1"),
    ],
)
def test_engines_reach_the_notebook_where_they_reach_their_controller(
    interface: str, listen: str, host: str, security: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(existing, "outward_address", lambda: "10.0.0.7")
    monkeypatch.setattr(existing, "local_end", lambda address: f"toward {address}")
    (security / "ipcontroller-client.json").write_text(f'{{"interface": "{interface}"}}')
    options = Options(3, 1, launcher=CONNECTED, profile="mine", listen=listen)
    launcher = ExistingLauncher(options)
    assert launcher.host == host
    launcher.close()
