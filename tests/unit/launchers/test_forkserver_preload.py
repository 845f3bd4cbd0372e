"""What may be forked, and what is imported before: for all processes, at which priority."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcnb.launchers import forkserver
from mcnb.launchers.forkserver import CELLS, CONTROLLER, PROCESSES, Preload, Spec, why_not
from mcnb.lockstep import _jax

HANG_S = 120.0
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="priorities are those of threads")
ONE = Spec("process 0", "mcnb.worker", ["-x"], {"MINE": "1"}, "/here", "/here/process-0", 0o22)


@pytest.fixture
def forkable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let this process seem to be one that may be forked; return the children waited for."""
    waited: list[int] = []
    (tmp_path / "1").mkdir()
    monkeypatch.setattr(forkserver, "_TASKS", tmp_path)
    monkeypatch.setattr(forkserver, "THREAD_ENDS_S", 0.0)
    monkeypatch.setattr(_jax, "backends_are_initialized", lambda: False)
    monkeypatch.setattr(os, "fork", lambda: 11)
    monkeypatch.setattr(os, "waitpid", lambda pid, _: waited.append(pid))
    return waited


@on_linux
def test_a_process_that_can_be_forked_has_been_tried(forkable: list[int]) -> None:
    assert why_not(ONE) == ""
    assert forkable == [11]


@on_linux
def test_pythons_warning_of_threads_that_are_ending_is_not_shown(
    forkable: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        warnings.warn("This process is multi-threaded", DeprecationWarning, stacklevel=2)
        return 12

    monkeypatch.setattr(os, "fork", fork)
    assert why_not(ONE) == ""
    assert forkable == [12]
    assert forkserver.fork(replace(ONE, output=str(tmp_path / "process"))) == 12


@on_linux
@pytest.mark.usefixtures("forkable")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            OSError(errno.EAGAIN, "Resource temporarily unavailable"),
            "the operating system does not allow it: Resource temporarily unavailable",
        ),
        (RuntimeError("no forks here"), "this Python does not allow it: no forks here"),
    ],
)
def test_a_fork_that_is_refused(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> int:
        raise error

    monkeypatch.setattr(os, "fork", refuse)
    assert why_not(ONE) == reason


@pytest.mark.usefixtures("forkable")
def test_why_a_process_cannot_be_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        found = why_not(ONE)
    assert found == "on darwin forking is not safe for libraries"
    monkeypatch.setattr(sys, "platform", "linux")
    assert why_not(replace(ONE, env={"PYTHONHASHSEED": "random"})) == (
        "PYTHONHASHSEED=random requires a different hash seed in each process"
    )
    assert why_not(replace(ONE, env={"PYTHONHASHSEED": "7"})) == ""
    (tmp_path / "2").mkdir()
    assert why_not(ONE) == "the fork server has 2 threads, so it can't fork safely"
    monkeypatch.setattr(_jax, "backends_are_initialized", lambda: True)
    monkeypatch.setitem(sys.modules, "jax", sys)  # whether or not another test has imported it
    assert why_not(ONE) == "JAX has been initialized"


@on_linux
@pytest.mark.usefixtures("forkable")
def test_a_thread_that_is_about_to_end_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "2").mkdir()
    monkeypatch.setattr(forkserver, "THREAD_ENDS_S", HANG_S)
    ends = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: (tmp_path / "2").rmdir())
    monkeypatch.setattr(forkserver, "time", ends)
    assert why_not(ONE) == ""


class Imports:
    """Imports nothing, but notes what is asked for, and at which priority."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.priorities: set[int] = set()
        self.first: Callable[[], object] = lambda: None

    def import_module(self, name: str) -> None:
        self.names.append(name)
        if sys.platform == "linux":
            self.priorities.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        if len(self.names) == 1:
            self.first()


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> Imports:
    imports = Imports()
    monkeypatch.setattr(forkserver, "importlib", imports)
    return imports


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been asked of the garbage collector."""
    asked: list[str] = []
    fake = {name: lambda name=name: asked.append(name) for name in ("enable", "disable", "freeze")}
    monkeypatch.setattr(forkserver, "gc", SimpleNamespace(**fake))
    return asked


