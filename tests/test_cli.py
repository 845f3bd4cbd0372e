"""The command says what it did not understand, and hands on what is JupyterLab's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

import mcnb
from mcnb.cli import main
from mcnb.errors import McnbError

RUN = "import sys; from mcnb.cli import main; sys.exit(main())"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What the commands were called with, in place of what they do."""
    calls: list[object] = []

    def open_lab(given: str | None, arguments: Sequence[str]) -> int:
        calls.append(("lab", given, list(arguments)))
        return 3

    def examine(quick: bool) -> int:
        calls.append(("doctor", quick))
        return 1

    monkeypatch.setattr("mcnb.lab.open_lab", open_lab)
    monkeypatch.setattr("mcnb.doctor.examine", examine)
    return calls


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"mcnb {mcnb.__version__}\n", "")


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["--"]])
def test_help_names_the_commands(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert main(argv) == 0
    printed, complaints = capsys.readouterr()
    assert "open JupyterLab on the lessons" in printed
    assert "say what is missing on this machine, and how to mend it" in printed
    assert complaints == ""


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("lab", "usage: mcnb lab [FOLDER] [-- OPTIONS OF JUPYTERLAB]"),
        ("doctor", "usage: mcnb doctor [-h] [--quick]"),
    ],
)
def test_a_command_has_help_of_its_own(
    capsys: pytest.CaptureFixture[str], calls: list[object], command: str, usage: str
) -> None:
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == usage
    assert calls == []


@pytest.mark.parametrize(
    ("argv", "code", "call"),
    [
        (["lab"], 3, ("lab", None, [])),
        (["lab", "my lessons"], 3, ("lab", "my lessons", [])),
        (["lab", "--"], 3, ("lab", None, [])),
        (["lab", "--", "--port=9999"], 3, ("lab", None, ["--port=9999"])),
        (["lab", "jax", "--", "-y", "--", "--help"], 3, ("lab", "jax", ["-y", "--", "--help"])),
        (["doctor"], 1, ("doctor", False)),
        (["doctor", "--quick"], 1, ("doctor", True)),
    ],
)
def test_a_command_runs_and_its_exit_code_is_ours(
    calls: list[object], argv: list[str], code: int, call: tuple[object, ...]
) -> None:
    assert main(argv) == code
    assert calls == [call]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "dcotor",
            "mcnb dcotor: there is no such command. There are: mcnb lab, mcnb doctor. "
            "Did you mean mcnb doctor?",
        ),
        (
            "labs --port=9999",
            "mcnb labs: there is no such command. There are: mcnb lab, mcnb doctor. "
            "Did you mean mcnb lab?",
        ),
        ("run", "mcnb run: there is no such command. There are: mcnb lab, mcnb doctor."),
        (
            "--versoin",
            "mcnb --versoin: there is no such option. There are: --version, --help. "
            "Did you mean --version?",
        ),
        ("-x", "mcnb -x: there is no such option. There are: --version, --help."),
        (
            "doctor --quik",
            "mcnb doctor --quik: there is no such option. There are: --quick, --help. "
            "Did you mean --quick?",
        ),
        (
            "doctor --quick=1",
            "mcnb doctor: argument --quick: ignored explicit argument '1'. "
            "What there is: mcnb doctor --help",
        ),
        ("doctor now", "mcnb doctor now: now is one word too many. Say: mcnb doctor"),
        (
            "doctor -- --port=9999",
            "mcnb doctor -- --port=9999: only mcnb lab takes something after two dashes, and "
            "hands it on to JupyterLab: mcnb lab -- --port=9999",
        ),
        (
            "-- --port=9999",
            "mcnb -- --port=9999: only mcnb lab takes something after two dashes, and hands it "
            "on to JupyterLab: mcnb lab -- --port=9999",
        ),
        (
            "lab --port=9999",
            "mcnb lab --port=9999: there is no such option. There is: --help. Options of "
            "JupyterLab follow two dashes: mcnb lab -- --port=9999",
        ),
        (
            "lab my lessons",
            "mcnb lab my lessons: it opens one folder at a time. A name that holds a space needs "
            'quotes: mcnb lab "my lessons"',
        ),
    ],
)
def test_a_command_line_that_makes_no_sense(
    capsys: pytest.CaptureFixture[str], calls: list[object], line: str, sentence: str
) -> None:
    assert main(line.split()) == 2
    assert capsys.readouterr() == ("", f"{sentence}\n")
    assert calls == []


def test_an_error_of_ours_is_a_sentence_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        raise McnbError("The lessons are nowhere.")

    monkeypatch.setattr("mcnb.lab.open_lab", fail)
    assert main(["lab"]) == 1
    assert capsys.readouterr() == ("", "The lessons are nowhere.\n")


def test_ctrl_c_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(quick: bool) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("mcnb.doctor.examine", interrupted)
    assert main(["doctor"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = [sys.executable, "-c", RUN, "doctor", "--quick"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from mcnb.cli import main; main([]); "
        "print([n for n in ('jax', 'jaxlib', 'IPython', 'ipyparallel') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "usage: mcnb [-h] [--version] COMMAND ..."
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stderr == ""
