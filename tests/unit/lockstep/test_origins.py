"""Where the arguments of a launch begin to differ, and what a verdict says of it."""

from __future__ import annotations

import linecache
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mcnb.lockstep.around import Spot
from mcnb.lockstep.messages import explain
from mcnb.lockstep.model import Detail, Launch, Origin, ProcessState, SharedValue, Variable, Verdict
from mcnb.lockstep.origins import origin_inside, origin_of_options, origins_of
from mcnb.lockstep.threads import line_of

BEGIN = """\
import time
import numpy as np
k = process_index()
seed = time.time_ns()
same = np.ones(3)

def draw():
    return np.random.default_rng().normal(size=3)

"""
AT = BEGIN.count("\n") + 1  # the line after it
BOX = "class Box:\n    def __init__(self):\n        self.w = k + 1\n\nbox = Box()\n"
PARAMETERS = ("params", "batch", "scale")


def origins(
    tmp_path: Path, source: str, parameters: tuple[str, ...] = PARAMETERS
) -> dict[str, Origin]:
    """Run a program that calls `step`, and return the origins of that call's arguments."""
    found: list[dict[str, Origin]] = []

    def step(*_: object, **__: object) -> None:
        frame: FrameType | None = sys._getframe(1)
        spots = []
        while frame is not None and frame.f_code.co_filename == str(path):
            spots.append(Spot(str(path), line_of(frame), frame))
            frame = frame.f_back
        found.append(origins_of(spots, parameters, lambda _, line: f"train.py:{line}"))

    path = tmp_path / "train.py"
    path.write_text(BEGIN + source)
    linecache.checkcache(str(path))
    names = {
        "step": step,
        "process_index": lambda: 0,
        "__name__": "train",
        "__file__": str(path),
        "make": abs,
    }
    exec(compile(path.read_text(), str(path), "exec"), names)
    return found[0]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "spec = 'x' if k else None\nmake(1, out=spec)(same)",
            ("spec", "spec = 'x' if k else None"),
        ),
        ("make(1, out=[k])(same)", ("out", "make(1, out=[k])(same)")),
        ("g = make(1, out=k)\ng(same)", ("g", "g = make(1, out=k)")),
        ("g = make(1, out=2)\ng(k)", None),
        ("def f(x):\n    return x + k\nmake(f)(same)", None),
        ("step(k)", None),
    ],
)
def test_an_option_of_the_function_may_be_what_differs(
    tmp_path: Path, source: str, expected: tuple[str, str] | None
) -> None:
    found: list[Origin | None] = []

    def step(*_: object) -> None:
        frame: FrameType = sys._getframe(1)
        spot = Spot(str(path), line_of(frame), frame)
        found.append(origin_of_options([spot], lambda _, line: f"train.py:{line}"))

    path = tmp_path / "train.py"
    path.write_text(BEGIN + source)
    linecache.checkcache(str(path))
    names: dict[str, Any] = {
        "step": step,
        "make": lambda *_, **__: step,
        "process_index": lambda: 0,
        "__name__": "train",
        "__file__": str(path),
    }
    exec(compile(path.read_text(), str(path), "exec"), names)
    assert [one and (one.name, one.source) for one in found] == [expected]
    assert origin_of_options([], lambda *_: "") is None


def places(tmp_path: Path, source: str, parameters: tuple[str, ...] = PARAMETERS) -> dict[str, str]:
    found = origins(tmp_path, source, parameters)
    lines = (tmp_path / "train.py").read_text().splitlines()
    for one in found.values():
        assert one.source == lines[int(one.place.removeprefix("train.py:")) - 1].strip()
    return {parameter: one.place for parameter, one in found.items()}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("step(same, same)", {}),
        ("step(draw(), same)", {"params": "train.py:8"}),
        ("w = draw()\nstep(same, w, scale=2)", {"batch": "train.py:8"}),
        ("step(seed, batch=same, scale=k)", {"params": "train.py:4", "scale": f"train.py:{AT}"}),
        ("step(same, *[k], scale=seed)", {"scale": "train.py:4"}),
        ("step(same, **{'batch': k})", {}),
        ("step(k, same, same, same, k)", {"params": f"train.py:{AT}"}),
        ("def f(x):\n    step(x, same)\nf(k)", {"params": f"train.py:{AT + 1}"}),
        ("w = same + k\nv = w * 2\nstep(v, same)", {"params": f"train.py:{AT}"}),
        ("mine = k\nw = make(mine)\nstep(w, same)", {"params": f"train.py:{AT + 1}"}),
    ],
)
def test_arguments_have_the_names_of_parameters(
    tmp_path: Path, source: str, expected: dict[str, str]
) -> None:
    assert places(tmp_path, source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("step(same, seed)", {"": "train.py:4"}),
        ("step(same, tiled=k)", {"": f"train.py:{AT}"}),
        ("step(k, seed)", {}),  # which of them, is not known
        ("step(same)", {}),
    ],
)
def test_of_another_function_the_only_argument_counts(
    tmp_path: Path, source: str, expected: dict[str, str]
) -> None:
    assert places(tmp_path, source, ()) == expected


