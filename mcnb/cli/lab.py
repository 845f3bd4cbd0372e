"""`mcnb lab`: JupyterLab on the lessons, in a folder that the learner may write to."""

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
# JupyterLab's short names for the options that we set: it refuses to be given one twice.
_SHORT_NAMES = {"ip": "ServerApp.ip", "notebook-dir": "ServerApp.root_dir"}
# Jupytext keeps the two as one notebook, and the newer .md wins over the .ipynb beside it.
_PARTNERS = {".ipynb": ".md", ".md": ".ipynb"}


def choose_folder(given: str | None, opened_itself: Path | None, current: Path) -> Path:
    """Return the folder to open.

    Args:
        given: The folder that the user named, if any.
        opened_itself: The checkout's lessons, if there is a checkout.
        current: The current folder.

    Example:
        >>> print(choose_folder(None, None, Path("/home/ada")))
        /home/ada/mcnb-lessons
    """
    if given is not None:
        return current / given
    if opened_itself is not None:
        return opened_itself
    # Called again from inside: a second copy in the first is not what anyone means.
    return current if current.name == LESSONS_FOLDER else current / LESSONS_FOLDER


def copy_lessons(source: Path, target: Path) -> int:
    """Copy those lessons that are missing; what is there already is left alone.

    Args:
        source: The lessons as they came.
        target: Where to; made if it does not exist.

    Returns:
        How many files are there that differ from those that came.

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
        # Sorted: an .ipynb comes before its .md, which Jupytext wants to be the newer one.
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
    with target.open("xb") as file:  # x: never over a file that came meanwhile
        try:
            file.write(source.read_bytes())
            file.flush()
        except OSError:
            target.unlink()  # half a lesson would count as the user's own
            raise


def describe_folder(folder: Path, changed: int) -> str:
    """Return where the lessons are, and that what the user changed was kept.

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
        arguments: The user's own arguments for JupyterLab, which win.

    Example:
        >>> command_line(Path("/home/ada/jax"), ["--ip=::1"])[1:]
        ['-P', '-m', 'jupyterlab', '--ServerApp.root_dir=/home/ada/jax', '--ip=::1']
    """
    options = {"ServerApp.ip": "127.0.0.1", "ServerApp.root_dir": str(folder)}
    given = {word[2:].partition("=")[0] for word in arguments if word.startswith("--")}
    given |= {_SHORT_NAMES[name] for name in given & _SHORT_NAMES.keys()}
    first = min(folder.glob("01*.ipynb"), default=None)
    if first is not None and "ServerApp.root_dir" not in given:
        # Unlike a path as an argument, this is also in the address that --no-browser prints.
        options["LabApp.default_url"] = f"/lab/tree/{urllib.parse.quote(first.name)}"
    ours = [f"--{name}={value}" for name, value in options.items() if name not in given]
    return [sys.executable, "-P", "-m", "jupyterlab", *ours, *arguments]


def start_jupyterlab(command: Sequence[str]) -> int:
    """Start JupyterLab; return its exit code when it has ended.

    Args:
        command: Its command line.

    Raises:
        McnbError: It is not installed.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise McnbError(f"JupyterLab is not installed for this Python. Install it: {INSTALL_LAB}")
    from ipykernel.kernelspec import write_kernel_spec

    # A python3 kernel in the user's home may be another Python, and Jupyter would take that one:
    # its ensure_native_kernel only adds this Python where there is no python3 at all.
    with tempfile.TemporaryDirectory(prefix="mcnb-kernel-") as folder:
        write_kernel_spec(Path(folder, "kernels", "python3"))
        path = os.pathsep.join(filter(None, [folder, os.environ.get("JUPYTER_PATH")]))
        process = subprocess.Popen(command, env={**os.environ, "JUPYTER_PATH": path})
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        while process.returncode is None:
            # The terminal gives Ctrl-C to JupyterLab too, which asks whether it was meant.
            with contextlib.suppress(KeyboardInterrupt):
                process.wait()
        signal.signal(signal.SIGTERM, before)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
