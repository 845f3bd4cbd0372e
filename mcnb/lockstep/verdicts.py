"""Verdicts: what became of a cell whose processes parted, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from mcnb.lockstep.launches import Launch

Kind: TypeAlias = Literal["mismatch", "missing", "not invited", "cycle", "died", "stalled"]
Happened: TypeAlias = Literal["", "hung", "crashed", "failed", "returned"]
Doing: TypeAlias = Literal[
    "runs", "hangs", "waits", "finished", "raised", "left", "died", "not invited"
]


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a process stands.

    Attributes:
        doing: `"waits"`: before a launch that others have to make too. `"runs"`: its own code.
            `"hangs"`: inside a computation, or in a wait of JAX's own.
            `"finished"`, `"raised"`, `"left"` and
            `"died"`: it is done with the cell, and how. `"not invited"`: it was not given it.
        launch: The launch that it waits before, or was told of.
        line: The line of the cell, or of the script, at which that launch is.
        place: File and line, for a script: `"train.py:7"`.
        launches: How many launches with the same partners it has made in this cell.
        error: How its error reads, for one that raised; how it died.
    """

    doing: Doing
    launch: Launch | None = None
    line: int | None = None
    place: str = ""
    launches: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Detail:
    """What only the process itself knows of a launch that it stands at; asked for when needed.

    Attributes:
        source: The line of source at which it stands.
        condition: The `if` or `while` around that line that asks for the process index, if any.
        loop: The innermost loop around that line, if any: its first line.
        skip: What in that loop may have it skip the line: its line of source, if there is any.
        static: Static arguments of the function, by name, as text.
        program: The compiled program, line by line.
        names: The names of the arguments.
    """

    source: str = ""
    condition: str = ""
    loop: str = ""
    skip: str = ""
    static: Mapping[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return what `dataclasses.asdict` made the data from."""
        return cls(**{**data, "program": tuple(data["program"]), "names": tuple(data["names"])})


@dataclass(frozen=True, slots=True)
class Verdict:
    """That processes have parted, and how.

    Attributes:
        kind: `"mismatch"`: they stand at different launches. `"missing"`: a process that is needed
            has ended. `"not invited"`: it was not given the cell. `"cycle"`: they wait for each
            other in a ring. `"died"`: a process died. `"stalled"`: nothing is proven, and the
            cell was ended by its user or by a time limit.
        stands: Where each process stands that has to do with it, by process index.
        ring: For a cycle, processes of which each waits for the next, and the last for the first.
        details: What the processes could tell about the launches that they stand at.
        happened: What became of it where launches were not held back: it `"hung"` and was cut off,
            it `"crashed"` a process, it `"failed"` with an error, or it `"returned"`, with values
            that no correct run returns.
    """

    kind: Kind
    stands: Mapping[int, Stand]
    ring: tuple[int, ...] = ()
    details: Mapping[int, Detail] = field(default_factory=dict)
    happened: Happened = ""
