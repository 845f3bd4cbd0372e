"""Declare the options of clusters and cells, each once for every command that has it."""

from __future__ import annotations

import math
import operator
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcnb._text import plural
from mcnb.errors import OptionError

MAX_PROCESSES = 512
# JAX numbers the CPU devices of process k from 2048 * k: with more, devices would share an id.
MAX_DEVICES = 2048
# The name of a device of each platform.
PLATFORMS = {"cpu": ("CPU device", "CPU devices"), "cuda": ("GPU", "GPUs"), "tpu": ("TPU", "TPUs")}
# What JAX is told of each. It computes on the first; `jax.debug.print`, for example, needs a CPU
# device besides.
JAX_PLATFORMS = {"cpu": "cpu", "cuda": "cuda,cpu", "tpu": "tpu,cpu"}
LOCAL, CONNECTED = "local", "connected"
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
# Commands with options, besides those of %mcjax. `mcnb script` reads its options in a lesson's
# `%mcjax start` lines.
CELL, RUN_FILE, RUN, SCRIPT = "%%mcjax", "run", "mcnb run", "mcnb script"
_WIDTH, _COLUMN = 92, 24  # of help texts, and of the explanations in them


@dataclass(frozen=True)
class Option:
    """An option of a command line.

    Attributes:
        flags: The flags that name it; `mcnb run` accepts only the first.
        metavar: The name of its value in help texts; empty if the option takes no value.
        help: What the option does.
        commands: The commands that have it; an error about a wrong command names the first.
        field: The field of Options that it sets; empty if it sets none.
        read: Converts what the command line gave to the field's value: a text, a list of texts if
            the option is repeatable, or True if it takes no value. None keeps it as it is.
        repeatable: Whether it may be given several times.
        dashed: Whether its value may begin with a dash.
        optional: Whether its value may be left out.

    Example:
        >>> Option(("-n", "--number"), "N", "how many").usage
        '[-n N]'
    """

    flags: tuple[str, ...]
    metavar: str
    help: str
    commands: tuple[str, ...] = ()
    field: str = ""
    read: Callable[[Any], Any] | None = None
    repeatable: bool = False
    dashed: bool = False
    optional: bool = False

    @property
    def name(self) -> str:
        """The option's name in Python and in argparse."""
        return self.flags[-1].lstrip("-").replace("-", "_")

    @property
    def usage(self) -> str:
        """The option as written in a usage line."""
        more = " ..." if self.repeatable else ""
        return f"[{self._written(self.flags[:1])}{more}]"

    def _written(self, flags: Iterable[str]) -> str:
        value = f"[{self.metavar}]" if self.optional else self.metavar
        return f"{', '.join(flags)} {value}".strip()

    def explain(self, flags: Iterable[str]) -> str:
        """Return the lines that describe the option in a help text, with these of its flags."""
        return textwrap.fill(
            self.help,
            _WIDTH,
            initial_indent=f"  {self._written(flags):<{_COLUMN - 3}} ",
            subsequent_indent=" " * _COLUMN,
            break_on_hyphens=False,
        )


def options_of(*commands: str) -> tuple[Option, ...]:
    """Return the options of any of these commands."""
    return tuple(option for option in OPTIONS if not {*commands}.isdisjoint(option.commands))


def usage(prefix: str, command: str, suffix: str = "") -> str:
    """Return the usage of a command, wrapped between its options.

    Example:
        >>> usage("%mcjax restart", "restart")
        '%mcjax restart [--replay [CELLS]] [--keep-going]'
    """
    words = [option.usage.replace(" ", "\xa0") for option in options_of(command)]
    return textwrap.fill(
        " ".join([prefix, *words, suffix]).strip(),
        _WIDTH,
        subsequent_indent=" " * (len(prefix) + 1),
        break_on_hyphens=False,
    ).replace("\xa0", " ")