def test_what_a_process_needs_is_imported_and_no_more(
    imports: Imports, collector: list[str]
) -> None:
    preload = Preload(gently=False)
    assert (preload.urgent, preload.has(CONTROLLER)) == (True, False)
    preload.get(CONTROLLER)
    assert imports.names == [*CONTROLLER]
    assert (preload.urgent, preload.has(CONTROLLER)) == (True, True)
    preload.get((*CONTROLLER, *PROCESSES))
    assert imports.names == [*CONTROLLER, *PROCESSES]
    assert preload.left == [*CELLS]
    assert (preload.urgent, preload.has(CELLS)) == (False, False)
    preload.get(CONTROLLER)
    assert collector == ["freeze", "freeze"]


def test_a_module_that_cannot_be_imported_is_left_to_the_process(imports: Imports) -> None:
    def fail() -> None:
        raise RuntimeError("no such library")

    imports.first = fail
    preload = Preload(gently=False)
    preload.get(CONTROLLER)
    assert imports.names == [*CONTROLLER]
    assert preload.has(CONTROLLER)


@on_linux
@pytest.mark.parametrize(
    ("gently", "imported"),
    [
        (False, [*CONTROLLER, *PROCESSES]),
        (True, [*CONTROLLER, *PROCESSES, *CELLS]),
    ],
    ids=["awaited", "gently"],
)
def test_a_thread_imports_ahead(
    gently: bool, imports: Imports, collector: list[str], imported: list[str]
) -> None:
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    preload = Preload(gently=gently)
    preload.begin()
    assert preload._thread is not None
    preload._thread.join(HANG_S)
    assert collector == ["disable"]
    preload.stop()
    assert imports.names == imported
    assert imports.priorities == {max(usual, forkserver.GENTLE) if gently else usual}
    assert collector == ["disable", "enable"]


@on_linux
def test_rarely_needed_modules_are_imported_gently(imports: Imports) -> None:
    preload = Preload(gently=False)
    preload.get(PROCESSES)
    imports.names.clear()
    imports.priorities.clear()
    preload.begin()
    assert preload._thread is not None
    preload._thread.join(HANG_S)
    assert imports.names == [*CELLS]
    assert imports.priorities == {max(os.getpriority(os.PRIO_PROCESS, 0), forkserver.GENTLE)}
    preload.stop()


@on_linux
def test_once_a_process_needed_modules_the_next_ones_are_awaited(imports: Imports) -> None:
    preload = Preload(gently=True)
    preload.get(CONTROLLER)
    imports.priorities.clear()
    preload.begin()
    assert preload._thread is not None
    preload._thread.join(HANG_S)
    assert imports.names == [*CONTROLLER, *PROCESSES]
    assert imports.priorities == {os.getpriority(os.PRIO_PROCESS, 0)}
    preload.stop()


@on_linux
def test_who_needs_modules_does_not_wait_for_others(
    imports: Imports, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, hurried, imported = threading.Event(), threading.Event(), threading.Event()
    imports.first = lambda: (begun.set(), hurried.wait(HANG_S), imported.set())
    # The thread gets the usual priority for the module that it is at.
    monkeypatch.setattr(os, "setpriority", lambda *_: hurried.set())
    preload = Preload(gently=False)
    preload.begin()
    thread = preload._thread
    assert thread is not None
    assert begun.wait(HANG_S)
    preload.stop()
    assert (imported.is_set(), thread.is_alive()) == (True, False)
    assert imports.names == [CONTROLLER[0]]
    preload.begin()
    assert preload._thread is not None
    preload._thread.join(HANG_S)
    assert imports.names == [*CONTROLLER, *PROCESSES]
    preload.stop()


@pytest.mark.parametrize(("ends_s", "sleeps"), [(HANG_S, 3), (0.0, 0)], ids=["ends", "stays"])
def test_a_joined_thread_is_gone_before_a_fork(
    ends_s: float,
    sleeps: int,
    imports: Imports,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operating system may list a thread for some time after it has been joined."""
    preload, slept = Preload(gently=False), 0
    preload.begin()
    assert preload._thread is not None
    task = tmp_path / str(preload._thread.native_id)
    task.mkdir()

    def sleep(_: float) -> None:
        nonlocal slept
        slept += 1
        if slept == 3:
            task.rmdir()

    monkeypatch.setattr(forkserver, "_TASKS", tmp_path)
    monkeypatch.setattr(forkserver, "THREAD_ENDS_S", ends_s)
    clock = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(forkserver, "time", clock)
    preload.stop()
    assert (slept, task.exists()) == (sleeps, sleeps == 0)
    assert imports.names
