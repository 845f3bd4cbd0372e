"""Read and write the settings of processes, in a file beside ipyparallel's connection files.

A launcher may pass on the environment only in part: mpirun passes only named variables to other
hosts, and ssh none. The settings therefore come in a file, which only its owner can read.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "mcnb.json"
_OPTION = "--profile-dir="


@dataclass(frozen=True)
class Settings:
    """The settings that a process applies before it imports anything.

    Attributes:
        env: Environment variables.
        cwd: The working folder, if its host has that folder; otherwise the process does not move.
        sent: Whether they were sent to the process's host, over the connection that started it.
        kernel: Otherwise, the host and port at which the notebook kernel accepts connections for as
            long as the cluster lasts.
    """

    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    sent: bool = False
    kernel: str = ""


def settings_path(profile_folder: Path) -> Path:
    """Return the path of a profile's settings."""
    return profile_folder / "security" / FILE


def leave_settings(settings: Settings, profile_folder: Path) -> None:
    """Write settings to a file that only its owner can read."""
    path = settings_path(profile_folder)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(settings), file)


def profile_folder(arguments: Sequence[str]) -> Path | None:
    """Return the profile folder that an engine's command line names, if it holds settings.

    Raises:
        SystemExit: There is no such folder. ipyparallel would make it, and wait for a controller.
    """
    folders = [word.removeprefix(_OPTION) for word in arguments if word.startswith(_OPTION)]
    folder = Path(folders[-1]) if folders else None
    if folder is not None and not folder.is_dir():
        sys.exit(f"The cluster of this process has ended: there is no folder {folder}")
    return folder if folder is not None and settings_path(folder).is_file() else None


def read_settings(profile_folder: Path) -> Settings:
    """Read the settings in a profile's folder."""
    return Settings(**json.loads(settings_path(profile_folder).read_text()))


def take_settings(arguments: Sequence[str]) -> list[str]:
    """Apply the settings, if there are any.

    Args:
        arguments: The engine's command line, which names its profile's folder.

    Returns:
        The command line, still valid after the change of the working folder.

    Example:
        >>> take_settings(["--log-level=WARN"])
        ['--log-level=WARN']
    """
    folder = profile_folder(arguments)
    if folder is None:
        return list(arguments)
    settings = read_settings(folder)
    os.environ.update(settings.env)
    here = folder.resolve()
    if settings.cwd and Path(settings.cwd).is_dir():
        os.chdir(settings.cwd)
    return [f"{_OPTION}{here}" if word.startswith(_OPTION) else word for word in arguments]
