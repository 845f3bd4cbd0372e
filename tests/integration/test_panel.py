"""The panel of a running cell: where processes are, asked while they run, and what a person sees.

The windows are left as files in build/screenshots, to be looked at.
"""

from __future__ import annotations

import contextlib
import re
import threading
from pathlib import Path

import pytest

import mcnb
from mcnb.notebook.overview import contents_of
from mcnb.notebook.panel import GONE, INSTEAD, NONE_RUNS, STANDING
from tests.conftest import Notebook, once, wait_until
from tests.support.clients import HANG_S
from tests.support.jupyterlab import IDLE, Lab, opened_lab

# Native code keeps Python's lock on process 1; process 2 has ended when the others are asked.
ELSEWHERE = """\
import ctypes, time
def sleeps(seconds):
    time.sleep(seconds)
k = jax.process_index()
if k == 1:
    ctypes.PyDLL(None).usleep(6_000_000)
elif k != 2:
    sleeps(600)
"""
SAID = """\
[0,3] In[{0}], line 8: sleeps(600)
      In[{0}], line 3, in sleeps: time.sleep(seconds)
[1]   did not answer within 2 s: its native code may hold Python's lock"""


def test_where_the_processes_of_a_running_cell_are(prepared: mcnb.Cluster) -> None:
    assert prepared.stacks() == ""
    results: list[mcnb.Result] = []
    cell = threading.Thread(target=lambda: results.append(prepared.run(ELSEWHERE, label="7")))
    cell.start()
    said: list[str] = []

    def asks() -> bool:
        said.append(prepared.stacks())
        return said[-1] == SAID.format(7)

    try:
        assert wait_until(asks, HANG_S), said
    finally:
        prepared.interrupt()
        cell.join()
    assert prepared.stacks() == ""
    assert results[0].interrupted
    assert prepared.run("1").ok


HELD = """\
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
k = jax.process_index()
mesh = jax.make_mesh((4, 2), ("a", "b"))
x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("a", "b")))
own = jnp.ones(1000 * (1 + k // 3))
large = np.ones(5_000_000)
items = [0] * 20_000
saved = []
jax.eval_shape(saved.append, 1.0)
"""


def test_what_the_processes_hold(notebook: Notebook) -> None:
    cluster = mcnb.current_cluster()
    cluster.restart()
    assert contents_of(cluster).text == (
        "4 processes x 2 CPU devices: ready\n"
        "[all 4] memory in use: 0 B on each device\n\n"
        "The processes have no variables that hold data"
    )
    cluster.run(HELD).raise_for_errors()
    contents = contents_of(cluster)
    assert contents.about == (
        "4 processes x 2 CPU devices: ready\n"
        "[0-2] memory in use: 4.02 KB on device 0, 16 B on device 1\n"
        "[3] memory in use: 8.02 KB on device 0, 16 B on device 1"
    )
    [picture] = contents.pictures
    assert picture.text() == mcnb.picture(cluster, "mesh").text()
    rows = [re.split("  +", row) for row in contents.variables.splitlines()]
    hidden = rows[4].pop()
    assert hidden.startswith("Mesh(axis_sizes=(4, 2), axis_n… (")
    assert rows == [
        ["name", "on the processes", "bytes per device", "what it is"],
        ["items", "not compared", "list of 20000 items"],
        ["k", "different on each", "int 0"],
        ["large", "not compared", "NumPy float64[5000000]"],
        ["mesh", "same on all 4"],
        ["own", "differs on 3", "4,000", "float32[1000]"],
        ["saved", "not compared", "list of 1 leaf, with 1 leaked tracer"],
        ["x", "parts of one array", "16", "float32[8,4], P('a', 'b') on the mesh a=4, b=2"],
    ]
    told = cluster.variables().splitlines()
    assert [re.split("  +", row) for row in told if row.startswith(("items", "saved"))] == [
        ["items", "not compared", "list of 20000 items"],
        ["saved", "not compared", "list of 1 leaf, with 1 leaked tracer"],
    ]
    assert cluster.compare("saved") == (
        "saved has the same structure on all 4 processes; no more of it can be compared: [0], "
        "tracer without values, leaked from a traced function"
    )
    cluster.run("del saved").raise_for_errors()


START = "%load_ext mcnb\n%mcjax start -n 4 -d 1"
# Process 2 is the one for which the others wait, until the person does what is awaited.
CELL = """%%mcjax
import jax, jax.numpy as jnp, numpy as np, os, time
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("a",))
x = jax.device_put(np.arange(4.0), NamedSharding(mesh, P("a")))
def slow(step):
    while jax.process_index() == 2 and not os.path.exists({go!r}):
        time.sleep(0.1)
for step in range(3):
    slow(step)
    print("step", step, float(jnp.sum(x)))
"""
RUNNING = ".mcnb-panel .mcnb-w"  # a part of a strip, in which a process waits
BROKEN = re.compile("Error (displaying|creating) widget|model not found|Loading widget")


