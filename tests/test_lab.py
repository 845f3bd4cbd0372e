"""The lessons open in JupyterLab, and what a learner changed is never overwritten."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest

import mcnb
from mcnb import lab
from mcnb.errors import McnbError
from mcnb.lab import Lessons, choose_folder, command_line, copy_lessons, describe_folder

from .conftest import wait_until

SHIPPED = {
    "01_hello.ipynb": "hello, ipynb",
    "01_hello.md": "hello, md",
    "02_more.ipynb": "more, ipynb",
    "02_more.md": "more, md",
    "images/mesh.svg": "a mesh",
    "toy.py": "a toy",
}
RUN = "import sys; from mcnb.cli import main; sys.exit(main())"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def read(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "shipped", SHIPPED)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "home" / "mcnb-lessons"


# Where the lessons are


def test_the_lessons_of_a_checkout_are_beside_the_package(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "", "notebooks/01.ipynb": "", "mcnb/notebooks/01.ipynb": ""})
    assert lab.find_lessons(tmp_path / "mcnb") == Lessons(tmp_path / "notebooks", checkout=True)


@pytest.mark.parametrize("other", ["notebooks/01.ipynb", "pyproject.toml"])
def test_the_lessons_of_a_wheel_are_in_the_package(tmp_path: Path, other: str) -> None:
    write(tmp_path, {other: "of another project", "mcnb/notebooks/01.ipynb": ""})
    expected = Lessons(tmp_path / "mcnb" / "notebooks", checkout=False)
    assert lab.find_lessons(tmp_path / "mcnb") == expected


@pytest.mark.parametrize("other", ["pyproject.toml", "mcnb/notebooks/toy.py"])
def test_lessons_that_are_nowhere(tmp_path: Path, other: str) -> None:
    write(tmp_path, {other: ""})
    with pytest.raises(McnbError) as error:
        lab.find_lessons(tmp_path / "mcnb")
    assert str(error.value) == (
        f"mcnb's lessons are not in {tmp_path / 'mcnb' / 'notebooks'}. Install mcnb anew: "
        "python -m pip install --force-reinstall --no-deps mcnb"
    )


@pytest.mark.parametrize(
    ("given", "checkout", "current", "folder"),
    [
        (None, True, "/home/ada", "/src/notebooks"),
        (None, False, "/home/ada", "/home/ada/mcnb-lessons"),
        (None, False, "/home/ada/mcnb-lessons", "/home/ada/mcnb-lessons"),
        ("jax", True, "/home/ada", "/home/ada/jax"),
        ("jax", False, "/home/ada/mcnb-lessons", "/home/ada/mcnb-lessons/jax"),
        (".", False, "/home/ada", "/home/ada"),
        ("/data/jax", False, "/home/ada", "/data/jax"),
    ],
)
def test_the_folder_that_is_opened(
    given: str | None, checkout: bool, current: str, folder: str
) -> None:
    lessons = Lessons(Path("/src/notebooks"), checkout)
    assert choose_folder(given, lessons, Path(current)) == Path(folder)


# Copying them


def test_a_fresh_copy_is_whole(source: Path, target: Path) -> None:
    assert copy_lessons(source, target) == 0
    assert read(target) == SHIPPED
    times = [(target / f"01_hello{suffix}").stat().st_mtime_ns for suffix in (".ipynb", ".md")]
    assert times == sorted(times)


def test_what_use_leaves_in_the_lessons_is_not_copied(source: Path, target: Path) -> None:
    write(source, {".ipynb_checkpoints/01_hello.ipynb": "", "__pycache__/toy.pyc": "", ".x": ""})
    copy_lessons(source, target)
    assert read(target) == SHIPPED


def test_a_second_copy_changes_nothing(source: Path, target: Path) -> None:
    copy_lessons(source, target)
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    assert copy_lessons(source, target) == 0
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


def test_what_the_user_changed_is_never_overwritten(source: Path, target: Path) -> None:
    copy_lessons(source, target)
    mine = {"01_hello.ipynb": "mine", "toy.py": "", "notes.txt": "mine as well"}
    write(target, mine)
    assert copy_lessons(source, target) == 2  # notes.txt is no lesson
    assert read(target) == SHIPPED | mine


def test_a_missing_file_is_added(source: Path, target: Path) -> None:
    mine = {"02_more.md": "mine"}
    write(target, mine | {"02_more.ipynb": SHIPPED["02_more.ipynb"]})
    assert copy_lessons(source, target) == 1
    assert read(target) == SHIPPED | mine


@pytest.mark.parametrize(
    ("changed", "partner"), [("01_hello.ipynb", "01_hello.md"), ("02_more.md", "02_more.ipynb")]
)
def test_half_of_a_notebook_does_not_come_back_beside_a_changed_half(
    source: Path, target: Path, changed: str, partner: str
) -> None:
    copy_lessons(source, target)
    write(target, {changed: "mine"})
    (target / partner).unlink()
    assert copy_lessons(source, target) == 1
    assert read(target) == {
        name: text for name, text in (SHIPPED | {changed: "mine"}).items() if name != partner
    }


def test_half_of_a_notebook_comes_back_beside_an_unchanged_half(source: Path, target: Path) -> None:
    copy_lessons(source, target)
    (target / "01_hello.md").unlink()
    assert copy_lessons(source, target) == 0
    assert read(target) == SHIPPED


def test_a_link_of_the_users_is_kept_though_it_leads_nowhere(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    (target / "toy.py").symlink_to("nowhere")
    assert copy_lessons(source, target) == 1
    assert (target / "toy.py").is_symlink()
    assert not (target / "nowhere").exists()


def test_a_copy_inside_the_lessons_does_not_hold_itself(source: Path) -> None:
    for _ in range(2):
        assert copy_lessons(source, source / "copy") == 0
        assert read(source / "copy") == SHIPPED


def test_a_target_that_is_a_file(source: Path, tmp_path: Path) -> None:
    target = write(tmp_path, {"mine": "mine"}) / "mine"
    with pytest.raises(McnbError) as error:
        copy_lessons(source, target)
    assert str(error.value) == (
        f"{target} is a file, and the lessons need a folder. Name another: mcnb lab FOLDER"
    )
    assert target.read_text() == "mine"


def test_a_target_below_a_file(source: Path, tmp_path: Path) -> None:
    target = write(tmp_path, {"mine": "mine"}) / "mine" / "lessons"
    with pytest.raises(McnbError) as error:
        copy_lessons(source, target)
    assert str(error.value) == (
        f"The lessons can't be written to {target}: Not a directory. "
        "Name a folder of yours: mcnb lab FOLDER"
    )


def test_a_target_that_can_not_be_written_to(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, who can write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (target, os.W_OK))
    with pytest.raises(McnbError) as error:
        copy_lessons(source, target)
    assert str(error.value) == (
        f"The lessons can't be written to {target}: Permission denied. "
        "Name a folder of yours: mcnb lab FOLDER"
    )
    assert read(target) == {}


def test_no_half_lesson_stays_on_a_full_disk(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "read_bytes", full)
    with pytest.raises(McnbError) as error:
        copy_lessons(source, target)
    assert str(error.value) == (
        f"The lessons can't be written to {target}: No space left on device. "
        "Name a folder of yours: mcnb lab FOLDER"
    )
    assert read(target) == {}


@pytest.mark.parametrize(
    ("changed", "files"), [(1, "1 file there differs"), (2, "2 files there differ")]
)
def test_what_was_kept_is_said(changed: int, files: str) -> None:
    folder = Path("/home/ada/mcnb-lessons")
    assert describe_folder(folder, 0) == "The lessons are in /home/ada/mcnb-lessons"
    assert describe_folder(folder, changed) == (
        f"The lessons are in /home/ada/mcnb-lessons\n{files} from what mcnb {mcnb.__version__} "
        "brings and stayed as before. For fresh copies, name a new folder: mcnb lab another-folder"
    )


# Starting JupyterLab


def options(folder: Path, *arguments: str) -> list[str]:
    python, *options = command_line(folder, arguments)
    assert python == sys.executable
    assert options[:3] == ["-P", "-m", "jupyterlab"]
    return options[3:]


def test_jupyterlab_opens_the_first_lesson_on_this_machine_only(tmp_path: Path) -> None:
    write(tmp_path, {"02.ipynb": "", "01 hello.ipynb": ""})
    assert options(tmp_path) == [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={tmp_path}",
        "--LabApp.default_url=/lab/tree/01%20hello.ipynb",
    ]


@pytest.mark.parametrize(
    ("argument", "ours"),
    [
        ("--ip=0.0.0.0", "ServerApp.ip"),
        ("--ServerApp.ip=0.0.0.0", "ServerApp.ip"),
        ("--LabApp.default_url=/lab", "LabApp.default_url"),
    ],
)
def test_the_users_options_win(tmp_path: Path, argument: str, ours: str) -> None:
    write(tmp_path, {"01.ipynb": ""})
    kept = [option for option in options(tmp_path) if not option.startswith(f"--{ours}=")]
    assert len(kept) == 2
    assert options(tmp_path, argument, "--no-browser") == [*kept, argument, "--no-browser"]


@pytest.mark.parametrize("argument", ["--notebook-dir=/data", "--ServerApp.root_dir=/data"])
def test_no_lesson_is_opened_in_another_folder(tmp_path: Path, argument: str) -> None:
    write(tmp_path, {"01.ipynb": ""})
    assert options(tmp_path, argument) == ["--ServerApp.ip=127.0.0.1", argument]


def test_no_jupyterlab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(McnbError) as error:
        lab.open_lab()
    assert str(error.value) == (
        'JupyterLab is not installed for this Python. Install it: python -m pip install "mcnb[lab]"'
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 128 + 9)],
)
def test_the_exit_code_is_jupyterlabs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, expected: int
) -> None:
    monkeypatch.setattr(lab, "command_line", lambda *_: [sys.executable, "-c", code])
    assert lab.open_lab(str(tmp_path / "lessons")) == expected


def test_jupyterlab_takes_this_pythons_kernel(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code = (
        "from jupyter_client.kernelspec import KernelSpecManager as Manager; "
        "print(Manager().get_kernel_spec('python3').argv[0])"
    )
    stranger = {"argv": ["another-python"], "display_name": "Python 3", "language": "python"}
    write(tmp_path, {"data/kernels/python3/kernel.json": json.dumps(stranger)})
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(lab, "command_line", lambda *_: [sys.executable, "-c", code])
    folder = tmp_path / "lessons"
    assert lab.open_lab(str(folder)) == 0
    assert capfd.readouterr().out == f"The lessons are in {folder}\n{sys.executable}\n"


@pytest.mark.slow
def test_jupyterlab_serves_the_lessons_until_it_is_told_to_end(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    request = urllib.request.Request(  # noqa: S310
        f"http://127.0.0.1:{port}/api/contents", headers={"Authorization": "token ada"}
    )

    def names() -> set[str]:
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return {entry["name"] for entry in json.load(answer)["content"]}
        except OSError:
            return set()

    arguments = [
        "--no-browser",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=ada",
        "--allow-root",
    ]
    folder, log = tmp_path / "lessons", tmp_path / "log"
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, "lab", str(folder), "--", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own},
        )
    family = [psutil.Process(process.pid)]
    try:
        served = wait_until(lambda: process.poll() is not None or names(), timeout=20)
        family += family[0].children(recursive=True)
        assert served, log.read_text()
        assert names() >= {"01_hello_controllers.ipynb", "toy.py"}, log.read_text()
        assert "/lab/tree/01_hello_controllers.ipynb?token=ada" in log.read_text()
        assert log.read_text().startswith(f"The lessons are in {folder}\n")
        process.send_signal(signal.SIGINT)  # JupyterLab decides what Ctrl-C means
        assert names(), log.read_text()
        process.terminate()
        assert process.wait(timeout=10) == 0, log.read_text()
        assert wait_until(lambda: not any(member.is_running() for member in family))
    finally:
        for member in family:
            if member.is_running():
                member.kill()
        process.wait()
