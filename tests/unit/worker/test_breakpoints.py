"""A process that stops at a breakpoint: its prompt, its debugger, and who may stop where."""

from __future__ import annotations

import linecache
import pdb
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import mcnb
from mcnb.messages import Pause, Recent
from mcnb.worker import breakpoints
from mcnb.worker.breakpoints import NOBODY_TYPES, NOT_HERE, Breakpoints, Prompt

CELL = """def scale(rows, by):
    stop()
    total = sum(rows)
    return total / by
first = scale([1, 2, 3], 2)
second = first + 1
"""


class Session:
    """The session of a process without others."""

    def __init__(self) -> None:
        self.client: object | None = object()
        self.command: Callable[[int, str], None] = lambda *_: None
        self.is_alone = False

    @contextmanager
    def alone(self) -> Iterator[None]:
        self.is_alone = True
        try:
            yield
        finally:
            self.is_alone = False


class Process:
    """A process with breakpoints, and a person who answers each halt with the next line."""

    def __init__(self, *lines: str) -> None:
        self.session = Session()
        either: Any = self.session
        self.shown: list[str] = []
        self.alone: list[bool] = []
        self.lines = list(lines)
        self.breakpoints = Breakpoints(either, self.halt, lambda: Recent(1, ("printed",)))

    def halt(self, pause: Pause) -> None:
        assert pause.recent == Recent(1, ("printed",))
        assert pause.number == len(self.shown) + 1
        self.shown.append(pause.text)
        self.alone.append(self.session.is_alone)
        self.session.command(pause.number, self.lines.pop(0))

    def run(self, source: str = CELL, label: str = "3", **names: Any) -> dict[str, Any]:
        """Run a cell as IPython does, statement by statement, and return its variables."""
        name = f"<In[{label}]>"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        variables = {"__name__": "__main__", "stop": self.breakpoints.stop, **names}
        tree = compile(source, name, "exec", 0x400)  # as a tree
        tracing = sys.gettrace()
        try:
            with self.breakpoints.in_cell(True):
                for statement in tree.body:  # type: ignore[attr-defined]
                    exec(compile(type(tree)([statement], []), name, "exec"), variables)
        finally:
            sys.settrace(tracing)
        return variables


def halts(*lines: str, source: str = CELL, **names: Any) -> list[str]:
    process = Process(*lines)
    process.run(source, **names)
    assert process.lines == []
    assert process.alone == [True] * len(process.shown)
    return process.shown


def at(line: int, function: str, *, source: str = CELL) -> str:
    return f"> <In[3]>({line}){function}()\n-> {source.splitlines()[line - 1].strip()}\n"


def test_a_process_stops_and_goes_on() -> None:
    assert halts("p rows, by", "continue") == [at(2, "scale"), "([1, 2, 3], 2)\n"]


def test_the_variables_are_those_of_the_cell() -> None:
    process = Process("!by = 4", "rows.append(2)", "c")
    variables = process.run()
    # An assignment to a local variable is kept since Python 3.13.
    assert variables["first"] in (4.0, 2.0)
    # Nothing of pdb's is left.
    left = {name for name in variables if name.startswith("__")}
    assert left == {"__name__", "__builtins__"}


def test_line_by_line_through_a_function_and_the_statements_of_the_cell() -> None:
    assert halts("n", "n", "n", "n", "p first", "n") == [
        at(2, "scale"),
        at(3, "scale"),
        at(4, "scale"),
        "--Return--\n> <In[3]>(4)scale()->3.0\n-> return total / by\n",
        at(6, "<module>"),
        "3.0\n",
    ]


def test_a_command_stops_at_a_breakpoint_of_what_it_calls() -> None:
    typed = ["scale([4], 2)", "p rows", "next", "c", "p rows", "next", "c"]
    process = Process(*typed)
    process.run()
    assert process.shown == [
        at(2, "scale"),
        at(2, "scale"),
        "[4]\n",
        at(3, "scale"),
        "2.0\n",
        "[1, 2, 3]\n",
        at(3, "scale"),
    ]


def test_the_stack_begins_at_the_cell() -> None:
    where = "  <In[3]>(5)<module>()\n-> first = scale([1, 2, 3], 2)\n" + at(2, "scale")
    up = "> <In[3]>(5)<module>()\n-> first = scale([1, 2, 3], 2)\n"
    assert halts("where", "up", "up", "c") == [at(2, "scale"), where, up, "*** Oldest frame\n"]


def test_a_breakpoint_that_is_typed_lasts_until_the_end_of_the_cell() -> None:
    source = "stop()\nrows = []\nfor i in range(3):\n    rows.append(i)\nlast = i\n"
    process = Process("b 4", "c", "p i", "c", "clear 1", "c")
    process.run(source)
    assert process.shown == [
        at(1, "<module>", source=source),
        "Breakpoint 1 at <In[3]>:4\n",
        at(4, "<module>", source=source),
        "0\n",
        at(4, "<module>", source=source),
        "Deleted breakpoint 1 at <In[3]>:4\n",
    ]
    again = Process("c")
    again.run(source)
    assert again.shown == [at(1, "<module>", source=source)]


