"""Which function of a library the learner's code calls, and how it is said."""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
from collections.abc import Iterator
from types import FrameType, SimpleNamespace

import pytest

from mcnb.lockstep.callee import called_by, words_of_arguments
from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import Detail, Kind, Launch, ProcessState, Verdict
from tests.support.learners import Program

OTHERS = """
import functools

def traced(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

def statistics(x):
    return launch(x)

class Saver:
    def __init__(self, x=None):
        self.x = x

    def save(self, x):
        return self._write(x)

    def _write(self, x):
        return launch(x)

    def __iter__(self):
        return self

    def __next__(self):
        launch(self.x)
        raise StopIteration

    def __add__(self, other):
        return launch(other)

    @traced
    def close(self):
        launch()

    def __enter__(self):
        launch()

    def __exit__(self, *error):
        pass

def partial():
    return lambda x: launch(x)
"""
NAME = "a_name_of_a_module_that_is_longer_than_a_line"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("nk.stats.mean(x)", "nk.stats.mean"),
        ("y = 1 + (nk.stats.mean(x) or 0)", "nk.stats.mean"),
        ("print(nk.stats.mean(nk.n(x)), end='')", "nk.stats.mean"),
        ("print('é', nk.stats.mean(x), end='')", "nk.stats.mean"),
        ("s = nk.Saver()\n(s\n .save(\n    x,\n))", "s.save"),
        ("nk.Saver().save(x)", "nk.Saver().save"),
        ("s = nk.Saver()\ns.close()", "s.close"),
        ("nk.partial()(x)", "nk.partial()"),
        (f"{NAME} = nk.Saver()\n{NAME}.save(x)", "save"),
        (f"{NAME} = nk.stats.mean\n{NAME}(x)", "statistics"),
        ("with nk.Saver():\n    pass", "Saver.__enter__"),
        ("for _ in nk.Saver():\n    pass", "Saver.__next__"),
        ("nk.Saver() + x", "Saver.__add__"),
        ("list(map(nk.stats.mean, [x]))", "list"),
    ],
)
def test_a_call_is_named_as_the_learner_writes_it(
    program: Program, source: str, expected: str
) -> None:
    assert _called(program, source) == expected


def test_without_the_source_a_function_has_its_own_name(program: Program) -> None:
    assert _called(program, "nk.stats.mean(x)", readable=False) == "statistics"
    assert _called(program, "nk.Saver().close()", readable=False) == "Saver.close"
    assert _called(program, "nk.partial()(x)", readable=False) == "<lambda>"


def test_without_a_library_there_is_no_name(program: Program) -> None:
    assert _called(program, "launch(x)") == ""
    assert called_by(None, []) == ""


def test_a_launch_has_the_name_of_what_the_library_calls(program: Program) -> None:
    _called(program, "def f():\n    nk.Saver().save(x)\nf()")
    [(place, called)] = program.found
    assert place.name == "train.py:2"
    assert called is not None
    assert called.co_name == "launch"  # and neither `save` nor `_write`


SYNC = Launch("sync_global_devices", "1", (0, 1), label="'saved'")
SYNC = Launch("sync_global_devices", "1", (0, 1), label="'saved'")
WAITS = ProcessState("waits", Launch("jit(_sum)", "1", (0, 1), ("f32[8]",)), line=4)
OTHER = ProcessState("waits", Launch("max", "2", (0, 1), ("f32[8]",)), line=4)
MEAN, SAVE = Detail("nk.mean(x)", library="nk.mean"), Detail("s.save(x)", library="s.save")