class PanelLab(Lab):
    """A JupyterLab with notebooks of a cell that waits until it may go on."""

    def go_file(self) -> Path:
        return self.folder / "go"

    def run(self, name: str = "panel.ipynb") -> None:
        """Write and open a notebook, and run it until its panel shows who waits."""
        self.write(name, START, CELL.format(go=str(self.go_file())))
        self.open(name)
        self.choose("Run", "Run All Cells")
        self.page.wait_for_selector(RUNNING)

    def press(self, kind: str) -> None:
        self.page.click(f".mcnb-panel [data-kind={kind}]")

    def go(self) -> None:
        """Let the cell go on, and wait until it has ended."""
        self.go_file().touch()
        self.page.wait_for_selector(IDLE)

    def keep(self, name: str) -> None:
        """Leave a picture, to be looked at."""
        super().keep(f"panel_{name}")


def lab(folder: Path, theme: str = "light") -> contextlib.AbstractContextManager[PanelLab]:
    return opened_lab(folder, theme, PanelLab)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.thorough("needs a browser")
@once
def test_a_panel_in_jupyterlab(theme: str, tmp_path: Path) -> None:
    with lab(tmp_path, theme) as opened:
        opened.run()
        page = opened.page
        strips = page.query_selector_all(".mcnb-panel svg[role=img]")
        labels = [one.get_attribute("aria-label") for one in strips]
        assert len(labels) == 4
        for k, said in enumerate(labels):
            assert re.fullmatch(rf"\[{k}\]: [a-z A-Z]+ for \d+([.]\d)? s", said), labels
        opened.press("late")
        page.wait_for_selector("text=/Others have waited for process 2 for \\d+[.]\\d s/")
        opened.press("stacks")
        page.wait_for_selector("text=/line 8, in slow: time.sleep/")
        said = page.inner_text(".mcnb-answer")
        assert re.search(r"^\[2\] +In\[2\], line 10: slow\(step\)$", said, re.MULTILINE), said
        opened.keep(theme)
        opened.go()
        page.wait_for_selector(".mcnb-panel", state="detached")
        assert "[all 4] step 0 6.0" in opened.shown()
        assert "been running" not in opened.shown()
        opened.keep(f"{theme}_ended")


@pytest.mark.thorough("needs a browser")
@once
def test_a_panel_stops_its_cell(tmp_path: Path) -> None:
    with lab(tmp_path) as opened:
        opened.run()
        opened.press("stop")
        opened.page.wait_for_selector("text=/The cluster is intact; all variables are kept/")
        opened.page.wait_for_selector(".mcnb-panel", state="detached")
        opened.keep("stopped")


@pytest.mark.thorough("needs a browser")
@once
def test_a_page_that_is_loaded_again_while_the_cell_runs(tmp_path: Path) -> None:
    """It is not sent what the cell prints, and says how to see that."""
    with lab(tmp_path) as opened:
        opened.run()
        opened.choose("File", "Save Notebook$")
        saved = tmp_path / "lessons" / "panel.ipynb"
        # The view belongs to this kernel: a text is stored in its place.
        assert wait_until(lambda: INSTEAD in saved.read_text(), HANG_S)
        assert "widget-view" not in saved.read_text()
        opened.page.reload()
        opened.page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        opened.go()
        opened.page.wait_for_selector(f"text={INSTEAD}")
        assert not BROKEN.search(opened.shown())
        assert opened.page.query_selector(".mcnb-panel") is None
        opened.keep("reloaded")
        # Jupyter's server has been seen to hang if it was ended while a page was being loaded.
        opened.page.wait_for_selector(IDLE)


@pytest.mark.thorough("needs a browser")
@once
def test_a_notebook_kernel_that_is_restarted_and_one_beside_it(tmp_path: Path) -> None:
    """The panel of the one says that nothing is heard of it; the other one's goes on."""
    with lab(tmp_path) as opened:
        opened.run()
        page = opened.page
        opened.write("two.ipynb", START, CELL.format(go=str(tmp_path / "go")))
        page.click("[title='Refresh the file browser.'], [data-command='filebrowser:refresh']")
        page.dblclick("text=two.ipynb")
        page.wait_for_selector(".jp-Notebook:visible >> text=mcjax start")
        page.wait_for_selector(IDLE)
        opened.choose("Run", "Run All Cells")
        page.wait_for_selector(f".jp-Notebook:visible {RUNNING}")
        opened.choose("Kernel", "Restart Kernel…")
        page.click(".jp-mod-accept")
        page.wait_for_selector(f".mcnb-panel:visible >> text={GONE}")
        assert page.query_selector(".mcnb-panel:visible button:visible") is None
        opened.keep("restarted")
        # Once more, with the new kernel: a panel as before.
        opened.choose("Run", "Run All Cells")
        page.wait_for_selector(f".jp-Notebook:visible {RUNNING}")
        assert GONE not in opened.shown()
        page.click(".lm-TabBar-tabLabel >> text=panel.ipynb")
        opened.press("late")
        page.wait_for_selector("text=/Others have waited for process 2 for \\d+[.]\\d s/")
        opened.go()
        page.wait_for_selector(".jp-Notebook:visible >> text=[all 4] step 0 6.0")


