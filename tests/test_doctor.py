"""Each check says what is there or missing, and which command mends it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from mcnb import doctor
from mcnb.doctor import Finding
from mcnb.errors import ClusterError, McnbError

UPGRADE_JAX = 'python -m pip install --upgrade "jax>=0.8" "jaxlib>=0.8"'
Installed = Callable[..., None]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Have these packages installed, and no others."""

    def install(requires: list[str] | None = None, **versions: str) -> None:
        def version(name: str) -> str:
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setattr(importlib.metadata, "requires", lambda name: requires)

    return install


def on(monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(platform=system))


# Findings


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding("ok", "jax 0.8"), "ok       jax 0.8"),
        (Finding("note", "4 processor cores"), "note     4 processor cores"),
        (
            Finding("missing", "jupytext is not installed", "pip install jupytext"),
            "missing  jupytext is not installed. Mend it: pip install jupytext",
        ),
        (Finding("missing", "one line\nanother"), "missing  one line\n         another"),
    ],
)
def test_a_finding_is_a_line(finding: Finding, text: str) -> None:
    assert str(finding) == text


# Python and packages


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ((3, 11, 0, "final", 0), "ok       Python 3.11.0"),
        ((3, 13, 2, "final", 0), "ok       Python 3.13.2"),
        (
            (3, 9, 18, "final", 0),
            "missing  Python 3.9.18 is too old: mcnb needs 3.11 or newer. "
            "Mend it: python3.11 -m pip install mcnb",
        ),
    ],
)
def test_python(monkeypatch: pytest.MonkeyPatch, version: tuple[Any, ...], text: str) -> None:
    monkeypatch.setattr(doctor, "sys", SimpleNamespace(version_info=version))
    assert str(doctor.python()) == text


@pytest.mark.parametrize(
    ("versions", "requires", "text"),
    [
        ({"jax": "0.8.0", "jaxlib": "0.8.0"}, None, "ok       jax 0.8.0 with jaxlib 0.8.0"),
        (
            {"jax": "0.10.2", "jaxlib": "0.10.1"},
            ["numpy>=2.0", "jaxlib<=0.10.2,>=0.10.1", 'jaxlib==0.10.0; extra == "ci"'],
            "ok       jax 0.10.2 with jaxlib 0.10.1",
        ),
        (
            {"jax": "0.10.2.dev20260101", "jaxlib": "0.10.2.dev20260102"},
            ["jaxlib<=0.10.2,>=0.10.1"],
            "ok       jax 0.10.2.dev20260101 with jaxlib 0.10.2.dev20260102",
        ),
        (
            {"jax": "0.10.2", "jaxlib": "0.9.1"},
            ["jaxlib<=0.10.2,>=0.10.1"],
            "missing  jax 0.10.2 does not work with jaxlib 0.9.1: it needs "
            "jaxlib<=0.10.2,>=0.10.1. Mend it: "
            'python -m pip install "jax==0.10.2" "jaxlib<=0.10.2,>=0.10.1"',
        ),
        (
            {"jax": "0.10.2", "jaxlib": "0.11.0"},
            ["jaxlib<=0.10.2,>=0.10.1"],
            "missing  jax 0.10.2 does not work with jaxlib 0.11.0: it needs "
            "jaxlib<=0.10.2,>=0.10.1. Mend it: "
            'python -m pip install "jax==0.10.2" "jaxlib<=0.10.2,>=0.10.1"',
        ),
        (
            {"jax": "0.8.1", "jaxlib": "0.8.0"},
            ["jaxlib ==0.8.1"],
            "missing  jax 0.8.1 does not work with jaxlib 0.8.0: it needs jaxlib ==0.8.1. "
            'Mend it: python -m pip install "jax==0.8.1" "jaxlib ==0.8.1"',
        ),
        ({}, None, f"missing  jax is not installed for this Python. Mend it: {UPGRADE_JAX}"),
        (
            {"jax": "0.8.0"},
            None,
            f"missing  jaxlib is not installed for this Python. Mend it: {UPGRADE_JAX}",
        ),
        (
            {"jax": "0.4.38", "jaxlib": "0.4.38"},
            None,
            f"missing  jax 0.4.38 is too old: mcnb needs 0.8 or newer. Mend it: {UPGRADE_JAX}",
        ),
    ],
)
def test_jax_and_jaxlib(
    installed: Installed, versions: dict[str, str], requires: list[str] | None, text: str
) -> None:
    installed(requires, **versions)
    assert str(doctor.jax_and_jaxlib()) == text


