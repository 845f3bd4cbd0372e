"""Open JupyterLab on the lessons, in a folder that the learner may write to."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path

from mcnb import __version__
from mcnb._lessons import INSTALL_LAB
from mcnb._text import plural
from mcnb.errors import McnbError

LESSONS_FOLDER = "mcnb-lessons"
# JupyterLab's short names for options that mcnb sets: it refuses an option that is given twice.
_SHORT_NAMES = {"ip": "ServerApp.ip", "notebook-dir": "ServerApp.root_dir"}
# Jupytext keeps the two as one notebook, and the newer .md overrides the .ipynb beside it.
_PARTNERS = {".ipynb": ".md", ".md": ".ipynb"}


def choose_folder(given: str | None, opened_itself: Path | None, current: Path) -> Path:
    """Choose the folder to open.

    Args:
        given: The folder that the user named, if any.
        opened_itself: The lessons of the checkout, if there is a checkout.
        current: The current folder.

    Example:
        >>> print(choose_folder(None, None, Path("/home/ada")))
        /home/ada/mcnb-lessons
    """
    if given is not None:
        return current / given
    if opened_itself is not None:
        return opened_itself
    # Called again from inside the folder: a second copy in the first would be a surprise.
    return current if current.name == LESSONS_FOLDER else current / LESSONS_FOLDER


def copy_lessons(source: Path, target: Path) -> int:
    """Copy the lessons that are missing; existing files stay as they are.

    Args:
        source: The lessons of the package.
        target: The folder to copy to, created if it does not exist.

    Returns:
        The number of existing files that differ from the package's.

    Raises:
        McnbError: `target` can't be written to.
    """
    try:
        if target.is_file():
            raise McnbError(
                f"{target} is a file, and the lessons need a folder. Name another: mcnb lab FOLDER"
            )
        target.mkdir(parents=True, exist_ok=True)
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # Sorted: an .ipynb is copied before its .md, which Jupytext wants to be the newer one.
        shipped = sorted(_shipped(source, target))
        there = {file for file in shipped if os.path.lexists(target / file)}
        changed = {file for file in there if not _same(source / file, target / file)}
        for file in shipped:
            partner = file.with_suffix(_PARTNERS.get(file.suffix, file.suffix))
            if file not in there and partner not in changed:
                _copy_new(source / file, target / file)
    except OSError as error:
        raise McnbError(
            f"The lessons can't be written to {target}: {error.strerror}. "
            "Name a folder of yours: mcnb lab FOLDER"
        ) from None
    return len(changed)


def _shipped(source: Path, target: Path) -> Iterator[Path]:
    for path in source.rglob("*"):
        file = path.relative_to(source)
        made_by_use = any(part.startswith((".", "__")) for part in file.parts)
        if path.is_file() and not made_by_use and not path.is_relative_to(target):
            yield file


def _same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _copy_new(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:  # x: never over a file created meanwhile
        try:
            file.write(source.read_bytes())
            file.flush()
        except OSError:
            target.unlink()  # half a lesson would count as changed by the user
            raise


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
    """Return the command that starts JupyterLab, with the first lesson open.

    Args:
        folder: The folder to open.
        arguments: The user's own arguments for JupyterLab, which take precedence.

    Example:
        >>> command_line(Path("/home/ada/jax"), ["--ip=::1"])[1:]
        ['-P', '-m', 'jupyterlab', '--ServerApp.root_dir=/home/ada/jax', '--ip=::1']
    """
    options = {"ServerApp.ip": "127.0.0.1", "ServerApp.root_dir": str(folder)}
    given = {word[2:].partition("=")[0] for word in arguments if word.startswith("--")}
    given |= {_SHORT_NAMES[name] for name in given & _SHORT_NAMES.keys()}
    first = min(folder.glob("01*.ipynb"), default=None)
    if first is not None and "ServerApp.root_dir" not in given:
        # Unlike a path argument, this is also part of the address that --no-browser prints.
        options["LabApp.default_url"] = f"/lab/tree/{urllib.parse.quote(first.name)}"
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
    with tempfile.TemporaryDirectory(prefix="mcnb-kernel-") as folder:
        write_kernel_spec(Path(folder, "kernels", "python3"))
        path = os.pathsep.join(filter(None, [folder, os.environ.get("JUPYTER_PATH")]))
        process = subprocess.Popen(command, env={**os.environ, "JUPYTER_PATH": path})
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        while process.returncode is None:
            # The terminal also sends Ctrl-C to JupyterLab, which asks for confirmation.
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
        signal.signal(signal.SIGTERM, before)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
