"""`mcnb lab`: which folder, what is copied there, and a JupyterLab that really starts."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import mcnb
from mcnb import _lessons
from mcnb.cli import lab
from mcnb.errors import McnbError


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """Lessons as a wheel brings them."""
    folder = tmp_path / "site-packages" / "mcnb" / "notebooks"
    (folder / "solutions").mkdir(parents=True)
    for name in ("01_hello.ipynb", "01_hello.md", "02_more.ipynb", "02_more.md", "toy.py"):
        (folder / name).write_text(f"shipped {name}")
    (folder / "solutions" / "01_hello.py").write_text("shipped solution")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_wheels_lessons_are_found(shipped: Path) -> None:
    assert _lessons.find_lessons(shipped.parent) == (shipped, False)


def test_a_checkouts_lessons_are_found(tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_hello.ipynb").touch()
    (tmp_path / "pyproject.toml").touch()
    assert _lessons.find_lessons(tmp_path / "mcnb") == (tmp_path / "notebooks", True)


def test_a_folder_beside_a_wheel_is_not_taken_for_a_checkout(shipped: Path) -> None:
    beside = shipped.parent.parent / "notebooks"
    beside.mkdir()
    (beside / "01_other.ipynb").touch()
    assert _lessons.find_lessons(shipped.parent) == (shipped, False)


def test_lessons_that_are_nowhere(tmp_path: Path) -> None:
    with pytest.raises(McnbError) as caught:
        _lessons.find_lessons(tmp_path)
    assert str(caught.value) == (
        f"mcnb's lessons are not in {tmp_path / 'notebooks'}. Reinstall mcnb: "
        "python -m pip install --force-reinstall --no-deps mcnb"
    )


@pytest.mark.parametrize(
    ("given", "itself", "current", "chosen"),
    [
        (None, None, "/home/ada", "/home/ada/mcnb-lessons"),
        (None, None, "/home/ada/mcnb-lessons", "/home/ada/mcnb-lessons"),
        (None, "/src/notebooks", "/home/ada", "/src/notebooks"),
        ("jax", "/src/notebooks", "/home/ada", "/home/ada/jax"),
        ("jax", None, "/home/ada", "/home/ada/jax"),
        ("/data/jax", None, "/home/ada", "/data/jax"),
    ],
)
def test_choose_folder(given: str | None, itself: str | None, current: str, chosen: str) -> None:
    found = lab.choose_folder(given, itself and Path(itself), Path(current))
    assert found == Path(chosen)


def test_everything_is_copied_but_what_use_leaves(shipped: Path, tmp_path: Path) -> None:
    expected = contents(shipped)
    for made_by_use in (".ipynb_checkpoints/01_hello.ipynb", "__pycache__/toy.pyc"):
        (shipped / made_by_use).parent.mkdir()
        (shipped / made_by_use).touch()
    target = tmp_path / "a" / "b"
    assert lab.copy_lessons(shipped, target) == 0
    assert contents(target) == expected
    times = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    assert times[target / "01_hello.ipynb"] <= times[target / "01_hello.md"]
    assert lab.copy_lessons(shipped, target) == 0
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == times


def test_the_users_work_is_never_overwritten(shipped: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    lab.copy_lessons(shipped, target)
    (target / "01_hello.ipynb").write_text("my work")
    (target / "solutions" / "01_hello.py").write_text("my solution")
    (target / "notes.txt").write_text("my notes")
    (target / "toy.py").unlink()
    before = contents(target)
    assert lab.copy_lessons(shipped, target) == 2
    assert contents(target) == {**before, "toy.py": "shipped toy.py"}


def test_a_new_version_leaves_old_copies_and_adds_new_lessons(
    shipped: Path, tmp_path: Path
) -> None:
    target = tmp_path / "mine"
    lab.copy_lessons(shipped, target)
    before = contents(target)
    (shipped / "01_hello.md").write_text("shipped anew")
    (shipped / "03_new.ipynb").write_text("shipped 03")
    assert lab.copy_lessons(shipped, target) == 1
    assert contents(target) == {**before, "03_new.ipynb": "shipped 03"}


@pytest.mark.parametrize(
    ("mine", "gone"), [("01_hello.ipynb", "01_hello.md"), ("01_hello.md", "01_hello.ipynb")]
)
def test_no_half_of_a_changed_pair_is_added(
    mine: str, gone: str, shipped: Path, tmp_path: Path
) -> None:
    # Jupytext would read the text of a new .md in place of the user's own notebook.
    target = tmp_path / "mine"
    lab.copy_lessons(shipped, target)
    (target / mine).write_text("my work")
    (target / gone).unlink()
    before = contents(target)
    assert lab.copy_lessons(shipped, target) == 1
    assert contents(target) == before
    (target / mine).unlink()
    assert lab.copy_lessons(shipped, target) == 0
    assert contents(target) == contents(shipped)


def test_links_and_folders_of_the_user_stay(shipped: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    (target / "toy.py").mkdir(parents=True)
    (target / "02_more.md").symlink_to(tmp_path / "nowhere")
    assert lab.copy_lessons(shipped, target) == 2
    assert (target / "toy.py").is_dir()
    assert (target / "02_more.md").is_symlink()
    assert not (tmp_path / "nowhere").exists()


def test_a_copy_inside_the_lessons_does_not_nest(shipped: Path) -> None:
    expected = contents(shipped)
    for _ in range(2):
        assert lab.copy_lessons(shipped, shipped / "mine") == 0
        assert contents(shipped / "mine") == expected


def test_half_a_file_is_not_left_behind(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(McnbError) as caught:
        lab.copy_lessons(shipped, tmp_path / "mine")
    assert str(caught.value) == (
        f"The lessons can't be written to {tmp_path / 'mine'}: No space left on device. "
        "Name a folder of yours: mcnb lab FOLDER"
    )
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_folder_that_is_a_file(shipped: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(McnbError) as caught:
        lab.copy_lessons(shipped, tmp_path / "notes.txt")
    assert str(caught.value) == (
        f"{tmp_path / 'notes.txt'} is a file, and the lessons need a folder. "
        "Name another: mcnb lab FOLDER"
    )
    with pytest.raises(McnbError) as caught:
        lab.copy_lessons(shipped, tmp_path / "notes.txt" / "below")
    assert str(caught.value) == (
        f"The lessons can't be written to {tmp_path / 'notes.txt' / 'below'}: Not a directory. "
        "Name a folder of yours: mcnb lab FOLDER"
    )


def test_a_folder_that_cannot_be_written_to(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(McnbError) as caught:
        lab.copy_lessons(shipped, tmp_path / "mine")
    assert str(caught.value) == (
        f"The lessons can't be written to {tmp_path / 'mine'}: Permission denied. "
        "Name a folder of yours: mcnb lab FOLDER"
    )


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (0, ""),
        (1, "\n1 file there differs from what mcnb VERSION brings and stayed as before. MORE"),
        (3, "\n3 files there differ from what mcnb VERSION brings and stayed as before. MORE"),
    ],
)
def test_describe_folder(changed: int, text: str) -> None:
    text = text.replace("VERSION", mcnb.__version__).replace(
        "MORE", "For fresh copies, name a new folder: mcnb lab another-folder"
    )
    folder = Path("/home/ada/jax")
    assert lab.describe_folder(folder, changed) == f"The lessons are in /home/ada/jax{text}"


@pytest.mark.parametrize(
    ("arguments", "ours"),
    [
        (
            [],
            "--ServerApp.ip=127.0.0.1 --ServerApp.root_dir=FOLDER "
            "--LabApp.default_url=/lab/tree/01_hello.ipynb",
        ),
        (
            ["--no-browser", "--port=9999"],
            "--ServerApp.ip=127.0.0.1 --ServerApp.root_dir=FOLDER "
            "--LabApp.default_url=/lab/tree/01_hello.ipynb",
        ),
        (
            ["--ip=0.0.0.0"],
            "--ServerApp.root_dir=FOLDER --LabApp.default_url=/lab/tree/01_hello.ipynb",
        ),
        (
            ["--ServerApp.ip", "::1"],
            "--ServerApp.root_dir=FOLDER --LabApp.default_url=/lab/tree/01_hello.ipynb",
        ),
        (["--notebook-dir=/x"], "--ServerApp.ip=127.0.0.1"),
        (["--LabApp.default_url=/lab"], "--ServerApp.ip=127.0.0.1 --ServerApp.root_dir=FOLDER"),
    ],
)
def test_command_line(arguments: list[str], ours: str, shipped: Path) -> None:
    start = [sys.executable, "-P", "-m", "jupyterlab"]
    options = [option.replace("FOLDER", str(shipped)) for option in ours.split()]
    assert lab.command_line(shipped, arguments) == [*start, *options, *arguments]


def test_a_lessons_name_is_quoted_in_the_address(tmp_path: Path) -> None:
    (tmp_path / "01 hello.ipynb").touch()
    assert lab.command_line(tmp_path)[-1] == "--LabApp.default_url=/lab/tree/01%20hello.ipynb"


def test_jupyterlab_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(McnbError) as caught:
        lab.start_jupyterlab([])
    assert str(caught.value) == (
        'JupyterLab is not installed for this Python. Install it: python -m pip install "mcnb[lab]"'
    )
