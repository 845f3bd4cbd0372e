"""Run the checks of `mcnb doctor`, and name the command that fixes each problem."""

from __future__ import annotations

import importlib.metadata
import operator
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

from mcnb._lessons import find_lessons
from mcnb._text import plural, release
from mcnb.errors import ClusterError, McnbError
from mcnb.launchers.probe import SETTINGS
from mcnb.options import Options

OLDEST_PYTHON = (3, 11)
# As in pyproject.toml: the dependencies of mcnb, and those of its extra `lab`.
BASE = ["ipyparallel>=9.0", "ipython>=7.34", "ipykernel>=6.17", "matplotlib>=3.9", "psutil>=5.9"]
LAB = [
    "anywidget>=0.9.13",
    "grain>=0.2.15",
    "jupyterlab>=4.2",
    "jupytext>=1.16",
    "orbax-checkpoint>=0.11.33",
    "rich>=13",
]
FOUR_PROCESSES_GB = 0.8
LEAST_TEMP_MB = 100
_CELL = """
import jax, jax.numpy as jnp, jax.sharding as js, numpy as np
sharding = js.NamedSharding(js.Mesh(np.array(jax.devices()), "d"), js.PartitionSpec("d"))
own = 2 * jax.process_index() + np.array([1, 2])
total = int(jnp.sum(jax.make_array_from_process_local_data(sharding, own)))
"""


@dataclass(frozen=True)
class Finding:
    """The result of a check.

    Attributes:
        level: Whether all is well, something must be fixed, or the result is only information.
        what: The result, in words.
        mend: The command that fixes the problem, if there is one.

    Example:
        >>> print(Finding("missing", "jupytext is not installed", "pip install jupytext"))
        missing  jupytext is not installed. Fix it: pip install jupytext
    """

    level: Literal["ok", "missing", "note"]
    what: str
    mend: str = ""

    def __str__(self) -> str:
        line = f"{self.level:<7}  {self.what}" + (f". Fix it: {self.mend}" if self.mend else "")
        return line.replace("\n", f"\n{'':9}")


def python() -> Finding:
    """Check this Python's version."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return Finding("ok", f"Python {version}")
    what = f"Python {version} is too old: mcnb needs 3.11 or newer"
    return Finding("missing", what, "python3.11 -m pip install mcnb")


def package(requirement: str, brought_by: str = "") -> Finding:
    """Check that a package, alone or from `brought_by`, is installed and recent enough."""
    name, _, oldest = requirement.partition(">=")
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        mend = f'python -m pip install "{brought_by or requirement}"'
        return Finding("missing", f"{name} is not installed", mend)
    if release(version) < release(oldest):
        what = f"{name} {version} is too old: mcnb needs {oldest} or newer"
        return Finding("missing", what, f'python -m pip install --upgrade "{requirement}"')
    return Finding("ok", f"{name} {version}")


def jax() -> Finding:
    """Check that JAX is installed, recent enough, and compatible with its jaxlib."""
    from mcnb.cluster.lifetime import check_jax

    try:
        check_jax()
    except ClusterError as error:
        return Finding("missing", error.what, error.remedy)
    version, lib = map(importlib.metadata.version, ("jax", "jaxlib"))
    wanted = next((r for r in importlib.metadata.requires("jax") or () if r[:6] == "jaxlib"), "")
    fits = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}
    bounds = re.findall(r"([<>=]=)\s*([\d.]+)", wanted)
    if all(fits[relation](release(lib), release(bound)) for relation, bound in bounds):
        return Finding("ok", f"jax {version} with jaxlib {lib}")
    what = f"jax {version} does not work with jaxlib {lib}: it needs {wanted}"
    return Finding("missing", what, f'python -m pip install "jax=={version}" "{wanted}"')


def system() -> Finding:
    """Check that a cluster can start on this system."""
    names = {"linux": "Linux", "darwin": "macOS"}
    if name := names.get(sys.platform):
        return Finding("ok", f"{name}: clusters can start here")
    what = f"{sys.platform}: clusters start on Linux, on macOS, and on Windows inside WSL"
    return Finding("missing", what, "wsl --install" if sys.platform == "win32" else "")


def capacity() -> Finding:
    """Report the processor cores and the free memory."""
    import psutil

    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    free = psutil.virtual_memory().available / 1e9
    what = f"{plural(count, 'processor core', 'processor cores')}, {free:.1f} GB of memory free"
    needs = f"4 processes take about {FOUR_PROCESSES_GB} GB"
    return Finding("ok" if free >= FOUR_PROCESSES_GB else "note", f"{what}: {needs}")


def temporary_folder() -> Finding:
    """Check that the folder for temporary files is writable and has space."""
    try:
        folder = tempfile.gettempdir()
        with tempfile.NamedTemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free // 1_000_000
        if free >= LEAST_TEMP_MB:
            return Finding("ok", f"{folder} takes temporary files")
        what = f"{folder} has {free} MB left for temporary files: mcnb needs {LEAST_TEMP_MB} MB"
    except OSError as error:
        what = f"No temporary files can be written: {error.strerror}"
    return Finding("missing", what, "mkdir -p ~/tmp && export TMPDIR=~/tmp")


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
    """Check that the lessons are installed."""
    try:
        return Finding("ok", f"The lessons are in {find_lessons()}")
    except McnbError as error:
        return Finding("missing", error.what, error.remedy)


def environment() -> Finding:
    """Report the settings of JAX and XLA that the processes would inherit."""
    from mcnb.launchers.base import process_environment

    by_mcnb = process_environment(Options(), {})
    settings = [
        f"{name}={value}"
        for name, value in sorted(process_environment(Options(), os.environ).items())
        if name.startswith(SETTINGS) and value != by_mcnb.get(name)
    ]
    if not settings:
        return Finding("ok", "No settings of JAX or XLA in the environment")
    return Finding("note", f"The processes inherit from the environment: {' '.join(settings)}")


def cluster(options: Options = Options(processes=2, devices_per_process=2)) -> Finding:  # noqa: B008
    """Start a cluster, compute with all of its devices, and stop it."""
    if sys.platform == "win32":
        return Finding("note", "No cluster was tried out, as none can start on Windows")
    from mcnb.cluster.cluster import Cluster

    began = time.monotonic()
    try:
        with Cluster.of(options) as trial:
            trial.run(_CELL).raise_for_errors()
            totals = trial.pull("total")
    except McnbError as error:
        return Finding("missing", str(error))
    expected = options.processes * (2 * options.processes + 1)
    if set(totals.values()) != {expected}:
        what = f"The processes computed a wrong sum: {totals}, where each should have {expected}"
        return Finding("missing", what, "python -m pip install --upgrade jax jaxlib")
    where = f" on {', '.join(options.hosts)}" if options.hosts else ""
    what = f"{options.processes} processes{where} with 2 devices each started"
    took = f"{time.monotonic() - began:.1f} seconds"
    return Finding("ok", f"{what}, computed a sum together and ended, in {took}")


CHECKS: tuple[Callable[[], Finding], ...] = (
    python,
    *(partial(package, requirement) for requirement in BASE),
    *(partial(package, requirement, "mcnb[lab]") for requirement in LAB),
    *(jax, system, capacity, temporary_folder, loopback, lessons, environment),
)
