"""Try a release before it is made: `python tools/dev.py release PYTHON ...`.

    python tools/dev.py release python3.11 python3.12 python3.13

Builds the source distribution and the wheel, and checks that the wheel made from the former is the
same. For each Python, the wheel is then installed with the oldest releases that `pyproject.toml`
allows, and with the newest: `mcnb doctor` has to find nothing, and lesson 01 has to print what is
stored. The packages come from the index that pip uses. A Markdown table says how it went; what
failed follows it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENT = re.compile(r"([\w-]+)>=([\d.]+)")
EXTRA = "lab"
LESSON = "01_hello_controllers.ipynb"


def oldest() -> dict[str, str]:
    """Return the lowest release of each dependency that `pyproject.toml` names, with those of lab.

    Raises:
        ValueError: A requirement has another form than NAME>=VERSION, or no lower limit.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + project["optional-dependencies"][EXTRA]
    found = {}
    for requirement in requirements:
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise ValueError(f"pyproject.toml: expected NAME>=VERSION, not {requirement}")
        found[match[1]] = match[2]
    return found


def contents(wheel: Path) -> dict[str, str]:
    """Return the files of a wheel, each with a digest; not RECORD, which lists them."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if not name.endswith("/RECORD")
        }


def built(folder: Path) -> tuple[Path, list[str]]:
    """Build the distributions; return the wheel, and what is wrong with them."""
    direct, through = folder / "direct", folder / "through"
    build = [sys.executable, "-m", "build", "--outdir"]
    for words in ([*build, str(direct), "--wheel"], [*build, str(through)]):
        subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    [wheel], [again] = direct.glob("*.whl"), through.glob("*.whl")
    [source] = through.glob("*.tar.gz")
    one, other = contents(wheel), contents(again)
    wrong = [
        f"{name} differs between the wheel and the one made from {source.name}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("mcnb/__init__.py", "notebooks/README.md", "tests/conftest.py", "LICENSE")
    wrong += [f"{source.name} has no {name}" for name in needed if name not in inside]
    return wheel, wrong


def attempt(python: str, wheel: Path, pins: Mapping[str, str], folder: Path) -> tuple[str, str]:
    """Install a wheel in an environment of its own and try it; return JAX's version and a fault."""
    subprocess.run([python, "-m", "venv", str(folder / "env")], check=True)
    scripts = folder / "env" / "bin"
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{name}=={version}.*\n" for name, version in pins.items()))
    # Only what has pins of its own: CI's are newer.
    environment = {k: v for k, v in os.environ.items() if "CONSTRAINT" not in k}
    environment["PATH"] = os.pathsep.join([str(scripts), os.environ["PATH"]])
    version = "?"
    lessons = folder / "lessons"
    shutil.copytree(ROOT / "notebooks", lessons)
    words = ["-c", "/dev/null", "--rootdir", str(lessons), "-p", "no:cacheprovider", "-q"]
    for command in (
        ["pip", "install", "--quiet", "-c", str(constraints), f"{wheel}[{EXTRA}]", "nbval"],
        ["python", "-c", "import jax; print(jax.__version__)"],
        ["mcnb", "doctor"],
        ["python", str(ROOT / ".ci" / "notebooks.py"), *words, LESSON],
    ):
        done = subprocess.run(
            [str(scripts / command[0]), *command[1:]],
            cwd=lessons,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            return version, f"{' '.join(command[:3])}:\n{done.stdout[-3000:]}"
        if "import jax" in command[-1]:
            version = done.stdout.split()[-1]
    return version, ""


def main(words: Sequence[str]) -> int:
    """Build, install and try; print the table; return 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel, wrong = built(folder)
        print("| Python | dependencies | JAX | doctor and lesson 01 |\n| --- | --- | --- | --- |")
        for number, python in enumerate(arguments.pythons):
            about = "import json, sys; print(json.dumps(sys.version_info[:3]))"
            told = subprocess.run([python, "-c", about], capture_output=True, check=True).stdout
            version = ".".join(map(str, json.loads(told)))
            for which, pins in (("oldest", oldest()), ("newest", {})):
                place = folder / f"{number}-{which}"
                place.mkdir()
                jax, fault = attempt(python, wheel, pins, place)
                shutil.rmtree(place)
                print(
                    f"| {version} | {which} | {jax} | {'failed' if fault else 'passed'} |",
                    flush=True,
                )
                wrong += [f"Python {version}, {which} dependencies: {fault}"] * bool(fault)
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