@pytest.mark.thorough("needs a browser")
@once
def test_a_panel_that_was_stored_in_a_notebook_of_somebody_else(tmp_path: Path) -> None:
    """Saved while the cell ran: no widget is looked for in a notebook that is not trusted."""
    view = {"version_major": 2, "version_minor": 0, "model_id": "0" * 32}
    stored = {"text/plain": INSTEAD, "application/vnd.jupyter.widget-view+json": view}
    with lab(tmp_path) as opened:
        opened.write("theirs.ipynb", "1 + 1", output=stored)
        opened.open("theirs.ipynb")
        opened.page.wait_for_selector(f"text={INSTEAD}")
        assert not BROKEN.search(opened.shown())


@pytest.mark.thorough("needs a browser")
@once
def test_a_panel_that_stays(tmp_path: Path) -> None:
    """It shows the cell that runs, too, and is brought up to date when that has ended."""
    with lab(tmp_path) as opened:
        go, page = str(tmp_path / "go"), opened.page
        opened.write("panel.ipynb", START, "import mcnb\nmcnb.panel()", CELL.format(go=go))
        opened.open("panel.ipynb")
        opened.choose("Run", "Run All Cells")
        page.wait_for_selector(f":nth-match(.jp-CodeCell, 3) {RUNNING}")
        page.wait_for_selector(f":nth-match(.jp-CodeCell, 2) {RUNNING}")
        page.click(":nth-match(.jp-CodeCell, 2) .mcnb-panel [data-kind=late]")
        page.wait_for_selector("text=/Others have waited for process 2 for \\d+[.]\\d s/")
        opened.keep("beside")
        opened.go()
        page.wait_for_selector(":nth-match(.jp-CodeCell, 3) .mcnb-panel", state="detached")
        page.wait_for_selector(f":nth-match(.jp-CodeCell, 2) >> text={NONE_RUNS}")
        page.wait_for_selector(":nth-match(.jp-CodeCell, 2) svg:has-text(\"'a': 4\")")
        said = page.inner_text(".jp-CodeCell >> nth=1")
        assert "4 processes x 1 CPU device: ready\n[all 4] memory in use: 4 B" in said
        assert re.search(
            r"^x +parts of one array +4 +float32\[4\], P\('a',?\) ", said, re.MULTILINE
        )
        opened.keep("that_stays")
        opened.choose("Kernel", "Restart Kernel…")
        page.click(".jp-mod-accept")
        page.wait_for_selector(IDLE)
        # Opened again with the new kernel: the view was not stored.
        opened.choose("File", "Save Notebook$")
        saved = tmp_path / "lessons" / "panel.ipynb"
        assert wait_until(lambda: STANDING in saved.read_text(), HANG_S)
        page.reload()
        page.wait_for_selector(f":nth-match(.jp-CodeCell, 2) >> text={STANDING}")
        page.wait_for_selector(IDLE)  # as above
        assert not BROKEN.search(opened.shown())


# As many views as in a cell of 10 minutes.
MANY = """import time
from mcnb.notebook import panel
from mcnb.notebook.places import View
panel._front_end.draws = True
place = panel.InPanel(16, print, str)
for n in range(1500):
    if n == 300:
        input("begin")
    row = ("pjwx" * 60)[n % 4 :]
    place.draw(View((f"step {n}",), (f"running for {n} s",), dict.fromkeys(range(16), row), 0.5))
    time.sleep(0.02)
input("end")
"""


@pytest.mark.thorough("needs a browser")
@once
def test_a_long_cell_does_not_grow_the_memory_of_the_browser(tmp_path: Path) -> None:
    with lab(tmp_path) as opened:
        opened.write("long.ipynb", MANY)
        opened.open("long.ipynb")
        page = opened.page
        cdp = page.context.new_cdp_session(page)

        def used(prompt: str) -> tuple[float, int]:
            """The browser's memory for the page in MB, and the nodes in it, at a prompt."""
            page.wait_for_selector(f".jp-Stdin-prompt >> text={prompt}")
            cdp.send("HeapProfiler.collectGarbage")
            heap = cdp.send("Runtime.getHeapUsage")["usedSize"] / 1e6
            nodes = cdp.send("Memory.getDOMCounters")["nodes"]
            page.press(".jp-Stdin-input", "Enter")
            return heap, nodes

        opened.choose("Run", "Run All Cells")
        began, ended = used("begin"), used("end")
        assert ended[0] - began[0] < 2, (began, ended)
        assert ended[1] - began[1] < 500, (began, ended)
