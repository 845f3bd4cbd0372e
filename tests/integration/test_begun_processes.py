"""The state in which a process begins, forked or executed: that of a newly started one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

# Prepared as the fork server is, which ignores signals and has a handler, a pipe and a seed.
PARENT = """
import json, os, random, signal, sys
import numpy
from mcnb.launchers import forkserver

for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
    signal.signal(ignored, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, lambda *_: None)
wake = os.pipe()
os.set_blocking(wake[1], False)
signal.set_wakeup_fd(wake[1])
os.umask(0o022)
random.seed(7)
numpy.random.seed(7)
how, *specs = json.loads(sys.argv[1])
files = os.listdir("/proc/self/fd")
try:
    for spec in specs:
        child = getattr(forkserver, how)(forkserver.Spec(**spec))
        assert os.waitpid(child, 0) == (child, 0)
except forkserver.Forked as forked:
    forked.spec.run()
else:
    assert os.listdir("/proc/self/fd") == files
    print("done")
"""
CHILD = """
import ctypes, json, os, random, signal, sys
import numpy
killed_with_parent = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(killed_with_parent))
mask = os.umask(0)
print(json.dumps({
    "arguments": sys.argv[1:],
    "environment": dict(os.environ),
    "folder": os.getcwd(),
    "own session": os.getsid(0) == os.getpid(),
    "umask": mask,
    "wake up": signal.set_wakeup_fd(-1),
    "killed with parent": killed_with_parent.value,
    "input": os.readlink("/proc/self/fd/0"),
    "pipe": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
    "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "others": [signal.getsignal(s) == signal.SIG_DFL for s in (signal.SIGTERM, signal.SIGHUP)],
    "name": open("/proc/self/comm").read(),
    "drawn": [random.random(), numpy.random.rand()],
}))
print("said", file=sys.stderr)
"""
OWN = {"MINE": "yes", "LC_ALL": "C.UTF-8"}


def begin(how: str, folder: Path, **changed: Any) -> subprocess.CompletedProcess[str]:
    """Let a process like the fork server begin two processes, and wait for both."""
    (folder / "child.py").write_text(CHILD)
    path = os.pathsep.join([str(folder), str(ROOT)])
    specs = [
        {
            "name": f"process {k}",
            "module": "child",
            "arguments": ["-x", str(k)],
            "env": {**OWN, "PYTHONPATH": path},
            "cwd": str(folder),
            "output": str(folder / f"output-{k}"),
            "umask": 0o027,
            **changed,
        }
        for k in range(2)
    ]
    return subprocess.run(
        [sys.executable, "-c", PARENT, json.dumps([how, *specs])],
        env={**os.environ, "PYTHONPATH": path, "OTHER": "no"},
        capture_output=True,
        text=True,
        check=False,
    )


@dataclass
class Begun:
    """Two processes that were begun in the same way, and have ended."""

    how: str
    folder: Path
    states: list[Mapping[str, Any]]


@pytest.fixture(scope="module", params=["fork", "_execute"])
def begun(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Begun:
    folder = tmp_path_factory.mktemp("begun")
    for k in range(2):
        (folder / f"output-{k}.err").write_text("before\n")
    done = begin(request.param, folder)
    assert (done.stdout, done.stderr) == ("done\n", "")
    said = [(folder / f"output-{k}.out").read_text() for k in range(2)]
    return Begun(request.param, folder, [json.loads(text) for text in said])


def test_a_process_begins_as_its_specification_says(begun: Begun) -> None:
    path = os.pathsep.join([str(begun.folder), str(ROOT)])
    for k, state in enumerate(begun.states):
        assert state["arguments"] == ["-x", str(k)]
        assert state["environment"] == {**OWN, "PYTHONPATH": path}
        assert (state["folder"], state["umask"]) == (str(begun.folder), 0o027)
        assert state["input"] == "/dev/null"


def test_output_is_appended_to_what_is_there(begun: Begun) -> None:
    said = [(begun.folder / f"output-{k}.err").read_text() for k in range(2)]
    assert said == ["before\nsaid\n"] * 2


def test_a_process_has_nothing_of_its_parent(begun: Begun) -> None:
    for k, state in enumerate(begun.states):
        assert (state["own session"], state["killed with parent"]) == (True, 9)
        assert (state["pipe"], state["child"], state["wake up"]) == (True, True, -1)
        assert (state["interrupt"], state["others"]) == (True, [True, True])
        if begun.how == "fork":
            assert state["name"] == f"process {k}\n"


def test_processes_draw_random_numbers_of_their_own(begun: Begun) -> None:
    first, second = (state["drawn"] for state in begun.states)
    assert not {*first} & {*second}


def test_a_forked_process_that_finds_no_folder_says_so_and_fails(tmp_path: Path) -> None:
    done = begin("fork", tmp_path, cwd=str(tmp_path / "gone"))
    assert done.stderr.endswith("AssertionError\n")  # the parent sees that it failed
    assert (tmp_path / "output-0.err").read_text() == (
        f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path / 'gone'}'\n"
    )
