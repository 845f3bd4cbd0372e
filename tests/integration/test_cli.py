"""The `mcnb` command: what it prints, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mcnb
from mcnb import _lessons
from mcnb.cli import doctor, lab
from mcnb.cli import main as cli
from mcnb.cli.doctor import Finding
from mcnb.cli.main import main
from mcnb.errors import McnbError
from tests.support.command import MCNB


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"mcnb {mcnb.__version__}\n", "")


def test_the_package_is_the_command(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mcnb", "labs"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("mcnb labs: there is no such command. There are: mcnb lab, ")


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["--"]])
def test_help(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert "open JupyterLab on the lessons" in out
    assert "say what is missing on this machine" in out
    assert err == ""


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("lab", "usage: mcnb lab [FOLDER] [--copy] [-- OPTIONS OF JUPYTERLAB]\n"),
        (
            "doctor",
            "usage: mcnb doctor [--hosts HOSTS [--launcher NAME] [--options '...']] [--quick]\n",
        ),
    ],
)
def test_help_on_a_command(command: str, usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(usage)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "lba",
            "mcnb lba: there is no such command. There are: mcnb lab, mcnb run, mcnb script, "
            "mcnb doctor. Did you mean mcnb lab?",
        ),
        (
            "labs --port=9999",
            "mcnb labs: there is no such command. There are: mcnb lab, mcnb run, mcnb script, "
            "mcnb doctor. Did you mean mcnb lab?",
        ),
        ("-x", "mcnb -x: unknown option. Options: --version, --help."),
        (
            "-- --port=1",
            "mcnb -- --port=1: only mcnb lab accepts arguments after --, and passes them to "
            "JupyterLab: mcnb lab -- --port=1",
        ),
        (
            "teleport",
            "mcnb teleport: there is no such command. There are: mcnb lab, mcnb run, mcnb script, "
            "mcnb doctor.",
        ),
        (
            "--versoin",
            "mcnb --versoin: unknown option. Options: --version, --help. Did you mean --version?",
        ),
        (
            "doctor --quik",
            "mcnb doctor --quik: unknown option. Options: --hosts, --launcher, --options, --quick, "
            "--help. Did you mean --quick?",
        ),
        (
            "lab --no-browser",
            "mcnb lab --no-browser: unknown option. Options: --copy, --help. "
            "Options of JupyterLab follow two dashes: mcnb lab -- --no-browser",
        ),
        (
            "lab my lessons",
            "mcnb lab my lessons: it opens one folder at a time. A name that holds a space needs "
            'quotes: mcnb lab "my lessons"',
        ),
        (
            "lab --copy -- --port=1",
            "mcnb lab --copy -- --port=1: with --copy, JupyterLab is not started. Leave out "
            "--copy, or the options of JupyterLab",
        ),
        (
            "doctor please",
            "mcnb doctor please: please is an unexpected argument. Run: mcnb doctor",
        ),
        (
            "doctor -- --port=1",
            "mcnb doctor -- --port=1: only mcnb lab accepts arguments after --, and passes them "
            "to JupyterLab: mcnb lab -- --port=1",
        ),
        (
            "doctor --quick=1",
            "mcnb doctor: argument --quick: ignored explicit argument '1'. "
            "Help: mcnb doctor --help",
        ),
    ],
)
def test_nonsense_gets_a_sentence(
    line: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")


def test_errors_of_mcnb_are_printed_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise McnbError("The lessons are gone.")

    monkeypatch.setattr(_lessons, "find_lessons", fail)
    assert main(["lab"]) == 1
    assert capsys.readouterr() == ("", "The lessons are gone.\n")


def test_lessons_are_copied_without_jupyterlab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mcnb.cli.lab.start_jupyterlab", None)
    assert main(["lab", "--copy"]) == 0
    folder = tmp_path / "mcnb-lessons"
    assert capsys.readouterr().out == f"The lessons are in {folder}\n"
    assert (folder / "01_hello_controllers.ipynb").is_file()


def test_the_lessons_themselves_are_not_opened(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = _lessons.find_lessons()
    monkeypatch.chdir(source.parent)
    monkeypatch.setattr("mcnb.cli.lab.start_jupyterlab", None)
    assert main(["lab", source.name]) == 1
    assert capsys.readouterr() == (
        "",
        f"{source} is the folder of the lessons that come with mcnb. mcnb lab opens copies, so "
        "that these lessons stay as they are. Name another folder, for example: "
        "mcnb lab ~/my-lessons\n",
    )


def test_ctrl_c_ends_it_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> Finding:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "CHECKS", (interrupt,))
    assert main(["doctor", "--quick"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_pipe_that_nobody_reads_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as pipe:
        done = subprocess.run(
            [*MCNB, "doctor", "--quick"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.stderr, done.returncode) == ("", 1)


def test_help_imports_nothing_heavy() -> None:
    heavy = {"IPython", "ipykernel", "ipyparallel", "jax", "jupyterlab", "numpy", "zmq"}
    code = (
        "import sys; from mcnb.cli.main import main; "
        f"main([]); sys.exit(len({heavy} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_program_is_run_without_what_only_notebooks_need() -> None:
    heavy = {"IPython", "ipyparallel", "jax", "jupytext", "mcnb.cluster", "mcnb.notebook", "zmq"}
    code = f"import mcnb.cli.run, sys; sys.exit(len({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_fork_server_is_asked_before_anything_heavy_is_imported() -> None:
    heavy = {"IPython", "ipyparallel", "jax", "mcnb.cluster.workers", "numpy", "zmq"}
    code = f"import mcnb, sys; mcnb.Cluster(); sys.exit(len({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("argv", "given", "arguments"),
    [
        (["lab"], None, []),
        (["lab", "my lessons"], "my lessons", []),
        (["lab", "--"], None, []),
        (["lab", "--", "--port=9999"], None, ["--port=9999"]),
        (["lab", "jax", "--", "-y", "--", "--help"], "jax", ["-y", "--", "--help"]),
    ],
)
def test_what_follows_two_dashes_is_jupyterlabs(
    argv: list[str], given: str | None, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str | None, list[str]]] = []
    monkeypatch.setattr(cli, "_open_lab", lambda *call, only_copy: calls.append(call) or 3)
    assert main(argv) == 3
    assert calls == [(given, arguments)]


def test_lab_copies_says_where_and_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "toy.py").write_text("pass")
    started: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_lessons, "find_lessons", lambda: shipped)
    monkeypatch.setattr(lab, "start_jupyterlab", lambda command: started.append(command) or 7)
    assert main(["lab", "--", "--no-browser"]) == 7
    folder = tmp_path / "mcnb-lessons"
    assert capsys.readouterr() == (f"The lessons are in {folder}\n", "")
    assert (folder / "toy.py").read_text() == "pass"
    assert started == [lab.command_line(folder, ["--no-browser"])]


def test_doctor_names_what_is_to_be_mended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Finding:
        raise ModuleNotFoundError("No module named 'zmq'")

    checks = (
        lambda: Finding("ok", "Python 3.11.7"),
        lambda: Finding("note", "JAX_ENABLE_X64=1"),
        lambda: Finding("missing", "jupytext is not installed", "pip install jupytext"),
        broken,
        broken,
    )
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert main(["doctor", "--quick"]) == 1
    assert capsys.readouterr().out == (
        "ok       Python 3.11.7\n"
        "note     JAX_ENABLE_X64=1\n"
        "missing  jupytext is not installed. Fix it: pip install jupytext\n"
        "missing  What mcnb needs can't be imported: No module named 'zmq'. Fix it: "
        'python -m pip install --upgrade "ipyparallel>=9.0" "ipython>=7.34" "ipykernel>=6.17" '
        '"matplotlib>=3.9" "psutil>=5.9"\n'
        "2 problems found, see above\n"
    )


@pytest.mark.parametrize(
    ("finding", "code", "last"),
    [
        (Finding("ok", "It works"), 0, "No problems found. To open the lessons: mcnb lab"),
        (Finding("missing", "It fails"), 1, "1 problem found, see above"),
    ],
)
def test_doctor_tries_a_cluster_last(
    finding: Finding,
    code: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", ())
    monkeypatch.setattr(doctor, "cluster", lambda: finding)
    assert main(["doctor"]) == code
    assert capsys.readouterr().out == f"{finding}\n{last}\n"
    assert main(["doctor", "--quick"]) == 0
    assert capsys.readouterr().out == "No problems found. To open the lessons: mcnb lab\n"
