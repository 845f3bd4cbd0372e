"""What a cluster can be asked for, and the sentences for what it can't."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from mcnb._text import plural
from mcnb.errors import OptionError

MAX_PROCESSES = 512
# JAX numbers the CPU devices of process k from 2048 * k on: more would share an id.
MAX_DEVICES = 2048
# What a device of each platform is called.
PLATFORMS = {"cpu": ("CPU device", "CPU devices"), "cuda": ("GPU", "GPUs")}
LOCAL, CONNECTED = "local", "connected"
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# By the name in Options: the magic's option, what it means, the largest value and an example.
_NUMBERS = {
    "processes": ("-n", "the number of processes", MAX_PROCESSES, 4),
    "devices_per_process": ("-d", "the number of devices per process", MAX_DEVICES, 2),
}


@dataclass(frozen=True)
class Options:
    """What a cluster is made of.

    Args:
        processes: How many JAX processes, 1 to 512.
        devices_per_process: How many devices each of them has, 1 to 2048.
        platform: `"cpu"`, or `"cuda"` for NVIDIA's GPUs: each process gets its own.
        env: Environment variables for the processes, on top of the notebook's own.
        checked: Whether a launch waits until all of its participants stand at it.
        launcher: Who starts the processes: `"local"`, or one of ipyparallel's launchers, such as
            `"mpi"`, `"ssh"` or `"slurm"`.
        hosts: On which hosts, for ssh; neighbouring processes share one.
        launcher_options: More options for the launcher's own command, as one writes them in a
            shell.
        listen: At which of this machine's addresses the processes reach the notebook; found out by
            default.
        profile: The IPython profile of a cluster that somebody else started.
        cluster_id: Its id, where several run under one profile.

    Raises:
        OptionError: A value is not allowed.

    Example:
        >>> Options(processes=2).describe()
        '2 processes x 2 CPU devices'
        >>> Options(processes=0)
        Traceback (most recent call last):
        mcnb.errors.OptionError: -n 0: the number of processes is a whole number from 1 to 512. \
For example: -n 4
    """

    processes: int = 4
    devices_per_process: int = 2
    platform: str = "cpu"
    env: Mapping[str, str] = field(default_factory=dict)
    checked: bool = True
    launcher: str = LOCAL
    hosts: tuple[str, ...] = ()
    launcher_options: str = ""
    listen: str = ""
    profile: str = ""
    cluster_id: str = ""

    def __post_init__(self) -> None:
        for name, (option, meaning, most, example) in _NUMBERS.items():
            number = whole_number(option, getattr(self, name), meaning, most, example)
            object.__setattr__(self, name, number)  # it may have been given as text
        if self.platform not in PLATFORMS:
            raise OptionError(
                f"--platform {self.platform}: this version of mcnb drives CPU devices, and "
                "NVIDIA's GPUs. Leave the option out, or say --platform cpu or --platform cuda"
            )
        for name, value in self.env.items():
            if not isinstance(value, str):
                raise OptionError(
                    f"env={{{name!r}: {value!r}}}: the value of an environment variable is text. "
                    "For example: env={'JAX_ENABLE_X64': '1'}"
                )
            if not (isinstance(name, str) and re.fullmatch(_ENV_NAME, name)):
                raise OptionError(_env_sentence(f"{name}={value}"))

        self._check_launcher()

    def _check_launcher(self) -> None:
        if not isinstance(self.launcher_options, str):
            raise OptionError(
                f"launcher_options={self.launcher_options!r}: the options of a launcher's command "
                "are text, as one writes them in a shell. For example: '--time=30'"
            )
        if bool(self.hosts) != (self.launcher == "ssh"):
            raise OptionError(
                "--launcher ssh: on which hosts? For example: --launcher ssh --hosts alice@one,two"
                if self.launcher == "ssh"
                else "--hosts belongs to --launcher ssh. For mpi, for example: "
                "--options '--host one,two'"
            )
        if not all(re.fullmatch(r"\S+", host) for host in self.hosts):
            raise OptionError(
                f"--hosts {','.join(self.hosts)}: name hosts with commas between them. For "
                "example: --hosts alice@one,two"
            )
        for option, given in {"--options": self.launcher_options, "--listen": self.listen}.items():
            if given and self.launcher == LOCAL:
                raise OptionError(
                    f"{option} belongs to processes that others start than mcnb itself. "
                    "For example: --launcher mpi"
                )

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Return options with those values that are given: text is read, None is left out.

        Raises:
            OptionError: A value is not allowed.

        Example:
            >>> Options.of(processes="3", devices_per_process=None).describe()
            '3 processes x 2 CPU devices'
        """
        return cls(**{name: value for name, value in given.items() if value is not None})

    @property
    def ours(self) -> bool:
        """Whether the processes are started, and so can be started anew, by the cluster itself."""
        return self.launcher != CONNECTED

    def describe(self) -> str:
        """Return the size in words."""
        return (
            f"{plural(self.processes, 'process', 'processes')} x "
            f"{plural(self.devices_per_process, *PLATFORMS[self.platform])}"
        )


