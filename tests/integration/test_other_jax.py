"""A JAX whose private names are others: one warning, unchecked, everything still runs."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import mcnb
from mcnb.lockstep import _jax

pytestmark = pytest.mark.thorough("a new process for each missing name")

# Only ends what hangs, on however busy a machine.
HANG_S = 240
# What a later version of JAX may have changed.
CHANGES = {
    "the call is another": (
        "pxla.ExecuteReplicated.__call__ = "
        "lambda self, args, kwargs=None, f=pxla.ExecuteReplicated.__call__: f(self, *args)"
    ),
    "a slot is gone": "pxla.ExecuteReplicated.__slots__.remove('in_handler')",
    "the class is gone": "real = pxla.ExecuteReplicated; del pxla.ExecuteReplicated",
    "the fast path is gone": "real = pjit._get_fastpath_data; del pjit._get_fastpath_data",
    "programs can't be printed": (
        "from mcnb.lockstep import _jax\n"
        "del _jax._first_module('jaxlib._hlo|jaxlib._jax').HloPrintOptions"
    ),
    "it can't be referred to weakly": "pxla.ExecuteReplicated.__slots__.remove('__weakref__')",
}
CHANGES |= {
    f"no {name}": "\n".join(
        [
            f"import contextlib, {module} as one",
            *(f"with contextlib.suppress(AttributeError): del one.{n}" for n in name.split("|")),
        ]
    )
    for module, names in _jax.PRIVATE_NAMES.items()
    for name in names
    # These are above.
    if name not in ("ExecuteReplicated", "_get_fastpath_data", "HloPrintOptions")
}
CHANGE = """
import jax
from jax._src import pjit
from jax._src.interpreters import pxla
{change}
"""


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_does_not_fit_is_said_once(change: str) -> None:
    code = CHANGE.format(change=change) + (
        "import warnings\n"
        "from mcnb.lockstep.checking import check_launches\n"
        "from mcnb.lockstep.source import Places\n"
        "from mcnb.lockstep.server import Server\n"
        "with Server(1) as server, warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    assert check_launches(server.address, 0, Places(lambda name: False)) is None\n"
        "[warning] = caught\n"
        "print(warning.category.__name__, str(warning.message))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "RuntimeWarning mcnb does not support the internals of this version of JAX ("
    )
    assert done.stdout.endswith(
        "): launches are not checked, so processes that diverge hang. Supported versions: 0.8 to "
        "0.12\n"
    )


@pytest.mark.promise("an unknown jax runs unchecked")
def test_a_cluster_with_such_a_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is changed as soon as it is imported, in the processes only.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.abc, sys\n"
        "class Changed(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name != 'jax._src.interpreters.pxla':\n"
        "            return None\n"
        "        sys.meta_path.remove(self)\n"
        "        import importlib.util\n"
        "        spec = importlib.util.find_spec(name)\n"
        "        load = spec.loader.exec_module\n"
        "        def changed(module):\n"
        "            load(module)\n"
        "            module.ExecuteReplicated.__slots__.remove('kept_var_idx')\n"
        "        spec.loader.exec_module = changed\n"
        "        return spec\n"
        "sys.meta_path.insert(0, Changed())\n"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with mcnb.Cluster(2, 1, env={"PYTHONPATH": str(tmp_path)}) as cluster:
            gathered = (
                "import numpy as np\n"
                "from jax.experimental.multihost_utils import process_allgather\n"
                "process_allgather(np.ones(1)).sum()"
            )
            assert cluster.run(gathered).text() == "[all 2] np.float32(2.0)\n"
            result = cluster.run(gathered)
            assert (result.ok, result.verdict, result.launches) == (True, None, ())
    said = [str(one.message) for one in caught if one.category is RuntimeWarning]
    assert said == [
        "mcnb does not support the internals of this version of JAX (ExecuteReplicated has no "
        "kept_var_idx): launches are not checked, so processes that diverge hang. Supported "
        "versions: 0.8 to 0.12"
    ]
