"""Several hosts on one machine: network namespaces of the tests' own, joined by a bridge.

The notebook's host is one of them, so nothing of the machine's own network is touched. Each has a
name of its own, which its own file of hosts tells, and a boot id of its own, by which XLA tells
hosts apart.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.wire import wire

WHY_NOT = "no network or mount namespaces here, or not root"
NOTEBOOK, *OTHERS = NAMES = ("notebook", "one", "two")
ADDRESSES = {name: f"10.97.0.{i}" for i, name in enumerate(NAMES, 1)}
_PREFIX = "mcnbtest"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def namespace(name: str) -> str:
    """Return the namespace of a host; the process's own number tells it from other tests'."""
    return f"{_PREFIX}{os.getpid()}{name}"


def _settings(name: str) -> Path:
    """Return the folder with a host's own files for /etc."""
    return Path("/etc/netns", namespace(name))


def _boot_id(name: str) -> Path:
    """Return the file with a host's boot id."""
    return _settings(name).with_suffix(".boot_id")


def available() -> bool:
    """Return whether namespaces can be made here."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nsenter", "unshare", "hostname"))):
        return False
    trial = namespace("trial")
    with contextlib.suppress(subprocess.CalledProcessError):
        _ip("netns", "add", trial)
        try:
            _ip("-netns", trial, "link", "add", "bridge", "type", "bridge")
            mount = ["unshare", "--mount", "mount", "--bind", "/dev/null", str(_BOOT_ID)]
            return subprocess.run(mount, capture_output=True, check=False).returncode == 0
        finally:
            _ip("netns", "del", trial)
    return False


def on(name: str, *command: str) -> list[str]:
    """Return the command line that runs a command on a host.

    It does what `ip netns exec` does, and leaves /sys as it is: Slurm looks for cgroups there.
    """
    own = {_settings(name) / "hosts": Path("/etc/hosts"), _boot_id(name): _BOOT_ID}
    mounts = [f"mount --bind {ours} {place}" for ours, place in own.items()]
    inside = " && ".join([*mounts, 'hostname "$0"', 'exec "$@"'])
    enter = ("nsenter", f"--net=/run/netns/{namespace(name)}")
    return [*enter, "unshare", "--uts", "--mount", "sh", "-c", inside, name, *command]


def on_the_notebooks(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the notebook's host, with no platform chosen for JAX."""
    return subprocess.run(
        on(NOTEBOOK, *command),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": ""},
    )


@contextmanager
def hosts(delay_s: float = 0.0) -> Iterator[None]:
    """Make the hosts.

    Args:
        delay_s: How long a frame takes between the notebook's host and another one.
    """
    wires = contextlib.ExitStack()
    try:
        for number, name in enumerate(NAMES, 1):
            folder = _settings(name)
            folder.mkdir(parents=True)
            _boot_id(name).write_text(f"00000000-0000-4000-8000-{number:012}\n")
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
            if delay_s:
                wires.enter_context(wire((hub, name), (own, "eth0"), delay_s))
            else:
                peer = ("type", "veth", "peer", "eth0", "netns", own)
                _ip("-netns", hub, "link", "add", name, *peer)
            _ip("-netns", hub, "link", "set", name, "master", "bridge", "up")
            _ip("-netns", own, "addr", "add", f"{ADDRESSES[name]}/24", "dev", "eth0")
            _ip("-netns", own, "link", "set", "eth0", "up")
        yield
    finally:
        wires.close()
        for name in NAMES:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", namespace(name))
            shutil.rmtree(_settings(name), ignore_errors=True)
            _boot_id(name).unlink(missing_ok=True)
