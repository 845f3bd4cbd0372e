"""What differs from process to process though nothing asks for the process."""

from __future__ import annotations

import ast
import datetime
import linecache
import os
import random
import secrets
import time
import uuid
from time import time_ns

import jax
import numpy as np
import pytest
from numpy.random import default_rng

from mcnb.lockstep.dependence import _GLOBAL_ARRAYS, Asked, Scope, Search

MODULES = (datetime, os, random, secrets, time, uuid)
NAMES = {module.__name__: module for module in MODULES}
NAMES |= {"np": np, "default_rng": default_rng, "time_ns": time_ns, "now": datetime.datetime.now}


def look(source: str, *, varying: bool = True) -> Asked | None:
    """Return where the last expression of a program begins to differ."""
    filename = "train.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    last = ast.parse(source).body[-1]
    assert isinstance(last, ast.Expr)
    return Search(varying=varying).expression(last.value, Scope(filename, (), NAMES))


def found(source: str, *, varying: bool = True) -> int | None:
    """Return the line at which it does."""
    asked = look(source, varying=varying)
    return asked and asked.line


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    "source",
    [
        "time.time()",
        "int(time_ns() % 7)",
        "time.perf_counter()",
        "datetime.datetime.now().second",
        "os.urandom(4)",
        "uuid.uuid4().int",
        "secrets.randbelow(7)",
        "random.random()",
        "random.Random().random()",
        "np.random.rand(3)",
        "np.random.RandomState().rand(3)",
        "np.random.default_rng().random()",
        "default_rng().random()",
    ],
)
def test_the_time_and_unseeded_random_numbers_differ(source: str) -> None:
    assert found(source) == 1
    assert found(source, varying=False) is None


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(1)",
        "time.strftime('%Y')",
        "os.getcwd()",
        "uuid.uuid5(uuid.NAMESPACE_DNS, 'x')",
        "random.Random(0).random()",
        "np.random.RandomState(0).rand(3)",
        "np.random.default_rng(0).random()",
        "default_rng(seed=3).random()",
        "random.seed(0)\nrandom.random()",
        "np.random.seed(0)\nnp.random.rand(3)",
        "np.sum(x)",
    ],
)
def test_other_calls_and_seeded_random_numbers_do_not(source: str) -> None:
    assert found(source) is None


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("rng = np.random.default_rng()\nw = rng.normal(size=3)\nw", 1),
        ("def seed():\n    return time.time_ns() % 7\nkey = make(seed())\nw = draw(key)\nw", 2),
        ("def init():\n    rng = default_rng()\n    return {'w': rng.random()}\nw = init()\nw", 2),
        ("w = {'w': draw(key=time.time())}\nw = move(w)\nw['w']", 1),
        ("w = broadcast_one_to_all(default_rng().random())\nw", None),
    ],
)
def test_the_line_is_found_through_names_and_functions(source: str, line: int | None) -> None:
    assert found(source) == line


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("w = ones(3)\nif process_index() == 2:\n    w[1, 2] = 7\nw", 2),
        ("w = ones(3)\nif process_index() == 2:\n    w = zeros(3)\nw", 2),
        ("w = ones(3)\nif process_index() == 2:\n    w += 1\nw", 2),
        ("w = ones(3)\nw[1] = process_index()\nw", 2),
        ("k = process_index()\nw = box()\nw.a[0] = 2 * k\nw", 3),
        ("w = []\nw.append(2 * process_index())\nw", 2),
        ("w = box()\nw.names.update(a=process_index() + 1)\nw", 2),
        ("w = [1]\nif process_index() == 2:\n    w.append(2)\nw", 2),
        ("w = [1]\nif process_index() == 2:\n    print(w)\nw", None),
        ("w = [1]\nif process_index() == 2:\n    w.show(2)\nw", None),
        ("w = 1\nw += process_index()\nw", 2),
        ("def f(k):\n    w = 1\n    w += k\n    return w\nf(process_index())", 5),
        ("def f():\n    k = process_index()\n    return v[k::3]\nw = f()\nw", 3),
        ("w = ones(3)\nif process_index() == 2:\n    v = zeros(3)\nw", None),
        ("w = ones(3)\nif process_index() == 2:\n    def f():\n        w = 1\nw", None),
        (
            "def f():\n    w = ones(3)\n    if is_primary():\n        w[0] = 1\n    return w\nf()",
            3,
        ),
    ],
)
def test_changes_that_only_some_processes_make(source: str, line: int | None) -> None:
    assert found(source) == line
    if "w[" in source or "w." in source:
        assert found(source, varying=False) is None


