"""The checks of `mcnb doctor`, each alone, on real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcnb.cli import doctor
from mcnb.cli.main import main


def test_this_machine_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, lines
    assert len(lines) == len(doctor.CHECKS) + 2
    assert re.fullmatch(
        r"ok {7}2 processes with 2 devices each started, computed a sum together and ended, "
        r"in \d+\.\d seconds",
        lines[-2],
    )
    assert lines[-1] == "No problems found. To open the lessons: mcnb lab"


def test_without_ipyparallel_it_still_says_what_is_missing(tmp_path: Path) -> None:
    # A module of that name that can't be imported stands for one that is not there.
    (tmp_path / "ipyparallel.py").write_text("raise ImportError('no ipyparallel')")
    code = "from mcnb.cli.main import main; raise SystemExit(main(['doctor']))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("missing  What mcnb needs can't be imported: no ipyparallel.") == 1
    assert done.stdout.endswith("1 problem found, see above\n")
