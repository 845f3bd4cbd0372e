"""What a launcher lacks is said before anything starts."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

import mcnb
from mcnb.errors import OptionError
from tests.support.ports import reserved_port


def test_a_command_that_is_not_installed() -> None:
    with pytest.raises(mcnb.ClusterError) as refused:
        mcnb.Cluster(2, 1, launcher="lsf").start()
    assert str(refused.value) == (
        "The cluster did not start: --launcher lsf needs the command bsub, which is not installed"
    )


def test_a_start_that_waits_says_for_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mpiexec").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "mpiexec").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("mcnb.cluster.workers.SILENT_S", 0.0)
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if text.endswith("start"):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        mcnb.Cluster(2, 1, launcher="mpi").start(tell=tell)
    assert re.fullmatch(r"Waiting for \d+ s, until both processes start", told[-1])


@pytest.mark.parametrize("address", ["192.0.2.7", "nonsense"])
def test_an_address_that_is_not_ours(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcnb.launchers.batch.BatchLauncher.commands", lambda _: [])
    with pytest.raises(OptionError) as refused:
        mcnb.Cluster(2, 1, launcher="mpi", listen=address).start()
    assert str(refused.value).startswith(
        f"--listen {address}: this machine has no such address. It has: "
    )
    assert "127.0.0.1" in str(refused.value)


def test_a_folder_that_can_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcnb.launchers.batch.BatchLauncher.commands", lambda _: [])
    monkeypatch.setenv("MCNB_FOLDER", "/proc/none")
    with pytest.raises(mcnb.ClusterError) as refused:
        mcnb.Cluster(2, 1, launcher="mpi").start()
    assert str(refused.value) == (
        "The cluster did not start: [Errno 2] No such file or directory: '/proc/none'"
    )


def test_a_host_that_lets_nobody_in() -> None:
    with reserved_port() as port, pytest.raises(mcnb.ClusterError) as refused:
        mcnb.Cluster(2, 1, launcher="ssh", hosts=f"127.0.0.1:{port}").start()
    assert str(refused.value) == (
        f"The cluster did not start: The host 127.0.0.1:{port} can't be reached: ssh: connect to "
        f"host 127.0.0.1 port {port}: Connection refused. Try: ssh -o BatchMode=yes -p {port} "
        "127.0.0.1"
    )
