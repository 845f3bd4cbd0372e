"""What may stand after `%mcjax` and `%%mcjax`."""

from __future__ import annotations

from typing import Any, NoReturn

from IPython.core.magic_arguments import MagicArgumentParser
from IPython.utils.process import arg_split

from mcnb.errors import OptionError


class SentenceParser(MagicArgumentParser):
    """A parser whose complaints are sentences: what was given, what is allowed, what to do."""

    def __init__(self, magic: str) -> None:
        super().__init__(prog=magic)
        self.allow_abbrev = False
        self.given = ""

    def options(self, command: str | None = None) -> list[str]:
        """Return the options' names, one for each; those of a command, if one is given."""
        return [
            action.option_strings[0]
            for action in self._actions
            if action.option_strings
            and (command not in _WITH_OPTIONS or command in OWNERS.get(action.dest, ()))
        ]

    def parse(self, line: str) -> Any:
        """Return the parsed line.

        Raises:
            OptionError: It can't be parsed.
        """
        self.given = f"{self.prog} {line}".strip()
        try:
            words = arg_split(line, posix=True, strict=True)
        except ValueError as error:  # a quote that is not closed
            raise OptionError(f"{self.given}: {error}. Help: {self.prog}?") from None
        args, unknown = self.parse_known_args(_joined(words))
        if unknown:
            command = getattr(args, "command", None)
            raise OptionError(
                f"{self.given}: there is no option {unknown[0]}. Options: "
                f"{', '.join(self.options(command))}. Help: {self.prog}?"
            )
        return args

    def error(self, message: str) -> NoReturn:
        """Raise an error of ours in place of argparse's."""
        complaint = message.removeprefix("argument ")
        raise OptionError(f"{self.given}: {complaint}. Help: {self.prog}?")


def _joined(words: list[str]) -> list[str]:
    """Return words with what follows `--options` joined to it: it begins with a dash, as a rule."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] == "--options":
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def cell_parser() -> SentenceParser:
    """Return the parser of what stands after `%%mcjax`."""
    parser = SentenceParser("%%mcjax")
    parser.add_argument("-p", "--processes", metavar="PROCESSES")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--timeout", metavar="SECONDS")
    return parser


def line_parser() -> SentenceParser:
    """Return the parser of what stands after `%mcjax`."""
    parser = SentenceParser("%mcjax")
    parser.add_argument("command", nargs="?", default="status")
    parser.add_argument("-n", "--processes")
    parser.add_argument("-d", "--devices")
    parser.add_argument("--platform")
    parser.add_argument("--env", action="append", metavar="NAME=VALUE")
    parser.add_argument("--unchecked", action="store_true")
    parser.add_argument("--engines", metavar="LAUNCHER")
    parser.add_argument("--hosts", metavar="HOST,...")
    parser.add_argument("--options", metavar="'WORDS'")
    parser.add_argument("--listen", metavar="ADDRESS")
    parser.add_argument("--profile", metavar="PROFILE")
    parser.add_argument("--cluster-id", metavar="ID")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--order", action="store_true")
    return parser


# Which commands have an option.
OWNERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("processes", "platform", "engines", "hosts", "options"), ("start",)),
    **dict.fromkeys(("devices", "env", "unchecked", "listen"), ("start", "connect")),
    **dict.fromkeys(("profile", "cluster_id"), ("connect",)),
    "replay": ("restart",),
    "order": ("timeline",),
}


_WITH_OPTIONS = {owner for owners in OWNERS.values() for owner in owners}
