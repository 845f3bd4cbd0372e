"""Examine hosts for `mcnb doctor`: each alone, and whether processes on all can be one job."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mcnb.cli.doctor import Finding, cluster
from mcnb.errors import OptionError
from mcnb.launchers.questions import COMMANDS, HERE, Answers, Report, ask, own_report
from mcnb.launchers.ssh_command import typed
from mcnb.lockstep.network import is_loopback
from mcnb.options import Options, host_list

# By how much clocks may differ. Timelines of several hosts are put together by the clocks.
APART_S = 2.0
# Settings that tell a process of JAX, or of libtpu, who it is.
_IDENTITY = ("JAX_COORDINATOR", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "MEGASCALE_")
# A function that returns the command line that runs a command on a host.
_On = Callable[[str, str], str]


@dataclass(frozen=True)
class Hosts:
    """Hosts to examine.

    Attributes:
        launcher: What starts programs on them, of `COMMANDS`.
        names: The hosts, each once, in the launcher's words.
        options: More options for the launcher's command, as they were given.
    """

    launcher: str
    names: tuple[str, ...]
    options: str = ""

    @property
    def words(self) -> list[str]:
        """The options, as words."""
        # Imported here, because `mcnb doctor` reports an ipyparallel that can't be imported.
        from mcnb.launchers.batch import split_words

        return split_words(self.options)


def chosen(
    hosts: str | None, launcher: str | None, options: str, environment: Mapping[str, str]
) -> Hosts | None:
    """Return the hosts to examine; None if there are none.

    Args:
        hosts: The hosts that were named; if there are none, those of this job are examined.
        launcher: What starts programs on the named hosts; None for ssh.
        options: More options for the launcher's command.
        environment: The environment variables.

    Raises:
        OptionError: The words are not valid.

    Example:
        >>> chosen("one,two,one", None, "", {})
        Hosts(launcher='ssh', names=('one', 'two'), options='')
    """
    if hosts is None:
        if launcher or options:
            given = "--launcher" if launcher else "--options"
            raise OptionError(
                f"mcnb doctor {given}: name the hosts, too. For example: --hosts one,two"
            )
        found, names = allocation(environment)
        return Hosts(found, names) if len(names) > 1 else None
    names = tuple(dict.fromkeys(host_list(hosts)))
    if not names:
        raise OptionError("mcnb doctor --hosts: name hosts. For example: --hosts alice@one,two")
    Options(launcher="ssh", hosts=names, launcher_options=options)  # raises an error for others
    if launcher is not None and launcher not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise OptionError(f"mcnb doctor --launcher {launcher}: expected one of {known}")
    return Hosts(launcher or "ssh", names, options)


def examine(hosts: Hosts | None, quick: bool) -> Iterator[Finding]:
    """Examine hosts, and whether a cluster starts on them.

    Args:
        hosts: The hosts; None for none.
        quick: Whether to start no cluster.
    """
    if hosts is None:
        return
    answers = ask(hosts.launcher, hosts.names, hosts.words)
    found = [*judge(hosts, answers, own_report())]
    yield from found
    if hosts.launcher == "ssh" and not quick and all(one.level != "missing" for one in found):
        count = max(len(hosts.names), 2)
        more = hosts.options
        yield cluster(Options(count, 2, launcher="ssh", hosts=hosts.names, launcher_options=more))


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


def judge(hosts: Hosts, answers: Sequence[Answers], here: Report) -> Iterator[Finding]:
    """Judge what hosts told.

    Args:
        hosts: The hosts.
        answers: What they told.
        here: What this machine is.
    """
    words = hosts.words

    def on(host: str, command: str) -> str:
        if host == HERE:
            return command
        return typed(host, words, command) if hosts.launcher == "ssh" else f"on {host}: {command}"

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
        yield Finding("note", what, _unset(left, report.settings, here, on, host))


def _unset(
    names: Sequence[str], settings: Mapping[str, str], here: Report, on: _On, host: str
) -> str:
    """Return how to unset variables of a host's environment."""
    if all(here.settings.get(name) == settings[name] for name in names):  # srun passes them on
        return f"unset {' '.join(names)}"
    files = "~/.bashrc ~/.profile ~/.ssh/environment /etc/environment"
    found = on(host, f'grep -nE "{"|".join(names)}" {files}')
    return f"delete the lines that this command finds: {found}"


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
        if version:
            has = f"{name} {there[name]}, and {HERE} {version}" if there[name] else f"no {name}"
            what, where = f"{host} has {has}", host
        else:
            what, where = f"{HERE.capitalize()} has no {name}, and {host} {there[name]}", HERE
        command = f'{sys.executable} -m pip install "{name}=={version or there[name]}"'
        yield Finding("missing", what, on(where, command))
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