F = "def f():\n    next(w)\n"


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("w = count()\nif is_primary():\n    next(w)\nnext(w)", 2),
        (f"w = count()\n{F}if is_primary():\n    f()\nnext(w)", 4),
        (f"w = count()\n{F}def g():\n    f()\nif is_primary():\n    g()\nnext(w)", 6),
        (f"w = count()\n{F}def g():\n    if is_primary():\n        f()\ng()\nnext(w)", 5),
        ("w = []\ndef f(a):\n    while is_primary():\n        w.append(a)\nw", 3),
        ("w = 0\ndef f():\n    global w\n    w += 1\nif is_primary():\n    f()\nw", 5),
        (f"w = count()\n{F}if flag:\n    f()\nnext(w)", None),
        (f"v, w = count(), count()\n{F}if is_primary():\n    f()\nnext(v)", None),
        (f"w = count()\n{F}if is_primary():\n    print(f)\nnext(w)", None),
        ("w = []\ndef f():\n    w = []\n    w.append(1)\nif is_primary():\n    f()\nw", None),
        ("w = []\ndef f(w):\n    w.append(1)\nif is_primary():\n    f([])\nw", None),
    ],
)
def test_changes_by_functions_that_only_some_processes_call(source: str, line: int | None) -> None:
    assert found(source) == line


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    ("source", "line", "of_elements"),
    [
        ("v = draw(process_index())\nmake_array_from_callback(s, on, lambda i: v[i])", 1, True),
        ("v = draw(process_index())\ndef rows(i):\n    return v[i]\n"
         "w = jax.make_array_from_callback(s, on, rows)\nw * 2", 1, True),
        ("make_array_from_callback(s, on, data_callback=lambda i: time.time())", 1, True),
        ("n = process_index()\nmake_array_from_callback((n, 2), on, lambda i: ones[i])", 2, False),
        ("def load():\n    v = default_rng().random(3)\n"
         "    return make_array_from_callback(s, on, lambda i: v[i])\nload()", 2, True),
        ("make_array_from_callback(s, on, lambda i: ones[i])", None, False),
        ("make_array_from_callback(s, on)", None, False),
        ("v = process_index()\nsorted(ones, key=lambda i: v)", None, False),
    ],
)  # fmt: skip
def test_elements_that_a_callback_returns(source: str, line: int | None, of_elements: bool) -> None:
    asked = look(source)
    assert (asked and asked.line) == line
    assert asked is None or asked.of_elements == of_elements
    if of_elements:
        assert found(source, varying=False) is None


K = "k = process_index()\n"


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    ("source", "line"),
    [
        (f"{K}sorted(devices(), key=lambda d: (d.process_index - k) % 4)", 2),
        (f"{K}sorted(devices(), key=lambda d: d.process_index)", None),
        (f"{K}sorted(devices(), key=lambda d: k)", None),
        (f"{K}max(devices(), key=lambda d: d.id ^ 2 * k)", 2),
        (f"{K}w = [*devices()]\nw.sort(key=lambda d: d.id == 2 * k)\nw", 3),
        (f"{K}w = [*devices()]\nw.sort(key=lambda d: d.process_index)\nw", None),
        (f"{K}def first(d):\n    return d.process_index != k + 1\n"
         "w = sorted(devices(), key=first)\nw", 3),
        ("def last(d):\n    return d.process_index\nw = sorted(devices(), key=last)\nw", None),
        (f"{K}list(map(lambda i: i + 2 * k, (1, 2)))", 2),
        (f"{K}list(map(lambda _: 2 * k, (1, 2)))", 2),
        ("list(map(lambda d: d.process_index, devices()))", None),
        (f"{K}jax.tree.map(lambda p: p * (k + 1), params)", 2),
        (f"{K}jax.tree.map(f=lambda p: p * (k + 1), tree=params)", 2),
        (f"{K}groupby(devices(), lambda d: d.id > 2 * k)", 2),
        (f"{K}w = filter(lambda d: d.process_index in (k, 0), devices())\nw", 2),
        ("w = filter(lambda d: d.process_index < 2, devices())\nw", None),
        ("jit(lambda d: process_index())", None),
    ],
)  # fmt: skip
def test_functions_that_order_choose_and_map(source: str, line: int | None) -> None:
    assert found(source) == line


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("w = [d for d in devices() if d.process_index < 2]\nw", None),
        ("w = {d.process_index: d for d in devices()}\nw", None),
        ("w = []\nfor d in devices():\n    if d.process_index < 2:\n        w.append(d)\nw", None),
        ("def f():\n    return [d for i, d in enumerate(g()) if d.process_index < 2]\nf()", None),
        ("first.process_index == 0", None),  # of one device, which is known
        (f"{K}w = [d for d in devices() if d.process_index == k + 0]\nw", 2),
        ("w = [d for d in devices() if d.process_index == process_index()]\nw", 1),
        ("state.process_index == 0", 1),  # of an object that stands for this process
        ("for d in devices():\n    pass\nstate.process_index == 0", 3),
    ],
)
def test_the_process_of_each_device_is_known_to_all(source: str, line: int | None) -> None:
    NAMES["first"] = jax.devices()[0]
    for varying in (True, False):
        if varying or K not in source:
            assert found(source, varying=varying) == line


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("w = [1, 2]\nrandom.shuffle(w)\nw", 2),
        ("w = [1, 2]\nnp.random.shuffle(w)\nw", 2),
        ("rng = default_rng()\nw = [1, 2]\nrng.shuffle(w)\nw", 1),
        ("rng = default_rng(7)\nw = [1, 2]\nrng.shuffle(w)\nw", None),
        ("random.seed(7)\nw = [1, 2]\nrandom.shuffle(w)\nw", None),
        ("w = [1, 2]\nrandom.Random(process_index() + 1).shuffle(w)\nw", 2),
        ("w = [1, 2]\nif process_index():\n    w.reverse()\nw", 2),
        ("v, w = [1, 2], [3]\nrandom.shuffle(v)\nw", None),
    ],
)
def test_an_order_that_changes_in_place(source: str, line: int | None) -> None:
    assert found(source) == line
    if "process_index" not in source:
        assert found(source, varying=False) is None


@pytest.mark.usefixtures("no_cells")
@pytest.mark.parametrize("name", sorted(_GLOBAL_ARRAYS))
def test_what_is_computed_from_an_array_of_all_processes_is_the_same(name: str) -> None:
    source = f"v = draw(process_index())\nw = jax.{name}(on, v)\nw.sum() < 1"
    last = ast.parse(source).body[-1]
    assert isinstance(last, ast.Expr)
    for varying in (False, True):
        assert found(source, varying=varying) is None
        search = Search(varying=varying, arrays=True)
        asked = search.expression(last.value, Scope("train.py", (), NAMES))
        assert asked is not None
        assert asked.line == 1
