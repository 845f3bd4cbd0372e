"""The environment of the processes that a launcher starts."""

from __future__ import annotations

import os

import pytest

from mcnb._system import THREADS
from mcnb.launchers.base import forwarded_environment, process_environment
from mcnb.options import Options

BACKEND = "module://matplotlib_inline.backend_inline"


def test_processes_inherit_what_does_not_contradict_their_cluster() -> None:
    inherited = {
        "HOME": "/home/ada",
        "XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=8 --b=2",
        "JAX_PLATFORMS": "tpu",
        "JAX_NUM_CPU_DEVICES": "8",
        "JAX_COORDINATOR_ADDRESS": "one:1",
        "JAX_NUM_PROCESSES": "8",
        "JAX_PROCESS_ID": "7",
        "MPLBACKEND": "tkagg",
        "PYTHONIOENCODING": "latin-1",
        THREADS: "5",
    }
    before = dict(inherited)
    assert process_environment(Options(2, 3), inherited) == {
        "HOME": "/home/ada",
        "XLA_FLAGS": "--a=1 --b=2",
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "3",
        "MPLBACKEND": BACKEND,
        "PYTHONIOENCODING": "utf-8",
        THREADS: "5",
    }
    assert inherited == before


def test_the_users_settings_come_last() -> None:
    own = {"JAX_PLATFORMS": "cpu,tpu", "MPLBACKEND": "agg", "XLA_FLAGS": "--mine", THREADS: "3"}
    env = process_environment(Options(2, 3, env=own), {"XLA_FLAGS": "--theirs"})
    assert {name: env[name] for name in own} == own


def test_there_are_threads_for_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert process_environment(Options(2, 3), {})[THREADS] == "24"


def test_processes_on_other_hosts_get_the_settings_of_jax_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = {"HOME": "/home/ada", "JAX_ENABLE_X64": "1", "XLA_FLAGS": "--a", "MY_JAX_DEBUG": "1"}
    monkeypatch.setattr(os, "environ", here)
    assert forwarded_environment(Options(2, 3, "cuda", {"MINE": "1", THREADS: "3"})) == {
        "JAX_ENABLE_X64": "1",
        "XLA_FLAGS": "--a",
        "JAX_PLATFORMS": "cuda,cpu",
        "JAX_NUM_CPU_DEVICES": "3",
        "MPLBACKEND": BACKEND,
        "PYTHONIOENCODING": "utf-8",
        "MINE": "1",
        THREADS: "3",
    }
