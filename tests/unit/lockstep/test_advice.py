"""Hints below errors of JAX: which errors get one, and that what they name is there."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import re

import jax
import pytest

from mcnb.lockstep.advice import PACKAGES, REMOVED, RULES, advice_on

# Names of JAX in a hint.
_NAMED = re.compile(r"\bjax(?:\.[A-Za-z_]\w*)+")
HINTS = [*(instead for _, instead in REMOVED.values()), *(rule.says for rule in RULES)]
HINTS += PACKAGES.values()


def resolve(name: str) -> object:
    """Return what a name of JAX stands for, whether its modules are imported or not.

    Raises:
        AttributeError: There is nothing of that name.
    """
    found: object = jax
    path = "jax"
    for part in name.split(".")[1:]:
        path += f".{part}"
        with contextlib.suppress(ImportError, ValueError):
            importlib.import_module(path)
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("hint", HINTS)
def test_what_a_hint_names_is_there(hint: str) -> None:
    for name in _NAMED.findall(hint):
        assert resolve(name) is not None, name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", REMOVED)
def test_what_was_removed_is_gone_or_going(name: str) -> None:
    since = tuple(int(part) for part in REMOVED[name][0].split("."))
    if since <= jax.version.__version_info__[:2]:
        with pytest.raises(AttributeError):
            resolve(name)


def raised(error: BaseException) -> BaseException:
    """Return an error with a traceback."""
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.parametrize("text", ["", "no", "list index out of range", "jax.x is deprecated"])
def test_other_errors_get_no_hint(text: str) -> None:
    kinds = [one for one in vars(builtins).values() if isinstance(one, type)]
    for kind in kinds:
        if issubclass(kind, Exception) and not issubclass(kind, (UnicodeError, ExceptionGroup)):
            assert advice_on(raised(kind(text))) == "", kind


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'numpy.maps'", name="numpy.maps"),
        ImportError("cannot import name 'NamedSharding' from 'jax.sharding' (a circular import)"),
        AttributeError("module 'numpy' has no attribute 'tree_map'"),
        AttributeError("'Model' object has no attribute 'tree_map'"),
        RuntimeError("I said: Fetching value for `jax.Array` that spans non-addressable devices"),
        TypeError("my_shard_map() got an unexpected keyword argument 'check_rep'"),
        TypeError("my_make_mesh() got an unexpected keyword argument 'axis_sizes'"),
        ValueError("Mesh for all points should be equal"),
    ],
    ids=lambda error: str(error)[:30],
)
def test_errors_that_look_alike_get_no_hint(error: BaseException) -> None:
    assert advice_on(raised(error)) == ""


def test_a_program_that_reads_its_arguments() -> None:
    program = compile("import sys\nsys.argv[9_000]", __file__, "exec")
    with pytest.raises(IndexError) as caught:
        exec(program, {})
    assert advice_on(caught.value) == ""  # the line is another one in this file
    with pytest.raises(IndexError) as caught:
        importlib.import_module("sys").argv[9_000]  # in a line that speaks of sys.argv: [sys.argv]
    assert advice_on(caught.value) == (
        "the program reads other arguments than it was given. {process} stands for the index of "
        "each process, and {processes} for their number: mcnb run test_advice.py -n 4 {process} "
        "{processes}"
    )


def test_an_error_without_a_traceback_gets_its_hint() -> None:
    error = AttributeError("jax.device_put_replicated is deprecated; use jax.device_put instead.")
    assert advice_on(error) == (
        "jax.device_put_replicated was removed in JAX 0.10: use jax.device_put(x, "
        "jax.NamedSharding(jax.sharding.Mesh(devices, ('x',)), jax.P()))"
    )
