"""`mcnb lab`: which folder, what is copied there, and a JupyterLab that really starts."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.sign import NotebookNotary

import mcnb
from mcnb import _lessons
from mcnb.cli import lab
from mcnb.cli.progress import sealed
from mcnb.errors import McnbError

PICTURE = {"output_type": "display_data", "data": {"image/svg+xml": "<svg/>"}, "metadata": {}}


def notebook(name: str, *, stored: bool, twin: bool = False) -> str:
    """Return a notebook with a text, a cell and a cell for the compiler of TPUs."""
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "metadata": {}, "source": [f"# {name} \u00b7 \u00e4\n"]},
        *(
            {
                "cell_type": "code",
                "execution_count": 3 if kept or stored else None,
                "metadata": {"tags": tags} if tags else {},
                "outputs": [PICTURE] if kept or stored else [],
                "source": ["1 / 0"],
            }
            for tags, kept in (([], False), (["raises-exception"], False), (["needs-tpu"], True))
        ),
    ]
    metadata: dict[str, Any] = {"kernelspec": {"display_name": "Python 3", "name": "python3"}}
    if twin:
        metadata = {"jupytext": {"formats": "ipynb,md:myst"}, **metadata}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """Lessons as a wheel brings them."""
    folder = tmp_path / "site-packages" / "mcnb" / "notebooks"
    (folder / "solutions").mkdir(parents=True)
    for name in ("01_hello", "02_more"):
        (folder / f"{name}.ipynb").write_text(notebook(name, stored=True, twin=True))
        (folder / f"{name}.md").write_text(f"what {name} is written in")
    for name in ("README.md", "toy.py", "solutions/01_hello.py"):
        (folder / name).write_text(f"shipped {name}")
    return folder


COPIED = {
    "01_hello.ipynb": notebook("01_hello", stored=False),
    "02_more.ipynb": notebook("02_more", stored=False),
    "README.md": sealed("shipped README.md"),
    "toy.py": "shipped toy.py",
    "solutions/01_hello.py": "shipped solutions/01_hello.py",
}


@pytest.fixture(autouse=True)
def signatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jupyter's folder for which notebooks are trusted."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_wheels_lessons_are_found(shipped: Path) -> None:
    assert _lessons.find_lessons(shipped.parent) == shipped


def test_a_checkouts_lessons_are_found(tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_hello.ipynb").touch()
    (tmp_path / "pyproject.toml").touch()
    assert _lessons.find_lessons(tmp_path / "mcnb") == tmp_path / "notebooks"


def test_a_folder_beside_a_wheel_is_not_taken_for_a_checkout(shipped: Path) -> None:
    beside = shipped.parent.parent / "notebooks"
    beside.mkdir()
    (beside / "01_other.ipynb").touch()
    assert _lessons.find_lessons(shipped.parent) == shipped


def test_lessons_that_are_nowhere(tmp_path: Path) -> None:
    with pytest.raises(McnbError) as caught:
        _lessons.find_lessons(tmp_path)
    assert str(caught.value) == (
        f"mcnb's lessons are not in {tmp_path / 'notebooks'}. Reinstall mcnb: "
        "python -m pip install --force-reinstall --no-deps mcnb"
    )


@pytest.mark.parametrize(
    ("given", "current", "chosen"),
    [
        (None, "/home/ada", "/home/ada/mcnb-lessons"),
        (None, "/home/ada/mcnb-lessons", "/home/ada/mcnb-lessons"),
        ("jax", "/home/ada", "/home/ada/jax"),
        ("/data/jax", "/home/ada", "/data/jax"),
    ],
)
def test_choose_folder(given: str | None, current: str, chosen: str) -> None:
    assert lab.choose_folder(given, Path(current)) == Path(chosen)


def test_lessons_are_copied_without_outputs_and_twins(shipped: Path, tmp_path: Path) -> None:
    for made_by_use in (
        ".ipynb_checkpoints/01_hello.ipynb",
        "__pycache__/toy.pyc",
        "mcnb-lessons/toy.py",
    ):
        (shipped / made_by_use).parent.mkdir()
        (shipped / made_by_use).touch()
    before = contents(shipped)
    target = tmp_path / "a" / "b"
    assert lab.copy_lessons(shipped, target) == 0
    assert contents(target) == COPIED
    assert contents(shipped) == before
    times = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    assert lab.copy_lessons(shipped, target) == 0
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == times


def test_a_copy_asks_below_each_question(shipped: Path, tmp_path: Path) -> None:
    lesson = json.loads(notebook("01_hello", stored=True))
    lesson["cells"][0]["source"] = ["So: ", "**Predict:** How many lines will you see?"]
    (shipped / "01_hello.ipynb").write_text(json.dumps(lesson))
    lab.copy_lessons(shipped, tmp_path / "mine")
    copied = json.loads((tmp_path / "mine" / "01_hello.ipynb").read_text())["cells"]
    asking = copied.pop(1)
    assert asking == {
        "cell_type": "code",
        "execution_count": None,
        "id": "predict-01-a",
        "metadata": {},
        "outputs": [],
        "source": 'import mcnb\n\nmcnb.predict("01.a")',
    }
    assert [cell["source"] for cell in copied] == [cell["source"] for cell in lesson["cells"]]


def test_pictures_of_the_package_are_trusted_and_those_of_others_are_not(
    shipped: Path, tmp_path: Path
) -> None:
    target = tmp_path / "mine"
    lab.copy_lessons(shipped, target)
    notary = NotebookNotary()
    try:
        copied = nbformat.read(target / "01_hello.ipynb", as_version=4)
        assert notary.check_signature(copied)
        copied.cells[1].outputs = [nbformat.from_dict(PICTURE)]
        assert not notary.check_signature(copied)
    finally:
        notary.store.close()


def test_lessons_without_outputs_are_trusted_too(shipped: Path, tmp_path: Path) -> None:
    plain = json.loads(notebook("02_more", stored=True))
    del plain["cells"][-1]  # the cell whose output is kept
    (shipped / "02_more.ipynb").write_text(json.dumps(plain))
    text = {"cells": plain["cells"][:1], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    (shipped / "03_text.ipynb").write_text(json.dumps(text))
    target = tmp_path / "mine"
    lab.copy_lessons(shipped, target)
    notary = NotebookNotary()
    try:
        for name in ("01_hello", "02_more", "03_text"):
            # As JupyterLab's server does when it reads a notebook.
            assert notary.check_signature(nbformat.read(target / f"{name}.ipynb", as_version=4))
    finally:
        notary.store.close()


@pytest.mark.parametrize("error", [OSError(13, "Permission denied"), sqlite3.Error("readonly")])
def test_a_home_folder_that_can_not_be_written_to_is_no_error(
    error: Exception, shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(NotebookNotary, "sign", fail)
    assert lab.copy_lessons(shipped, tmp_path / "mine") == 0
    assert contents(tmp_path / "mine") == COPIED


def test_a_lesson_that_is_broken_is_named(shipped: Path, tmp_path: Path) -> None:
    (shipped / "02_more.ipynb").write_text("<<<<<<< HEAD")
    with pytest.raises(McnbError) as caught:
        lab.copy_lessons(shipped, tmp_path / "mine")
    assert str(caught.value) == (
        f"mcnb's lesson {shipped / '02_more.ipynb'} can't be read as a notebook: Expecting value: "
        "line 1 column 1 (char 0). Reinstall mcnb: "
        "python -m pip install --force-reinstall --no-deps mcnb"
    )


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
    (shipped / "01_hello.ipynb").write_text(notebook("01_hello, better", stored=True))
    (shipped / "03_new.ipynb").write_text(notebook("03_new", stored=True))
    assert lab.copy_lessons(shipped, target) == 1
    assert contents(target) == {**COPIED, "03_new.ipynb": notebook("03_new", stored=False)}


def test_links_and_folders_of_the_user_stay(shipped: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    (target / "toy.py").mkdir(parents=True)
    (target / "02_more.ipynb").symlink_to(tmp_path / "nowhere")
    assert lab.copy_lessons(shipped, target) == 2
    assert (target / "toy.py").is_dir()
    assert (target / "02_more.ipynb").is_symlink()
    assert not (tmp_path / "nowhere").exists()


def test_a_copy_inside_the_lessons_does_not_nest(shipped: Path, tmp_path: Path) -> None:
    for folder in ("mcnb-lessons", "solutions/mcnb-lessons", "mcnb-lessons/mine"):
        for _ in range(2):
            assert lab.copy_lessons(shipped, shipped / folder) == 0
    for folder in ("mcnb-lessons/mine", "solutions/mcnb-lessons"):
        assert contents(shipped / folder) == COPIED
    assert lab.copy_lessons(shipped, tmp_path / "elsewhere") == 0
    assert contents(tmp_path / "elsewhere") == COPIED


@pytest.mark.parametrize(
    ("folder", "what"),
    [
        ("notebooks", "FOLDER is the folder of the lessons that come with mcnb"),
        ("../mcnb/notebooks", "FOLDER is the folder of the lessons that come with mcnb"),
        ("notebooks/solutions/..", "FOLDER is the folder of the lessons that come with mcnb"),
        ("link", "FOLDER is the folder of the lessons that come with mcnb"),
        ("notebooks/..", "FOLDER holds mcnb itself, with its lessons in SOURCE"),
        (".", "FOLDER holds mcnb itself, with its lessons in SOURCE"),
        (
            "notebooks/solutions",
            "FOLDER is inside SOURCE, the folder of the lessons that come with mcnb",
        ),
        (
            "notebooks/mine",
            "FOLDER is inside SOURCE, the folder of the lessons that come with mcnb",
        ),
        (
            "link/mine",
            "FOLDER is inside SOURCE, the folder of the lessons that come with mcnb",
        ),
    ],
)
def test_the_lessons_themselves_are_not_opened(folder: str, what: str, shipped: Path) -> None:
    (shipped.parent / "link").symlink_to(shipped)
    before = contents(shipped.parent)
    target = shipped.parent / folder
    with pytest.raises(McnbError) as caught:
        lab.copy_lessons(shipped, target)
    what = what.replace("FOLDER", str(target)).replace("SOURCE", str(shipped))
    assert str(caught.value) == (
        f"{what}. mcnb lab opens copies, so that these lessons stay as they are. Name another "
        "folder, for example: mcnb lab ~/my-lessons"
    )
    assert contents(shipped.parent) == before


def test_a_link_to_the_lessons_is_looked_through_from_both_sides(shipped: Path) -> None:
    link = shipped.parent / "link"
    link.symlink_to(shipped)
    with pytest.raises(McnbError) as caught:
        lab.copy_lessons(link, shipped)
    assert str(caught.value) == (
        f"{shipped} is the folder of the lessons that come with mcnb. mcnb lab opens copies, so "
        "that these lessons stay as they are. Name another folder, for example: "
        "mcnb lab ~/my-lessons"
    )


def test_a_home_folder_that_holds_an_installed_mcnb(shipped: Path, tmp_path: Path) -> None:
    before = contents(shipped)
    (tmp_path / "toy.py").write_text("my own")
    assert lab.copy_lessons(shipped, tmp_path) == 1
    copied = {name: (tmp_path / name).read_text() for name in COPIED}
    assert copied == {**COPIED, "toy.py": "my own"}
    assert contents(shipped) == before


def test_half_a_file_is_not_left_behind(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.BytesIO):
        def write(self, content: object) -> int:
            raise OSError(28, "No space left on device")

    before = Path.open

    def full(path: Path, mode: str = "r", *others: Any, **more: Any) -> Any:
        opened = before(path, mode, *others, **more)
        if "x" not in mode:
            return opened
        opened.close()
        return Full()

    monkeypatch.setattr(Path, "open", full)
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
            "--LabApp.expose_app_in_browser=True EXTENSION "
            "--LabApp.default_url=/lab/tree/README.md",
        ),
        (
            ["--no-browser", "--port=9999"],
            "--ServerApp.ip=127.0.0.1 --ServerApp.root_dir=FOLDER "
            "--LabApp.expose_app_in_browser=True EXTENSION "
            "--LabApp.default_url=/lab/tree/README.md",
        ),
        (
            ["--ip=0.0.0.0"],
            "--ServerApp.root_dir=FOLDER --LabApp.expose_app_in_browser=True EXTENSION "
            "--LabApp.default_url=/lab/tree/README.md",
        ),
        (
            ["--ServerApp.ip", "::1"],
            "--ServerApp.root_dir=FOLDER --LabApp.expose_app_in_browser=True EXTENSION "
            "--LabApp.default_url=/lab/tree/README.md",
        ),
        (
            ["--notebook-dir=/x"],
            "--ServerApp.ip=127.0.0.1 --LabApp.expose_app_in_browser=True EXTENSION",
        ),
        (
            ["--LabApp.default_url=/lab"],
            "--ServerApp.ip=127.0.0.1 --ServerApp.root_dir=FOLDER "
            "--LabApp.expose_app_in_browser=True EXTENSION",
        ),
        (
            ["--LabApp.default_url=/lab", "--expose-app-in-browser"],
            "--ServerApp.ip=127.0.0.1 --ServerApp.root_dir=FOLDER EXTENSION",
        ),
        (
            ["--LabApp.default_url=/lab", "--ServerApp.jpserver_extensions=theirs=True"],
            "--ServerApp.ip=127.0.0.1 --ServerApp.root_dir=FOLDER "
            "--LabApp.expose_app_in_browser=True",
        ),
    ],
)
def test_command_line(arguments: list[str], ours: str, shipped: Path) -> None:
    start = [sys.executable, "-P", "-m", "jupyterlab"]
    extension = "--ServerApp.jpserver_extensions=mcnb.notebook.saving=True"
    given = ours.replace("FOLDER", str(shipped)).replace("EXTENSION", extension)
    options = given.split()
    assert lab.command_line(shipped, arguments) == [*start, *options, *arguments]


def test_a_folder_without_the_first_page_is_opened_all_the_same(tmp_path: Path) -> None:
    assert lab.command_line(tmp_path)[-3:] == [
        f"--ServerApp.root_dir={tmp_path}",
        "--LabApp.expose_app_in_browser=True",
        "--ServerApp.jpserver_extensions=mcnb.notebook.saving=True",
    ]


def test_jupyterlab_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(McnbError) as caught:
        lab.start_jupyterlab([])
    assert str(caught.value) == (
        'JupyterLab is not installed for this Python. Install it: python -m pip install "mcnb[lab]"'
    )
