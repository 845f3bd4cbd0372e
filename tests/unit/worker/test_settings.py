"""Settings of processes, in a file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from mcnb.worker.settings import Settings, leave_settings, settings_path, take_settings


def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    leave_settings(Settings({"MCNB_TRIAL": "1"}, str(elsewhere)), tmp_path / "profile")
    file = settings_path(tmp_path / "profile")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["env"] == {"MCNB_TRIAL": "1"}
    monkeypatch.setenv("MCNB_TRIAL", "0")
    monkeypatch.chdir(tmp_path)
    # The folder is named from where the process begins, which it leaves.
    words = take_settings(["--profile-dir=profile", "--log-level=WARN"])
    assert words == [f"--profile-dir={tmp_path.resolve()}/profile", "--log-level=WARN"]
    assert os.environ["MCNB_TRIAL"] == "1"
    assert Path.cwd() == elsewhere
    leave_settings(Settings({}, "/no/such/folder"), tmp_path / "other")
    take_settings([f"--profile-dir={tmp_path / 'other'}"])
    assert Path.cwd() == elsewhere