def field_values(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of Options that the options of a command set.

    Args:
        command: The command. Options of other commands are ignored.
        given: The values from the command line, by option name. None and False mean: not given.

    Raises:
        OptionError: A value can't be read.

    Example:
        >>> field_values("start", {"processes": "3", "devices": None, "unchecked": True})
        {'processes': '3', 'checked': False}
    """
    found: dict[str, Any] = {}
    flags: dict[str, str] = {}
    for option in options_of(command):
        value = given.get(option.name)
        if not option.field or value is None or value is False:
            continue
        other = flags.setdefault(option.field, option.flags[0])
        if other != option.flags[0]:
            raise OptionError(f"{other} and {option.flags[0]} contradict each other: give one")
        found[option.field] = value if option.read is None else option.read(value)
    return found


@dataclass(frozen=True)
class Options:
    """The options of a cluster; OPTIONS describes each field.

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
    values: bool | None = None
    arguments: tuple[str, ...] = ()
    profile: str = ""
    profile_dir: str = ""
    cluster_id: str = ""

    def __post_init__(self) -> None:
        for option, name, meaning, most, example in (
            ("-n", "processes", "the number of processes", MAX_PROCESSES, 4),
            ("-d", "devices_per_process", "the number of devices per process", MAX_DEVICES, 2),
        ):
            number = whole_number(option, getattr(self, name), meaning, most, example)
            object.__setattr__(self, name, number)  # it may have been given as text
        if self.platform not in PLATFORMS:
            raise OptionError(
                f"--platform {self.platform}: expected cpu, cuda (NVIDIA GPUs) or tpu. For "
                "example: --platform cuda"
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
        if self.platform == "tpu" and self.launcher == LOCAL and self.processes > 1:
            raise OptionError(
                "--platform tpu: a process takes all TPUs of its host, so several processes need "
                "several hosts. For example: --platform tpu --launcher ssh --hosts one,two"
            )
        if self.profile and self.profile_dir:
            raise OptionError("--profile and --profile-dir contradict each other: give one")
        if not isinstance(self.launcher_options, str):
            raise OptionError(
                f"launcher_options={self.launcher_options!r}: the options of a launcher's command "
                "are text, as one writes them in a shell. For example: '--time=30'"
            )
        if bool(self.hosts) != (self.launcher == "ssh"):
            raise OptionError(
                "--launcher ssh requires --hosts. For example: --launcher ssh --hosts alice@one,two"
                if self.launcher == "ssh"
                else "--hosts is only allowed with --launcher ssh. For mpi, for example: "
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
                    f"{option} is not allowed with --launcher {LOCAL}. Choose another launcher, "
                    "for example --launcher mpi"
                )

    @property
    def ours(self) -> bool:
        """Whether the cluster itself starts the processes, and so can restart them."""
        return self.launcher != CONNECTED

    def describe(self) -> str:
        """Describe the numbers of processes and devices."""
        return (
            f"{plural(self.processes, 'process', 'processes')} x "
            f"{plural(self.devices_per_process, *PLATFORMS[self.platform])}"
        )


def whole_number(option: str, given: object, meaning: str, most: int, example: int) -> int:
    """Return an option's value as a whole number from 1 to `most`.

    Raises:
        OptionError: The value is something else.
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
        OptionError: The value is something else, or not more than 0.

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
    """Return the hosts that `--hosts` names, from a list or from text with commas.

    Example:
        >>> host_list("alice@one, two"), host_list([])
        (('alice@one', 'two'), ())
    """
    names = given.split(",") if isinstance(given, str) and given else given
    return tuple(name.strip() for name in names)


def words(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return a program's arguments, from a list or from text as one writes it in a shell.

    Raises:
        OptionError: A quote in the text is not closed.

    Example:
        >>> words("--name 'a run' {process}"), words(["a b"])
        (('--name', 'a run', '{process}'), ('a b',))
    """
    try:
        return tuple(shlex.split(given) if isinstance(given, str) else given)
    except ValueError:
        raise OptionError(
            f"--args {given}: a quote is not closed. For example: --args '{{process}} "
            "{processes}'"
        ) from None


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
        f"--env {given}: expected NAME=VALUE, without spaces around the sign. For example: "
        "--env JAX_ENABLE_X64=1"
    )


def process_set(
    given: str | int | Iterable[int], count: int, option: str = "-p "
) -> tuple[int, ...]:
    """Return the processes that `-p` names, in order.

    Args:
        given: Process indices: one, several, or text such as `"0,2-3"`.
        count: The number of processes in the cluster.
        option: What precedes them where they were given, for errors.

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
                f"{option}{text}: name processes by their index, as numbers and ranges with commas "
                f"between them. For example: {option}0,2-3"
            )
        if last >= count:
            raise OptionError(
                f"{option}{text}: there is no process {last}. This cluster has "
                f"{plural(count, 'process', 'processes')}: "
                + (f"0 to {count - 1}" if count > 1 else "0")
            )
        chosen.update(range(first, last + 1))
    return tuple(sorted(chosen))


def one_process(given: str | int, count: int) -> int:
    """Return the one process that `-p` names.

    Raises:
        OptionError: The text names no process, or several.

    Example:
        >>> one_process("2", 4)
        2
    """
    found = process_set(given, count)
    if len(found) > 1:
        raise OptionError(f"-p {given}: name one process. For example: -p {found[0]}")
    return found[0]


def cell_numbers(given: str) -> tuple[tuple[int, int], ...]:
    """Return the cells that `--replay` names: the first and the last number of each range.

    Raises:
        OptionError: The text is no list of cells.

    Example:
        >>> cell_numbers("In[1-5]"), cell_numbers("In[1], In[3-4],7")
        (((1, 5),), ((1, 1), (3, 4), (7, 7)))
    """
    ranges = []
    for part in given.split(","):
        match = re.fullmatch(r"\s*(In\[)?\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?(?(1)\])\s*", part)
        first = int(match[2]) if match else 0
        last = int(match[3] or match[2]) if match else -1
        if first > last:
            raise OptionError(
                f"--replay {given}: name cells by the numbers in their prompts, with ranges and "
                "commas between them. For example: --replay In[1-5],In[8]"
            )
        ranges.append((first, last))
    return tuple(ranges)


# The order of options in help texts and errors. The defaults are those of Options.
OPTIONS = (
    Option(
        ("-n", "--processes"),
        "N",
        f"how many processes, 1 to {MAX_PROCESSES} (default {Options.processes}; connect waits for "
        "so many engines, and by default takes those that it finds)",
        ("start", "connect", RUN, SCRIPT),
        "processes",
    ),
    Option(
        ("-d", "--devices"),
        "D",
        f"how many devices each process has, 1 to {MAX_DEVICES} (default "
        f"{Options.devices_per_process})",
        ("start", "connect", RUN, SCRIPT),
        "devices_per_process",
    ),
    Option(
        ("--platform",),
        "P",
        "cpu, cuda or tpu: with cuda, the devices are NVIDIA's GPUs, and each process has its own; "
        "with tpu, a process has all TPUs of its host",
        ("start", "connect", RUN),
        "platform",
    ),
    Option(
        ("--env",),
        "NAME=VALUE",
        "an environment variable for the processes; may be repeated",
        ("start", "connect", RUN, SCRIPT),
        "env",
        environment,
        repeatable=True,
    ),
    Option(
        ("-p", "--processes"),
        "LIST",
        "run the cell on these processes only, such as 0 or 0,2-3",
        (CELL,),
    ),
    Option(
        ("-p", "--process"),
        "K",
        "the process to look at (default: the first of those that caused the error)",
        ("debug",),
    ),
    Option(
        ("--fold",),
        "",
        "show the output when the program has ended, with identical output shown once",
        (RUN,),
    ),
    Option(
        ("--unchecked",),
        "",
        "turn the check off: launches do not wait for the other processes, to show what happens "
        "when processes diverge",
        ("start", "connect", CELL, RUN),
        "checked",
        operator.not_,
    ),
    Option(
        ("--values",),
        "",
        "compare replicated arguments bit for bit at every launch, which takes time; by default, "
        "they are compared when a computation is launched for the first time, and then now and "
        "again",
        ("start", "connect", CELL, RUN),
        "values",
        bool,
    ),
    Option(
        ("--no-values",),
        "",
        "never compare replicated arguments",
        ("start", "connect", CELL, RUN),
        "values",
        operator.not_,
    ),
    Option(
        ("--timeout",), "SECONDS", "interrupt the cell after this many seconds", (RUN_FILE, CELL)
    ),
    Option(
        ("--args",),
        "'WORDS'",
        "the program's arguments, which cells find in sys.argv; {process} and {processes} stand "
        "for a process's index and the number of processes",
        ("start", "connect"),
        "arguments",
        words,
        dashed=True,
    ),
    Option(
        ("--launcher",),
        "LAUNCHER",
        "what starts the processes: local, or one of ipyparallel's launchers, such as mpi, ssh, "
        "slurm, pbs, sge, lsf, htcondor",
        ("start",),
        "launcher",
    ),
    Option(
        ("--hosts",),
        "HOST,...",
        "the hosts for ssh, for example alice@one,two",
        ("start",),
        "hosts",
        host_list,
    ),
    Option(
        ("--options",),
        "'WORDS'",
        "more options for the launcher's command: mpiexec, ssh, sbatch, ...",
        ("start",),
        "launcher_options",
        dashed=True,
    ),
    Option(
        ("--listen",),
        "ADDRESS",
        "the address of this machine at which processes on other hosts connect to the notebook "
        "kernel; detected by default",
        ("start", "connect"),
        "listen",
    ),
    Option(
        ("--profile",),
        "PROFILE",
        "the IPython profile under which the cluster was started (default: the one named default)",
        ("connect",),
        "profile",
    ),
    Option(
        ("--profile-dir",),
        "FOLDER",
        "the folder that ipcontroller was given as --profile-dir, instead of a profile",
        ("connect",),
        "profile_dir",
    ),
    Option(
        ("--cluster-id",),
        "ID",
        "the cluster's id, if several run under one profile",
        ("connect",),
        "cluster_id",
    ),
    Option(
        ("--replay",),
        "CELLS",
        "re-run the cells that had succeeded, until one fails; or of those only these, such as "
        "In[1-5] or 1-5,8",
        ("restart",),
        optional=True,
    ),
    Option(("--keep-going",), "", "go on with the replay after a cell that fails", ("restart",)),
    Option(
        ("--order",),
        "",
        "draw only the order of the launches, without times: the same on every run",
        ("timeline",),
    ),
    Option(
        ("--step",),
        "N",
        "draw only this step, from 1; a step ends with the launch that spans processes and was "
        "made most often in the cell",
        ("timeline",),
    ),
    Option(("--from",), "N", "draw the steps from this one on", ("timeline",)),
    Option(("--to",), "N", "draw the steps up to this one", ("timeline",)),
    Option(
        ("--full",),
        "",
        "give each launch a line of its own, with all its arguments",
        ("log",),
    ),
)
