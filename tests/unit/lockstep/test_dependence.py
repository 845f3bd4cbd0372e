"""What depends on the process: names, functions, attributes, modules and arguments."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from mcnb.lockstep.around import Spot, along
from mcnb.lockstep.dependence import Asked, Scope, Search
from mcnb.lockstep.model import Condition

# Each program has a line that says `here`, in an `if` whose condition is looked at. What is in the
# helper's file is imported by the program.
HELPERS = """\
import functools
import jax
PRIMARY = jax.process_index() == 0
LOUD = True
def enabled(config):
    if not config.profile:
        return False
    return jax.process_index() == 0
def early(flag):
    if jax.process_index():
        return False
    return flag
def through(flag):
    return flag and enabled(flag)
def unrelated(x):
    print(jax.process_index())
    return x
def shared(x):
    rank = jax.process_index()
    return broadcast_one_to_all(x if rank == 0 else 0)
@functools.cache
def cached():
    return jax.process_index() == 0
def chosen():
    match jax.process_index():
        case 0:
            return True
    return False
def nested():
    def inner():
        return jax.process_index()
    return inner() == 0
class Config:
    level = 1
    def __init__(self, rank=None):
        self.rank = jax.process_index() if rank is None else rank
        self.steps = 3
    @property
    def leader(self):
        return self.rank == 0
    @functools.cached_property
    def leads(self):
        return self.rank == 0
    @staticmethod
    def first():
        return jax.process_index() == 0
    @classmethod
    def main(cls):
        return cls.first()
    def is_leader(self):
        return self.rank == 0
    def has_steps(self):
        return self.steps > 2
class Special(Config):
    pass
"""
# What the program does before the `if`, its condition, and the line of the helpers where the
# condition depends on the process: 0 for the program's own lines, None if it does not.
TESTS: Mapping[str, tuple[str, str, int | None]] = {
    "a function": ("", "enabled(config)", 8),
    "a function of a module": ("", "helpers.enabled(config)", 8),
    "a function under another name": ("from helpers import enabled as on", "on(config)", 8),
    "a function that returns early": ("", "early(True)", 10),
    "a function that calls a function": ("", "through(config)", 8),
    "a function that only prints it": ("", "unrelated(1)", None),
    "a function that broadcasts": ("", "shared(1)", None),
    "what is broadcast": ("", "broadcast_one_to_all(process_index() == 0)", None),
    "what is gathered": ("n = multihost_utils.process_allgather(process_index())", "n == 0", None),
    "a decorated function": ("", "cached()", 23),
    "a function with a match": ("", "chosen()", 25),
    "a function in a function": ("", "nested()", 31),
    "a partial function": ("import functools\nf = functools.partial(early, 1)", "f()", 10),
    "a constant of a module": ("", "PRIMARY", 3),
    "a constant through its module": ("", "helpers.PRIMARY", 3),
    "another constant": ("", "helpers.LOUD", None),
    "an attribute": ("", "config.rank == 0", 36),
    "another attribute": ("", "config.steps > 2", None),
    "an attribute of the class": ("", "config.level", None),
    "a property": ("", "config.leader", 36),
    "a cached property": ("", "config.leads", 36),
    "a static method": ("", "config.first()", 46),
    "a class method": ("", "Config.main()", 46),
    "a method": ("", "config.is_leader()", 36),
    "a method that asks for something else": ("", "config.has_steps()", None),
    "what a base class sets": ("config = helpers.Special()", "config.rank == 0", 36),
    "a name of a result": ("on = enabled(config)", "on and config.steps", 8),
    "a negation": ("", "not early(1)", 10),
    "the process index as an argument": ("", "unrelated(jax.process_index()) == 0", 0),
    "the number of processes": ("", "jax.process_count() > 1", None),
    "a variable of the launcher": ("import os", "'OMPI_COMM_WORLD_RANK' in os.environ", 0),
    "a variable, with a default": ("import os", "os.environ.get('RANK', 0) == '0'", 0),
    "another variable": ("import os", "os.environ.get('HOME')", None),
    "MPI": ("comm = None", "comm is not None and comm.Get_rank() == 0", 0),
    "the host's name": ("import socket", "socket.gethostname() == 'a'", 0),
    "a function that calls itself": ("def f(n):\n    return n < 1 or f(n - 1)", "f(3)", None),
    "names that need each other": ("a = 1\nb = a\na = b", "a", None),
    "NumPy": ("import numpy as np", "np.isnan(np.ones(1)).any()", None),
}
# The part of a condition that depends on the process, where it is not all of it.
PARTS = {"a name of a result": "on", "MPI": "comm.Get_rank() == 0"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "helpers.py").write_text(HELPERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("helpers", None)
    linecache.checkcache()


BEFORE = """\
import jax
import helpers
from jax import process_index
from jax.experimental import multihost_utils
from helpers import *
class Profile(Config):
    profile = True
