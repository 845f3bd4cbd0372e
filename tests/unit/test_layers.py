"""The plan of the packages: imports run downward, and private names have one home each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import mcnb

ROOT = Path(mcnb.__file__).parent
# From the bottom up; CONTRIBUTING.md has the same order with what each package is for.
LAYERS = (
    ("errors",),
    ("_text", "_turns", "_system", "_cells"),
    ("options", "_lessons", "_ipyparallel"),
    ("lockstep",),
    ("messages",),
    ("output", "pictures", "recovery"),
    ("worker",),
    ("launchers",),
    ("cluster",),
    ("notebook", "pods"),
    ("export", "exercises"),
    ("cli",),
    ("__main__",),
)
RANK = {package: rank for rank, packages in enumerate(LAYERS) for package in packages}
# Modules may import from the package's own root: a module, by name, and why.
FROM_THE_ROOT = {"mcnb.cli.main": "the version", "mcnb.cli.lab": "the version"}
# The one home of another project's private names, and what such a name looks like.
HOMES = {
    "mcnb.lockstep._jax": re.compile(r"jax\._src|(import|from) jaxlib|jaxlib\."),
    "mcnb._ipyparallel": re.compile(r"\bipyparallel\.(engine|controller|serialize|apps)\b"),
    "mcnb.notebook._ipykernel": re.compile(r"\._reply_subshell"),
}
# A text that holds a module's name, by module: for the fork server to import.
NAMES_IN_TEXTS = {"mcnb.launchers.forkserver", "mcnb.cli.doctor"}

Sources = Mapping[str, str]


def sources() -> dict[str, str]:
    """Return the source of each module of mcnb by its name; a package's own is its `__init__`."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path.read_text()
    return found


def imports(module: str, known: Sources) -> Iterator[str]:
    """Yield the modules of mcnb that a module imports, wherever the import stands."""
    for node in ast.walk(ast.parse(known[module])):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def edges(known: Sources) -> list[tuple[str, str]]:
    return [
        (module, imported)
        for module in known
        for imported in imports(module, known)
        if imported.split(".")[0] == "mcnb" and module != "mcnb"
    ]


def package_of(module: str) -> str:
    return module.split(".")[1]


def upward(known: Sources) -> list[str]:
    """Return the imports that do not run downward, in words."""
    found = []
    for module, imported in edges(known):
        if imported == "mcnb":
            if module not in FROM_THE_ROOT:
                found.append(f"{module} imports mcnb")
            continue
        here, there = package_of(module), package_of(imported)
        if here != there and RANK[here] <= RANK[there]:
            found.append(f"{module} imports {imported}")
    return found


def rings(known: Sources) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""
    below: dict[str, set[str]] = {module: set() for module in known}
    for module, imported in edges(known):
        below[module].add(imported)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            new = below.get(left.pop(), set()) - seen
            seen |= new
            left += new
        return seen

    inside = {module: reached(module) for module in known}
    groups = {
        tuple(
            sorted(other for other in known if other in inside[module] and module in inside[other])
        )
        for module in known
        if module in inside[module]
    }
    return sorted(map(list, groups))


def homeless(known: Sources) -> list[str]:
    """Return the lines with another project's private names outside of their home."""
    return [
        f"{module}: {line.strip()}"
        for module, source in known.items()
        for home, name in HOMES.items()
        if not f"{module}.".startswith(f"{home}.") and module not in NAMES_IN_TEXTS
        for line in source.splitlines()
        if name.search(line) and not line.lstrip().startswith("#")
    ]


def test_every_package_has_a_layer() -> None:
    assert {package_of(module) for module in sources() if module != "mcnb"} == set(RANK)


def test_imports_run_downward() -> None:
    assert upward(sources()) == []


def test_no_modules_import_each_other() -> None:
    assert rings(sources()) == []


def test_private_names_have_one_home() -> None:
    assert homeless(sources()) == []


def with_line(module: str, line: str) -> dict[str, str]:
    known = sources()
    return {**known, module: f"{known[module]}\n{line}\n"}


@pytest.mark.parametrize(
    ("module", "line", "found"),
    [
        (
            "mcnb.lockstep.referee",
            "from mcnb.cluster.cluster import Cluster",
            "mcnb.lockstep.referee imports mcnb.cluster.cluster",
        ),
        (
            "mcnb._text",
            "def f() -> None:\n    from mcnb.options import Options",
            "mcnb._text imports mcnb.options",
        ),
        (
            "mcnb.worker.rpc",
            "if TYPE_CHECKING:\n    from mcnb.notebook import magics",
            "mcnb.worker.rpc imports mcnb.notebook.magics",
        ),
        (
            "mcnb.output.fold",
            "import mcnb.pictures.show",
            "mcnb.output.fold imports mcnb.pictures.show",
        ),
        ("mcnb.pods.pod", "from mcnb import show", "mcnb.pods.pod imports mcnb"),
    ],
)
def test_an_import_that_runs_upward_is_found(module: str, line: str, found: str) -> None:
    assert upward(with_line(module, line)) == [found]


def test_a_ring_is_found() -> None:
    line = "def f() -> None:\n    from mcnb.cluster import execution"
    assert ["mcnb.cluster.execution", "mcnb.cluster.result"] in [
        [one for one in ring if one in ("mcnb.cluster.execution", "mcnb.cluster.result")]
        for ring in rings(with_line("mcnb.cluster.result", line))
    ]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("mcnb.recovery.heal", "from jax._src import dispatch"),
        ("mcnb.worker.join", "import jaxlib.xla_client"),
        ("mcnb.launchers.local", "from ipyparallel.engine import app"),
        ("mcnb.notebook.panel", "comm._reply_subshell_for = None"),
    ],
)
def test_a_private_name_elsewhere_is_found(module: str, line: str) -> None:
    assert homeless(with_line(module, line)) == [f"{module}: {line}"]


def test_every_public_name_is_there() -> None:
    for name in mcnb.__all__:
        assert getattr(mcnb, name) is not None
    assert set(mcnb.__all__) <= set(dir(mcnb))
