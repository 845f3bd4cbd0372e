"""The command line of `mcnb run`.

It is read by hand, since what follows the file is the program's as soon as it is none of ours:
argparse would take the program's options for its own, or want two dashes before them.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mcnb.errors import OptionError
from mcnb.options import Options, environment
from mcnb.scripts.lesson import find_lesson, is_lesson, run_lesson

USAGE = """\
usage: mcnb run FILE.py [-n PROCESSES] [-d DEVICES] [ARGS]
       mcnb run LESSON.md

Run a JAX program in several processes of this machine, with its launches checked. The first failure
ends all of them, and the root cause is told last.

  -n PROCESSES     how many processes; 4 by default
  -d DEVICES       how many devices each of them has; 2 by default
  --platform P     cpu, or cuda: then the devices are NVIDIA's GPUs, and each process has its own
  --fold           show the output when all is done, what is equal once
  --unchecked      don't check the launches
  --env NAME=VALUE set an environment variable; may be given several times

The first word after FILE that is none of these begins ARGS, which are the program's; so does what
follows two dashes. In them, {process} and {processes} stand for a process's index and the number of
processes. A program that calls jax.distributed.initialize() without arguments needs no more. For
example:

  mcnb run train.py -n 4 -d 2 --steps 100
  mcnb run toy.py -n 4 -d 2 {process} {processes}

A lesson, or another notebook, is executed from top to bottom: mcnb run 05_lockstep.md"""
_VALUES = {
    "-n": "processes",
    "-d": "devices_per_process",
    "--platform": "platform",
    "--env": "env",
}
_FLAGS = ("--fold", "--unchecked")


@dataclass(frozen=True)
class Command:
    """What is to be run.

    Attributes:
        path: The file.
        arguments: Its arguments.
        options: How many processes and devices.
        fold: Whether the output is folded.
    """

    path: Path
    arguments: tuple[str, ...]
    options: Options
    fold: bool


def parse(words: Sequence[str]) -> Command:
    """Read a command line.

    Args:
        words: What follows `mcnb run`.

    Raises:
        OptionError: It makes no sense.

    Example:
        >>> command = parse(["-d", "1", __file__, "-n", "2", "--lr", "0.1", "-n", "3"])
        >>> command.arguments, command.options.describe()
        (('--lr', '0.1', '-n', '3'), '2 processes x 1 CPU device')
    """
    given: dict[str, str] = {}
    settings: list[str] = []
    flags: set[str] = set()
    path: Path | None = None
    rest = list(words)
    while rest:
        name, equals, value = rest[0].partition("=")
        if rest[0] in _FLAGS:
            flags.add(rest.pop(0))
        elif name in _VALUES:
            rest.pop(0)
            if not equals:
                if not rest:
                    raise OptionError(f"mcnb run {name}: a value is missing. See mcnb run --help")
                value = rest.pop(0)
            if name == "--env":
                settings.append(value)
            else:
                given[_VALUES[name]] = value
        elif path is None and not rest[0].startswith("-"):
            path = Path(rest.pop(0))
        elif path is None:
            raise OptionError(_no_such_option(rest[0]))
        else:
            break
    if rest[:1] == ["--"]:
        rest.pop(0)
    if path is None:
        raise OptionError("mcnb run: which program? For example: mcnb run train.py -n 4 -d 2")
    if is_lesson(path):
        if given or settings or flags or rest:
            raise OptionError(
                f"mcnb run {path}: a lesson starts its processes itself, and takes nothing beside "
                f"its file: mcnb run {path}"
            )
        return Command(find_lesson(path), (), Options(), fold=False)
    if not path.is_file():
        raise OptionError(f"mcnb run {path}: there is no such file")
    options = Options.of(**given, env=environment(settings), checked="--unchecked" not in flags)
    return Command(path, tuple(rest), options, "--fold" in flags)


def _no_such_option(word: str) -> str:
    known = (*_VALUES, *_FLAGS)
    close = difflib.get_close_matches(word, known, n=1)
    return (
        f"mcnb run {word}: there is no such option. There are: {', '.join(known)}. The program's "
        "own options follow its file" + (f". Did you mean {close[0]}?" if close else "")
    )


def main(words: Sequence[str]) -> int:
    """Run a program as the command line says; return the exit code.

    Raises:
        OptionError: The command line makes no sense.
    """
    if any(word in ("-h", "--help") for word in words[:1]):
        print(USAGE)
        return 0
    command = parse(words)
    if is_lesson(command.path):
        return run_lesson(command.path)
    from mcnb.scripts.running import Running

    running = Running(command.path, command.arguments, command.options, fold=command.fold)
    return running.run()
