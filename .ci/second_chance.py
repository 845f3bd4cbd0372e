"""Run pytest, and run again what failed: a fault fails each time, an unsteady test does not.

A test that fails is run again in a process of its own, at most twice. If it passes then, the run
stays green, and the test is listed as unsteady, with its first error: its verdict depended on the
machine, and it is to be rewritten. A lesson is run again as a whole.

What has no second chance: anything but failed tests (pytest could not start, was interrupted, or
ended early), more than `MOST` failures, and an error in a teardown. Such an error may belong to any
earlier test, for example to the one that left a process behind, and running the last one again
would hide it.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRIES = 2
MOST = 10
# A command that prints nothing for so long will never end. A test has less time, see pyproject.
SILENT_S = 900.0
# What pytest exits with if some tests failed, and nothing else went wrong.
TESTS_FAILED = 1
# The end of a long log is what one sees: so many bytes of each failed command are told there again.
TOLD_AGAIN = 8000
COLOUR = re.compile(r"\x1b\[[\d;]*m")
NBVAL = "Notebook cell execution failed"


@dataclass(frozen=True)
class Unsteady:
    """A test that failed, and passed when it was run again.

    Args:
        test: Its node id; the path of a lesson.
        error: The first line of its first error.
    """

    test: str
    error: str


@dataclass(frozen=True)
class Failed:
    """What failed in a run of pytest, and is run again as one.

    Args:
        test: A node id; the path of a lesson.
        error: The first line of the first error.
        repeatable: Whether running it alone would show the same fault again.
    """

    test: str
    error: str
    repeatable: bool


@dataclass(frozen=True)
class Run:
    """How a run of pytest ended.

    Args:
        passed: Whether every test passed, at least when it was run again.
        unsteady: The tests that failed at first.
        told: The end of the output of a run that failed.
    """

    passed: bool
    unsteady: tuple[Unsteady, ...] = ()
    told: str = ""


def passed_on(
    command: Sequence[str | Path],
    cwd: Path,
    settings: Mapping[str, str] | None = None,
    silent_s: float = SILENT_S,
) -> tuple[int, str]:
    """Run a command with its output passed on; return its exit code and the end of its output.

    A command that prints nothing for `silent_s` seconds is killed, with its child processes.
    """
    last = b""

    def pass_on(chunk: bytes) -> None:
        nonlocal last
        print(chunk.decode(errors="replace"), end="", flush=True)
        last = (last + chunk)[-TOLD_AGAIN:]

    with subprocess.Popen(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(settings or {}), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdout
        try:
            # Not by lines: of a test that hangs, the beginning of the line is all there is.
            while select.select([process.stdout], [], [], silent_s)[0]:
                if not (chunk := os.read(process.stdout.fileno(), 1 << 16)):
                    break
                pass_on(chunk)
            else:
                pass_on(f"\nkilled: nothing was printed for {silent_s:g} s\n".encode())
                os.killpg(process.pid, signal.SIGKILL)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGINT)
            raise
    return process.returncode, last.decode(errors="replace")


def first_line(longrepr: Any) -> str:
    """Return the first line that says what failed, of pytest's representation of an error."""
    if isinstance(longrepr, dict) and (crash := longrepr.get("reprcrash")):
        longrepr = crash["message"]
    elif isinstance(longrepr, dict):
        longrepr = longrepr.get("longrepr", "")
    lines = [line.strip() for line in COLOUR.sub("", str(longrepr)).splitlines() if line.strip()]
    # nbval's first line is always the same.
    return ", ".join(lines[: 2 if NBVAL in lines[:1] else 1]) or "no error is reported"


def failures(log: Path) -> list[Failed]:
    """Read what failed from the file of `--report-log`, in the order of the failures."""
    found: dict[str, Failed] = {}
    for line in log.read_text().splitlines():
        report = json.loads(line)
        if report.get("outcome") != "failed":
            continue
        path = report["nodeid"].partition("::")[0]
        # The cells of a notebook need those above them.
        test = path if path.endswith(".ipynb") else report["nodeid"]
        error = found[test].error if test in found else first_line(report.get("longrepr"))
        repeatable = report.get("when") != "teardown" and (
            test not in found or found[test].repeatable
        )
        found[test] = Failed(test, error, repeatable)
    return list(found.values())


def run(
    pytest: Sequence[str | Path],
    selected: Sequence[str | Path] = (),
    *,
    side_by_side: Sequence[str] = (),
    cwd: Path,
    settings: Mapping[str, str] | None = None,
) -> Run:
    """Run pytest, and again, one by one, the tests that failed.

    Args:
        pytest: The command, with the options of both runs.
        selected: The tests or files of the first run.
        side_by_side: Options of the first run: how tests share the cores.
        cwd: The folder to run in, which is pytest's root.
        settings: More environment variables.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "report.jsonl")
        code, told = passed_on(
            [*pytest, f"--report-log={log}", *side_by_side, *selected], cwd, settings
        )
        failed = failures(log) if code == TESTS_FAILED else []
    if code == 0:
        return Run(passed=True)
    if not failed or len(failed) > MOST:
        return Run(passed=False, told=told)
    unsteady = []
    for one in failed:
        if not one.repeatable:
            continue
        for _ in range(TRIES):
            print(f"== again, alone: {one.test}", flush=True)
            code, _ = passed_on([*pytest, one.test], cwd, settings)
            if code == 0:
                unsteady.append(Unsteady(one.test, one.error))
                break
    passed = len(unsteady) == len(failed)
    return Run(passed, tuple(unsteady), "" if passed else told)


if __name__ == "__main__":
    sys.exit("this is a part of .ci/check.py")