@pytest.mark.parametrize("command", ["run", "restart", "interact", "debug f()"])
def test_what_is_not_available(command: str) -> None:
    assert halts(command, "c") == [
        at(2, "scale"),
        "This command is not available in a %%mcjax cell\n",
    ]


def test_an_interrupt_ends_the_cell_and_not_only_a_command() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    process = Process("interrupt()", "c")
    process.run(interrupt=interrupt)
    assert process.shown[1] == "*** KeyboardInterrupt\n"
    waiting = Process()
    prompt = waiting.breakpoints._prompt
    prompt.readline = interrupt  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt):
        waiting.run()
    assert sys.gettrace() is None or "pdb" not in str(sys.gettrace())


def calling(module: str, other: Callable[[], object]) -> Callable[[], None]:
    """Return a function of a module that calls another function."""
    variables: dict[str, Any] = {"__name__": module, "other": other}
    exec(compile("def call():\n    other()\n", f"<{module}>", "exec"), variables)
    call: Callable[[], None] = variables["call"]
    return call


def test_the_display_of_a_value_is_not_stepped_through() -> None:
    source = "stop()\nshow()\ndone = 1\n"
    displayed = calling("IPython.core.displayhook", calling("array", object))
    assert halts("n", "s", "c", source=source, show=displayed) == [
        at(line, "<module>", source=source) for line in (1, 2, 3)
    ]


def test_what_jax_calls_in_libraries_is_not_stepped_through() -> None:
    source = "stop()\nshow()\ndone = 1\n"
    helper = calling("helper", object)
    places = [at(line, "<module>", source=source) for line in (1, 2, 3)]
    by_jax = calling("jax.interpreters", calling("collections", helper))
    assert halts("n", "s", "c", source=source, show=by_jax) == places
    assert halts("n", "s", "c", source=source, show=helper) == [
        *places[:2],
        "--Call--\n> <helper>(1)call()\n",
    ]


def test_where_nobody_types(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    with pytest.raises(RuntimeError) as refused:
        process.breakpoints.stop()
    assert str(refused.value) == NOBODY_TYPES
    with process.breakpoints.in_cell(False), pytest.raises(RuntimeError):
        process.breakpoints.stop()
    process.session.client = None  # launches can't be refused, nor commands received
    with process.breakpoints.in_cell(True), pytest.raises(RuntimeError):
        process.breakpoints.stop()
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    process.breakpoints.stop()


def test_another_thread_is_not_stopped() -> None:
    process = Process()
    errors: queue.SimpleQueue[str] = queue.SimpleQueue()

    def work() -> None:
        try:
            process.breakpoints.stop()
        except RuntimeError as error:
            errors.put(str(error))

    with process.breakpoints.in_cell(True):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert errors.get() == NOT_HERE


def test_what_stops_a_program_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    monkeypatch.setattr(sys, "breakpointhook", None)
    monkeypatch.setattr(pdb, "set_trace", None)
    process.breakpoints.install()
    assert sys.breakpointhook == pdb.set_trace == process.breakpoints.stop


def test_an_answer_to_an_earlier_halt_is_none_to_this_one() -> None:
    halted: queue.SimpleQueue[Pause] = queue.SimpleQueue()
    prompt = Prompt(halted.put, Recent)
    prompt.deliver(1, "late")
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.extend([prompt.readline(), prompt.readline()]))
    thread.start()
    thread.join(0)
    # The first halt has been answered before it came.
    assert halted.get().number == 1
    assert halted.get().number == 2
    prompt.deliver(1, "later")
    prompt.deliver(2, "p x")
    thread.join()
    assert lines == ["late\n", "p x\n"]


def test_several_lines_are_read_one_by_one() -> None:
    halted: queue.SimpleQueue[Pause] = queue.SimpleQueue()
    prompt = Prompt(halted.put, Recent)
    prompt.deliver(1, "for i in x:\n    print(i)")
    assert [prompt.readline(), prompt.readline()] == ["for i in x:\n", "    print(i)\n"]
    assert halted.get().number == 1
    assert halted.empty()


@pytest.mark.parametrize(
    ("chosen", "stops"), [(None, True), (0, True), ("0-1", True), ([1], False), (1, False)]
)
def test_only_some_processes_stop(
    chosen: str | int | Sequence[int] | None, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[int] = []
    monkeypatch.setattr(breakpoints._jax, "process_count", lambda: 2)
    monkeypatch.setattr(sys, "breakpointhook", lambda: stopped.append(1))
    mcnb.breakpoint(chosen)
    assert stopped == [1] * stops


def test_a_process_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakpoints._jax, "process_count", lambda: 4)
    with pytest.raises(mcnb.OptionError) as refused:
        mcnb.breakpoint(4)
    assert str(refused.value) == (
        "process=4: there is no process 4. This cluster has 4 processes: 0 to 3"
    )


def test_a_program_of_its_own_stops_at_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    lines: list[str] = []
    monkeypatch.setattr(
        pdb.Pdb, "set_trace", lambda self, frame: lines.append(frame.f_code.co_name)
    )
    mcnb.breakpoint()
    assert lines == ["test_a_program_of_its_own_stops_at_its_line"]
