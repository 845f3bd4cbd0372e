"""The stop button at the wrong moment, and a fork server that ends what it just started."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import mcnb
from mcnb.cluster.shielding import to_the_end
from mcnb.launchers import forkserver_client
from mcnb.launchers.base import process_environment
from mcnb.launchers.forkserver import Spec
from mcnb.launchers.local import LocalLauncher
from mcnb.options import Options
from tests.conftest import once, wait_until
from tests.support.timing import as_if_alone, since

pytestmark = pytest.mark.thorough("interrupts every step of an ending", once=True)

WHEN_S = (0.005, 0.02, 0.1, 0.25)
# A start that waits for what will never come takes three minutes.
AT_ONCE_S = 60
# Only ends what hangs, on however busy a machine.
HANG_S = 120


@contextlib.contextmanager
def pressed(after: float) -> Iterator[None]:
    """Press the stop button after a while, unless what is under way has ended by then."""
    over = False

    def interrupt(*_: object) -> None:
        if not over:  # what comes now came too late, and must not hit the test
            raise KeyboardInterrupt

    handler = signal.signal(signal.SIGINT, interrupt)
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        try:
            yield
        finally:
            over = True
    finally:
        timer.join()
        signal.signal(signal.SIGINT, handler)


def names() -> Counter[str]:
    """Return how many processes of each name there are among the descendants."""
    found: Counter[str] = Counter()
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found[one.name()] += 1
    return found


def only_the_forkserver_is_left(before: Counter[str]) -> bool:
    """Return whether a cluster has ended; its fork server may have a child process for a moment."""
    fresh = names() - before
    assert not [name for name in fresh if name.startswith(("process", "controller"))], fresh
    return wait_until(lambda: names() - before == Counter(["mcnb forkserver"]))


@pytest.fixture
def two() -> Iterator[mcnb.Cluster]:
    forkserver_client.close_idle()
    cluster = mcnb.Cluster(processes=2, devices_per_process=1)
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("after", WHEN_S)
def test_a_stop_is_not_left_half_done(two: mcnb.Cluster, after: float) -> None:
    before = names()
    two.start()
    with contextlib.suppress(KeyboardInterrupt), pressed(after):
        two.stop()
    if two.running:  # the stop had not begun
        two.stop()
    assert two.status() == "2 processes x 1 CPU device: it was stopped"
    assert only_the_forkserver_is_left(before)
    two.start()
    assert two.run("1 + 1").text() == "[all 2] 2\n"
    two.stop()
    assert only_the_forkserver_is_left(before)


@pytest.mark.parametrize("after", [*WHEN_S, 0.4])
def test_an_interrupted_restart_leaves_all_or_nothing(two: mcnb.Cluster, after: float) -> None:
    before = names()
    two.start()
    began = time.monotonic()
    try:
        with pressed(after):
            two.restart()
    except KeyboardInterrupt:
        # The last step of a restart may have been under way.
        if not two.running:
            assert two.status() in (
                "2 processes x 1 CPU device: it was interrupted during its restart",
                "2 processes x 1 CPU device: it was interrupted during its start",
            )
            assert only_the_forkserver_is_left(before)
    assert as_if_alone(since(began)) < AT_ONCE_S
    if not two.running:
        two.start()
    assert two.run("1 + 1").text() == "[all 2] 2\n"
    two.stop()
    assert only_the_forkserver_is_left(before)


def test_only_processes_make_something_in_the_folder_of_a_cluster() -> None:
    """What this process makes there might come after `close`, in another thread."""
    launcher = LocalLauncher(Options(processes=2, devices_per_process=1))
    assert launcher._cluster({}).profile_dir == str(launcher.folder)
    assert list(launcher.folder.iterdir()) == []
    launcher.close()
    assert not launcher.folder.exists()


def test_a_start_that_is_closed_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork server ignores the order to start a controller that comes after the end."""
    launcher = LocalLauncher(Options(processes=2, devices_per_process=1))
    start = launcher.forkserver.start

    def close_first(folder: Path, spec: Spec) -> None:
        launcher.close()
        start(folder, spec)

    monkeypatch.setattr(launcher.forkserver, "start", close_first)
    began = time.monotonic()
    with pytest.raises(mcnb.ClusterError) as closed:
        launcher.begin({}, lambda name, how: None)
    assert as_if_alone(since(began)) < AT_ONCE_S
    assert str(closed.value) == (
        "ipyparallel's controller could not be started: the controller ended."
    )


def test_a_heal_is_not_left_half_done(two: mcnb.Cluster) -> None:
    two.start()
    two.run("import jax, jax.numpy as jnp\nx = jnp.ones(3)").raise_for_errors()
    with contextlib.suppress(KeyboardInterrupt), pressed(0.1):
        two.heal()
    assert two.run("float(x.sum())").text() == "[all 2] 3.0\n"


def order(folder: Path, **more: object) -> str:
    return json.dumps({"cluster": str(folder), **more}) + "\n"


