"""Hints on names that processes lack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcnb.cluster.outcome import Outcome
from mcnb.cluster.result import Result
from mcnb.messages import ProcessError, Reply
from mcnb.notebook.names import hint_on_name, holders

MINE = ProcessError("ValueError", "mine", 2, "")
UNKNOWN = ProcessError("NameError", "name 'x' is not defined", 2, "", "x")
RUN_FIRST = "Hint: first run the %%mcjax cell that defines x"
IN_THE_KERNEL = (
    "Hint: x is defined in the notebook kernel, but not on these processes. Define it in a cell "
    "that begins with %%mcjax, or copy it: %mcjax push x"
)
ASSIGN = (
    "Assign it on all processes: under no condition that depends on the process, and in a cell "
    "without -p"
)


@pytest.mark.parametrize(
    ("errors", "notebook", "holders", "hint"),
    [
        ([UNKNOWN, UNKNOWN], [], [], RUN_FIRST),
        ([UNKNOWN, UNKNOWN], ["x"], [], IN_THE_KERNEL),
        ([UNKNOWN, None], [], [], ""),
        ([UNKNOWN, MINE], [], [1], ""),
        ([MINE, MINE], [], [0], ""),
        ([UNKNOWN, ProcessError("NameError", "", 2, "", "y")], [], [], ""),
        ([UNKNOWN, UNKNOWN], [], [0], RUN_FIRST),  # since, by a thread or an atexit handler
        (
            [None, UNKNOWN, UNKNOWN],
            [],
            [0],
            f"Hint: x is defined on process 0, and not on processes 1,2. {ASSIGN}",
        ),
        (
            [UNKNOWN],  # a cell with -p
            ["x"],
            [1, 2],
            f"Hint: x is defined on processes 1,2, and not on process 0. {ASSIGN}",
        ),
        ([ProcessError("NameError", "", 2, "", "np"), None], [], [1], ""),  # has a hint already
    ],
)
def test_a_name_that_processes_lack(
    errors: list[ProcessError | None], notebook: list[str], holders: list[int], hint: str
) -> None:
    replies = {k: Reply((), error) for k, error in enumerate(errors)}
    count = max(len(errors), *(k + 1 for k in holders), 2)
    assert hint_on_name(Result(replies, count), notebook, lambda name: holders) == hint


def test_processes_that_are_lost_are_not_asked() -> None:
    def asked(name: str) -> list[int]:
        pytest.fail("the processes are lost")

    replies = {k: Reply((), UNKNOWN) for k in range(2)}
    lost = Result(replies, 2, Outcome(intact=False))
    assert hint_on_name(lost, {}, asked) == RUN_FIRST


def test_which_processes_have_a_name() -> None:
    answers = {0: True, 1: False, 2: MINE, 3: True}
    cluster: Any = SimpleNamespace(
        options=SimpleNamespace(processes=5), ask_idle=lambda *_, processes, within_s: answers
    )
    assert holders(cluster, "x") == [0, 3]
