"""Fork servers that are stopped, or get no core, when their notebook kernel needs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mcnb.launchers.forkserver_client import ForkServerClient, give_back
from mcnb.launchers.local import LocalLauncher
from mcnb.options import Options
from tests.conftest import once, wait_until

pytestmark = once


@pytest.mark.parametrize("given_back", [True, False])
def test_a_fork_server_that_does_not_answer(
    given_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forkserver = ForkServerClient(os.environ)
    forkserver.begin(tmp_path, lambda *_: None)
    os.kill(forkserver._process.pid, signal.SIGSTOP)
    monkeypatch.setattr("mcnb.launchers.forkserver_client.ENDING_S", 2.0)
    if given_back:
        give_back(forkserver)
    else:
        forkserver.close()
    assert not forkserver.alive


KERNEL = """\
import os, pathlib, signal, sys, time
from mcnb.launchers.forkserver_client import ForkServerClient

folder = pathlib.Path(sys.argv[1])
forkserver = ForkServerClient(os.environ)
{first}
os.kill(forkserver._process.pid, signal.SIGSTOP)
forkserver.begin(folder, lambda *_: None)
print(forkserver._process.pid, flush=True)
time.sleep(10_000)
"""


@pytest.mark.parametrize("first", ["", "forkserver.end()"], ids=["starting", "serving"])
def test_a_notebook_that_is_killed_before_its_last_order_is_read(
    first: str, tmp_path: Path
) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    words = [sys.executable, "-c", KERNEL.format(first=first), str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as kernel:
        assert kernel.stdout
        forkserver = psutil.Process(int(kernel.stdout.readline()))
        kernel.kill()
    forkserver.resume()
    assert wait_until(lambda: not forkserver.is_running())
    assert not folder.exists()


def test_a_fork_server_removes_the_folder_of_a_cluster_that_is_not_begun() -> None:
    launcher = LocalLauncher(Options(processes=2, devices_per_process=1))
    assert launcher.folder.exists()
    launcher.forkserver.close()  # for the fork server, as if the notebook kernel were killed
    assert not launcher.folder.exists()
