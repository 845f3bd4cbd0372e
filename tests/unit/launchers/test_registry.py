"""Launchers by name, those of other packages included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcnb.errors import OptionError
from mcnb.launchers.base import Launcher, OnExit
from mcnb.launchers.batch import BatchLauncher
from mcnb.launchers.registry import create_launcher
from mcnb.lockstep.model import ProcessExit
from mcnb.options import Options


class Flux(Launcher):
    """A launcher of another package, which starts nothing."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def begin(self, exits: dict[str, ProcessExit], on_exit: OnExit) -> None:
        raise NotImplementedError

    def connect(self) -> Any:
        raise NotImplementedError

    def close(self, grace_s: float | None = None) -> None:
        raise NotImplementedError


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with an entry point."""
    info = tmp_path / "mcnb_flux-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mcnb-flux\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[mcnb.launchers]\nflux = {__name__}:Flux\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_launcher_of_another_package() -> None:
    options = Options(launcher="flux")
    launcher = create_launcher(options)
    assert isinstance(launcher, Flux)
    assert launcher.options is options


@pytest.mark.usefixtures("installed")
def test_an_unknown_launcher() -> None:
    with pytest.raises(OptionError) as unknown:
        create_launcher(Options(launcher="mpl"))
    assert str(unknown.value) == (
        "--launcher mpl: there is no such launcher. Allowed: batch, flux, htcondor, local, lsf, "
        "mpi, pbs, sge, slurm, ssh, sshproxy, winhpc"
    )


def test_ipyparallel_has_launchers_of_batch_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def note(self: BatchLauncher, options: Options, engines: type) -> None:
        del self, options
        made.append(engines.__name__)

    monkeypatch.setattr(BatchLauncher, "__init__", note)
    create_launcher(Options(launcher="pbs"))
    assert made == ["PBSEngineSetLauncher"]
