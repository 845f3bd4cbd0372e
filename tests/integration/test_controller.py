"""ipyparallel's controller, as mcnb runs it, where another program takes one of its ports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcnb.launchers.local import CONTROLLER_ARGS
from tests.support.clients import HANG_S

pytestmark = pytest.mark.thorough("starts controllers")

# Takes a port in the moment between its choice and its use.
TAKEN = """
import socket
from mcnb._ipyparallel import controller as adapted
start = adapted.QuietController.start
def take(controller):
    host, port = controller.{url}.removeprefix("tcp://").split(":")
    taken = socket.create_server((host, int(port)))
    start(controller)
adapted.QuietController.start = take
adapted.run_controller()
"""


@pytest.mark.parametrize(
    "url",
    [
        "client_url('iopub')",
        "engine_url('iopub')",
        "client_url('mux')",
        "engine_url('control')",
    ],
)
def test_a_port_that_is_taken_ends_it_before_it_can_be_used(url: str, tmp_path: Path) -> None:
    words = [f"--profile-dir={tmp_path}", "--ip=127.0.0.1", "--HeartMonitor.expected=1"]
    words += ["--IPController.enable_curve=True"]
    command = [sys.executable, "-c", TAKEN.format(url=url), *words, *CONTROLLER_ARGS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 1, done.stderr
    assert "Address already in use" in done.stderr
    assert list((tmp_path / "security").glob("*.json")) == []


# The process ends at once after it has forked, before its child can ask to end with it.
ORPHAN = """
import os, time
from mcnb._ipyparallel import controller as adapted
started = os.getpid()
def outlive():
    while os.getppid() == started:
        time.sleep(0.001)
if {asks}:
    os.register_at_fork(after_in_child=outlive)
    adapted._end_children_with_parents()
if os.fork():
    os._exit(0)
outlive()
print("still here", flush=True)
"""


@pytest.mark.parametrize(("asks", "said"), [(False, "still here\n"), (True, "")])
def test_no_child_outlives_a_controller_that_ends_as_it_forks(asks: bool, said: str) -> None:
    command = [sys.executable, "-c", ORPHAN.format(asks=asks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
