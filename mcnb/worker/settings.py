"""What processes are to find in their environment: a file beside ipyparallel's connection files.

A launcher hands on an environment in its own way, or not at all: mpirun to other hosts only what it
is told by name, ssh nothing. So what processes need comes in a file, which is for its owner alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = "mcnb.json"
_OPTION = "--profile-dir="


@dataclass(frozen=True)
class Settings:
    """What a process sets before it imports anything.

    Attributes:
        env: Environment variables.
        cwd: Its working folder, where its host has it; otherwise it stays where it began.
        sent: Whether they were sent to the process's host, and its connection ends with it.
    """

    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    sent: bool = False


def settings_path(profile_folder: Path) -> Path:
    """Return where a profile's settings are."""
    return profile_folder / "security" / FILE


def leave_settings(settings: Settings, profile_folder: Path) -> None:
    """Write settings, for their owner alone."""
    path = settings_path(profile_folder)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(settings), file)


def profile_folder(arguments: Sequence[str]) -> Path | None:
    """Return the folder with settings that an engine's command line names, if there is one."""
    folders = [word.removeprefix(_OPTION) for word in arguments if word.startswith(_OPTION)]
    folder = Path(folders[-1]) if folders else None
    return folder if folder is not None and settings_path(folder).is_file() else None


def read_settings(profile_folder: Path) -> Settings:
    """Return the settings in a profile's folder."""
    return Settings(**json.loads(settings_path(profile_folder).read_text()))


def take_settings(arguments: Sequence[str]) -> list[str]:
    """Set what the settings say, if there are any.

    Args:
        arguments: The engine's command line, which names its profile's folder.

    Returns:
        The command line, which says the same in the folder that was changed to.

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
