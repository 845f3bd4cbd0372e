"""A call to processes that is no cell, and a cell's outcome as its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcnb.errors import CellError, ClusterError
from mcnb.lifetime import Lifetime
from mcnb.messages import ProcessError, Reply
from mcnb.outcome import Outcome, aftermath
from mcnb.result import Result

TICK_S = 0.1


def call(
    lifetime: Lifetime, function: Any, args: Sequence[Any], targets: tuple[int, ...], count: int
) -> dict[int, Any]:
    """Call one of mcnb's own functions in processes, in lockstep; return their answers.

    Args:
        lifetime: Has the processes.
        function: The function.
        args: Its arguments, after the shell and the number of the cell.
        targets: In which processes.
        count: How many processes there are.

    Raises:
        CellError: A process could not answer, or a value can't be sent.
        ClusterError: The cluster does not run, or broke.
    """
    current = lifetime.ready()
    number = current.referee.begin(targets)
    try:
        pending = current.call(function, number, *args, processes=targets)
    except ClusterError:
        raise
    except Exception as error:
        raise CellError(f"A value can't be sent: {error}") from None
    while pending.waiting:
        pending.wait(TICK_S)
        for k in pending.answers:
            current.referee.finish(k)
        if current.exits:
            lifetime.ready()
    errors = {k: a for k, a in pending.answers.items() if isinstance(a, ProcessError)}
    if errors:
        replies = {k: Reply(error=error) for k, error in sorted(errors.items())}
        Result(replies, count, verdict=current.referee.verdict).raise_for_errors()
    return dict(sorted(pending.answers.items()))


def result_of(outcome: Outcome, count: int, *, ours: bool) -> Result:
    """Return the result of a cell.

    Args:
        outcome: How it ended.
        count: How many processes there are.
        ours: Whether they can be started anew.
    """
    return Result(
        replies=dict(sorted(outcome.replies.items())),
        count=count,
        stopped=tuple(outcome.stopped),
        died=outcome.died,
        interrupted=outcome.interrupted,
        time_limit=outcome.time_limit,
        aftermath=aftermath(outcome, count, ours=ours),
        verdict=outcome.verdict,
    )
