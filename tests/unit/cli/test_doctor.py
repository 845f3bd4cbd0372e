"""The checks of `mcnb doctor`, each alone."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import sys
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import mcnb.cluster
from mcnb import _lessons
from mcnb.cli import doctor
from mcnb.cli.doctor import Finding
from mcnb.cli.main import main
from mcnb.errors import ClusterError
from tests.conftest import ROOT

PYPROJECT = ROOT / "pyproject.toml"
UPGRADE_JAX = 'python -m pip install --upgrade "jax>=0.8" "jaxlib>=0.8"'


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The installed packages, as the checks see them; a test changes what it likes."""
    installed = {"jax": "0.10.2", "jaxlib": "0.10.2"}

    def version(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["jaxlib<=0.10.2,>=0.10.1"])
    return installed


def set_python(monkeypatch: pytest.MonkeyPatch, *version: int) -> None:
    monkeypatch.setattr(sys, "version_info", version)


def test_python(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        set_python(patch, 3, 11, 0, "final", 0)
        fits = doctor.python()
    with monkeypatch.context() as patch:
        set_python(patch, 3, 10, 12, "final", 0)
        too_old = doctor.python()
    assert fits == Finding("ok", "Python 3.11.0")
    assert too_old == Finding(
        "missing",
        "Python 3.10.12 is too old: mcnb needs 3.11 or newer",
        "python3.11 -m pip install mcnb",
    )


def test_jax(versions: dict[str, str]) -> None:
    assert doctor.jax() == Finding("ok", "jax 0.10.2 with jaxlib 0.10.2")


@pytest.mark.parametrize("name", ["jax", "jaxlib"])
def test_jax_missing(versions: dict[str, str], name: str) -> None:
    del versions[name]
    assert doctor.jax() == Finding(
        "missing", f"{name} is not installed for this Python", UPGRADE_JAX
    )


def test_jax_too_old(versions: dict[str, str]) -> None:
    versions["jax"] = versions["jaxlib"] = "0.4.38"
    assert doctor.jax() == Finding(
        "missing", "jax 0.4.38 is too old: mcnb needs 0.8 or newer", UPGRADE_JAX
    )


@pytest.mark.parametrize(
    ("jax", "jaxlib", "wanted", "fits"),
    [
        ("0.10.2", "0.10.0", "jaxlib<=0.10.2,>=0.10.1", False),
        ("0.10.2", "0.10.1", "jaxlib<=0.10.2,>=0.10.1", True),
        ("0.10.2", "0.11", "jaxlib<=0.10.2,>=0.10.1", False),
        ("0.10.2.dev20260101", "0.10.2.dev20260102", "jaxlib<=0.10.2,>=0.10.1", True),
        ("0.8.1", "0.8.0", "jaxlib ==0.8.1", False),
        ("0.8.1", "0.8.1", "jaxlib ==0.8.1", True),
    ],
)
def test_jax_and_jaxlib_must_match(
    versions: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    jax: str,
    jaxlib: str,
    wanted: str,
    fits: bool,
) -> None:
    versions.update(jax=jax, jaxlib=jaxlib)
    requires = ["numpy>=2.0", wanted, 'jaxlib==0.9; extra == "ci"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: requires)
    assert doctor.jax() == (
        Finding("ok", f"jax {jax} with jaxlib {jaxlib}")
        if fits
        else Finding(
            "missing",
            f"jax {jax} does not work with jaxlib {jaxlib}: it needs {wanted}",
            f'python -m pip install "jax=={jax}" "{wanted}"',
        )
    )


def test_a_jax_that_names_no_jaxlib(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: None)
    assert doctor.jax() == Finding("ok", "jax 0.10.2 with jaxlib 0.10.2")


def test_the_installed_jax_matches() -> None:
    assert doctor.jax().level == "ok"


@pytest.mark.parametrize("version", ["9.0", "9.2.0", "10.0.0rc1", "9.0.0.dev3+local.1"])
def test_package(versions: dict[str, str], version: str) -> None:
    versions["ipyparallel"] = version
    assert doctor.package("ipyparallel>=9.0") == Finding("ok", f"ipyparallel {version}")


def test_package_missing(versions: dict[str, str]) -> None:
    assert doctor.package("ipyparallel>=9.0") == Finding(
        "missing", "ipyparallel is not installed", 'python -m pip install "ipyparallel>=9.0"'
    )


def test_package_too_old(versions: dict[str, str]) -> None:
    versions["ipyparallel"] = "8.8.0"
    assert doctor.package("ipyparallel>=9.0") == Finding(
        "missing",
        "ipyparallel 8.8.0 is too old: mcnb needs 9.0 or newer",
        'python -m pip install --upgrade "ipyparallel>=9.0"',
    )


def test_jupyterlab_missing(
    versions: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--quick"]) == 1
    assert (
        'missing  jupyterlab is not installed. Fix it: python -m pip install "mcnb[lab]"\n'
        'missing  jupytext is not installed. Fix it: python -m pip install "mcnb[lab]"\n'
    ) in capsys.readouterr().out


def test_versions_are_those_of_the_package() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    of_jax = [r for r in project["dependencies"] if r.startswith("jax")]
    assert sorted(doctor.BASE) == sorted(set(project["dependencies"]) - set(of_jax))
    assert sorted(doctor.LAB) == sorted(project["optional-dependencies"]["lab"])
    oldest = ".".join(map(str, doctor.OLDEST_PYTHON))
    assert project["requires-python"] == f">={oldest}"


@pytest.mark.parametrize(
    ("platform", "finding"),
    [
        ("linux", Finding("ok", "Linux: clusters can start here")),
        ("darwin", Finding("ok", "macOS: clusters can start here")),
        (
            "win32",
            Finding(
                "missing",
                "win32: clusters start on Linux, on macOS, and on Windows inside WSL",
                "wsl --install",
            ),
        ),
    ],
)
def test_system(platform: str, finding: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", platform)
        found = doctor.system()
    assert found == finding


def test_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "freebsd14")
        found = doctor.system()
    what = "freebsd14: clusters start on Linux, on macOS, and on Windows inside WSL"
    assert found == Finding("missing", what)


def test_no_cluster_is_tried_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        found = doctor.cluster()
    assert found == Finding("note", "No cluster was tried out, as none can start on Windows")


@pytest.mark.parametrize(("free", "level"), [(3.21e9, "ok"), (0.61e9, "note")])
def test_capacity(free: float, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    assert str(doctor.capacity()) == (
        f"{level:<7}  3 processor cores, {free / 1e9:.1f} GB of memory free: "
        "4 processes take about 0.8 GB"
    )


def test_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert doctor.temporary_folder() == Finding("ok", f"{tmp_path} takes temporary files")
    assert list(tmp_path.iterdir()) == []


def test_temporary_folder_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert doctor.temporary_folder() == Finding(
        "missing",
        "No temporary files can be written: No such file or directory",
        "mkdir -p ~/tmp && export TMPDIR=~/tmp",
    )


def test_temporary_folder_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=12_300_000))
    assert doctor.temporary_folder() == Finding(
        "missing",
        f"{tmp_path} has 12 MB left for temporary files: mcnb needs 100 MB",
        "mkdir -p ~/tmp && export TMPDIR=~/tmp",
    )


def test_loopback() -> None:
    assert doctor.loopback() == Finding("ok", "127.0.0.1 can be reached")


@pytest.mark.parametrize(
    ("platform", "mend"),
    [("linux", "sudo ip link set lo up"), ("darwin", "sudo ifconfig lo0 up")],
)
def test_loopback_down(platform: str, mend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: Any) -> socket.socket:
        raise OSError(99, "Cannot assign requested address")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "create_server", refuse)
        patch.setattr(sys, "platform", platform)
        found = doctor.loopback()
    what = "127.0.0.1 can't be reached: Cannot assign requested address"
    assert found == Finding("missing", what, mend)


def test_lessons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_lessons", lambda: Path("/home/ada/notebooks"))
    assert doctor.lessons() == Finding("ok", "The lessons are in /home/ada/notebooks")


def test_lessons_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "find_lessons", lambda: _lessons.find_lessons(tmp_path))
    assert doctor.lessons() == Finding(
        "missing",
        f"mcnb's lessons are not in {tmp_path / 'notebooks'}",
        "python -m pip install --force-reinstall --no-deps mcnb",
    )


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": "/home/ada"})
    assert doctor.environment() == Finding("ok", "No settings of JAX or XLA in the environment")


