"""Notebooks that are killed while their cluster starts, with each launcher."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import once, wait_until
from tests.support.launchers import ENDED_S, NAMES, Engines, launcher_at_home, left, processes_of

pytestmark = [once, pytest.mark.thorough("every launcher in turn")]

# The start gets no further than to a moment, at which the notebook prints a line.
KERNEL = """\
import time
import mcnb
from mcnb.cluster.workers import WorkerClient

def stay(*_, **__):
    print("there", flush=True)
    time.sleep(10_000)

WorkerClient.{method} = stay
mcnb.Cluster(2, 1, launcher={name!r}, hosts={hosts!r}, launcher_options={options!r}).start()
"""


@pytest.fixture(scope="module", params=NAMES)
def launcher(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    with launcher_at_home(request.param, tmp_path_factory.mktemp(request.param)) as launcher:
        yield launcher


def notebook(launcher: Engines, method: str) -> subprocess.Popen[bytes]:
    code = KERNEL.format(
        name=launcher.name, hosts=launcher.hosts, options=launcher.options, method=method
    )
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


def test_between_registration_and_joining(launcher: Engines) -> None:
    home = Path(os.environ["HOME"])
    with notebook(launcher, "ask") as kernel:
        assert kernel.stdout
        assert kernel.stdout.readline() == b"there\n"
        assert left(home)
        kernel.kill()
    assert wait_until(lambda: not left(home), ENDED_S), left(home)
    assert wait_until(lambda: launcher.jobs() == "", ENDED_S), launcher.jobs()


def test_before_registration(launcher: Engines) -> None:
    """The processes go on when the files that they need are gone."""
    home = Path(os.environ["HOME"])
    before = folders()
    with notebook(launcher, "connect") as kernel:
        assert kernel.stdout
        assert kernel.stdout.readline() == b"there\n"
        assert wait_until(lambda: processes_of(home), 60)
        stopped = processes_of(home)
        for process in stopped:
            process.suspend()
        during = folders()
        kernel.kill()
    if launcher.name != "ssh":
        assert during - before
        assert wait_until(lambda: not folders() & during - before, ENDED_S)
    for process in stopped:
        process.resume()
    assert wait_until(lambda: not left(home), ENDED_S), left(home)
    assert wait_until(lambda: folders() <= before, ENDED_S), folders() - before
    assert wait_until(lambda: launcher.jobs() == "", ENDED_S), launcher.jobs()


def folders() -> set[Path]:
    """Return the folders of clusters on this host."""
    shared = Path(os.environ["HOME"]) / ".cache" / "mcnb"
    return {*Path(tempfile.gettempdir()).glob("mcnb-*"), *shared.glob("mcnb-*")}
