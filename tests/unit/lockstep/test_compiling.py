"""Processes that compile for GPUs by themselves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mcnb.lockstep.compiling import compile_alone

ALONE = "--xla_gpu_shard_autotuning=false"


@pytest.mark.parametrize(
    ("platforms", "flags", "expected"),
    [
        ("cuda", None, ALONE),
        ("cuda,cpu", "", ALONE),
        ("rocm", "--xla_dump_to=d", f"--xla_dump_to=d {ALONE}"),
        ("gpu", "--xla_gpu_shard_autotuning=true", "--xla_gpu_shard_autotuning=true"),
        ("cuda", "--xla_gpu_shard_autotuning", "--xla_gpu_shard_autotuning"),
        ("cpu", None, None),
        ("tpu,cpu", "--a", "--a"),
    ],
)
def test_platforms_and_flags(platforms: str, flags: str | None, expected: str | None) -> None:
    environment = {} if flags is None else {"XLA_FLAGS": flags}
    compile_alone(environment, platforms)
    assert environment.get("XLA_FLAGS") == expected


@pytest.mark.parametrize(("plugin", "expected"), [("xla_cuda13", ALONE), ("libtpu", None)])
def test_platforms_that_jax_chooses(
    plugin: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jax_plugins" / plugin).mkdir(parents=True)
    (tmp_path / "jax_plugins" / plugin / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "jax_plugins", raising=False)
    environment: dict[str, str] = {}
    compile_alone(environment, None)
    monkeypatch.delitem(sys.modules, "jax_plugins", raising=False)
    assert environment.get("XLA_FLAGS") == expected
