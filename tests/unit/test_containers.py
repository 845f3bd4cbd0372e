"""The files for containers say what the README and pyproject.toml say."""

from __future__ import annotations

import json
import re
import tomllib

from tests.conftest import ROOT


def test_an_image_gets_what_a_wheel_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *wheel["packages"],
        *wheel["force-include"],
    }
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert {line[1:] for line in lines if line.startswith("!")} == needed


def test_a_dev_container_is_installed_as_a_clone_is() -> None:
    """With what the check needs, and the lessons to open in the editor."""
    readme = (ROOT / "README.md").read_text()
    [check] = re.findall(r"^(python3 -m venv .*) && \S+ \.ci/check\.py$", readme, re.MULTILINE)
    [copy] = re.findall(r"`(\S+ lab --copy)`", readme)
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["postCreateCommand"] == f"{check} && {copy}"
