"""Progress bars in cells: text wherever they come from, and one for processes that agree."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import mcnb
from mcnb.output.text import entries

SLEEPS = "import time, jax\npace = 0.002 * (1 + jax.process_index())\n"
BAR = r"100%\|██████████\| 4/4 \[\d\d:\d\d<00:00, *[\d.]+( to [\d.]+)?it/s\]"


@pytest.mark.promise("progress bars are folded")
@pytest.mark.parametrize("module", ["tqdm", "tqdm.auto", "tqdm.notebook"])
def test_equal_bars_are_one_line_without_red(shared_cluster: mcnb.Cluster, module: str) -> None:
    result = shared_cluster.run(
        f"{SLEEPS}from {module} import tqdm, trange\n"
        "for _ in tqdm(range(4), desc='train'):\n    time.sleep(pace)\n"
        "print('between')\n"
        "for _ in trange(4):\n    time.sleep(pace)"
    )
    assert result.error() is None
    shown = entries(result.blocks, result.count)
    assert {entry.kind for entry in shown} == {"stdout"}
    assert re.fullmatch(
        rf"\[all 4\] train: {BAR}\n        between\n        {BAR}\n",
        "".join(entry.text for entry in shown),
    ), result.text()


def test_where_there_are_widgets_bars_are_text_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "ipywidgets.py").write_text(
        "class IntProgress: pass\nclass HBox: pass\nclass HTML: pass\n"
    )
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    with mcnb.Cluster(2, 1, env={"PYTHONPATH": os.pathsep.join(paths)}) as cluster:
        result = cluster.run(
            f"{SLEEPS}import warnings\nwarnings.simplefilter('error')\n"
            "from tqdm.auto import tqdm\n"
            "import ipywidgets\n"
            "for _ in tqdm(range(4)):\n    time.sleep(pace)\n"
        )
    assert result.error() is None
    assert re.fullmatch(rf"\[all 2\] {BAR}\n", result.text()), result.text()


def test_nested_bars_end_as_two_lines(shared_cluster: mcnb.Cluster) -> None:
    result = shared_cluster.run(
        f"{SLEEPS}from tqdm import trange\n"
        "for _ in trange(4, desc='epochs'):\n"
        "    for _ in trange(4, desc='steps', leave=False):\n        time.sleep(pace)\n"
    )
    assert re.fullmatch(rf"\[all 4\] epochs: {BAR}\n", result.text()), result.text()


def test_what_is_printed_above_bars_has_no_empty_lines_around_it(
    shared_cluster: mcnb.Cluster,
) -> None:
    result = shared_cluster.run(
        f"{SLEEPS}from tqdm import trange, tqdm\n"
        "for epoch in trange(4, desc='epochs'):\n"
        "    for _ in trange(4, desc='steps', leave=False):\n        time.sleep(pace)\n"
        "    tqdm.write(f'epoch {epoch}')\n"
    )
    lines = "".join(f"        epoch {n}\n" for n in range(4)).replace(" " * 7, "[all 4]", 1)
    assert re.fullmatch(rf"{re.escape(lines)}        epochs: {BAR}\n", result.text()), result.text()


def test_what_a_bar_tells_of_a_process_is_shown(shared_cluster: mcnb.Cluster) -> None:
    result = shared_cluster.run(
        f"{SLEEPS}from tqdm import trange\n"
        "steps = trange(4)\n"
        "for _ in steps:\n    steps.set_postfix(loss=jax.process_index() // 2)"
    )
    lines = result.text().splitlines()
    assert [line.split()[0] for line in lines] == ["[0,1]", "[2,3]"]
    assert [line[-7:] for line in lines] == ["loss=0]", "loss=1]"]


@pytest.mark.promise("a divergence in a thread, after a progress bar")
def test_the_monitor_of_bars_hides_no_divergence(shared_cluster: mcnb.Cluster) -> None:
    """Its thread goes on after the bar, and might wake anybody, for all that mcnb knows of it."""
    result = shared_cluster.run(
        "import jax, jax.numpy as jnp, numpy as np\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
        "from tqdm import tqdm\n"
        "for _ in tqdm(range(2)): pass\n"
        "mesh = Mesh(np.array(jax.devices()), 'x')\n"
        "x = jax.device_put(np.arange(16.0), NamedSharding(mesh, P('x')))\n"
        "launch = jnp.max if jax.process_index() else jnp.sum\n"
        "with ThreadPoolExecutor(1) as pool:\n"
        "    pool.submit(lambda: launch(x)).result()",
        timeout=60,
    )
    assert result.verdict is not None
    assert result.verdict.kind == "mismatch"
