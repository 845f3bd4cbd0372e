"""Judge what hosts told `mcnb doctor`: each alone, and whether processes on all can be one job."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from mcnb.cli.doctor import Finding
from mcnb.launchers.questions import HERE, Answers, Report
from mcnb.lockstep.network import is_loopback

# By how much clocks may differ. Timelines of several hosts are put together by the clocks.
APART_S = 2.0
# Settings that tell a process of JAX, or of libtpu, who it is.
_IDENTITY = ("JAX_COORDINATOR", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "MEGASCALE_")
# A function that returns the command line that runs a command on a host.
_On = Callable[[str, str], str]


def allocation(environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the launcher and the hosts of the job that this process is part of; none outside one.

    Args:
        environment: The environment variables.

    Example:
        >>> allocation({})
        ('', ())
    """
    nodes, nodefile = environment.get("SLURM_JOB_NODELIST"), environment.get("PBS_NODEFILE")
    if nodes and shutil.which("scontrol") and shutil.which("srun"):
        asked = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=False
        )
        return "slurm", tuple(dict.fromkeys(asked.stdout.split()))
    if nodefile and shutil.which("mpiexec"):
        return "mpi", tuple(dict.fromkeys(Path(nodefile).read_text().split()))
    return "", ()


def judge(launcher: str, answers: Sequence[Answers], here: Report) -> Iterator[Finding]:
    """Judge what hosts told.

    Args:
        launcher: What starts programs on them.
        answers: What they told.
        here: What this machine is.
    """

    def on(host: str, command: str) -> str:
        if host == HERE:
            return command
        return (
            f"ssh {host} {shlex.quote(command)}" if launcher == "ssh" else f"on {host}: {command}"
        )

    for one in answers:
        yield from _of_one(one, here, on)
    asked = {one.host: one.report for one in answers if one.report is not None}
    yield from _settings(asked)
    unreached = [(one.host, other, why) for one in answers for other, why in one.unreached.items()]
    for host, other, why in unreached:
        place = asked[host].asker if other == HERE else asked[other].address
        what = f"{host} can't connect to {other} at {place}: {why}. mcnb and JAX use free ports"
        mend = f"sudo ufw allow from {asked[host].address} to any proto tcp"
        yield Finding("missing", what, on(other, mend))
    if asked and not unreached:
        names = ", ".join(asked)
        yield Finding("ok", f"{names} and {HERE} can connect to each other")
    if len({report.boot_id for report in asked.values()}) > 1:
        what = (
            "JAX takes each of these hosts for a slice. jax.make_mesh accepts several slices of "
            "CPU devices in cells and in programs of mcnb script. Elsewhere, make meshes with "
            "jax.experimental.mesh_utils.create_hybrid_device_mesh"
        )
        yield Finding("note", what)


def _of_one(one: Answers, here: Report, on: _On) -> Iterator[Finding]:
    host, report = one.host, one.report
    if report is None:
        yield Finding("missing", one.error)
        return
    yield from _versions(host, report.versions, here.versions, on)
    is_elsewhere = not is_loopback(report.address)
    if is_elsewhere and (not report.named or is_loopback(report.named)):
        named = (
            f"is {report.named}, which no other host reaches" if report.named else "is not known"
        )
        what = (
            f"The address of {report.name} {named}, on {host} itself. mcnb gives JAX another "
            "address; without mcnb, processes on this host do not find each other"
        )
        line = f"{report.address} {report.name}"
        yield Finding("note", what, on(host, f"echo {line} | sudo tee -a /etc/hosts"))
    if abs(one.ahead_s) > APART_S:
        which = "ahead of" if one.ahead_s > 0 else "behind"
        what = f"The clock of {host} is {abs(one.ahead_s):.0f} s {which} this machine's"
        yield Finding("note", what, on(host, "sudo timedatectl set-ntp true"))
    left = [name for name in report.settings if name.startswith(_IDENTITY)]
    if left:
        what = (
            f"{host} sets {', '.join(left)} in the environment: programs that call "
            "jax.distributed.initialize() join another job there, or wait for it"
        )
        yield Finding("note", what, f"unset {' '.join(left)}")


def _versions(
    host: str, there: Mapping[str, str], here: Mapping[str, str], on: _On
) -> Iterator[Finding]:
    if there["Python"] != here["Python"]:
        what = (
            f"{host} has Python {there['Python']}, and {HERE} {here['Python']}: what the processes "
            "exchange may not fit. Install the same version at the same path"
        )
        same_line = there["Python"].split(".")[:2] == here["Python"].split(".")[:2]
        yield Finding("note" if same_line else "missing", what)
    other = {name: version for name, version in here.items() if there[name] != version}
    other.pop("Python", None)
    for name, version in other.items():
        has = f"{name} {there[name]}, and {HERE} {version}" if there[name] else f"no {name}"
        command = f'{sys.executable} -m pip install "{name}=={version}"'
        yield Finding("missing", f"{host} has {has}", on(host, command))
    if not other:
        packages = " and ".join(f"{name} {there[name]}" for name in ("jax", "mcnb"))
        yield Finding("ok", f"{host} has {packages}, as {HERE} has")


def _settings(reports: Mapping[str, Report]) -> Iterator[Finding]:
    """Report settings that are not the same on all hosts."""
    names = sorted({name for report in reports.values() for name in report.settings})
    for name in names:
        values = {host: report.settings.get(name) for host, report in reports.items()}
        if name.startswith(_IDENTITY) or len({*values.values()}) == 1:
            continue
        told = ", ".join(
            f"{value!r} on {host}" if value is not None else f"not set on {host}"
            for host, value in values.items()
        )
        what = f"{name} differs: {told}. Then JAX may compile different programs"
        yield Finding("note", what)
