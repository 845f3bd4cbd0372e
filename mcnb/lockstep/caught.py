"""Remember exceptions that the learner's code caught, which may have made it diverge."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, WrapperDescriptorType
from typing import Any

from mcnb._text import error_line
from mcnb.errors import LockstepError
from mcnb.lockstep.model import Caught

# Tools that Python reserves no number for; debuggers, coverage and profilers have numbers below.
_TOOLS = (4, 3)
_NAME = "mcnb"
# The most exceptions that are described between two launches: a loop may catch one in each round.
_MOST = 1000
# The most kinds of exceptions that are remembered.
_KINDS = 64
# Printed before a verdict that the program caught.
CAUGHT = "the program caught a LockstepError and went on: "
_PLAIN = (str, int, float, type(None))


@dataclass(slots=True)
class _Kind:
    """Exceptions of one type that came from one line.

    Attributes:
        text: The last one, in one line.
        times: How many were caught.
        launches: The number of launches before the last one was caught.
    """

    text: str
    times: int
    launches: int


class CaughtExceptions:
    """The exceptions that the learner's code caught in this process.

    Only Python 3.12 and later can tell without making the program slower; see `sys.monitoring`.
    In earlier versions, and if other tools use all its numbers, no exception is remembered.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._launches = self._described = 0
        # The newest exception, by its id, as long as it may be raised again, and its kind.
        self._newest: tuple[int, tuple[str, str]] = (0, ("", ""))

    @property
    def recent(self) -> tuple[Caught, ...]:
        """The exceptions, those of one type and one line as one, from the newest."""
        kinds = reversed([*self._kinds.items()])
        return tuple(
            Caught(one.text, *kind, one.times, self._launches - one.launches)
            for kind, one in kinds
            if one.times
        )

    def watch(self, runs: Callable[[str], bool], name: Callable[[str, int], str]) -> None:
        """Remember exceptions from now on, in place of other instances in this process.

        Args:
            runs: Returns whether a file, by its name in code objects, is the learner's.
            name: Returns the name of a line of a file in messages.
        """
        monitoring = getattr(sys, "monitoring", None)
        tool = None if monitoring is None else _tool(monitoring)
        if monitoring is None or tool is None:
            return

        def caught(code: CodeType, at: int, error: BaseException) -> None:
            del at
            told = isinstance(error, LockstepError)
            if self._described < _MOST and runs(code.co_filename) and not told:
                self._described += 1
                self._note(error, _place(error, runs, name))

        def raised_again(code: CodeType, at: int, error: BaseException) -> None:
            del code, at
            if id(error) == self._newest[0]:  # at the end of a `finally` clause, for example
                self._take_back()

        events = monitoring.events
        monitoring.register_callback(tool, events.EXCEPTION_HANDLED, caught)
        monitoring.register_callback(tool, events.RERAISE, raised_again)
        monitoring.set_events(tool, events.EXCEPTION_HANDLED | events.RERAISE)

    def launched(self) -> None:
        """Note that the process makes a launch together with others."""
        self._launches += 1
        self._described = 0

    def forget(self) -> None:
        """Forget all exceptions, which belong to an earlier cell."""
        self._kinds.clear()
        self._launches = self._described = 0

    def _note(self, error: BaseException, place: str) -> None:
        kind = type(error).__name__, place
        before = self._kinds.pop(kind, None)
        times = 1 if before is None else before.times + 1
        self._kinds[kind] = _Kind(_text(error), times, self._launches)
        self._newest = id(error), kind
        if len(self._kinds) > _KINDS:
            del self._kinds[next(iter(self._kinds))]

    def _take_back(self) -> None:
        """Forget the newest exception, which is raised again."""
        found = self._kinds.get(self._newest[1])
        self._newest = (0, ("", ""))
        if found is not None:
            found.times -= 1


def _tool(monitoring: Any) -> int | None:
    """Return the number of mcnb among the tools that monitor this process; None if all are used."""
    names = {tool: monitoring.get_tool(tool) for tool in _TOOLS}
    own = next((tool for tool, name in names.items() if name == _NAME), None)
    free = next((tool for tool, name in names.items() if name is None), None)
    if own is None and free is not None:
        monitoring.use_tool_id(free, _NAME)
    return free if own is None else own


def _place(
    error: BaseException, runs: Callable[[str], bool], name: Callable[[str, int], str]
) -> str:
    """Return the innermost line of the learner's from which an exception came; maybe empty."""
    trace = ((f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__))
    own = [at for at in trace if runs(at[0])]
    return name(*own[-1]) if own else ""


def _text(error: BaseException) -> str:
    """Return an exception in one line.

    Code of the program is not called for it, because that could raise another exception.
    """
    plain = isinstance(type(error).__str__, WrapperDescriptorType)
    plain = plain and all(isinstance(one, _PLAIN) for one in error.args)
    return error_line(error) if plain else type(error).__name__
