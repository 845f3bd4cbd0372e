"""`mcnb doctor`: what is there, what is missing, and the command that mends it.

Every check is a function without arguments that returns one finding, so that each can be tried
alone. None of them needs what another one finds missing.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from mcnb.errors import ClusterError, McnbError
from mcnb.lab import REINSTALL, find_lessons
from mcnb.options import plural

OLDEST_PYTHON = (3, 11)
# As in pyproject.toml.
OLDEST = {
    "ipyparallel": (9, 0),
    "ipython": (8, 20),
    "ipykernel": (6, 29),
    "matplotlib": (3, 8),
    "psutil": (5, 9),
}
OLDEST_IN_LAB = {"jupyterlab": (4, 2), "jupytext": (1, 16)}
# mcnb gives the processes values of its own for these, or none.
DECIDED_BY_MCNB = {
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_CPU_DEVICES",
    "JAX_NUM_PROCESSES",
    "JAX_PLATFORMS",
    "JAX_PROCESS_ID",
}
FOUR_PROCESSES_GB = 0.8
LEAST_TEMP_MB = 100
_CELL = """
import jax, jax.numpy as jnp, numpy as np
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("devices",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices"))
own = 2 * jax.process_index() + np.array([1, 2])
total = int(jnp.sum(jax.make_array_from_process_local_data(sharding, own)))
"""
_TOTALS = {0: 10, 1: 10}


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        level: Whether it is as it should be, must be mended, or is only worth knowing.
        what: What was found, in words.
        mend: The command that mends it, if one does.

    Example:
        >>> print(Finding("missing", "jupytext is not installed", "pip install jupytext"))
        missing  jupytext is not installed. Mend it: pip install jupytext
    """

    level: Literal["ok", "missing", "note"]
    what: str
    mend: str = ""

    def __str__(self) -> str:
        line = f"{self.level:<7}  {self.what}" + (f". Mend it: {self.mend}" if self.mend else "")
        return line.replace("\n", f"\n{'':9}")


def python() -> Finding:
    """Check this Python's version."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Finding("ok", f"Python {version}")
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Finding(
        "missing",
        f"Python {version} is too old: mcnb needs {oldest} or newer",
        f"python{oldest} -m pip install mcnb",
    )


def jax_and_jaxlib() -> Finding:
    """Check that JAX is there, not too old, and that its two packages go together."""
    try:
        from mcnb.cluster import check_jax

        check_jax()
    except ImportError as error:
        packages = " ".join(_requirement(name, oldest) for name, oldest in OLDEST.items())
        return Finding(
            "missing",
            f"JAX could not be looked at, as a module that mcnb needs can't be imported: {error}",
            f"python -m pip install --upgrade {packages}",
        )
    except ClusterError as error:
        what, _, mend = str(error).partition(". Install it: ")
        return Finding("missing", what, mend)
    jax, jaxlib = map(importlib.metadata.version, ("jax", "jaxlib"))
    # For example: jaxlib<=0.10.2,>=0.10.1
    wanted = next((r for r in importlib.metadata.requires("jax") or () if r[:6] == "jaxlib"), "")
    for relation, bound in re.findall(r"([<>]=|==)\s*([\d.]+)", wanted):
        found, limit = _numbers(jaxlib), _numbers(bound)
        if (found > limit and relation != ">=") or (found < limit and relation != "<="):
            return Finding(
                "missing",
                f"jax {jax} does not work with jaxlib {jaxlib}: it needs {wanted}",
                f'python -m pip install "jax=={jax}" "{wanted}"',
            )
    return Finding("ok", f"jax {jax} with jaxlib {jaxlib}")


def package(name: str, oldest: tuple[int, ...], extra: str = "") -> Finding:
    """Check that a package is installed and not too old.

    Args:
        name: Its name on the package index.
        oldest: The oldest version that fits.
        extra: Which of mcnb's extras brings it, if one does.
    """
    requirement = _requirement(name, oldest)
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        wanted = f'"mcnb[{extra}]"' if extra else requirement
        return Finding("missing", f"{name} is not installed", f"python -m pip install {wanted}")
    if _numbers(version) < oldest:
        text = ".".join(map(str, oldest))
        return Finding(
            "missing",
            f"{name} {version} is too old: mcnb needs {text} or newer",
            f"python -m pip install --upgrade {requirement}",
        )
    return Finding("ok", f"{name} {version}")


def platform() -> Finding:
    """Check that a cluster can start on this system."""
    systems = {"linux": "Linux", "darwin": "macOS"}
    if sys.platform in systems:
        return Finding("ok", f"{systems[sys.platform]}: clusters can start here")
    if sys.platform == "win32":
        what = "Windows: a cluster can start only inside WSL, the Linux that Windows brings"
        return Finding("missing", what, "wsl --install")
    return Finding("missing", f"{sys.platform}: clusters start on Linux and macOS only")


def capacity() -> Finding:
    """Say how many processor cores and how much memory there are."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    cores = plural(count, "processor core", "processor cores")
    try:
        import psutil
    except ImportError:
        return Finding("note", f"{cores}; how much memory is free, only psutil could say")
    free = psutil.virtual_memory().available / 1e9
    what = f"{cores}, {free:.1f} GB of memory free: 4 processes take about {FOUR_PROCESSES_GB} GB"
    return Finding("ok" if free >= FOUR_PROCESSES_GB else "note", what)


def temporary_folder() -> Finding:
    """Check that the folder for temporary files can be written to, and has space."""
    mend = "export TMPDIR=$HOME/tmp && mkdir -p $TMPDIR"
    try:
        folder = tempfile.gettempdir()
        with tempfile.NamedTemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free // 1_000_000
    except OSError as error:
        return Finding("missing", f"No temporary files can be written: {error.strerror}", mend)
    if free < LEAST_TEMP_MB:
        what = f"{folder} has only {free} MB left for temporary files, and mcnb wants"
        return Finding("missing", f"{what} {LEAST_TEMP_MB} MB", mend)
    return Finding("ok", f"{folder} takes temporary files")


def loopback() -> Finding:
    """Check that processes on this machine can reach each other."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError as error:
        mend = "sudo ifconfig lo0 up" if sys.platform == "darwin" else "sudo ip link set lo up"
        return Finding("missing", f"127.0.0.1 can't be reached: {error.strerror or error}", mend)
    return Finding("ok", "127.0.0.1 can be reached")


def lessons() -> Finding:
    """Check that the lessons are there."""
    try:
        return Finding("ok", f"The lessons are in {find_lessons().folder}")
    except McnbError as error:
        return Finding("missing", str(error).partition(". Install")[0], REINSTALL)


def environment() -> Finding:
    """Name the settings that the processes would inherit."""
    settings = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name == "XLA_FLAGS" or (name.startswith("JAX_") and name not in DECIDED_BY_MCNB)
    ]
    if settings:
        return Finding("note", f"The processes inherit from the environment: {' '.join(settings)}")
    return Finding("ok", "No settings of JAX or XLA in the environment")


def cluster() -> Finding:
    """Start a cluster, compute with all of its devices, and end it."""
    if sys.platform == "win32":
        return Finding("note", "No cluster was tried out, as none can start on Windows")
    began = time.monotonic()
    try:
        from mcnb.cluster import Cluster

        with Cluster(processes=2, devices_per_process=2) as trial:
            trial.run(_CELL).raise_for_errors()
            totals = trial.pull("total")
    except McnbError as error:
        return Finding("missing", str(error))
    except ImportError as error:
        return Finding("missing", f"No cluster was tried out, as mcnb can't be imported: {error}")
    if totals != _TOTALS:
        what = f"2 processes computed a wrong sum: {totals}, where {_TOTALS} is right"
        return Finding("missing", what, 'python -m pip install --upgrade "jax" "jaxlib"')
    seconds = time.monotonic() - began
    what = "2 processes with 2 devices each started, computed a sum together and ended"
    return Finding("ok", f"{what}, in {seconds:.1f} seconds")


CHECKS: tuple[Callable[[], Finding], ...] = (
    python,
    jax_and_jaxlib,
    *(partial(package, name, oldest) for name, oldest in OLDEST.items()),
    *(partial(package, name, oldest, "lab") for name, oldest in OLDEST_IN_LAB.items()),
    platform,
    capacity,
    temporary_folder,
    loopback,
    lessons,
    environment,
)


def examine(quick: bool = False) -> int:
    """Run all checks and print what they find.

    Args:
        quick: Leave out the last one, which starts a cluster.

    Returns:
        The exit code: 0 if nothing is missing, else 1.
    """
    missing = 0
    for check in CHECKS if quick else (*CHECKS, cluster):
        finding = check()
        missing += finding.level == "missing"
        print(finding, flush=True)
    if missing:
        print(f"{plural(missing, 'thing', 'things')} to mend, see above")
    else:
        print("Ready: mcnb lab")
    return min(missing, 1)


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"[\d.]*", version)
    return tuple(int(n) for n in re.findall(r"\d+", release[0] if release else ""))


def _requirement(name: str, oldest: tuple[int, ...]) -> str:
    return f'"{name}>={".".join(map(str, oldest))}"'
