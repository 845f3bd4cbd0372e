"""Pin what CI installs: `python tools/pin.py`, for each Python that CI uses and that is here.

`.ci/constraints-VERSION.txt` holds the newest release of everything that the README's test command
installs, so that a release elsewhere changes CI only when this program is run. The README's own
commands are not pinned.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.13")
HEAD = "# What CI installs with Python {0}; made by: python tools/dev.py pin\n"
# What hatchling asks for beside its requirements when it builds an editable install.
EDITABLE = "editables"


def find(version: str) -> str | None:
    """Return the path of a version of Python: on the path, or the newest that pyenv has."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(root.glob(f"versions/{version}.*/bin/python{version}"))
    return str(kept[-1]) if kept else shutil.which(f"python{version}")


def pins(python: str) -> str:
    """Return the releases that a fresh environment of this Python gets, a line each."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        pip = [str(Path(folder, "bin", "python")), "-m", "pip", "--disable-pip-version-check"]
        environment = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}
        subprocess.run(
            [*pip, "install", "--quiet", f"{ROOT}[test]", *build, EDITABLE],
            env=environment,
            check=True,
        )
        frozen = subprocess.run(
            [*pip, "freeze", "--exclude", "mcnb"], capture_output=True, text=True, check=True
        ).stdout
    strange = [line for line in frozen.splitlines() if not re.fullmatch(r"[\w.-]+==\S+", line)]
    if strange:
        sys.exit(f"These are not releases: {', '.join(strange)}")
    return frozen


def main() -> None:
    """Write the file of each Python that is found."""
    for version in PYTHONS:
        python = find(version)
        if python is None:
            print(f"Python {version} is not here: its file is kept")
            continue
        path = ROOT / ".ci" / f"constraints-{version}.txt"
        path.write_text(HEAD.format(version) + pins(python))
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