@pytest.mark.parametrize(
    ("source", "parameters", "name"),
    [
        ("step(k)", PARAMETERS, "k"),
        ("step(k + 1)", PARAMETERS, "params"),
        ("step(box.w)", PARAMETERS, "box.w"),
        ("step(k)", (), "k"),
        ("step(k + 1)", (), "k + 1"),
    ],
)
def test_an_argument_has_the_name_that_the_program_gives_it(
    tmp_path: Path, source: str, parameters: tuple[str, ...], name: str
) -> None:
    found = origins(tmp_path, f"{BOX}{source}", parameters)
    [origin] = found.values()
    assert origin.name == name


def test_what_is_no_call_has_no_arguments(tmp_path: Path) -> None:
    source = "class A:\n    def __add__(self, other):\n        step(same)\n"
    frame = sys._getframe()
    assert origins_of([], PARAMETERS, lambda *_: "") == {}
    assert origins_of([Spot(__file__, 1)], PARAMETERS, lambda *_: "") == {}
    assert origins_of([Spot("gone.py", 1, frame)], PARAMETERS, lambda *_: "") == {}
    assert places(tmp_path, f"{source}A() + k", ()) == {}


FUNCTIONS = {
    "a condition": (
        "def f(x):\n    if k == 1:\n        x = x * 2\n    return x",
        "if k == 1:",
    ),
    "a condition of something that is not returned": (
        "def f(x):\n    if process_index() == 0:\n        jax.debug.print(x)\n    return x",
        "if process_index() == 0:",
    ),
    "a branch that only tells something": (
        "def f(x):\n    if k == 0:\n        print(x)\n        logging.info(x)\n    return x",
        "",
    ),
    "a cause beside a function that only tells something": (
        "def log0(m):\n    if k == 0: print(m)\ndef g(x):\n    return x * seed\n"
        "def f(x):\n    log0(x)\n    return abs(g)(x)",
        "seed = time.time_ns()",
    ),
    "what is called back": (
        "def save(x):\n    return x if k == 0 else None\n"
        "def f(x):\n    jax.debug.callback(save, x)\n    return x",
        "",
    ),
    "a name of its own": (
        "def log(x):\n    return x if k == 0 else 1\n"
        "def f(x):\n    log = abs(x)\n    return log.sum()",
        "",
    ),
    "a decorator": (
        "def first(g):\n    if k == 0: len(str(g))\n    return g\n@first\ndef f(x):\n    return x",
        "",
    ),
    "one of two lambdas": (
        "g, f = (lambda x: x + k), (lambda x: x + 1)",
        "",
    ),
    "a constant of its module": (
        "scale = 1.0 + k\ndef f(x):\n    return x * scale",
        "scale = 1.0 + k",
    ),
    "a function that it calls": (
        "def g(x):\n    return x * (2 if k else 3)\ndef f(x):\n    return g(x) + 1",
        "return x * (2 if k else 3)",
    ),
    "a function that it passes on": (
        "def g(x):\n    return x * seed\ndef f(x):\n    return abs(g)(x)",
        "seed = time.time_ns()",
    ),
    "a function inside it": (
        "def f(x):\n    def body(c):\n        return c + k\n    return abs(body)",
        "return c + k",
    ),
    "an object's method": (
        f"{BOX}class Model:\n    def __init__(self):\n        self.w = k\n"
        "    def loss(self, x):\n        return x * self.w\n"
        "model = Model()\ndef f(x):\n    return abs(model.loss)(x)",
        "return x * self.w",
    ),
    "a closure": (
        "def made():\n    n = k + 1\n    return lambda x: x * n\nf = made()",
        "n = k + 1",
    ),
    "a part of a function": (
        "from functools import partial\ndef g(n, x):\n    return x * k\nf = partial(g, 1)",
        "return x * k",
    ),
    "a method": (
        f"{BOX}class Model:\n    def loss(self, x):\n        return x * seed\nf = Model().loss",
        "seed = time.time_ns()",
    ),
    "a method of one of two classes": (
        "class Timer:\n    def __init__(self):\n        self.w = time.time()\n"
        "class Model:\n    def __init__(self):\n        self.w = 0\n"
        "    def loss(self, x):\n        return x * self.w\nf = Model().loss",
        "",
    ),
    "a function that calls itself": ("def f(x):\n    return f(x - 1) + k", "return f(x - 1) + k"),
    "its arguments": ("def f(x):\n    return x + 1 if x else 2", ""),
    "what is equal": ("def f(x):\n    return x * same", ""),
    "no function": ("f = 3", ""),
}


