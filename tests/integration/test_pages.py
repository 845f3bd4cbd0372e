"""Pages of documentation: what `tools/pages.py` says of their blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import once
from tools import pages

pytestmark = [once, pytest.mark.thorough("a page that runs twice, on new processes")]
BLOCKS = {
    "run": "import jax, os, numpy as np\nmesh = jax.sharding.Mesh(np.array(jax.devices()), 'x')",
    "alike": "raise KeyError('a page that is wrong')",
    "hinted": (
        "x = jax.device_put(np.arange(4.0), jax.NamedSharding(mesh, jax.P('x')))\n"
        "values = np.asarray(x)"
    ),
    "following": "print(values)",
    "open": "assert jax.process_count() == 1",
    "open, too": "if jax.process_index() == 1: os._exit(3)",
    "not run": "x = 1",
}


def test_each_block_is_counted_once(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    blocks = "\n".join(f"```python\n{code}\n```\n\nText.\n" for code in BLOCKS.values())
    page.write_text(f"# A page\n\n```bash\nfalse\n```\n\n{blocks}")
    one, several = (pages.run(page, n, 4 // n, 60.0) for n in (1, 2))
    assert list(one.blocks) == ["2", "3", "4", "5", "6", "7", "8"]
    kinds = {label: pages.kind_of(label, one, several) for label in one.blocks}
    assert list(kinds.values()) == [name.removesuffix(", too") for name in BLOCKS]
    assert list(pages.table(page, 2, 2, 60.0)) == [
        "| page.md | 7 | 1 | 1 | 1 | 1 | 2 | 1 |",
        "page.md, block 3, alike: both processes raised KeyError: 'a page that is wrong' (line 1)",
        f"page.md, block 4, hinted: {several.failures['4'].sentence}",
        f"    {several.failures['4'].hint}",
        "page.md, block 5, following: both processes raised NameError: name 'values' is not "
        "defined (line 1). In[4] defines values, and failed",
        "page.md, block 6, open: both processes raised AssertionError (line 1)",
        "page.md, block 7, open: process 1 ended with exit code 3. Both processes are being "
        "restarted: their variables are lost. To restore them, re-run the cells that succeeded: "
        "%mcjax restart --replay",
        "page.md, 2 processes: Not run, because the processes and their variables are lost: In[8]",
    ]
    assert several.failures["4"].hint.startswith("Hint: the array has shards in other processes")
