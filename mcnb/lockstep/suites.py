"""Keep the processes of a test suite in step: a divergence fails its test, and the next is well.

This is a plugin of pytest, which `mcnb run -m pytest` loads in each process. At the end of each
test the processes wait for each other, as cells do. A process that makes a launch without the
others therefore gets its verdict in the same test, and so do the others.
"""

from __future__ import annotations

import traceback
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import pytest

from mcnb._text import error_line
from mcnb.errors import LockstepError
from mcnb.lockstep import runner
from mcnb.lockstep.client import Client
from mcnb.lockstep.model import Launch
from mcnb.lockstep.source import Place, is_script

# More launches than a test makes that catches a verdict each time.
MOST_VERDICTS = 100
# How the test that runs ended, once it has; see `Place.ended`.
_ENDED = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget how the test ended before, if it is run again."""
    if _ENDED in item.stash:
        del item.stash[_ENDED]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Wait for the other processes at the end of a test, after its fixtures'."""
    try:
        result = yield
    except BaseException as error:
        item.stash.setdefault(_ENDED, _how(error))
        _end(item)
        raise
    if (verdict := _end(item)) is not None:
        pytest.fail(f"LockstepError: {verdict}", pytrace=False)
    return result


def _how(error: BaseException) -> str:
    """Return how a test ended that raised an exception, as the end of a sentence about the test."""
    if isinstance(error, LockstepError):
        return ""  # all that takes part in the verdict has it
    trace = traceback.extract_tb(error.__traceback__)
    own = [entry for entry in trace if is_script(entry.filename)]
    where = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    if isinstance(error, pytest.skip.Exception):
        return f"was skipped: {error.msg}{where}"
    return f"failed with {error_line(error)}{where}"


def _end(item: pytest.Item) -> LockstepError | None:
    """Wait for the others; return the verdict that this process receives meanwhile, if any."""
    joining = runner.joined()
    if joining is None or joining.client is None:
        return None
    client, count = joining.client, joining.processes
    path, line, name = item.location
    line = 0 if line is None else line + 1
    ended = item.stash.get(_ENDED, "")
    place = Place(line, f"{Path(path).name}:{line}", path, line, ended=ended)
    barrier = Launch.barrier(f"end of {item.nodeid}", range(count))
    error = _meet(client, replace(barrier, name=f"pytest, after {name}"), place)
    # The test's outcome tells of it, so the exit code is that of pytest.
    client.error = client.error_of_thread = None
    return error


def _meet(client: Client, barrier: Launch, place: Place) -> LockstepError | None:
    """Wait until all processes are there; return the first verdict that this has given."""
    first: LockstepError | None = None
    for _ in range(MOST_VERDICTS):
        try:
            client.make(barrier, place, lambda: None)
            return first
        except LockstepError as error:
            first = first or error
    pytest.exit(f"the processes do not run the same tests: {first}", returncode=1)


@pytest.hookimpl
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Keep how a test ended, and only the suite's own lines of a verdict.

    Those of libraries explain nothing. This hook is called after that of pytest for the tests of
    `unittest`, which replaces their errors.
    """
    if call.excinfo is None:
        return
    item.stash.setdefault(_ENDED, _how(call.excinfo.value))
    if not isinstance(call.excinfo.value, LockstepError):
        return
    error, own = call.excinfo.value, None
    entries = []
    trace = error.__traceback__
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    for one in reversed(entries):
        if is_script(one.tb_frame.f_code.co_filename):
            own = TracebackType(own, one.tb_frame, one.tb_lasti, one.tb_lineno)
    if own is not None:
        call.excinfo = pytest.ExceptionInfo.from_exception(error.with_traceback(own))
