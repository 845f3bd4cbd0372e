"""What processes told of a cell, made by hand."""

from __future__ import annotations

from collections.abc import Mapping

import mcnb
from mcnb.lockstep.model import Launch, LaunchRecord
from mcnb.lockstep.trace import Trace
from mcnb.messages import Reply

F = Launch("jit(f)", "1", (0, 1, 2), ("f32[8]",))
G = Launch("jit(g)", "2", (0, 1, 2))


def made(process: int, launch: Launch, line: int, came: float, began: float | None) -> LaunchRecord:
    return LaunchRecord(process, launch, line, came, began)


def result(
    traces: Mapping[int, Trace | None], *records: LaunchRecord, count: int = 3
) -> mcnb.Result:
    """Return the result of a cell with these traces and launches."""
    return mcnb.Result(
        {
            k: Reply(launches=tuple(r for r in records if r.process == k), trace=trace)
            for k, trace in traces.items()
        },
        count,
    )
