"""States of processes, and verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import (
    Condition,
    Detail,
    ExitSource,
    Kind,
    Launch,
    ProcessExit,
    ProcessState,
    Verdict,
)

IF_ZERO = (
    "this line runs only if `k == 0`. A collective must run on every participating process: move "
    "it out of the condition, and keep only local work such as printing inside"
)


PROGRAM = (
    "what the function uses besides its arguments must be equal on all processes: constants, "
    "closed-over values, options such as out_shardings, and the conditions of Python branches. "
    "Data that is meant to differ belongs in a sharded array: "
    "jax.make_array_from_process_local_data"
)


ORDER = (
    "the order of launches must not depend on the process. If it comes from a set or from a "
    "directory listing, sort the elements first; if it is random, draw from one seed"
)


NOT_INVITED = (
    "run the cell on all of them, without -p, or place the computation on a mesh of devices that "
    "belong to the processes of the cell"
)


ASKS_FOR_ZERO = Detail("jnp.sum(x)", (Condition("k == 0", "line 3"),))


FINISHED = ProcessState("finished")


WAS_KILLED = ProcessExit(ExitSource.OBSERVED)  # and nobody knows by which signal


def killed(number: int) -> ProcessExit:
    return ProcessExit(ExitSource.OBSERVED, status=-number)


def exited(code: int) -> ProcessExit:
    return ProcessExit(ExitSource.OBSERVED, status=code)


def launch(name: str = "sum", program: str = "1", **more: Any) -> Launch:
    return Launch(name, program, **{"participants": (0, 1), **more})


SUM, MAX = launch("sum", "1"), launch("max", "2")


def at(line: int | None = 4, what: Launch = SUM, place: str = "") -> ProcessState:
    return ProcessState("waits", what, line, place)


def states(*each: ProcessState) -> Mapping[int, ProcessState]:
    return dict(enumerate(each))


def sentence(kind: Kind, *each: ProcessState, **more: Any) -> str:
    return explain(Verdict(kind, states(*each), **more), len(each)).sentence
