"""Read and write the settings of processes, in a file beside ipyparallel's connection files.

A launcher may pass on the environment only in part: mpirun passes only named variables to other
hosts, and ssh none. The settings therefore come in a file, which only its owner can read. So do the
keys with which processes of several hosts recognize each other.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

FILE = "mcnb.json"
_OPTION = "--profile-dir="
# What a process's certificate has to name. JAX wants the slash.
IDENTITY = "mcnb://cluster/"


@dataclass(frozen=True)
class Credentials:
    """A certificate and its key, in PEM, by which processes of several hosts recognize each other.

    Attributes:
        certificate: The certificate, which is its own authority.
        key: The key.
    """

    certificate: str
    key: str


@dataclass(frozen=True)
class Settings:
    """The settings that a process applies before it imports anything.

    Attributes:
        env: Environment variables.
        cwd: The working folder, if its host has that folder; otherwise the process does not move.
        sent: Whether they were sent to the process's host, over the connection that started it.
        kernel: Otherwise, the host and port at which the notebook kernel accepts connections for as
            long as the cluster lasts.
        credentials: What protects JAX's coordinator; None if all processes are on one host.
    """

    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    sent: bool = False
    kernel: str = ""
    credentials: Credentials | None = None


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
    told = json.loads(settings_path(profile_folder).read_text())
    if told["credentials"] is not None:
        told["credentials"] = Credentials(**told["credentials"])
    return Settings(**told)


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
    if settings.credentials is not None:
        _files.update(_write(settings.credentials, settings_path(here).parent))
    if settings.cwd and Path(settings.cwd).is_dir():
        os.chdir(settings.cwd)
    return [f"{_OPTION}{here}" if word.startswith(_OPTION) else word for word in arguments]


# The files of this process's credentials, by the names of JAX's arguments.
_files: dict[str, str] = {}


def _write(credentials: Credentials, folder: Path) -> dict[str, str]:
    """Write credentials to files that only their owner can read, each as a whole.

    Other processes of the host write the same.
    """
    paths = {}
    for name, text in asdict(credentials).items():
        descriptor, draft = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        paths[name] = str(Path(draft).replace(folder / f"{name}.pem"))
    certificate = paths["certificate"]
    return {
        "mtls_cert_file": certificate,
        "mtls_ca_file": certificate,
        "mtls_key_file": paths["key"],
        "mtls_peer_uri_prefix": IDENTITY,
    }


def protection(initialize: Callable[..., Any]) -> dict[str, str]:
    """Return arguments with which JAX protects its coordinator by TLS on both sides, if it can.

    They are JAX's since version 0.11.2: https://docs.jax.dev/en/latest/501/security.html. What the
    user has set in the environment comes first.

    Args:
        initialize: `jax.distributed.initialize`.

    Example:
        >>> protection(lambda address: None)
        {}
    """
    known = {*_files} <= {*signature(initialize).parameters}
    return _files if known and "JAX_MTLS_CERT_FILE" not in os.environ else {}
