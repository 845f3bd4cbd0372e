"""The checks of `mcnb doctor`, each alone, on real processes."""

from __future__ import annotations

import importlib.metadata
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mcnb.cli import doctor
from mcnb.cli.main import main
from mcnb.launchers import questions
from tests.support.launchers import NAMES, launcher_at_home


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


SSH = """\
#!/bin/sh
for command; do host=$name; name=$command; done  # the last word, and the one before
case $host in
gone) echo "ssh: connect to host gone port 22: Connection refused" >&2; exit 255 ;;
bare) echo "sh: 1: python: not found" >&2; exit 127 ;;
full) echo "Have a nice day"; JAX_PROCESS_ID=3; export JAX_PROCESS_ID ;;
esac
SSH_CONNECTION="127.0.0.1 50000 127.0.0.1 22"
export SSH_CONNECTION
exec sh -c "$command"
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of that name whose hosts are all this machine, but for two that it can't use."""
    command = tmp_path / "ssh"
    command.write_text(SSH)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.usefixtures("ssh")
def test_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--quick", "--hosts", "one,gone,full,bare"]) == 1
    lines = capsys.readouterr().out.splitlines()[len(doctor.CHECKS) :]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "mcnb")]
    same = f"has {' and '.join(versions)}, as this machine has"
    assert lines == [
        f"ok       one {same}",
        "missing  The host gone can't be reached: ssh: connect to host gone port 22: Connection "
        "refused. Try: ssh -o BatchMode=yes gone",
        f"ok       full {same}",
        "note     full sets JAX_PROCESS_ID in the environment: programs that call "
        "jax.distributed.initialize() join another job there, or wait for it. Fix it: delete the "
        'lines that this command finds: ssh full \'grep -nE "JAX_PROCESS_ID" ~/.bashrc ~/.profile '
        "~/.ssh/environment /etc/environment'",
        "missing  The host bare can't run mcnb: sh: 1: python: not found. It needs the same Python "
        f"as this one, at the same path, with mcnb: {sys.executable}",
        "ok       one, full and this machine can connect to each other",
        "2 problems found, see above",
    ]


@pytest.mark.usefixtures("ssh")
def test_a_host_that_is_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "ANSWER_S", 0.5)
    monkeypatch.setattr(
        questions, "_command", lambda launcher, host, words: ["sh", "-c", "exec sleep 600"]
    )
    assert main(["doctor", "--quick", "--hosts", "one"]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "missing  The host one does not answer. Try: ssh -o BatchMode=yes one",
        "1 problem found, see above",
    ]


@pytest.mark.thorough("needs a scheduler")
@pytest.mark.parametrize("name", NAMES)
def test_hosts_of_each_launcher(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with launcher_at_home(name, tmp_path) as launcher:
        host = {"mpi": "localhost", "ssh": "one"}.get(name, socket.gethostname())
        words = [f"--hosts={host}", f"--launcher={name}", f"--options={launcher.options}"]
        assert main(["doctor", "--quick", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
    assert f"ok       {host} and this machine can connect to each other" in lines


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
