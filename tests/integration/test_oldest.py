"""The oldest releases that pyproject.toml allows can be installed together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

REQUIREMENT = re.compile(r"([\w-]+)>=([\d.]+)")


def oldest(requirements: list[str]) -> dict[str, str]:
    """Return the lowest release that each requirement allows; one without a limit has none."""
    found = [REQUIREMENT.fullmatch(one) for one in requirements if not one.startswith("mcnb")]
    assert all(found), requirements
    return {match[1]: match[2] for match in found if match}


@pytest.mark.thorough("asks the package index")
def test_the_oldest_releases_can_be_installed_together(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = oldest(project["dependencies"] + project["optional-dependencies"]["lab"])
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
