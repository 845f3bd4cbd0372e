"""The fork server: what a forked process must not share with the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from mcnb.launchers.forkserver import _as_if_imported_now


@pytest.fixture
def numpys_state() -> Iterator[None]:
    state = np.random.get_state()
    yield
    np.random.set_state(state)


@pytest.mark.usefixtures("numpys_state")
def test_processes_draw_random_numbers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)

    def drawn() -> float:
        np.random.seed(7)  # as in the process that all are forked from
        _as_if_imported_now()
        return np.random.rand()

    assert len({np.random.RandomState(7).rand(), drawn(), drawn()}) == 3


@pytest.mark.usefixtures("numpys_state")
@pytest.mark.parametrize("value", ["3", None])
def test_the_number_of_devices_is_that_of_the_process(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    else:
        monkeypatch.setenv("JAX_NUM_CPU_DEVICES", value)
    updated: list[tuple[str, Any]] = []
    monkeypatch.setattr(jax.config, "update", lambda *given: updated.append(given))
    _as_if_imported_now()
    assert updated == ([] if value is None else [("jax_num_cpu_devices", 3)])
