"""A call to processes that is no cell, and a cell's outcome as its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcnb.messages import ProcessError, Reply
from mcnb.outcome import Outcome, aftermath
from mcnb.result import Result


def answers_of(
    outcome: Outcome, answers: Mapping[int, Any], count: int, *, ours: bool
) -> dict[int, Any]:
    """Return what processes answered to a call of one of mcnb's own functions.

    Args:
        outcome: How the call ended.
        answers: What they answered, by process.
        count: How many processes there are.
        ours: Whether they can be started anew.

    Raises:
        CellError: A process raised an error, or was stopped.
    """
    errors = {k: a for k, a in sorted(answers.items()) if isinstance(a, ProcessError)}
    if errors or outcome.stopped:
        outcome.replies = {k: Reply(error=error) for k, error in errors.items()}
        result_of(outcome, count, ours=ours).raise_for_errors()
    return dict(sorted(answers.items()))


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
