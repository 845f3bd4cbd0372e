"""The oldest releases that pyproject.toml allows can be installed together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import once
from tools import release


@once  # `tools/release.py` installs them on each Python, every night
@pytest.mark.thorough("asks the package index")
def test_the_oldest_releases_can_be_installed_together(tmp_path: Path) -> None:
    lowest = release.oldest()
    words = [f"{name}=={version}.*" for name, version in lowest.items()]
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"),
            *("--quiet", "--report", str(report), *words),
        ],
        # CI's pins are newer releases.
        env={k: v for k, v in os.environ.items() if "CONSTRAINT" not in k},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    chosen = {
        item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"]
        for item in json.loads(report.read_text())["install"]
    }
    for name, version in lowest.items():
        assert f"{chosen[name]}.".startswith(f"{version}."), (name, version)