@pytest.mark.parametrize("uses", FUNCTIONS)
def test_where_what_a_function_computes_begins_to_differ(tmp_path: Path, uses: str) -> None:
    source, expected = FUNCTIONS[uses]
    path = tmp_path / "train.py"
    path.write_text(BEGIN + source)
    linecache.checkcache(str(path))
    names: dict[str, Any] = {"process_index": lambda: 0, "__name__": "train"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    found = origin_inside(names["f"], lambda _, line: f"train.py:{line}")
    assert (found.source if found else "") == expected
    if found is not None:
        assert path.read_text().splitlines()[int(found.place[9:]) - 1].strip() == expected


def test_the_function_is_the_likely_cause_of_other_programs() -> None:
    origin = Origin("step", "line 2", "if k == 1:")
    details = {0: Detail(program=("a",)), 1: Detail(program=("b",), inside=origin)}
    states = {k: ProcessState("waits", replace(MATRIX, program=str(k)), 4) for k in range(2)}
    said = explain(Verdict("mismatch", states, details=details), 2).sentence
    assert (
        "Likely cause: `step` depends on a condition that differs between processes: `if k == 1:` "
        "(line 2). What differs: the compiled program; first different line: `a` on process 0; `b` "
        "on process 1. Hint: what the function uses "
    ) in said
    assert Detail.from_data(asdict(details[1])) == details[1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lambda", "the lambda"),
        ("x", "`x`"),
        ("np.random.default_rng(0).normal(size=(8 + k, 4)).astype(np.float32)", "the expression"),
    ],
)
def test_what_has_no_short_name_is_called_what_it_is(name: str, said: str) -> None:
    origin = Origin(name, "line 2", "n = k")
    details = {k: Detail(inside=origin) for k in range(2)}
    states = {k: ProcessState("waits", replace(MATRIX, program=str(k)), 4) for k in range(2)}
    told = explain(Verdict("mismatch", states, details=details), 2).lines
    assert f"Likely cause: {said} depends on a value that differs between processes: `n = k` " in (
        "\n".join(told)
    )


@pytest.mark.parametrize(("place", "led"), [("line 2", True), ("line 4", False)])
def test_a_long_expression_on_the_line_itself_says_nothing_more(place: str, led: bool) -> None:
    origin = Origin("np.ones(8 + k, np.float32)" * 3, place, "y = step(np.ones(8 + k, ...")
    detail = Detail("y = step(np.ones(8 + k, ...", origins={"": origin})
    launches = [replace(MATRIX, program=str(k), arguments=(f"f32[{k}]",)) for k in range(2)]
    states = {k: ProcessState("waits", one, 4) for k, one in enumerate(launches)}
    said = explain(Verdict("mismatch", states, details={0: detail, 1: detail}), 2).sentence
    assert ("Likely cause: the expression depends on a value" in said) is led