def test_environment_names_what_reaches_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_dump_to=dump",
        "JAX_ENABLE_X64": "1",
        "JAX_PLATFORMS": "cuda",
        "JAX_NUM_CPU_DEVICES": "3",
        "JAX_COORDINATOR_ADDRESS": "elsewhere:1",
    }
    monkeypatch.setattr(os, "environ", settings)
    what = "The processes inherit from the environment: JAX_ENABLE_X64=1 XLA_FLAGS=--xla_dump_to"
    assert doctor.environment() == Finding("note", f"{what}=dump")


def test_cluster_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise ClusterError("The cluster did not start: no room. Its last lines:\nOut of room")

    monkeypatch.setattr(mcnb.Cluster, "start", fail)
    assert str(doctor.cluster()) == (
        "missing  The cluster did not start: no room. Its last lines:\n         Out of room"
    )


def test_cluster_that_miscomputes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcnb.Cluster, "start", lambda self: None)
    result = SimpleNamespace(raise_for_errors=lambda: None)
    monkeypatch.setattr(mcnb.Cluster, "run", lambda self, source: result)
    monkeypatch.setattr(mcnb.Cluster, "pull", lambda self, name: {0: 10, 1: 9})
    assert doctor.cluster() == Finding(
        "missing",
        "The processes computed a wrong sum: {0: 10, 1: 9}, where each should have 10",
        "python -m pip install --upgrade jax jaxlib",
    )


def test_cluster_whose_cell_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ClusterError("both processes raised ImportError: no zmq")

    monkeypatch.setattr(mcnb.Cluster, "start", lambda self: None)
    result = SimpleNamespace(raise_for_errors=fail)
    monkeypatch.setattr(mcnb.Cluster, "run", lambda self, source: result)
    assert doctor.cluster() == Finding("missing", "both processes raised ImportError: no zmq")


def test_cluster_that_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    result = SimpleNamespace(raise_for_errors=lambda: None)
    monkeypatch.setattr(mcnb.Cluster, "start", lambda self: done.append(self.options.describe()))
    monkeypatch.setattr(mcnb.Cluster, "stop", lambda self: done.append("stop"))
    monkeypatch.setattr(mcnb.Cluster, "run", lambda self, source: result)
    monkeypatch.setattr(mcnb.Cluster, "pull", lambda self, name: {0: 10, 1: 10})
    times = iter([100.0, 102.56])
    monkeypatch.setattr(doctor, "time", SimpleNamespace(monotonic=lambda: next(times)))
    what = "2 processes with 2 devices each started, computed a sum together and ended"
    assert doctor.cluster() == Finding("ok", f"{what}, in 2.6 seconds")
    assert done == ["2 processes x 2 CPU devices", "stop"]
