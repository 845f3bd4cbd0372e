"""Which exceptions the learner's code caught, and what a verdict says of them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcnb.errors import LockstepError
from mcnb.lockstep.caught import CaughtExceptions
from mcnb.lockstep.client import Client
from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import Caught, Detail, Kind, Launch, ProcessState, Verdict
from tests.support.clients import F, G, Learner

watched = pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")


@pytest.fixture
def caught() -> Iterator[CaughtExceptions]:
    """Return what remembers the exceptions that this file and no other one catches."""
    caught = CaughtExceptions()
    caught.watch(lambda name: name == __file__, lambda name, line: f"{Path(name).name}:{line}")
    yield caught
    if sys.version_info >= (3, 12):
        tool = next(tool for tool in (3, 4) if sys.monitoring.get_tool(tool) == "mcnb")
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)


class OddError(ValueError):
    """Has a text that the program's own code makes."""

    def __str__(self) -> str:
        raise AssertionError("called")


def _fail(error: BaseException) -> None:
    raise error


LINE = _fail.__code__.co_firstlineno + 1
PLACE = f"test_caught.py:{LINE}"


def _except(error: BaseException) -> None:
    try:
        _fail(error)
    except KeyError:
        raise
    except (OSError, ValueError):
        del error


def _finally(error: BaseException) -> None:
    try:
        try:
            _fail(error)
        finally:
            pass
    except Exception:
        pass


def _other(error: BaseException) -> None:
    try:
        try:
            _fail(error)
        except Exception as first:
            raise KeyError("second") from first
    except KeyError:
        pass


async def _awaited(error: BaseException) -> None:
    with contextlib.suppress(OSError):
        await asyncio.to_thread(_fail, error)


async def _gathered(error: BaseException) -> None:
    """Raise an exception in a coroutine; `asyncio` catches it, and returns it."""

    async def fail() -> None:
        try:
            _fail(error)
        finally:
            asyncio.current_task()

    assert await asyncio.gather(fail(), return_exceptions=True) == [error]


@watched
@pytest.mark.parametrize(
    "catch",
    [_except, _finally, lambda error: asyncio.run(_awaited(error))],
    ids=["except", "finally", "async"],
)
def test_an_exception_is_remembered_with_its_place(
    caught: CaughtExceptions, catch: Callable[[BaseException], None]
) -> None:
    catch(OSError("disk full"))
    assert caught.recent == (Caught("OSError: disk full", "OSError", PLACE, 1, 0),)


@watched
def test_an_exception_that_is_raised_again_is_not_caught(caught: CaughtExceptions) -> None:
    asyncio.run(_gathered(KeyError("x")))  # only code of another file catches it
    assert caught.recent == ()
    _except(OSError("disk full"))
    asyncio.run(_gathered(KeyError("x")))
    assert [one.text for one in caught.recent] == ["OSError: disk full"]


@watched
def test_exceptions_of_one_type_and_line_are_counted(caught: CaughtExceptions) -> None:
    for number in range(3):
        _except(OSError(f"shard {number}"))
        caught.launched()
    _except(ValueError("bad record"))
    assert caught.recent == (
        Caught("ValueError: bad record", "ValueError", PLACE, 1, 0),
        Caught("OSError: shard 2", "OSError", PLACE, 3, 1),
    )


@watched
def test_the_exception_of_an_except_clause_comes_after_the_first(caught: CaughtExceptions) -> None:
    _other(OSError("disk full"))
    assert [one.text for one in caught.recent] == ["KeyError: 'second'", "OSError: disk full"]


@watched
def test_exceptions_of_all_threads_are_remembered(caught: CaughtExceptions) -> None:
    thread = threading.Thread(target=_except, args=[OSError("disk full")])
    thread.start()
    thread.join()
    assert [one.text for one in caught.recent] == ["OSError: disk full"]


@watched
def test_no_code_of_the_program_describes_an_exception(caught: CaughtExceptions) -> None:
    _except(OddError())
    _except(ValueError([OddError()]))
    assert [one.text for one in caught.recent] == ["ValueError", "OddError"]


@watched
def test_verdicts_and_what_libraries_catch_are_left_out(caught: CaughtExceptions) -> None:
    with contextlib.suppress(LockstepError):
        _fail(LockstepError("missing", ()))
    asyncio.run(_gathered(OSError("inside")))
    assert caught.recent == ()


@watched
def test_a_loop_that_catches_without_end_is_remembered_in_part(caught: CaughtExceptions) -> None:
    for number in range(1100):
        _except(OSError(f"shard {number}"))
    assert caught.recent == (Caught("OSError: shard 999", "OSError", PLACE, 1000, 0),)
    caught.launched()
    _except(OSError("one more"))
    assert caught.recent == (Caught("OSError: one more", "OSError", PLACE, 1001, 0),)


@watched
def test_a_new_cell_forgets_all(caught: CaughtExceptions) -> None:
    _except(OSError("disk full"))
    caught.launched()
    caught.forget()
    assert caught.recent == ()
    _except(ValueError())
    assert caught.recent == (Caught("ValueError", "ValueError", PLACE, 1, 0),)


@watched
def test_the_newest_watch_counts(caught: CaughtExceptions) -> None:
    newer = CaughtExceptions()
    newer.watch(lambda name: name == __file__, lambda name, line: "here")
    _except(OSError("disk full"))
    assert caught.recent == ()
    assert newer.recent == (Caught("OSError: disk full", "OSError", "here", 1, 0),)