def test_jax_behind_a_module_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcnb.cluster", None)
    finding = doctor.jax_and_jaxlib()
    assert finding.level == "missing"
    assert finding.what.startswith(
        "JAX could not be looked at, as a module that mcnb needs can't be imported: "
    )
    assert finding.mend == (
        'python -m pip install --upgrade "ipyparallel>=9.0" "ipython>=8.20" "ipykernel>=6.29" '
        '"matplotlib>=3.8" "psutil>=5.9"'
    )


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("9.0.0", "ok       ipyparallel 9.0.0"),
        ("9.0", "ok       ipyparallel 9.0"),
        ("10.0.0rc1", "ok       ipyparallel 10.0.0rc1"),
        (
            "8.8.0",
            "missing  ipyparallel 8.8.0 is too old: mcnb needs 9.0 or newer. "
            'Mend it: python -m pip install --upgrade "ipyparallel>=9.0"',
        ),
        (
            None,
            "missing  ipyparallel is not installed. "
            'Mend it: python -m pip install "ipyparallel>=9.0"',
        ),
    ],
)
def test_a_package(installed: Installed, version: str | None, text: str) -> None:
    installed(**({} if version is None else {"ipyparallel": version}))
    assert str(doctor.package("ipyparallel", (9, 0))) == text


def test_a_package_of_an_extra(installed: Installed) -> None:
    installed()
    assert str(doctor.package("jupytext", (1, 16), "lab")) == (
        'missing  jupytext is not installed. Mend it: python -m pip install "mcnb[lab]"'
    )


def test_the_oldest_versions_are_those_of_the_package() -> None:
    required = importlib.metadata.requires("mcnb") or []
    for name, oldest in {**doctor.OLDEST, **doctor.OLDEST_IN_LAB}.items():
        wanted = f"{name}>={'.'.join(map(str, oldest))}"
        assert any(line.partition(";")[0].strip() == wanted for line in required), wanted


# The machine


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("linux", "ok       Linux: clusters can start here"),
        ("darwin", "ok       macOS: clusters can start here"),
        (
            "win32",
            "missing  Windows: a cluster can start only inside WSL, the Linux that Windows brings. "
            "Mend it: wsl --install",
        ),
        ("freebsd14", "missing  freebsd14: clusters start on Linux and macOS only"),
    ],
)
def test_platform(monkeypatch: pytest.MonkeyPatch, system: str, text: str) -> None:
    on(monkeypatch, system)
    assert str(doctor.platform()) == text


@pytest.mark.parametrize(
    ("cores", "free", "text"),
    [
        (
            8,
            16.04e9,
            "ok       8 processor cores, 16.0 GB of memory free: 4 processes take about 0.8 GB",
        ),
        (
            1,
            0.5e9,
            "note     1 processor core, 0.5 GB of memory free: 4 processes take about 0.8 GB",
        ),
    ],
)
def test_capacity(monkeypatch: pytest.MonkeyPatch, cores: int, free: float, text: str) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    assert str(doctor.capacity()) == text


def test_capacity_without_affinity_and_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert str(doctor.capacity()) == (
        "note     4 processor cores; how much memory is free, only psutil could say"
    )


@pytest.mark.parametrize(
    ("free", "text"),
    [
        (100_000_000, "ok       {folder} takes temporary files"),
        (
            99_999_999,
            "missing  {folder} has only 99 MB left for temporary files, and mcnb wants 100 MB. "
            "Mend it: export TMPDIR=$HOME/tmp && mkdir -p $TMPDIR",
        ),
    ],
)
def test_temporary_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, text: str
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    assert str(doctor.temporary_folder()) == text.format(folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "gone"))
    assert str(doctor.temporary_folder()) == (
        "missing  No temporary files can be written: No such file or directory. "
        "Mend it: export TMPDIR=$HOME/tmp && mkdir -p $TMPDIR"
    )


def test_loopback() -> None:
    assert str(doctor.loopback()) == "ok       127.0.0.1 can be reached"


