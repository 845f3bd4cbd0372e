"""Find the cause of a program's failure, from how its processes ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from mcnb._text import name_processes
from mcnb.lockstep.caught import CAUGHT
from mcnb.lockstep.messages import caught_before, exit_text, explain, left_waiting
from mcnb.lockstep.model import ExitSource, LastLaunch, ProcessExit, Verdict
from mcnb.lockstep.runner import EXIT_INTERRUPTED, Ending

# JAX's numbers of devices, in which equal errors of several processes may differ.
_DEVICE = re.compile(r"(?i)\b((?:tfrt_)?(?:cpu|cuda|gpu|rocm|tpu)(?:device\(id=|_|:))\d+")


def without_devices(text: str) -> str:
    """Return an error without JAX's numbers of devices.

    Example:
        >>> without_devices("TFRT_CPU_131072 is not cuda:3 or CpuDevice(id=0)")
        'TFRT_CPU_ is not cuda: or CpuDevice(id=)'
    """
    return _DEVICE.sub(r"\1", text)


@dataclass(frozen=True)
class Ended:
    """The end of a process.

    Attributes:
        process: The index of the process.
        status: The exit code, or minus the signal that killed the process.
        ending: The process's own report; None if it sent none.
        ended_by_us: Whether mcnb ended it because another process had failed.
        last: Its last launch with other processes, if there was one.
    """

    process: int
    status: int
    ending: Ending | None
    ended_by_us: bool = False
    last: LastLaunch | None = None

    @property
    def failed(self) -> bool:
        """Whether the process failed by itself."""
        return not self.ended_by_us and self.status != 0


def find_cause(ended: Sequence[Ended], count: int, verdicts: Sequence[Verdict]) -> tuple[str, int]:
    """Find the cause of a program's failure.

    Args:
        ended: The ends of the processes, in order of time.
        count: The number of processes.
        verdicts: How the processes diverged, each time that they did.

    Returns:
        The cause in words, empty if nothing failed, and the exit code of `mcnb run`.

    Example:
        >>> find_cause([Ended(1, 1, Ending("raised", "OSError: full", "train.py:7", 1))], 4, [])
        ('process 1 raised OSError: full (train.py:7)', 1)
    """
    failed = [one for one in ended if one.failed]
    if not failed:
        return "", 0
    # A process that was killed, or raised its own error, comes before those it left waiting: these
    # may raise errors of their own about their verdict.
    verdict = verdicts[-1] if verdicts else None
    states = {} if verdict is None or verdict.over else verdict.states
    left = {k for k, state in states.items() if state.doing == "waits"}
    own = [one for one in failed if one.ending is None or one.ending.kind in ("raised", "exit")]
    causes = [one for one in own if one.process not in left]
    if causes:
        said, first = _first_of(causes, own, count)
        waited = left_waiting(states, count)
        code = first.status if first.status >= 0 else 128 - first.status
        return f"{said}. {capital(waited)}" if waited else said, code
    diverged = [one.ending for one in failed if one.ending and one.ending.kind == "diverged"]
    if verdict is not None and (diverged or own):
        caught = not own and not any(ending.place for ending in diverged)
        block = explain(verdicts[0] if caught else verdict, count).block
        before = "" if caught else caught_before(verdicts, count)
        after = _first_of(own, own, count)[0] if own else ""
        more = [capital(text) for text in (before, after) if text]
        return "\n\n".join([f"{CAUGHT}{block}" if caught else block, *more]), 1
    return "interrupted", EXIT_INTERRUPTED


def _first_of(chosen: Sequence[Ended], own: Sequence[Ended], count: int) -> tuple[str, Ended]:
    """Return the first of the chosen ends in words, with all that ended alike, and by itself."""
    # When process 0 is gone, JAX aborts all others: their errors about that are no cause.
    told = [one for one in chosen if one.ending is not None or one.status != -signal.SIGABRT]
    first = (told or chosen)[0]
    said = without_devices(_said(first))
    same = [one for one in own if without_devices(_said(one)) == said]
    alike = sorted(one.process for one in same)
    # In words of the first of them, so that they do not depend on time.
    told_by = min(same, key=lambda one: one.process)
    return f"{name_processes(alike, count)} {_said(told_by, plural=len(alike) > 1)}", first


def _said(one: Ended, *, plural: bool = False) -> str:
    if one.ending is None:
        return exit_text(ProcessExit(ExitSource.OBSERVED, one.status, last=one.last), plural=plural)
    place = f" ({one.ending.place})" if one.ending.place else ""
    verb = "raised"
    if one.ending.kind == "exit":  # with a code, or with a text that Python has printed
        verb = "exited:" if one.ending.said else "ended with"
    return f"{verb} {one.ending.error}{place}"


def capital(text: str) -> str:
    """Return a text with a capital letter in front.

    Example:
        >>> capital("process 1")
        'Process 1'
    """
    return text[0].upper() + text[1:]
