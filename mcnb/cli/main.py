"""Run the `mcnb` command: open lessons, run and write programs, check the installation.

The modules of a command are imported only when that command runs, so that help is immediate.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from mcnb import __version__
from mcnb._text import plural
from mcnb.errors import McnbError, OptionError

if TYPE_CHECKING:
    from mcnb.cli.doctor import Finding

_COMMANDS = ("lab", "run", "script", "doctor")
_OPTIONS = {
    None: ("--version", "--help"),
    "lab": ("--copy", "--help"),
    "doctor": ("--hosts", "--launcher", "--options", "--quick", "--help"),
}
_EXIT_USAGE, _EXIT_CTRL_C = 2, 130


class _Parser(argparse.ArgumentParser):
    """An argparse parser that raises its errors, as sentences."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{self.prog}: {message}. Help: {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `mcnb` command.

    Args:
        argv: The words after `mcnb` on the command line; by default those of this process.

    Returns:
        The exit code: 0 for success, 2 for an invalid command line.

    Example:
        >>> main(["--version"])
        mcnb ...
        0
    """
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except OptionError as error:
        print(error, file=sys.stderr)
        return _EXIT_USAGE
    except McnbError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _EXIT_CTRL_C
    except BrokenPipeError:  # `mcnb doctor | head`: Python would report it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _run(argv: list[str]) -> int:
    if argv[:1] == ["run"]:
        from mcnb.cli.run import main as run

        return run(argv[1:])
    if argv[:1] == ["script"]:
        from mcnb.cli.script import main as script

        return script(argv[1:])
    # Split here, because argparse's own handling of "--" differs between versions of Python.
    own = argv[: argv.index("--")] if "--" in argv else argv
    handed_on = argv[len(own) + 1 :]
    command = next((word for word in own[:1] if not word.startswith("-")), None)
    if command is not None and command not in _COMMANDS:
        names = ", ".join(f"mcnb {name}" for name in _COMMANDS)
        raise OptionError(
            f"mcnb {command}: there is no such command. There are: {names}."
            + _did_you_mean(command, _COMMANDS, "mcnb ")
        )
    parser = _parser()
    try:
        options, unknown = parser.parse_known_args(own)
    except SystemExit:  # argparse's --help
        return 0
    if unknown:
        raise OptionError(_unknown_sentence(command, unknown[0], options))
    if handed_on and command != "lab":
        raise OptionError(
            f"mcnb {' '.join(argv)}: only mcnb lab accepts arguments after --, and passes them to "
            f"JupyterLab: mcnb lab -- {' '.join(handed_on)}"
        )
    if options.version:
        print(f"mcnb {__version__}")
        return 0
    if command == "lab":
        if options.copy and handed_on:
            raise OptionError(
                f"mcnb lab --copy -- {' '.join(handed_on)}: with --copy, JupyterLab is not "
                "started. Leave out --copy, or the options of JupyterLab"
            )
        return _open_lab(options.folder, handed_on, only_copy=options.copy)
    if command == "doctor":
        return _examine(options)
    parser.print_help()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="mcnb",
        description="One Jupyter notebook drives N JAX processes at once.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    lab = commands.add_parser(
        "lab",
        help="open JupyterLab on the lessons",
        description="Open JupyterLab on the lessons. What you changed there is never overwritten.",
        usage="mcnb lab [FOLDER] [--copy] [-- OPTIONS OF JUPYTERLAB]",
        epilog="For example: mcnb lab, or: mcnb lab my-lessons -- --no-browser --port=9999",
        allow_abbrev=False,
    )
    lab.add_argument(
        "folder",
        nargs="?",
        metavar="FOLDER",
        help="where the lessons are copied to; ./mcnb-lessons by default",
    )
    lab.add_argument(
        "--copy",
        action="store_true",
        help="only copy the lessons, for an editor or a JupyterLab that runs already",
    )
    commands.add_parser(
        "run", help="run a program in several checked processes", add_help=False, allow_abbrev=False
    )
    commands.add_parser(
        "script", help="write a lesson as a plain JAX program", add_help=False, allow_abbrev=False
    )
    doctor = commands.add_parser(
        "doctor",
        help="say what is missing on this machine, and how to fix it",
        description="Say what is there, what is missing, and which command fixes it.",
        usage="mcnb doctor [--hosts HOSTS [--launcher NAME] [--options '...']] [--quick]",
        allow_abbrev=False,
    )
    doctor.add_argument(
        "--hosts",
        metavar="HOSTS",
        help="look at these hosts, too, and at whether they reach each other, for example "
        "alice@one,two; inside a job of Slurm or PBS, by default those of the job",
    )
    doctor.add_argument(
        "--launcher",
        metavar="NAME",
        help="what starts programs on the hosts: ssh (by default), mpi or slurm",
    )
    doctor.add_argument(
        "--options", metavar="'...'", help="more options for the launcher's own command"
    )
    doctor.add_argument("--quick", action="store_true", help="don't start a cluster to try it out")
    return parser


def _open_lab(given: str | None, arguments: Sequence[str], *, only_copy: bool) -> int:
    from mcnb import _lessons
    from mcnb.cli import lab

    folder = lab.choose_folder(given, Path.cwd())
    changed = lab.copy_lessons(_lessons.find_lessons(), folder)
    print(lab.describe_folder(folder, changed), flush=True)
    if only_copy:
        return 0
    return lab.start_jupyterlab(lab.command_line(folder, arguments))


def _examine(options: argparse.Namespace) -> int:
    from mcnb.cli.doctor import BASE, CHECKS, Finding, cluster
    from mcnb.cli.hosts import chosen, examine

    hosts = chosen(options.hosts, options.launcher, options.options or "", os.environ)
    findings: list[Finding] = []

    def tell(finding: Finding) -> None:
        if finding not in findings:  # one package can fail several checks
            findings.append(finding)
            print(finding, flush=True)  # now, because the next check may take some seconds

    def examine_hosts() -> Finding | None:
        for finding in examine(hosts, options.quick):
            tell(finding)
        return None

    for check in (*CHECKS, *(() if options.quick else (cluster,)), examine_hosts):
        try:
            if found := check():
                tell(found)
        except ImportError as error:
            every = " ".join(f'"{requirement}"' for requirement in BASE)
            what = f"What mcnb needs can't be imported: {error}"
            tell(Finding("missing", what, f"python -m pip install --upgrade {every}"))
    if missing := sum(finding.level == "missing" for finding in findings):
        print(f"{plural(missing, 'problem', 'problems')} found, see above")
        return 1
    print("No problems found. To open the lessons: mcnb lab")
    return 0


def _unknown_sentence(command: str | None, word: str, options: argparse.Namespace) -> str:
    prefix = " ".join(filter(None, ("mcnb", command)))
    if not word.startswith("-"):
        if command == "lab":
            both = f"{options.folder} {word}"
            return (
                f"mcnb lab {both}: it opens one folder at a time. A name that holds a space needs "
                f'quotes: mcnb lab "{both}"'
            )
        return f"{prefix} {word}: {word} is an unexpected argument. Run: {prefix}"
    known = _OPTIONS[command]
    sentence = f"{prefix} {word}: unknown option. Options: {', '.join(known)}."
    if command == "lab":
        return f"{sentence} Options of JupyterLab follow two dashes: mcnb lab -- {word}"
    return sentence + _did_you_mean(word, known)


def _did_you_mean(given: str, known: Sequence[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return f" Did you mean {prefix}{close[0]}?" if close else ""
