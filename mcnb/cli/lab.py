"""Open JupyterLab on copies of the lessons, in a folder that the learner may write to."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcnb import __version__
from mcnb._lessons import INSTALL_LAB, REINSTALL
from mcnb._text import plural
from mcnb.cli.progress import is_sealed, marked, progress_in, sealed
from mcnb.errors import McnbError
from mcnb.notebook import saving

LESSONS_FOLDER = "mcnb-lessons"
# JupyterLab's short names for options that mcnb sets: it refuses an option that is given twice.
_SHORT_NAMES = {
    "expose-app-in-browser": "LabApp.expose_app_in_browser",
    "ip": "ServerApp.ip",
    "notebook-dir": "ServerApp.root_dir",
}
# A page that leads to the lessons.
FIRST_PAGE = "README.md"
# The tag of cells that need the compiler for TPUs.
NEEDS_TPU = "needs-tpu"
# JupyterLab's configuration by file name.
_CONFIGURATION = {
    # The first page is read, not edited. What a learner sets in JupyterLab goes first.
    "default_setting_overrides": {
        "@jupyterlab/docmanager-extension:plugin": {
            "defaultViewers": {"markdown": "Markdown Preview"}
        }
    },
    # A question about news, and a panel that starts other engines than those of mcnb.
    "page_config": {
        "disabledExtensions": {
            "@jupyterlab/apputils-extension:announcements": True,
            "ipyparallel-labextension": True,
        }
    },
}


def choose_folder(given: str | None, current: Path) -> Path:
    """Choose the folder to open.

    Args:
        given: The folder that the user named, if any.
        current: The current folder.

    Example:
        >>> print(choose_folder(None, Path("/home/ada")))
        /home/ada/mcnb-lessons
    """
    if given is not None:
        return current / given
    # Called again from inside the folder: a second copy in the first would be a surprise.
    return current if current.name == LESSONS_FOLDER else current / LESSONS_FOLDER


def copy_lessons(source: Path, target: Path) -> int:
    """Copy the lessons that are missing, without outputs; existing files stay as they are.

    Only the first page, unless the user has changed it, is written anew: with marks of what is
    solved.

    Args:
        source: The lessons of the package.
        target: The folder to copy to, created if it does not exist.

    Returns:
        The number of existing files that differ from the package's.

    Raises:
        McnbError: `target` can't be written to, or the lessons there would not be copies.
    """
    _refuse_originals(source, target)
    try:
        if target.is_file():
            raise McnbError(
                f"{target} is a file, and the lessons need a folder. Name another: mcnb lab FOLDER"
            )
        target.mkdir(parents=True, exist_ok=True)
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        changed = 0
        for file in sorted(_shipped(source)):
            content = _for_learners(source / file)
            if file == Path(FIRST_PAGE):
                changed += not _write_page(target, content.decode())
            elif not os.path.lexists(target / file):
                _write_new(target / file, content)
            else:
                same = (target / file).is_file() and (target / file).read_bytes() == content
                changed += not same
    except OSError as error:
        raise McnbError(
            f"The lessons can't be written to {target}: {error.strerror}. "
            "Name a folder of yours: mcnb lab FOLDER"
        ) from None
    return changed


def _refuse_originals(source: Path, target: Path) -> None:
    """Raise an error if a learner would work on the lessons of the package, or mix files with them.

    Copies inside the lessons would be taken for lessons by the next call, except in a folder of the
    default name, which `_shipped` leaves out.
    """
    # Links and `..` are resolved first: both may lead to the lessons.
    real_source, real = (Path(os.path.realpath(path)) for path in (source, target))
    if real == real_source:
        what = f"{target} is the folder of the lessons that come with mcnb"
    elif real == real_source.parent:
        what = f"{target} holds mcnb itself, with its lessons in {source}"
    elif (
        real.is_relative_to(real_source)
        and LESSONS_FOLDER not in real.relative_to(real_source).parts
    ):
        what = f"{target} is inside {source}, the folder of the lessons that come with mcnb"
    else:
        return
    raise McnbError(
        f"{what}. mcnb lab opens copies, so that these lessons stay as they are. Name another "
        "folder, for example: mcnb lab ~/my-lessons"
    )


def _shipped(source: Path) -> Iterator[Path]:
    for path in source.rglob("*"):
        file = path.relative_to(source)
        made_by_use = any(
            part.startswith((".", "__")) or part == LESSONS_FOLDER for part in file.parts
        )
        # What a lesson is written in; the notebook says the same.
        twin = path.suffix == ".md" and path.with_suffix(".ipynb").exists()
        if path.is_file() and not (made_by_use or twin):
            yield file


def _write_page(target: Path, page: str) -> bool:
    """Write the first page, with marks of what is solved, unless the user has changed it.

    Returns:
        Whether the page is mcnb's own.
    """
    path = target / FIRST_PAGE
    content = sealed(marked(page, progress_in(target, page))).encode()
    if not os.path.lexists(path):
        _write_new(path, content)
        return True
    if path.is_symlink() or not path.is_file():
        return False
    before = path.read_bytes()
    if not is_sealed(before.decode(errors="replace")):
        return False
    if before != content:
        # The marks are not worth an error.
        with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir=target) as folder:
            fresh = Path(folder, FIRST_PAGE)
            fresh.write_bytes(content)
            fresh.replace(path)
    return True


def _for_learners(path: Path) -> bytes:
    """Return a file as a learner finds it: a notebook asks, and has no outputs and no twin."""
    from mcnb.exercises.predictions import with_forms

    if path.suffix != ".ipynb":
        return path.read_bytes()
    try:
        notebook = json.loads(path.read_bytes())
    except ValueError as error:
        what = f"mcnb's lesson {path} can't be read as a notebook: {error}"
        raise McnbError.remedied(what, REINSTALL, "Reinstall mcnb") from None
    # With this, Jupytext would write an .md beside it, and prefer the newer one of the two.
    notebook["metadata"].pop("jupytext", None)
    for cell in notebook["cells"]:
        # A cell that most machines can't execute keeps its output, to be read.
        if cell["cell_type"] == "code" and NEEDS_TPU not in cell["metadata"].get("tags", []):
            cell["outputs"], cell["execution_count"] = [], None
    notebook["cells"] = with_forms(notebook["cells"], path.name[:2])
    return (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()


def _write_new(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:  # x: never over a file created meanwhile
        try:
            file.write(content)
            file.flush()
        except OSError:
            path.unlink()  # half a lesson would count as changed by the user
            raise
    if path.suffix == ".ipynb":
        _trust(content)


def _trust(notebook: bytes) -> None:
    """Sign a notebook of the package, so that JupyterLab trusts it and draws its pictures.

    A notebook without outputs is signed, too: until it is saved, JupyterLab would call it "not
    trusted" in its status bar.
    """
    if importlib.util.find_spec("nbformat") is None:  # as JupyterLab, which needs it
        return
    import nbformat
    from nbformat.sign import NotebookNotary

    # In a home folder that can't be written to, the pictures stay away, and the lesson works.
    with contextlib.suppress(OSError, sqlite3.Error):
        notary = NotebookNotary()
        notary.sign(nbformat.reads(notebook.decode(), as_version=4))
        notary.store.close()


def describe_folder(folder: Path, changed: int) -> str:
    """Describe where the lessons are, and that the user's changes were kept.

    Example:
        >>> print(describe_folder(Path("/home/ada/mcnb-lessons"), 0))
        The lessons are in /home/ada/mcnb-lessons
    """
    if changed == 0:
        return f"The lessons are in {folder}"
    differ = plural(changed, "file there differs", "files there differ")
    return (
        f"The lessons are in {folder}\n{differ} from what mcnb {__version__} brings and stayed as "
        "before. For fresh copies, name a new folder: mcnb lab another-folder"
    )


def command_line(folder: Path, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that starts JupyterLab, with the first page open.

    Args:
        folder: The folder to open.
        arguments: The user's own arguments for JupyterLab, which take precedence.

    Example:
        >>> for word in command_line(Path("/home/ada/jax"), ["--ip=::1"])[3:]:
        ...     print(word)
        jupyterlab
        --ServerApp.root_dir=/home/ada/jax
        --LabApp.expose_app_in_browser=True
        --ServerApp.jpserver_extensions=mcnb.notebook.saving=True
        --ip=::1
    """
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.root_dir": str(folder),
        # The form of a question runs the next cell.
        "LabApp.expose_app_in_browser": "True",
        "ServerApp.jpserver_extensions": f"{saving.__name__}=True",
    }
    given = {word[2:].partition("=")[0] for word in arguments if word.startswith("--")}
    given |= {_SHORT_NAMES[name] for name in given & _SHORT_NAMES.keys()}
    if (folder / FIRST_PAGE).exists() and "ServerApp.root_dir" not in given:
        # Unlike a path argument, this is also part of the address that --no-browser prints.
        options["LabApp.default_url"] = f"/lab/tree/{FIRST_PAGE}"
    ours = [f"--{name}={value}" for name, value in options.items() if name not in given]
    return [sys.executable, "-P", "-m", "jupyterlab", *ours, *arguments]


