"""Several hosts on one machine: network namespaces of the tests' own, joined by a bridge.

The notebook's host is one of them, so nothing of the machine's own network is touched. Each has a
name of its own, which its own file of hosts tells.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WHY_NOT = "no network namespaces here, or not root"
NOTEBOOK, *OTHERS = NAMES = ("notebook", "one", "two")
ADDRESSES = {name: f"10.97.0.{i}" for i, name in enumerate(NAMES, 1)}
_PREFIX = "mcnbtest"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def namespace(name: str) -> str:
    """Return the namespace of a host; the process's own number tells it from other tests'."""
    return f"{_PREFIX}{os.getpid()}{name}"


def available() -> bool:
    """Return whether namespaces can be made here."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "hostname"))):
        return False
    trial = namespace("trial")
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("netns", "add", trial)
        try:
            _ip("-netns", trial, "link", "add", "bridge", "type", "bridge")
            return True
        finally:
            _ip("netns", "del", trial)
    return False


def on(name: str, *command: str) -> list[str]:
    """Return the command line that runs a command on a host."""
    inside = 'hostname "$0" && exec "$@"'
    enter = ("ip", "netns", "exec", namespace(name), "unshare", "--uts", "sh", "-c", inside, name)
    return [*enter, *command]


@contextmanager
def hosts() -> Iterator[None]:
    """Make the hosts."""
    settings = [Path("/etc/netns", namespace(name)) for name in NAMES]
    try:
        for name, folder in zip(NAMES, settings, strict=True):
            folder.mkdir(parents=True)
            lines = ["127.0.0.1 localhost", *(f"{a} {n}" for n, a in ADDRESSES.items())]
            (folder / "hosts").write_text("\n".join(lines) + "\n")
            _ip("netns", "add", namespace(name))
            _ip("-netns", namespace(name), "link", "set", "lo", "up")
        hub = namespace(NOTEBOOK)
        _ip("-netns", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-netns", hub, "addr", "add", f"{ADDRESSES[NOTEBOOK]}/24", "dev", "bridge")
        _ip("-netns", hub, "link", "set", "bridge", "up")
        for name in OTHERS:
            own = namespace(name)
            _ip("-netns", hub, "link", "add", name, "type", "veth", "peer", "eth0", "netns", own)
            _ip("-netns", hub, "link", "set", name, "master", "bridge", "up")
            _ip("-netns", own, "addr", "add", f"{ADDRESSES[name]}/24", "dev", "eth0")
            _ip("-netns", own, "link", "set", "eth0", "up")
        yield
    finally:
        for name, folder in zip(NAMES, settings, strict=True):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", namespace(name))
            shutil.rmtree(folder, ignore_errors=True)
