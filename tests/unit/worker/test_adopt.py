"""An engine of another program becomes a process, or says why it can't."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import pytest

from mcnb.errors import ClusterError
from mcnb.lockstep import _jax
from mcnb.worker import kernel
from mcnb.worker.adopt import Adopt


@pytest.fixture
def adopted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, str]]:
    """The folders of engines that were adopted, with what they found in the environment."""
    found: list[tuple[Path, str]] = []
    monkeypatch.setenv("MCNB_TRIAL", "old")
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(_jax, "backends_are_initialized", lambda: False)
    monkeypatch.setattr(
        kernel, "adopt", lambda folder: found.append((folder, os.environ["MCNB_TRIAL"]))
    )
    return found


ADOPT = Adopt({"MCNB_TRIAL": "new"}, "/x")


def test_an_engine_is_adopted_with_its_environment(adopted: list[tuple[Path, str]]) -> None:
    assert ADOPT() == ""
    assert adopted == [(Path("/x"), "new")]


def test_an_engine_that_cannot_be_adopted(
    adopted: list[tuple[Path, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise ClusterError("is no engine")

    monkeypatch.setattr(kernel, "adopt", refuse)
    assert ADOPT() == "is no engine"
    monkeypatch.setattr(_jax, "backends_are_initialized", lambda: True)
    assert ADOPT() == "has already initialized JAX, so it can't connect to other processes"
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    assert ADOPT() == "is still connected to the JAX processes of an earlier %mcjax connect"
    assert adopted == []