@pytest.mark.parametrize(("more", "led"), [({}, True), ({"y": Origin("y", "line 2", "")}, False)])
def test_the_only_argument_may_be_why_meshes_differ(more: dict[str, Origin], led: bool) -> None:
    origins = {"x": Origin("x", "line 1", "devices = jax.devices()[k:]"), **more}
    detail = Detail("f(x)", names=("x",), origins=origins)
    launches = [replace(MATRIX, program=str(k), devices=f"P{k}.0") for k in range(2)]
    states = {k: ProcessState("waits", one, 4) for k, one in enumerate(launches)}
    said = explain(Verdict("mismatch", states, details={0: detail, 1: detail}), 2).sentence
    assert "the devices: P0.0 on process 0; P1.0 on process 1" in said
    assert ("Likely cause: `x` depends on a value that differs" in said) is led


MATRIX, LONGER, HALF = (
    Launch("jit(step)", text, (0, 1), (text, "f32[8]")) for text in ("f32[4,4]", "f32[4,2]", "")
)
VALUE = SharedValue(0, (1,), "0.5")
FROM = Origin("w", "train.py:8", "w = draw()")
LED = "Likely cause: "


@pytest.mark.parametrize(
    ("names", "origin", "expected"),
    [
        (("params['w']", "batch"), {"params": FROM}, "`w` depends"),
        (("params.w", "batch"), {"params": FROM}, "`w` depends"),
        (("params", "batch"), {"": FROM}, "`w` depends"),
        ((), {"": FROM}, "`w` depends"),
        (("params", "batch"), {"batch": FROM}, ""),
    ],
)
def test_a_verdict_tells_where_an_argument_begins_to_differ(
    names: tuple[str, ...], origin: dict[str, Origin], expected: str
) -> None:
    details = {1: Detail("step(w, x)", names=names, origins=origin)}
    states = {k: ProcessState("waits", one, 4) for k, one in enumerate((MATRIX, LONGER))}
    said = explain(Verdict("mismatch", states, details=details), 2).sentence
    end = " on a value that differs between processes: `w = draw()` (train.py:8)"
    assert [part for part in said.split(". ") if part.startswith(LED)] == (
        [f"{LED}{expected}{end}"] if expected else []
    )
    values = {
        k: ProcessState("waits", MATRIX, 4, value=SharedValue(0, (1,), str(k))) for k in range(2)
    }
    said = explain(Verdict("mismatch", values, details=details), 2).sentence
    assert (f"{LED}{expected}{end}" in said) == bool(expected)


def test_what_only_elements_depend_on_is_no_cause_of_another_shape() -> None:
    origin = Origin("w", "train.py:8", "w = draw()", of_elements=True)
    details = {1: Detail("step(w)", names=("w",), origins={"w": origin})}
    shapes = {k: ProcessState("waits", one, 4) for k, one in enumerate((MATRIX, LONGER))}
    assert LED not in explain(Verdict("mismatch", shapes, details=details), 2).sentence
    values = {
        k: ProcessState("waits", MATRIX, 4, value=SharedValue(0, (1,), str(k))) for k in range(2)
    }
    said = explain(Verdict("mismatch", values, details=details), 2).sentence
    assert f"{LED}`w` depends on a value that differs between processes: `w = draw()`" in said


def test_another_computation_has_no_argument_that_differs() -> None:
    launches = MATRIX, Launch("max", "2", (0, 1), ("f32[8]",))
    states = {k: ProcessState("waits", one, 4) for k, one in enumerate(launches)}
    details = {k: Detail("f(x)", origins={"": FROM}) for k in range(2)}
    assert LED not in explain(Verdict("mismatch", states, details=details), 2).sentence


@pytest.mark.parametrize(
    ("asks", "end"),
    [
        (("train.py:3", "train.py:3"), ", because it depends on the process (train.py:3)"),
        (("train.py:3", "train.py:5"), ""),
        (("", ""), ""),
    ],
)
def test_a_name_that_depends_on_the_process(asks: tuple[str, str], end: str) -> None:
    launches = MATRIX, Launch("max", "2", (0, 1), ("f32[8]",))
    states = {k: ProcessState("waits", one, k + 4) for k, one in enumerate(launches)}
    details = {
        k: Detail("f(x)", variables=(Variable("train.py:9", "log", kind, asks[k]),))
        for k, kind in enumerate(("a File", "a Null"))
    }
    said = explain(Verdict("mismatch", states, details=details), 2).sentence
    assert f"{LED}`log` (train.py:9) is a File on process 0; a Null on process 1{end}. Hint" in said