def controller(folder: Path) -> str:
    env = process_environment(Options(processes=1), os.environ)
    return order(
        folder,
        do="start",
        name="controller",
        module="mcnb.launchers.controller",
        arguments=[f"--profile-dir={folder}"],
        env=env,
        cwd="/",
        output=str(folder / "controller"),
        graceful=False,
        umask=0o77,
    )


@once
def test_what_was_forked_a_moment_ago_is_ended_too(tmp_path: Path) -> None:
    for turn in range(8):
        folder = tmp_path / f"mine{turn}"
        folder.mkdir()
        forkserver = subprocess.Popen(
            [sys.executable, "-P", "-m", "mcnb.launchers.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=process_environment(Options(processes=1), os.environ),
        )
        begin = json.dumps({"do": "begin", "folder": str(folder)}) + "\n"
        end = json.dumps({"do": "end", "remove": True}) + "\n"
        said, _ = forkserver.communicate(begin + controller(folder) + end, timeout=HANG_S)
        reports = [json.loads(line) for line in said.splitlines()]
        assert {"ended": True} in reports
        assert not folder.exists()


@pytest.mark.promise("nothing is left behind")
def test_orders_for_a_cluster_that_has_ended_start_nothing(tmp_path: Path) -> None:
    forkserver = forkserver_client.ForkServerClient(
        process_environment(Options(processes=1), os.environ)
    )
    try:
        gone: list[str] = []
        forkserver.begin(tmp_path / "first", lambda name, _: gone.append(name))
        forkserver.end()
        forkserver.begin(tmp_path / "second", lambda name, _: gone.append(name))
        arguments = ("controller", "mcnb.launchers.controller", [], dict(os.environ), "/")
        spec = Spec(*arguments, output=str(tmp_path / "c"), umask=0o77, graceful=False)
        forkserver.start(tmp_path / "first", spec)
        forkserver.end()
        assert gone == []
        assert list(tmp_path.iterdir()) == []
    finally:
        forkserver.close()


def is_dead(process: psutil.Process) -> bool:
    """Return whether a process has ended, though its parent may not have been told yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_keeper_that_was_killed_while_it_waited_is_replaced(two: mcnb.Cluster) -> None:
    others = {one for one in psutil.Process().children() if one.name() == "mcnb forkserver"}
    two.start()
    two.stop()
    [idle] = {
        one for one in psutil.Process().children() if one.name() == "mcnb forkserver"
    } - others
    idle.kill()
    assert wait_until(lambda: is_dead(idle))
    two.start()
    assert two.run("1 + 1").text() == "[all 2] 2\n"


@pytest.mark.promise("cleaning up is not interrupted")
def test_to_the_end() -> None:
    done: list[str] = []

    def slow() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        to_the_end(slow)
    assert done == ["all of it"]

    def fails() -> None:
        raise OSError("mine")

    fail: Callable[[], None] = fails
    with pytest.raises(OSError, match="mine"):
        to_the_end(fail)


LAST_WORDS = """
import atexit, gzip, os, sys, tempfile, threading, time
folder = {folder!r}
sys.path.insert(0, folder)
import jax, of_mine
k = jax.process_index()
path = os.path.join(folder, "{{}}.%d" % k).format
atexit.register(lambda: open(path("atexit"), "w").write("left"))
plain = open(path("plain"), "w")
plain.write("held back")
packed = gzip.open(path("packed"), "wt")
packed.write("packed")
temporary = tempfile.NamedTemporaryFile(dir=folder, prefix="temporary")
of_mine.file = open(path("module"), "w")
of_mine.file.write("of a module")
class Last:
    def __del__(self, path=path("finalizer"), open=open):  # the cell's names are gone by then
        with open(path, "w") as file:
            file.write("finalized")
last = Last()
def wait(file):
    file.write("of a thread")
    time.sleep(0.2)
threading.Thread(target=wait, args=[open(path("thread"), "w")]).start()
held = open(path("held"), "w")
held.write("by a library")
jax.held = held
del held
"""


@pytest.mark.promise("what a process does at its end is done")
def test_what_processes_do_at_their_end(tmp_path: Path) -> None:
    """As at the end of any Python process, though Python's finalization is left out."""
    (tmp_path / "of_mine.py").write_text("file = None\n")
    with mcnb.Cluster(2, 1) as cluster:
        cluster.run(LAST_WORDS.format(folder=str(tmp_path))).raise_for_errors()
        assert len([*tmp_path.glob("temporary*")]) == 2
    for k in range(2):
        said = {
            path.stem: path.read_text() for path in tmp_path.glob(f"*.{k}") if path.stem != "packed"
        }
        assert said == {
            "atexit": "left",
            "plain": "held back",
            "module": "of a module",
            "finalizer": "finalized",
            "thread": "of a thread",
            "held": "by a library",
        }
        assert gzip.decompress((tmp_path / f"packed.{k}").read_bytes()) == b"packed"
    assert [*tmp_path.glob("temporary*")] == []