@pytest.mark.parametrize(
    ("system", "error", "text"),
    [
        (
            "linux",
            OSError(99, "Cannot assign requested address"),
            "missing  127.0.0.1 can't be reached: Cannot assign requested address. "
            "Mend it: sudo ip link set lo up",
        ),
        (
            "darwin",
            TimeoutError("timed out"),
            "missing  127.0.0.1 can't be reached: timed out. Mend it: sudo ifconfig lo0 up",
        ),
    ],
)
def test_a_loopback_that_is_down(
    monkeypatch: pytest.MonkeyPatch, system: str, error: OSError, text: str
) -> None:
    def down(*_: object, **__: object) -> None:
        raise error

    on(monkeypatch, system)
    monkeypatch.setattr(socket, "create_connection", down)
    assert str(doctor.loopback()) == text


def test_lessons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01.ipynb").touch()
    found = doctor.find_lessons(tmp_path)
    monkeypatch.setattr(doctor, "find_lessons", lambda: found)
    assert str(doctor.lessons()) == f"ok       The lessons are in {tmp_path / 'notebooks'}"


def test_lessons_that_are_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = doctor.find_lessons
    monkeypatch.setattr(doctor, "find_lessons", lambda: find(tmp_path))
    assert str(doctor.lessons()) == (
        f"missing  mcnb's lessons are not in {tmp_path / 'notebooks'}. "
        "Mend it: python -m pip install --force-reinstall --no-deps mcnb"
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "ok       No settings of JAX or XLA in the environment"),
        (
            dict.fromkeys(doctor.DECIDED_BY_MCNB, "1"),
            "ok       No settings of JAX or XLA in the environment",
        ),
        (
            {"XLA_FLAGS": "--xla_x=1", "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "tpu"},
            "note     The processes inherit from the environment: JAX_ENABLE_X64=1 "
            "XLA_FLAGS=--xla_x=1",
        ),
    ],
)
def test_environment(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], text: str) -> None:
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_"))]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert str(doctor.environment()) == text


# A cluster


def test_no_cluster_is_tried_out_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "win32")
    assert str(doctor.cluster()) == (
        "note     No cluster was tried out, as none can start on Windows"
    )


def test_a_cluster_that_computes_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def broken(processes: int, devices_per_process: int) -> Iterator[Any]:
        assert (processes, devices_per_process) == (2, 2)
        result = SimpleNamespace(raise_for_errors=lambda: None)
        yield SimpleNamespace(run=lambda cell: result, pull=lambda name: {0: 10, 1: 11})

    monkeypatch.setattr("mcnb.cluster.Cluster", broken)
    assert str(doctor.cluster()) == (
        "missing  2 processes computed a wrong sum: {0: 10, 1: 11}, where {0: 10, 1: 10} is right. "
        'Mend it: python -m pip install --upgrade "jax" "jaxlib"'
    )


def test_a_cluster_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: int) -> None:
        raise ClusterError("Process 1 did not start.\nIt said: no")

    monkeypatch.setattr("mcnb.cluster.Cluster", fail)
    assert str(doctor.cluster()) == "missing  Process 1 did not start.\n         It said: no"


def test_a_cluster_that_can_not_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcnb.cluster", None)
    finding = doctor.cluster()
    assert finding.level == "missing"
    assert finding.what.startswith("No cluster was tried out, as mcnb can't be imported: ")


# All of them


@pytest.mark.parametrize(
    ("levels", "code", "last"),
    [
        (["ok", "note"], 0, "Ready: mcnb lab"),
        (["ok", "missing"], 1, "1 thing to mend, see above"),
        (["missing", "note", "missing"], 1, "2 things to mend, see above"),
    ],
)
def test_the_exit_code_and_the_last_line_say_whether_it_will_work(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    levels: list[Any],
    code: int,
    last: str,
) -> None:
    findings = [Finding(level, "something") for level in levels]
    monkeypatch.setattr(doctor, "CHECKS", [lambda f=finding: f for finding in findings])
    assert doctor.examine(quick=True) == code
    assert capsys.readouterr().out.splitlines() == [*map(str, findings), last]


def test_only_a_quick_examination_leaves_the_cluster_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", ())
    monkeypatch.setattr(doctor, "cluster", lambda: Finding("missing", "a cluster"))
    assert doctor.examine(quick=True) == 0
    assert capsys.readouterr().out == "Ready: mcnb lab\n"
    assert doctor.examine() == 1
    assert capsys.readouterr().out == "missing  a cluster\n1 thing to mend, see above\n"


def test_this_machine_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    code = doctor.examine()
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, lines
    assert lines[-1] == "Ready: mcnb lab"
    assert lines[-2].startswith(
        "ok       2 processes with 2 devices each started, computed a sum together and ended, in "
    )
    assert len(lines) == len(doctor.CHECKS) + 2