def whole_number(option: str, given: object, meaning: str, most: int, example: int) -> int:
    """Return an option's value as a number from 1 to `most`.

    Raises:
        OptionError: It is something else.
    """
    try:
        number = int(given) if isinstance(given, str) else given
    except ValueError:
        number = None
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= most:
        return number
    raise OptionError(
        f"{option} {given}: {meaning} is a whole number from 1 to {most}. "
        f"For example: {option} {example}"
    )


def seconds(option: str, given: object) -> float:
    """Return an option's value as a number of seconds.

    Raises:
        OptionError: It is something else, or not more than 0.

    Example:
        >>> seconds("--timeout", "2.5")
        2.5
    """
    try:
        number = float(given) if isinstance(given, (str, int, float)) else math.nan
    except ValueError:
        number = math.nan
    if number > 0 and not isinstance(given, bool):
        return number
    raise OptionError(
        f"{option} {given}: a time limit is a number of seconds, more than 0. "
        f"For example: {option} 10"
    )


def host_list(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return the hosts that `--hosts` names, as a list or with commas between.

    Example:
        >>> host_list("alice@one, two"), host_list([])
        (('alice@one', 'two'), ())
    """
    names = given.split(",") if isinstance(given, str) and given else given
    return tuple(name.strip() for name in names)


def environment(settings: Iterable[str]) -> dict[str, str]:
    """Return `K=V` settings as a dict.

    Example:
        >>> environment(["XLA_FLAGS=--xla_dump_to=dump", "DEBUG="])
        {'XLA_FLAGS': '--xla_dump_to=dump', 'DEBUG': ''}
    """
    result = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not re.fullmatch(_ENV_NAME, name):
            raise OptionError(_env_sentence(setting))
        result[name] = value
    return result


def _env_sentence(given: str) -> str:
    return (
        f"--env {given}: a setting is a name, an equals sign and a value, without spaces "
        "around the sign. For example: --env JAX_ENABLE_X64=1"
    )


def process_set(given: str | int | Iterable[int], count: int) -> tuple[int, ...]:
    """Return the processes that `-p` names, in order.

    Args:
        given: Process indices: one, several, or text such as `"0,2-3"`.
        count: How many processes the cluster has.

    Raises:
        OptionError: The text is no such list, or names a process that does not exist.

    Example:
        >>> process_set("0,2-3", 4)
        (0, 2, 3)
    """
    if isinstance(given, int):
        given = str(given)
    text = given if isinstance(given, str) else ",".join(map(str, given))
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if first > last:
            raise OptionError(
                f"-p {text}: name processes by their index, as numbers and ranges with commas "
                "between them. For example: -p 0,2-3"
            )
        if last >= count:
            raise OptionError(
                f"-p {text}: there is no process {last}. This cluster has "
                f"{plural(count, 'process', 'processes')}: "
                + (f"0 to {count - 1}" if count > 1 else "0")
            )
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))
