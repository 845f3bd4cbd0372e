"""A unit test starts no process: what does belongs to tests/integration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import jupytext  # noqa: F401  (asks for the version of pandoc when it is imported)
import pytest


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("a unit test starts a process: move it to tests/integration")


@pytest.fixture(scope="module", autouse=True)
def starts_no_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (os, "fork"),
            (os, "posix_spawn"),
            (os, "system"),
            (subprocess.Popen, "__init__"),
        ):
            patch.setattr(module, name, refuse)
        yield