@pytest.mark.parametrize(
    ("kind", "states", "details", "expected"),
    [
        pytest.param(
            "missing",
            (WAITS, ProcessState("finished")),
            {0: MEAN},
            "missing: process 0 is waiting in jit(_sum), called by nk.mean, line 4; process 1 "
            "finished the cell without reaching it",
            id="missing",
        ),
        pytest.param(
            "mismatch",
            (WAITS, OTHER),
            {0: MEAN, 1: Detail("jnp.max(x)")},
            "mismatch: process 0 is waiting in jit(_sum) f32[8], called by nk.mean, line 4; "
            "process 1 is waiting in max f32[8], line 4",
            id="one with a library",
        ),
        pytest.param(
            "mismatch",
            (ProcessState("waits", SYNC, line=4), OTHER),
            {0: Detail("save()", library="nk.save")},
            "mismatch: process 0 is waiting in sync_global_devices('saved'), called by nk.save, "
            "line 4; process 1 is waiting in max f32[8], line 4",
            id="a barrier",
        ),
        pytest.param(
            "stalled",
            (WAITS, WAITS),
            {0: MEAN, 1: SAVE},
            "stalled: process 0 was waiting in jit(_sum), called by nk.mean, line 4; process 1 was "
            "waiting in jit(_sum), called by s.save, line 4",
            id="two calls on one line",
        ),
    ],
)
def test_a_verdict_names_the_librarys_function(
    kind: Kind, states: tuple[ProcessState, ...], details: dict[int, Detail], expected: str
) -> None:
    wording = explain(Verdict(kind, dict(enumerate(states)), details=details), 2)
    assert wording.sentence.partition(". Hint")[0] == expected
    verb = "was" if kind == "stalled" else "is"
    assert wording.lines[2].startswith(f"[0] {verb} waiting in ")
    assert re.search(r", called by nk\.(mean|save), line 4$", wording.lines[2])


def _called(program: Program, source: str, *, readable: bool = True) -> str:
    """Run a script that uses a library; return how its call is named at the launch."""
    names: list[str] = []

    def look() -> None:
        frame: FrameType | None = sys._getframe(1)
        program.found.append(program.places.find(frame))
        functions = []
        while frame is not None and not program.places.runs(frame.f_code.co_filename):
            if program.places.in_library(frame.f_code.co_filename):
                functions.append(frame.f_code)
            frame = frame.f_back
        names.append(called_by(frame, functions))

    program.library["look"] = look
    launch = program.library["launch"]
    others = program.module("site-packages/others.py", OTHERS, {"launch": launch})

    stats = SimpleNamespace(mean=others["statistics"])
    nk = SimpleNamespace(n=lambda x: x, stats=stats, **others)
    with contextlib.suppress(StopIteration):
        if readable:
            program.module("train.py", source, {"nk": nk, "x": 1, "launch": launch})
        else:
            text = compile(source, str(program.folder / "gone.py"), "exec")
            exec(text, {"nk": nk, "x": 1})
    return names[0]


@pytest.mark.parametrize(
    ("source", "given", "expected"),
    [
        ("a * b", ["a", "b"], {"x": "a", "y": "b"}),
        ("a < b", ["b", "a"], {"x": "b", "y": "a"}),  # as b > a, because a can't compare itself
        ("a < 1 + b", ["other", "b"], {}),
        ("a * b.c", ["a", "other"], {"x": "a", "y": "b.c"}),
        ("a * (2 + b)", ["a", "other"], {"x": "a", "y": "`2 + b`"}),
        ("a * 2.0", ["a", "other"], {"x": "a"}),
        (f"a * (b{' + 1' * 10})", ["a", "other"], {"x": "a"}),
        ("a *= b", ["a", "b"], {"x": "a", "y": "b"}),
        ("z = (-\na)", ["a"], {"x": "a"}),
        ("f(a, b)", ["other", "b"], {"y": "b"}),
        ("f(b, a)", ["a", "b"], {"x": "a", "y": "b"}),
        ("f(*a, b)", ["other", "b"], {}),
        ("jit(a + 1, b)", ["other", "b"], {"x": "`a + 1`", "y": "b"}),
        ("jit(a)", ["other", "a"], {"x": "a", "y": "a"}),
    ],
)
def test_arguments_are_named_as_the_learner_writes_them(
    source: str, given: list[str], expected: dict[str, str]
) -> None:
    found: list[dict[str, str]] = []

    class Value:
        c: Value

        def look(self, *_: object) -> Value:
            arguments = {p: values.get(one) for p, one in zip("xy", given, strict=False)}
            direct = source.startswith("jit")
            found.append(words_of_arguments(sys._getframe(1), arguments, direct=direct))
            return self

        __mul__ = __imul__ = __lt__ = __neg__ = __call__ = look
        __add__ = __radd__ = lambda self, _: self

        def __iter__(self) -> Iterator[Value]:
            return iter([self])

    values: dict[str, Value] = {name: Value() for name in "ab"}
    values["b"].c = Value()
    name = "names of arguments"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), {"f": Value(), "jit": Value(), **values})
    assert found == [expected]
