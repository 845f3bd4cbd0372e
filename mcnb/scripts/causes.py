"""Why a program that ran in several processes failed: the root cause first, in a sentence."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcnb.launch.keeping import describe_exit
from mcnb.lockstep.verdicts import Verdict
from mcnb.lockstep.wording import explain, left_waiting
from mcnb.options import name_processes
from mcnb.scripts.program import EXIT_INTERRUPTED, Ending


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        process: Its index.
        status: Its exit code, or minus the signal that killed it.
        ending: What it said itself; None where it said nothing.
        ended_by_us: Whether it was told to end, since another one had failed.
    """

    process: int
    status: int
    ending: Ending | None
    ended_by_us: bool = False

    @property
    def failed(self) -> bool:
        """Whether it failed by itself."""
        return not self.ended_by_us and self.status != 0


@dataclass(frozen=True)
class Cause:
    """Why a program failed.

    Attributes:
        sentence: What happened; empty if nothing did.
        code: The exit code for all of it.
    """

    sentence: str = ""
    code: int = 0


def find_cause(ended: Sequence[Ended], count: int, verdict: Verdict | None) -> Cause:
    """Return why a program failed.

    Args:
        ended: How its processes ended, in the order in which they did.
        count: How many there are.
        verdict: How they parted, if they did.

    Example:
        >>> find_cause([Ended(1, 1, Ending("raised", "OSError: full", "train.py:7", 1))], 4, None)
        Cause(sentence='process 1 raised OSError: full (train.py:7)', code=1)
    """
    failed = [one for one in ended if one.failed]
    if not failed:
        return Cause()
    # One that was killed, or raised an error of its own, comes before those that it left waiting.
    own = [one for one in failed if one.ending is None or one.ending.kind in ("raised", "exit")]
    if own:
        first = _first(own)
        alike = sorted(one.process for one in own if _said(one) == _said(first))
        said = f"{name_processes(alike, count)} {_said(first)}"
        if first.status < 0 and len(alike) > 1:
            said = said.replace(" was killed", " were killed", 1)
        waited = left_waiting(verdict.stands, count) if verdict is not None else ""
        sentence = f"{said}. {waited[0].upper()}{waited[1:]}" if waited else said
        return Cause(sentence, _code(first))
    if verdict is not None and any(one.ending and one.ending.kind == "parted" for one in failed):
        return Cause(explain(verdict, count).sentence, 1)
    return Cause("interrupted", EXIT_INTERRUPTED)


def _first(own: Sequence[Ended]) -> Ended:
    """Return who failed first.

    When process 0 is gone, JAX aborts all others: what they say of that is no cause.
    """
    told = [one for one in own if one.ending is not None or one.status != -signal.SIGABRT]
    return (told or own)[0]


def _said(one: Ended) -> str:
    if one.ending is None:
        return describe_exit(one.status)
    place = f" ({one.ending.place})" if one.ending.place else ""
    if one.ending.kind == "exit":
        return f"ended with {one.ending.error}{place}"
    return f"raised {one.ending.error}{place}"


def _code(one: Ended) -> int:
    return one.status if one.status >= 0 else 128 - one.status


def strangers(endings: Mapping[int, Ending]) -> bool:
    """Return whether several processes ran to their end and never joined each other."""
    return len(endings) > 1 and not any(ending.joined for ending in endings.values())