def test_nothing_is_remembered_without_a_watch() -> None:
    caught = CaughtExceptions()
    _except(OSError("disk full"))
    assert caught.recent == ()


SUM, MAX = (Launch(name, name, (0, 1, 2), ("f32[8]",)) for name in ("sum", "max"))
WAITS, OTHER = (ProcessState("waits", launch, line=4) for launch in (SUM, MAX))
FULL = Caught("OSError: disk full", "OSError", "line 2", 1, 0)
KEY = Caught("KeyError: 'x'", "KeyError", "", 2, 3)
LEFT = ProcessState("left", caught=(FULL,))
LOOP = Detail("f(x)", loops=("for b in batches:",), skip="except OSError:", caught=())
CAUGHT = "Likely cause: process "


@pytest.mark.parametrize(
    ("kind", "states", "details", "expected"),
    [
        pytest.param(
            *("missing", (WAITS, LEFT, WAITS), {0: LOOP, 2: LOOP}),
            f"{CAUGHT}1 caught OSError: disk full (line 2)",
            id="by the process that ended",
        ),
        pytest.param(
            *("missing", (WAITS, LEFT), {0: Detail("f(x)", caught=(FULL,))}),
            "",
            id="by both",
        ),
        pytest.param(
            *("missing", (WAITS, LEFT, ProcessState("runs")), {0: Detail("f(x)", caught=(FULL,))}),
            "",
            id="by all that are known",
        ),
        pytest.param(
            *("mismatch", (WAITS, OTHER), {0: Detail("f(x)", caught=(KEY, FULL)), 1: Detail()}),
            f"{CAUGHT}0 caught OSError: disk full (line 2)",
            id="the newest",
        ),
        pytest.param(
            *(
                "mismatch",
                (WAITS, OTHER),
                {0: Detail(caught=(KEY, FULL)), 1: Detail(caught=(FULL,))},
            ),
            f"{CAUGHT}0 caught KeyError: 'x', 2 times, 3 launches earlier",
            id="the newest that others have not caught",
        ),
        pytest.param(
            "mismatch",
            (WAITS, OTHER),
            {
                0: Detail(caught=(Caught("KeyError: 'a'", "KeyError", "line 2", 2, 1),)),
                1: Detail(caught=(Caught("KeyError: 'b'", "KeyError", "line 2", 1, 1),)),
            },
            f"{CAUGHT}0 caught KeyError: 'a' (line 2), 2 times, 1 launch earlier; process 1 caught "
            "KeyError: 'b' (line 2), 1 launch earlier",
            id="more often",
        ),
        pytest.param(
            "mismatch",
            (WAITS, OTHER),
            {
                0: Detail(caught=(Caught("KeyError: 'a'", "KeyError", "line 2", 1, 0),)),
                1: Detail(caught=(Caught("KeyError: 'b'", "KeyError", "line 2", 1, 0),)),
            },
            "",
            id="equally often, with other texts",
        ),
        pytest.param(
            *("missing", (WAITS, ProcessState("raised", error="KeyError: 'x'")), {}),
            "",
            id="not where an error ended a process",
        ),
    ],
)
def test_a_verdict_tells_what_was_caught(
    kind: Kind, states: tuple[ProcessState, ...], details: dict[int, Detail], expected: str
) -> None:
    said = explain(Verdict(kind, dict(enumerate(states)), details=details), 3).sentence
    assert [part for part in said.split(". ") if part.startswith(CAUGHT)] == (
        [expected] if expected else []
    )


def _caught(client: Client, text: str) -> None:
    client.caught._note(OSError(text), "line 2")


def test_the_verdict_has_what_each_process_caught(clients: list[Client]) -> None:
    _caught(clients[0], "both")
    _caught(clients[1], "both")
    together = [Learner(client, F) for client in clients]
    assert [one.joined().error for one in together] == [None, None]
    _caught(clients[1], "only here")
    apart = [Learner(clients[0], F), Learner(clients[1], G)]
    assert [str(one.joined().error) for one in apart] == [
        "mismatch: process 0 is waiting in jit(f), line 1; process 1 is waiting in jit(g), line 1. "
        "Likely cause: process 0 caught OSError: both (line 2), 1 launch earlier; process 1 caught "
        "OSError: only here (line 2), 2 times. Hint: the order of launches must not depend on the "
        "process. If it comes from a set or from a directory listing, sort the elements first; if "
        "it is random, draw from one seed"
    ] * 2
    assert [client.caught.recent for client in clients] == [(), ()]


def test_a_process_that_ends_tells_what_it_caught(clients: list[Client]) -> None:
    _caught(clients[1], "disk full")
    waiting = Learner(clients[0], F)
    clients[1].close()
    assert str(waiting.joined().error) == (
        "missing: process 0 is waiting in jit(f), line 1; process 1 exited without reaching it. "
        "Likely cause: process 1 caught OSError: disk full (line 2)"
    )


def test_an_error_that_ends_a_process_says_enough(clients: list[Client]) -> None:
    _caught(clients[1], "disk full")
    waiting = Learner(clients[0], F)
    clients[1].close("ValueError: x")
    assert str(waiting.joined().error) == (
        "missing: process 1 raised ValueError: x; process 0 is waiting in jit(f), line 1"
    )


def test_a_new_cell_begins_without_exceptions(clients: list[Client]) -> None:
    _caught(clients[0], "disk full")
    clients[0].begin(1)
    assert clients[0].caught.recent == ()
