"""What depends on the process in a notebook: names of other cells, of which the newest counts."""

from __future__ import annotations

import ast
import linecache
import time
from collections.abc import Iterator

import pytest

from mcnb.lockstep.dependence import Asked, Scope, Search

OTHERS = 300
# What a notebook has in its cells; enough lines to take some time.
USUAL = "def scaled{k}(x, factor=1):\n    y = x * factor\n    return y + {k}\n" * 5


def cell(number: int, source: str) -> str:
    name = f"<In[{number}]>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return name


def asked(words: str, name: str) -> Asked | None:
    return Search().expression(ast.parse(words, mode="eval").body, Scope(name))


@pytest.fixture(autouse=True)
def no_cells() -> Iterator[None]:
    kept = {name: entry for name, entry in linecache.cache.items() if not name.startswith("<In[")}
    linecache.cache.clear()
    linecache.cache.update(kept)
    yield
    for name in [name for name in linecache.cache if name.startswith("<In[")]:
        del linecache.cache[name]


def test_a_name_is_found_in_another_cell() -> None:
    first = cell(1, "import jax\nleads = jax.process_index() == 0\n")
    assert asked("leads", cell(2, "if leads: save()")) == Asked(first, 2)


def test_what_was_run_last_counts() -> None:
    cell(1, "leads = jax.process_index() == 0")
    last = cell(2, "def leads():\n    return jax.process_index() == 1")
    cell(3, "leads = True")
    assert asked("leads", cell(4, "")) is None
    assert asked("leads()", cell(5, "")) == Asked(last, 2, far=True)


def test_its_own_cell_counts_before_all_others() -> None:
    own = cell(1, "leads = jax.process_index() == 0")
    cell(2, "leads = True")
    assert asked("leads", own) == Asked(own, 1)


def test_a_cell_that_ran_again_is_read_again() -> None:
    first = cell(1, "leads = jax.process_index() == 0")
    second = cell(2, "")
    assert asked("leads", second) == Asked(first, 1)
    cell(1, "leads = True")
    assert asked("leads", second) is None
    cell(1, "\nleads = jax.process_index() == 0")
    assert asked("leads", second) == Asked(first, 2)


def test_a_global_of_a_function_of_another_cell() -> None:
    cell(1, "leads = True")
    second = cell(2, "def choose():\n    global leads\n    leads = jax.process_index() == 0")
    assert asked("leads", cell(3, "choose()")) == Asked(second, 3)


def test_a_new_cell_costs_what_is_new() -> None:
    cell(0, "leads = jax.process_index() == 0")
    for k in range(1, OTHERS):
        cell(k, USUAL.format(k=k))

    def took(number: int) -> float:
        name = cell(number, f"other = leads\nscaled{number} = other")
        began = time.thread_time()
        assert asked(f"scaled{number}", name) == Asked("<In[0]>", 1)
        return time.thread_time() - began

    first = took(OTHERS)
    assert min(took(OTHERS + 1 + k) for k in range(3)) < first / 5


def test_a_loop_and_a_with_assign_their_names() -> None:
    cell(1, "i = jax.process_index()\nf = jax.process_index()")
    own = cell(2, "for i, _ in enumerate(x):\n    if i == 2: continue\nwith open(n) as f: f.read()")
    assert asked("i == 2", own) is None
    assert asked("f", own) is None
    assert asked("i == 2", cell(3, "if i == 2: pass")) is None


def test_what_is_assigned_before_a_loop_does_not_reach_its_body() -> None:
    own = cell(1, "i = jax.process_index()\nfor i in x:\n    if i == 2: continue\n")
    test = ast.parse("\n\nif i == 2: continue").body[0].test  # type: ignore[attr-defined]
    assert Search().expression(test, Scope(own)) is None
