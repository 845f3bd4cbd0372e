"""Start processes as a job of Slurm."""

from __future__ import annotations

import re
import signal
import subprocess
import time

from ipyparallel.cluster.launcher import SlurmEngineSetLauncher

from mcnb._system import address_toward
from mcnb.errors import ClusterError
from mcnb.launchers.batch import REPORT_S, BatchLauncher
from mcnb.lockstep.model import ExitSource, ProcessExit
from mcnb.lockstep.ranks import rank_variables

# Slurm ends all processes of a job at once, and logs the reason:
# slurmstepd: error: *** STEP 7.0 ON node CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***
_CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?P<why>[A-Z ]*)\*\*\*")
_REASONS = {
    "DUE TO TIME LIMIT": "time limit",
    "DUE TO PREEMPTION": "preempted",
    "DUE TO NODE FAILURE": "node failure",
}
# srun: error: node: tasks 0,2-3: Killed
_SRUN = re.compile(r"^srun: error: \S+ tasks? (?P<who>[\d,-]+): (?P<how>.+)$", re.MULTILINE)
_EXIT_CODE = re.compile(r"Exited with exit code (\d+)")
# squeue's error if Slurm has forgotten the job, some minutes after its end.
_FORGOTTEN = "Invalid job id"
# How often Slurm is asked why a job waits.
_REASON_S = 10.0
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


class SlurmLauncher(BatchLauncher):
    """A launcher that submits the processes to Slurm, as one job.

    See https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
    """

    engines = SlurmEngineSetLauncher
    rank_variables = rank_variables("srun")
    exit_delay_s = REPORT_S
    _asked, _reason = 0.0, ""

    def find_host(self) -> str:
        """Return the address of this host toward Slurm's nodes."""
        asked = _ask("sinfo", "--noheader", "--Node", "--format=%o")
        if asked.returncode:
            raise ClusterError(f"Slurm does not answer: {asked.stderr.strip()}")
        return address_toward(sorted(set(asked.stdout.split())))

    def has_ended(self) -> bool:
        """Return whether the job has left the queue."""
        asked = _ask("squeue", "--noheader", "--jobs", self.engine_set.job_id)
        # A Slurm that does not answer in time, for example, shows no job either.
        return not asked.stdout.strip() and (not asked.returncode or _FORGOTTEN in asked.stderr)

    def queued(self) -> str:
        """Return that Slurm has not started the job, and its reason for that."""
        if self.engine_set is not None and time.monotonic() > self._asked + _REASON_S:
            self._asked = time.monotonic()
            job = str(self.engine_set.job_id)
            self._reason = _ask("squeue", "--noheader", "--format=%T %r", "--jobs", job).stdout
        state, _, reason = self._reason.strip().partition(" ")
        why = f" ({state}: {reason})" if state and reason != "None" else ""
        return f"Slurm starts the job{why}"

    @staticmethod
    def parse_exit(process: int, text: str) -> ProcessExit | None:
        """Parse a process's exit reason from the output of srun and of Slurm's daemons."""
        cancelled = _CANCELLED.search(text)
        if cancelled:
            reason = _REASONS.get(cancelled["why"].strip(), "cancelled")
            return ProcessExit(ExitSource.SLURM, reason=reason)
        for found in _SRUN.finditer(text):
            if _includes(found["who"], process):
                code = _EXIT_CODE.search(found["how"])
                number = _SIGNALS.get(found["how"].removesuffix(" (core dumped)"))
                status = int(code[1]) if code else -number if number else None
                reason = found["how"] if status is None else ""
                return ProcessExit(ExitSource.LAUNCHER, status, reason)
        return None


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _includes(ranges: str, process: int) -> bool:
    """Return whether a list such as `0,2-3` includes a process."""
    spans = (part.partition("-") for part in ranges.split(","))
    return any(int(first) <= process <= int(last or first) for first, _, last in spans)
