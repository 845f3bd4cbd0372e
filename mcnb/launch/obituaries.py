"""What launchers write about processes that ended."""

from __future__ import annotations

import re
import signal

from mcnb.launch.keeping import describe_exit

# Slurm ends all of a job's processes at once, and says why:
# slurmstepd: error: *** STEP 7.0 ON node CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***
_CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?P<why>[A-Z ]*)\*\*\*")
_WHY = {
    "": "was ended by Slurm: the job was cancelled",
    "DUE TO TIME LIMIT": "was ended by Slurm: the job reached its time limit",
    "DUE TO PREEMPTION": "was ended by Slurm: the job was preempted",
    "DUE TO NODE FAILURE": "was ended by Slurm: a node failed",
}
# srun: error: node: tasks 0,2-3: Killed
_SRUN = re.compile(r"^srun: error: \S+ tasks? (?P<who>[\d,-]+): (?P<how>.+)$", re.MULTILINE)
# mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed).
_MPIRUN = re.compile(
    r"that process rank (?P<who>\d+) with(?:.|\n){1,300}?exited\s+on\s+signal\s+(?P<signal>\d+)"
)
# Process name: [[1234,1],2]
#   Exit code:    3
_MPIRUN_CODE = re.compile(r"Process name: \[[^]]*\],(?P<who>\d+)\]\s+Exit code:\s+(?P<code>\d+)")
_EXIT_CODE = re.compile(r"Exited with exit code (\d+)")
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


def ending_of(process: int, text: str) -> str:
    """Return how a process ended, in words; empty if the text does not tell.

    Args:
        process: Its rank, which is its index.
        text: What the launcher wrote.

    Example:
        >>> ending_of(2, "srun: error: node: task 2: Killed")
        'was killed by SIGKILL (from outside, or because the machine ran out of memory)'
        >>> ending_of(1, "srun: error: node: task 2: Killed")
        ''
    """
    cancelled = _CANCELLED.search(text)
    if cancelled:
        return _WHY.get(cancelled["why"].strip(), _WHY[""])
    for found in _SRUN.finditer(text):
        if _includes(found["who"], process):
            code = _EXIT_CODE.search(found["how"])
            number = _SIGNALS.get(found["how"].removesuffix(" (core dumped)"))
            status = int(code[1]) if code else -number if number else None
            return f"ended ({found['how']})" if status is None else describe_exit(status)
    for found in _MPIRUN.finditer(text):
        if int(found["who"]) == process:
            return describe_exit(-int(found["signal"]))
    for found in _MPIRUN_CODE.finditer(text):
        if int(found["who"]) == process:
            return describe_exit(int(found["code"]))
    return ""


def _includes(ranges: str, process: int) -> bool:
    """Return whether a list such as `0,2-3` includes a process."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if int(first) <= process <= int(last or first):
            return True
    return False