def start_jupyterlab(command: Sequence[str]) -> int:
    """Start JupyterLab, and return its exit code when it ends.

    Args:
        command: The command line of JupyterLab.

    Raises:
        McnbError: JupyterLab is not installed.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise McnbError(f"JupyterLab is not installed for this Python. Install it: {INSTALL_LAB}")
    from ipykernel.kernelspec import write_kernel_spec

    # A python3 kernel in the user's home may be another Python, and Jupyter would use that one:
    # its ensure_native_kernel adds this Python only if there is no python3 at all.
    with tempfile.TemporaryDirectory(prefix="mcnb-jupyter-") as folder:
        write_kernel_spec(Path(folder, "kernels", "python3"))
        configuration = Path(folder, "labconfig")
        configuration.mkdir()
        for name, value in _CONFIGURATION.items():
            (configuration / f"{name}.json").write_text(json.dumps(value))
        paths = {
            name: os.pathsep.join(filter(None, [folder, os.environ.get(name)]))
            for name in ("JUPYTER_PATH", "JUPYTER_CONFIG_PATH")
        }
        process = subprocess.Popen(command, env={**os.environ, **paths})
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        while process.returncode is None:
            try:
                process.wait()
            except KeyboardInterrupt:
                # A terminal also sends Ctrl-C to JupyterLab, which asks there for confirmation.
                if not (sys.stdin and sys.stdin.isatty()):
                    process.terminate()
        signal.signal(signal.SIGTERM, before)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
