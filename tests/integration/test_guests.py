"""Suites of other projects: what `tools/guests.py` says of them."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from tests.conftest import once
from tools import guests

pytestmark = [once, pytest.mark.thorough("a suite that runs four times, in new processes")]
HANG_S = 240.0
TESTS = """\
import jax, jax.numpy as jnp, numpy as np, pytest
from jax.sharding import NamedSharding, PartitionSpec as P

def total():
    mesh = jax.make_mesh((jax.device_count(),), ("a",))
    return float(jnp.sum(jax.device_put(np.arange(8.0), NamedSharding(mesh, P("a")))))
def test_passes():
    assert total() == 28
def test_is_in_the_middle():
    assert total() == 28
def test_fails():
    assert total() == 29
@pytest.mark.skip(reason="of old age")
def test_is_skipped():
    raise AssertionError
"""


@pytest.fixture
def suite(tmp_path: Path) -> guests.Suite:
    (tmp_path / "test_sums.py").write_text(TESTS)
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the plugins of these tests import for long
    return guests.Suite("sums", tmp_path, ("test_sums.py",), plugin=guests.JOIN, variables=alone)


def test_a_right_suite_has_the_same_outcomes_with_the_check(suite: guests.Suite) -> None:
    plain = guests.run(suite, sys.executable, HANG_S, checked=False)
    checked = guests.run(suite, sys.executable, HANG_S, checked=True)
    assert str(plain) == "2 passed, 1 failed, 1 skipped", plain.said
    assert len(plain.outcomes) == 8  # of each process
    assert (checked.outcomes, checked.verdicts) == (plain.outcomes, {})
    assert guests.differing(plain, checked) == {}


def test_a_divergence_on_purpose_fails_its_test(suite: guests.Suite) -> None:
    # Of four tests, the third; without it, of three, the second.
    suite = dataclasses.replace(suite, tests=(*suite.tests, "-k", "not fails"))
    plain = guests.run(suite, sys.executable, HANG_S, checked=False)
    diverged = guests.run(suite, sys.executable, HANG_S, checked=True, diverge=True)
    assert str(plain) == "2 passed, 1 skipped", plain.said
    found = guests.differing(plain, diverged)
    assert {test for _, test in found} == {"test_sums::test_is_in_the_middle"}
    assert {k for k, _ in diverged.verdicts} == {0, 1}
    (error, *_) = (error for (k, _), error in diverged.verdicts.items() if k == 1)
    assert "process 1 is waiting in sum" in error or "process 1 is waiting in jit(" in error
