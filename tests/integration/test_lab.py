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
from tests.conftest import wait_until
from tests.support.jupyterlab import ask, jupyterlab


@pytest.mark.parametrize(("code", "expected"), [("exit(3)", 3), ("import os; os.abort()", 134)])
def test_the_exit_code_is_jupyterlabs(code: str, expected: int) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert lab.start_jupyterlab([sys.executable, "-c", code]) == expected
    assert signal.getsignal(signal.SIGTERM) == before


def test_ctrl_c_is_left_to_jupyterlab(tmp_path: Path) -> None:
    # The stand-in takes one Ctrl-C, as JupyterLab does when its question is not answered.
    stand_in = (
        "import pathlib, signal, time\n"
        "got = []\n"
        "signal.signal(signal.SIGINT, lambda *_: got.append(1))\n"
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch()\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "exit(5)"
    )
    command = [sys.executable, "-c", stand_in]
    code = f"from mcnb.cli import lab; exit(lab.start_jupyterlab({command!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    assert wait_until((tmp_path / "up").exists)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(10) == 5


def test_jupyterlab_starts_and_ends(tmp_path: Path) -> None:
    # A python3 kernel of the user's own must not take the place of this Python.
    kernel = tmp_path / "data" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    spec = {"argv": ["/nowhere/python"], "display_name": "Mine", "language": "python"}
    kernel.write_text(json.dumps(spec))
    with jupyterlab(tmp_path) as about:
        log = (tmp_path / "log.txt").read_text()
        assert f"The lessons are in {tmp_path / 'lessons'}\n" in log
        assert "/lab/tree/01_" in log
        listening = {
            connection.laddr.ip
            for connection in psutil.Process(about["pid"]).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        names = {entry["name"] for entry in ask(about, "contents")["content"]}
        source, _ = _lessons.find_lessons()
        assert {path.name for path in source.iterdir() if path.suffix == ".ipynb"} <= names
        kernels = ask(about, "kernelspecs")["kernelspecs"]
        assert kernels["python3"]["spec"]["argv"][0] == sys.executable
    assert not psutil.pid_exists(about["pid"])