broadcast_one_to_all = helpers.broadcast_one_to_all = lambda x: x
config = Profile()
"""


def seen(folder: Path, source: str, name: str = "train.py") -> list[tuple[Condition, ...]]:
    """Run a program, and return the conditions around its calls of `here`, without and with it."""
    path = folder / name
    path.write_text(source)
    linecache.cache.pop(str(path), None)
    found: list[tuple[Condition, ...]] = []

    def here() -> bool:
        frame: FrameType | None = sys._getframe(1)
        spots: list[Spot] = []
        while frame is not None and str(folder) in frame.f_code.co_filename:
            spots.append(Spot(frame.f_code.co_filename, frame.f_lineno, frame))
            frame = frame.f_back
        found.append(along(spots, lambda file, line: f"{Path(file).name}:{line}").conditions)
        return True

    exec(
        compile(source, str(path), "exec"),
        {"here": here, "__name__": "train", "process_index": lambda: 0},
    )
    return found


@pytest.mark.parametrize("what", TESTS)
def test_conditions(folder: Path, what: str) -> None:
    before, test, asks = TESTS[what]
    source = (
        f"{BEFORE}{before}\ndef run():\n    if {test}:\n        here()\n"
        "    else:\n        here()\nrun()\n"
    )
    [conditions] = seen(folder, source)
    conditions = tuple(replace(one, near=True) for one in conditions)
    place = f"train.py:{len(source.splitlines()) - 4}"
    expected = Condition(test, place, "", f"helpers.py:{asks}" if asks else "")
    expected = replace(expected, part=PARTS.get(what, ""))
    # The one of the two lines that was reached is in either branch.
    words = [test, f"not {test}", f"not ({test})", test.removeprefix("not ")]
    assert conditions in [(), *((replace(expected, words=one),) for one in words)]
    assert bool(conditions) == (asks is not None)


def test_an_object_of_the_program_is_not_touched(folder: Path) -> None:
    source = (
        "class Proxy:\n    def __getattr__(self, name):\n        raise SystemExit(name)\n"
        "    def __call__(self):\n        return 1\n"
        "class Odd:\n    __module__ = 3\n"
        "proxy, odd = Proxy(), Odd()\n"
        "if proxy() and proxy.call is not None if 0 else True:\n    here()\n"
        "if proxy():\n    if odd.rank if 0 else process_index() == 0:\n        here()\n"
    )
    first, second = seen(folder, source)
    assert first == ()
    assert [one.words for one in second] == ["odd.rank if 0 else process_index() == 0"]


def test_a_function_of_a_namespace_without_a_name(tmp_path: Path) -> None:
    source = "def first():\n    return process_index() == 0\nif first():\n    pass\n"
    path = tmp_path / "train.py"
    path.write_text(source)
    names: dict[str, object] = {"process_index": lambda: 0}
    exec(compile(source, str(path), "exec"), names)
    assert names["first"].__module__ in (None, "builtins")
    search = Search()
    test = ast.parse("first()", mode="eval").body
    assert search.expression(test, Scope(str(path), values=names)) == Asked(str(path), 2, far=True)


def test_a_search_that_fails_finds_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("mcnb.lockstep.around.Search.expression", fail)
    assert seen(folder, "if process_index() == 0:\n    here()") == [()]


# Programs that get `here`, and what is said of the conditions around it: the condition, its line,
# the line that it governs if that is another one, and where it depends on the process, if
# elsewhere.
PROGRAMS: Mapping[str, tuple[str, list[tuple[str, int, int, int]]]] = {
    "the condition of a caller": (
        "def save():\n    here()\nif process_index() == 0:\n    save()",
        [("process_index() == 0", 3, 4, 0)],
    ),
    "conditions of both": (
        "k = process_index()\ndef save():\n    if k < 1:\n        here()\nif k < 2:\n    save()",
        [("k < 1", 3, 0, 0), ("k < 2", 5, 6, 0)],
    ),
    "a function defined here": (
        "def mine():\n    return process_index() == 0\nif mine():\n    here()",
        [("mine()", 3, 0, 2)],
    ),
    "an argument": (
        "def save(leader):\n    if leader:\n        here()\nsave(process_index() == 0)",
        [("leader", 2, 0, 0)],
    ),
    "an argument with a name": (
        "def save(x, *, leader):\n    if x and leader:\n        here()\n"
        "save(1,\n     leader=process_index() == 0)",
        [("x and leader", 2, 0, 0)],
    ),
    "an argument of an argument": (
        "def inner(on):\n    if on:\n        here()\ndef outer(x, first):\n    inner(first)\n"
        "outer(1, process_index() == 0)",
        [("on", 2, 0, 0)],
    ),
    "another argument": (
        "def save(x, leader):\n    if x:\n        here()\nsave(1, process_index() == 0)",
        [],
    ),
    "the argument of a method": (
        "class A:\n    def save(self, leader):\n        if leader:\n            here()\n"
        "A().save(process_index() == 0)",
        [("leader", 3, 0, 0)],
    ),
    "what an object was made with": (
        "class A:\n    def __init__(self, leader):\n        self.leader = leader\n"
        "        if leader:\n            here()\nA(process_index() == 0)",
        [("leader", 4, 0, 0)],
    ),
    "an early return": (
        "def save():\n    if process_index() != 0:\n        return\n    here()\nsave()",
        [("process_index() == 0", 2, 0, 0)],
    ),
    "an early return, far above": (
        "def save():\n    if process_index():\n        print()\n        return None\n"
        "    with open('/dev/null'):\n        for i in range(1):\n            here()\nsave()",
        [("not process_index()", 2, 0, 0)],
    ),
    "an early return unless": (
        "def save():\n    if process_index() == 0:\n        pass\n    else:\n        return\n"
        "    here()\nsave()",
        [("process_index() == 0", 2, 0, 0)],
    ),
    "an early return of a caller": (
        "def inner():\n    here()\ndef outer():\n    if not process_index() == 0:\n        return\n"
        "    inner()\nouter()",
        [("process_index() == 0", 4, 6, 0)],
    ),
    "a program that ends early": (
        "import sys\nif process_index() > 0:\n    sys.exit()\nhere()",
        [("not (process_index() > 0)", 2, 0, 0)],
    ),
    "both branches return": (
        "def save():\n    if process_index() < 0:\n        return 1\n    elif 1 > 2:\n"
        "        return 2\n    here()\nsave()",
        [("not (process_index() < 0)", 2, 0, 0)],
    ),
    "a check that raises": (
        "if process_index() > 7:\n    raise ValueError\nhere()",
        [],
    ),
    "a return after it": (
        "def save():\n    here()\n    if process_index() > 0:\n        return\nsave()",
        [],
    ),
    "a return in another block": (
        "def save():\n    for i in range(1):\n        if i:\n            if process_index():\n"
        "                return\n    here()\nsave()",
        [],
    ),
    "a local variable of a function that ran before": (
        "def other():\n    first = process_index() == 0\nother()\nfirst = True\nif first:\n"
        "    here()",
        [],
    ),
    "a global variable that a function sets": (
        "def other():\n    global first\n    first = process_index() == 0\nother()\nif first:\n"
        "    here()",
        [("first", 5, 0, 0)],
    ),
    "a variable of the function around": (
        "def outer():\n    first = process_index() == 0\n    def inner():\n        if first:\n"
        "            here()\n    inner()\nouter()",
        [("first", 4, 0, 0)],
    ),
    "a comprehension": (
        "k = process_index()\nif k == 0:\n    a = [here() for i in range(1) if k < 1]",
        [("k < 1", 3, 0, 0), ("k == 0", 2, 0, 0)],
    ),
    "a generator expression": (
        "k = process_index()\nif k == 0:\n    a = max(\n     here()\n     for i in [1]\n    )",
        [("k == 0", 2, 0, 0)],
    ),
    "a function that calls itself": (
        "def f(n):\n    if process_index() < 1:\n        return f(n - 1) if n else here()\nf(2)",
        [("process_index() < 1", 2, 0, 0)],
    ),
    "a condition around a definition": (
        "if process_index() == 0:\n    def save():\n        here()\nelse:\n    def save():\n"
        "        here()\nsave()",
        [("process_index() == 0", 1, 0, 0)],
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_conditions_of_programs(folder: Path, what: str) -> None:
    source, expected = PROGRAMS[what]

    def place(line: int) -> str:
        return f"train.py:{line}" if line else ""

    [conditions] = seen(folder, source)
    assert [(one.words, one.at, one.line, one.asks) for one in conditions] == [
        (words, place(at), place(line), place(asks)) for words, at, line, asks in expected
    ]
