"""Settings of processes, in a file."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from mcnb.worker import settings
from mcnb.worker.settings import (
    Credentials,
    Settings,
    leave_settings,
    profile_folder,
    protection,
    read_settings,
    settings_path,
    take_settings,
)


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


def test_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_files", {})
    monkeypatch.delenv("JAX_MTLS_CERT_FILE", raising=False)

    def today(
        address: str, mtls_cert_file: str, mtls_key_file: str, mtls_ca_file: str, **others: str
    ) -> None: ...

    def tomorrow(
        mtls_cert_file: str, mtls_key_file: str, mtls_ca_file: str, mtls_peer_uri_prefix: str
    ) -> None: ...

    told = Settings(credentials=Credentials("the certificate", "the key"))
    leave_settings(told, tmp_path)
    assert read_settings(tmp_path) == told
    assert protection(tomorrow) == {}
    for _ in range(2):  # another process of the host may have written them before
        take_settings([f"--profile-dir={tmp_path}"])
    given = protection(tomorrow)
    assert given["mtls_peer_uri_prefix"] == "mcnb://cluster/"
    assert given["mtls_ca_file"] == given["mtls_cert_file"]
    for name, text in {"mtls_cert_file": "the certificate", "mtls_key_file": "the key"}.items():
        assert Path(given[name]).read_text() == text
        assert stat.S_IMODE(Path(given[name]).stat().st_mode) == 0o600
    assert len([*settings_path(tmp_path).parent.iterdir()]) == 3
    assert protection(today) == {}  # it lacks one
    monkeypatch.setenv("JAX_MTLS_CERT_FILE", "/mine")
    assert protection(tomorrow) == {}


def test_of_several_folders_the_last_counts(tmp_path: Path) -> None:
    for name in ("one", "two"):
        leave_settings(Settings({"MCNB_TRIAL": name}), tmp_path / name)
    words = [f"--profile-dir={tmp_path / name}" for name in ("one", "two")]
    assert profile_folder(words) == tmp_path / "two"
    assert profile_folder(["--log-level=WARN"]) is None


def test_a_folder_of_another_program_has_no_settings(tmp_path: Path) -> None:
    words = [f"--profile-dir={tmp_path}"]
    assert profile_folder(words) is None
    assert take_settings(words) == words


def test_a_cluster_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        take_settings([f"--profile-dir={tmp_path / 'gone'}"])
    assert ended.value.code == (
        f"The cluster of this process has ended: there is no folder {tmp_path / 'gone'}"
    )


def test_settings_are_written_once_and_for_nobody_else(tmp_path: Path) -> None:
    told = Settings({"A": "é"}, "/x", sent=True, kernel="host:7")
    leave_settings(told, tmp_path / "profile")
    assert read_settings(tmp_path / "profile") == told
    assert stat.S_IMODE(settings_path(tmp_path / "profile").parent.stat().st_mode) == 0o700
    # Another user might have put a file there.
    with pytest.raises(FileExistsError):
        leave_settings(told, tmp_path / "profile")
