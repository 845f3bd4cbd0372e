"""A JupyterLab that `mcnb lab` really starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mcnb import _lessons
from mcnb.cli import lab
from tests.conftest import once, wait_until
from tests.support.clients import HANG_S
from tests.support.jupyterlab import ask, jupyterlab


@pytest.mark.parametrize(("code", "expected"), [("exit(3)", 3), ("import os; os.abort()", 134)])
def test_the_exit_code_is_jupyterlabs(code: str, expected: int) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert lab.start_jupyterlab([sys.executable, "-c", code]) == expected
    assert signal.getsignal(signal.SIGTERM) == before


def test_ctrl_c_is_left_to_jupyterlab(tmp_path: Path) -> None:
    # The stand-in takes one Ctrl-C, as JupyterLab does when its question is not answered, and goes
    # on until it is waited for again, or nobody waits any more.
    stand_in = (
        "import os, pathlib, signal, time\n"
        "got, parent = [], os.getppid()\n"
        "signal.signal(signal.SIGINT, lambda *_: got.append(1))\n"
        "pathlib.Path('up').touch()\n"
        "while os.getppid() == parent and not (got and os.path.exists('waits2')):\n"
        "    time.sleep(0.01)\n"
        "exit(5)"
    )
    command = [sys.executable, "-c", stand_in]
    code = (
        "import itertools, pathlib, subprocess\n"
        "from mcnb.cli import lab\n"
        "class Process(subprocess.Popen):\n"
        "    waits = itertools.count(1)\n"
        "    def wait(self):\n"
        "        pathlib.Path(f'waits{next(self.waits)}').touch()\n"
        "        return super().wait()\n"
        "subprocess.Popen = Process\n"
        f"exit(lab.start_jupyterlab({command!r}))"
    )
    # A person has a terminal, in which JupyterLab asks.
    person, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, cwd=tmp_path, stdin=terminal
    )
    try:
        assert wait_until(
            lambda: {"up", "waits1"} <= {path.name for path in tmp_path.iterdir()}, HANG_S
        )
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(HANG_S) == 5
    finally:
        os.close(person)
        os.close(terminal)


@pytest.mark.thorough("starts JupyterLab once more")
@once
def test_an_interrupt_ends_jupyterlab_where_nobody_can_be_asked(tmp_path: Path) -> None:
    with jupyterlab(tmp_path, end_by=signal.SIGINT) as about:
        pass
    assert not psutil.pid_exists(about["pid"])


@once
def test_jupyterlab_starts_and_ends(tmp_path: Path) -> None:
    # A python3 kernel of the user's own must not take the place of this Python.
    kernel = tmp_path / "data" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    spec = {"argv": ["/nowhere/python"], "display_name": "Mine", "language": "python"}
    kernel.write_text(json.dumps(spec))
    with jupyterlab(tmp_path) as about:
        log = (tmp_path / "log.txt").read_text()
        assert f"The lessons are in {tmp_path / 'lessons'}\n" in log
        assert "/lab/tree/README.md" in log
        listening = {
            connection.laddr.ip
            for connection in psutil.Process(about["pid"]).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        names = {entry["name"] for entry in ask(about, "contents")["content"]}
        source = _lessons.find_lessons()
        lessons = {path.name for path in source.iterdir() if path.suffix == ".ipynb"}
        assert lessons <= names
        for name in sorted(lessons):  # JupyterLab's status bar says whether they are trusted
            cells = ask(about, f"contents/{name}")["content"]["cells"]
            assert all(c["metadata"]["trusted"] for c in cells if c["cell_type"] == "code"), name
        kernels = ask(about, "kernelspecs")["kernelspecs"]
        assert kernels["python3"]["spec"]["argv"][0] == sys.executable
    assert not psutil.pid_exists(about["pid"])
