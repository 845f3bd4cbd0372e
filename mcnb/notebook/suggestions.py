"""Suggest what may follow in a line that begins with `%mcjax` or `%%mcjax`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcnb._cells import OFF, ON
from mcnb.notebook.parsing import AUTO, COMPARE, DEBUG, PULL, PUSH
from mcnb.options import CELL, PLATFORMS, RUN_FILE, options_of

_LINE = re.compile(r"[ \t]*(%%?)mcjax[ \t]+(.*)", re.DOTALL)
# The values of options that have only some.
_VALUES: Mapping[str, Iterable[str]] = {"--platform": PLATFORMS}


@dataclass(frozen=True)
class Suggestions:
    """What may be at the cursor.

    Attributes:
        fragment: What is typed of it.
        words: What it may be.
        expression: Instead of words, an expression of the processes' names, which ends at the
            cursor; empty if it is none.
        files: Whether it may be the name of a file.
    """

    fragment: str
    words: tuple[str, ...] = ()
    expression: str = ""
    files: bool = False


def suggestions(line: str, commands: Iterable[str], names: Iterable[str]) -> Suggestions | None:
    """Return what may follow in a line; None if it is no line of mcnb's magics.

    Args:
        line: The line up to the cursor.
        commands: The commands of `%mcjax`.
        names: The names in the notebook kernel.

    Example:
        >>> suggestions("%mcjax au", ["auto", "start"], [])
        Suggestions(fragment='au', words=('auto',), expression='', files=False)
        >>> suggestions("%mcjax compare par", ["compare"], []).expression
        'par'
    """
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    rest = found[2]
    fragment = re.split(r"[ \t]", rest)[-1]
    before = rest[: len(rest) - len(fragment)].split()
    if found[1] == "%%":
        return _fitting(fragment, _flags(CELL))
    if not before:
        return _fitting(fragment, commands)
    command = before[0]
    if command in (COMPARE, DEBUG, PULL) and not fragment.startswith("-"):
        return Suggestions(fragment, expression="".join(rest.split(None, 1)[1:]))
    if command == PUSH:
        return _fitting(fragment, sorted(name for name in names if not name.startswith("_")))
    if command == AUTO:
        return _fitting(fragment, (ON, OFF))
    if before[-1] in _VALUES:
        return _fitting(fragment, _VALUES[before[-1]])
    if command == RUN_FILE and not fragment.startswith("-"):
        return Suggestions(fragment, files=True)
    return _fitting(fragment, _flags(command))


def _flags(command: str) -> list[str]:
    return [flag for option in options_of(command) for flag in option.flags]


def _fitting(fragment: str, words: Iterable[str]) -> Suggestions:
    return Suggestions(fragment, tuple(word for word in words if word.startswith(fragment)))
