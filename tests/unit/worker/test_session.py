"""What a process tells the referee of its cells, and what it knows of their threads."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mcnb._text import cell_name
from mcnb.errors import LockstepError
from mcnb.lockstep.model import Caught
from mcnb.lockstep.source import Place
from mcnb.worker.session import Session

FULL = Caught("OSError: disk full", "OSError", "line 2", 1, 0)


class Client:
    """Keeps what the referee's client is told.

    Attributes:
        values: Whether the values of replicated arguments are compared.
    """

    def __init__(self) -> None:
        self.values: bool | None = None
        self.told: list[Any] = []
        self.caught = SimpleNamespace(recent=(FULL,))

    def take_records(self) -> tuple[str, ...]:
        self.told.append("records")
        return ("launch",)

    def begin(self, number: int, *, holding: bool, values: bool | None) -> None:
        self.values = values
        self.told.append((number, holding, values))

    def finish(self) -> bool:
        self.told.append("finished")
        return True

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        self.told.append("suspended")
        yield
        self.told.append("resumed")


@pytest.fixture
def session() -> Session:
    made = Session()
    client: Any = Client()
    made.client = client
    return made


def test_a_cell_is_told_to_the_referee(session: Session) -> None:
    client: Any = session.client
    session.begin(7, "3", checked=False, values=True)
    assert client.told == ["records", (7, False, True)]
    client.told.clear()
    told: Any = session.end()
    assert told[:3] == (("launch",), True, (FULL,))
    # The threads of the cell may launch until it has ended.
    assert client.told == ["finished", "records"]


def test_a_pull_compares_as_the_cell_before_it(session: Session) -> None:
    client: Any = session.client
    session.begin(7, "3", values=True)
    session.begin(8)
    session.begin(9, "4")
    session.begin(10)
    assert [told for told in client.told if told != "records"] == [
        (7, True, True),
        (8, True, True),
        (9, True, None),
        (10, True, None),
    ]


def test_without_a_referee_nothing_is_told() -> None:
    session = Session()
    session.begin(7, "3")
    assert session.end()[:3] == ((), False, ())
    with session.suspended():
        pass


def test_the_newest_launch_and_where_it_was(session: Session) -> None:
    session.begin(7, "3")
    for place, told in (
        (Place(2), "jit(f) (In[3], line 2)"),
        (Place(name="a callback"), "jit(f) (a callback)"),
    ):
        session._note("jit(f)", place)
        assert (session.newest_launch, session.newest_cell) == (told, "3")
    client: Any = session.client
    client.told.clear()
    with session.suspended():
        session._note("jit(own)", Place(1))
    assert client.told == ["suspended", "resumed"]
    assert session.newest_launch == "jit(f) (a callback)"
    session.begin(8)  # no cell
    session._note("jit(g)", Place(5))
    assert session.newest_launch == "jit(g) (In[3], line 5)"


@pytest.mark.parametrize(
    ("error", "news"),
    [
        (ValueError(), True),
        (None, True),
        (LockstepError("a participant is missing"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_callbacks_that_fail_for_reasons_of_their_own(
    error: BaseException | None, news: bool
) -> None:
    told = None if error is None else (type(error), error, None)
    record = logging.LogRecord("x", logging.ERROR, "", 0, "", None, told)
    assert Session._is_news(record) == news


def learners(source: str, label: str, **names: Any) -> Callable[[], None]:
    """Return the function `f` of a cell."""
    exec(compile(source, cell_name(label), "exec"), names)
    f: Callable[[], None] = names["f"]
    return f


class Threads:
    """Threads that each run a function until they are told to end."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.started: list[threading.Thread] = []

    def start(self, source: str, label: str) -> int:
        there = threading.Event()

        def wait() -> None:
            there.set()
            self.go.wait(60)

        thread = threading.Thread(target=learners(source, label, wait=wait))
        thread.start()
        self.started.append(thread)
        assert there.wait(60)
        return thread.ident or 0


@pytest.fixture
def threads() -> Iterator[Threads]:
    made = Threads()
    yield made
    made.go.set()
    for thread in made.started:
        thread.join()


def test_threads_that_run_code_of_the_cell(session: Session, threads: Threads) -> None:
    source = "\ndef f():\n    wait()\n"
    old = threads.start(source, "2")
    pool = threads.start(source, "3")  # an older thread, with work of the cell
    session.begin(7, "3")
    assert session.threads_of_the_cell() == {pool: 3}
    own = threads.start(source, "3")
    # It runs what an earlier cell defined, but this cell has started it.
    other = threads.start(source, "2")
    assert session.threads_of_the_cell() == {pool: 3, own: 3, other: None}
    session.begin(8)
    assert old not in session.threads_of_the_cell()
    session.begin(9, "4")
    assert session.threads_of_the_cell() == {}


def test_the_main_thread_is_none_of_them(session: Session) -> None:
    found: list[dict[int, int | None]] = []
    session.begin(7, "3")

    def ask() -> None:
        """Look from another thread, as the one does that answers the notebook kernel."""
        thread = threading.Thread(target=lambda: found.append(session.threads_of_the_cell()))
        thread.start()
        thread.join()

    learners("def f():\n    ask()", "3", ask=ask)()
    assert found == [{}]
