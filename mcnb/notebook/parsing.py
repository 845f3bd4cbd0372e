"""Parse what stands after `%mcjax` and `%%mcjax`."""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from IPython.core.magic_arguments import MagicArgumentParser
from IPython.utils.process import arg_split

from mcnb._cells import OFF, ON
from mcnb._text import is_expression
from mcnb.errors import OptionError
from mcnb.options import CELL, MAX_PROCESSES, RUN_FILE, Option, options_of, process_set

AUTO, COMPARE, DEBUG, PUSH, PULL = "auto", "compare", "debug", "push", "pull"
# What the commands that work on something are given.
OPERANDS = {
    RUN_FILE: "FILE",
    AUTO: f"{ON}|{OFF}",
    COMPARE: "NAME",
    DEBUG: "[COMMAND]",
    PUSH: "NAME ...",
    PULL: "NAME ...",
}
# Those whose operand is the rest of the line as it is written: an expression has its own quotes,
# spaces and signs.
AS_WRITTEN = (COMPARE, DEBUG, PUSH, PULL)
# Those into whose lines IPython puts no variables of the notebook: braces are the expression's own.
EXPRESSIONS = (COMPARE, DEBUG)
_COMMENT = re.compile(r"(?:^|\s)#")
# The option that may stand before the operand of `debug`, whose own commands have dashes, or after
# it, where no Python has two expressions.
_PROCESS = re.compile(r"(?:-p|--process)(?:\s+|=)(?P<process>\S+)(?P<rest>.*)", re.DOTALL)
_PROCESS_LAST = re.compile(
    r"(?P<rest>.*\S)\s+(?:-p|--process)(?:\s+|=)(?P<process>\d+)\s*", re.DOTALL
)


class SentenceParser(MagicArgumentParser):
    """A parser whose errors are sentences: the input, the allowed values, and the remedy."""

    def __init__(self, magic: str, known: Sequence[Option], commands: Collection[str] = ()) -> None:
        super().__init__(prog=magic)
        self.commands = commands
        self.allow_abbrev = False
        self.known = known
        self.given = ""
        for option in known:
            if option.optional:
                self.add_argument(*option.flags, nargs="?", const=True)
                continue
            takes = "append" if option.repeatable else "store"
            self.add_argument(*option.flags, action=takes if option.metavar else "store_true")

    def parse(self, line: str) -> Any:
        """Parse a line, or raise OptionError."""
        self.given = f"{self.prog} {line}".strip()
        command, rest = (*line.split(None, 1), "", "")[:2]
        try:
            words = [command] if command in AS_WRITTEN else _words(line)
            found = _PROCESS.fullmatch(rest) or _PROCESS_LAST.fullmatch(rest)
            if command == DEBUG and found:
                words.append(f"--process={found['process']}")
                rest = found["rest"]
        except ValueError as error:  # a quote that is not closed
            raise OptionError(f"{self.given}: {error}. Help: {self.prog}?") from None
        args, unknown = self.parse_known_args(self._joined(words))
        if getattr(args, "operand", "") and args.command not in OPERANDS:
            unknown.insert(0, args.operand)
        if self.commands and args.command not in self.commands:
            close = difflib.get_close_matches(args.command, self.commands, 1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise OptionError(
                f"{self.given}: there is no command {args.command}.{hint} "
                f"Commands: {', '.join(self.commands)}. Help: {self.prog}?"
            )
        if unknown:
            raise OptionError(f"{self.given}: {self._refusal(args, unknown[0])}")
        if command in AS_WRITTEN:
            args.operand = rest.strip()
        return args

    def _refusal(self, args: Any, word: str) -> str:
        """Return why a word is refused, and what there is."""
        command = getattr(args, "command", None)
        known = [option.flags[0] for option in self.known if command in (None, *option.commands)]
        options = f"Options: {', '.join(known)}. " if known else ""
        help_ = f"{options}Help: {self.prog}?"
        if command is None or (known and word.startswith("-")):
            return f"there is no option {word}. {help_}"
        if word.startswith("-"):
            return f"{command} has no options. {help_}"
        return (
            f"{command} takes nothing but its options, and not {word}. {help_}"
            if known
            else (f"{command} is given alone, without {word}. {help_}")
        )

    def _joined(self, words: list[str]) -> list[str]:
        """Join each value that may begin with a dash to its option."""
        dashed = {flag for option in self.known if option.dashed for flag in option.flags}
        joined: list[str] = []
        for word in words:
            if joined and joined[-1] in dashed:
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return joined

    def error(self, message: str) -> NoReturn:
        """Raise an OptionError in place of argparse's error."""
        complaint = message.removeprefix("argument ")
        raise OptionError(f"{self.given}: {complaint}. Help: {self.prog}?")


def _words(line: str) -> list[str]:
    """Return the words of a line, without a comment at its end.

    Raises:
        ValueError: A quote is not closed.

    Example:
        >>> _words("-p 0 --args 'a #1'  # process 0's"), _words("# it's a comment")
        (['-p', '0', '--args', 'a #1'], [])
    """
    for found in _COMMENT.finditer(line):
        with contextlib.suppress(ValueError):  # it is inside quotes
            return [*arg_split(line[: found.start()], posix=True, strict=True)]
    return [*arg_split(line, posix=True, strict=True)]


def names_of(command: str, given: str) -> list[str]:
    """Return the names that a command is given, with spaces or commas between them.

    Raises:
        OptionError: There is none, or one of them is no name.

    Example:
        >>> names_of("push", "batch, rate")
        ['batch', 'rate']
    """
    names = given.replace(",", " ").split()
    if not names:
        raise OptionError(
            f"%mcjax {command}: the variable's name is missing. For example: %mcjax {command} "
            "params"
        )
    for name in names:
        if name.isidentifier():
            continue
        what = given if is_expression(given) else name
        has_value = command == PULL and is_expression(what) and not what.startswith("-")
        value = f". Its value: mcnb.current_cluster().pull({what!r})" * has_value
        raise OptionError(f"%mcjax {command} {given}: {what} is not the name of a variable{value}")
    return names


def cell_parser() -> SentenceParser:
    """Return the parser of the text after `%%mcjax`."""
    return SentenceParser("%%mcjax", options_of(CELL))


def first_process(line: str) -> int:
    """Return the first process that a cell runs on, given the text after `%%mcjax`.

    Example:
        >>> first_process("--unchecked -p 3,1"), first_process("-p")
        (1, 0)
    """
    try:
        wanted = cell_parser().parse(line).processes
        return 0 if wanted is None else process_set(wanted, MAX_PROCESSES)[0]
    except OptionError:
        return 0  # the option is not complete yet
