"""What a person sees: pictures in JupyterLab, in a real browser, on light and dark themes.

The windows are left as files in build/screenshots, to be looked at.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib.image
import nbformat
import pytest

from mcnb.pictures.drawing import color_of
from mcnb.pictures.pages import THEME
from tests.conftest import ROOT, once
from tests.support.jupyterlab import (
    SCREENSHOTS,
    Lab,
    browser_page,
    jupyterlab,
    opened_lab,
    run_notebook,
    set_theme,
)

pytestmark = [once, pytest.mark.thorough("needs a browser")]
LESSONS = ROOT / "notebooks"
CELLS = (
    "%load_ext mcnb\n%mcjax start -n 4 -d 2",
    "%%mcjax\n"
    "import jax, mcnb, numpy as np, time\n"
    "from jax.sharding import NamedSharding, PartitionSpec as P\n"
    'mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)\n'
    "mcnb.show(mesh)",
    '%%mcjax\nmcnb.show(NamedSharding(mesh, P("a")), (8, 4), name="replicated")',
    "%%mcjax\n"
    'x = jax.device_put(np.ones((8, 4)), NamedSharding(mesh, P("a", "b")))\n'
    "if jax.process_index() == 2:\n"
    "    time.sleep(0.5)\n"
    "print(float(x.sum()))",
    "%mcjax timeline",
    "%mcjax stop",
)
# Pictures come on another channel than the numbers of their cells, and images are decoded later.
DRAWN = """count => {
    return document.querySelectorAll('.mcnb-picture > svg').length === count;
}"""
PART = "[4:6, 0:4]: 8 elements, on P2.0-1"
PAPER_OF = THEME["paper"]
TITLES = ("Mesh 'a': 4, 'b': 2", "replicated: an array[8,4]  P('a')", "The cell took ")


def colors_of(png: bytes) -> Counter[str]:
    """Return how many pixels of a picture have which colour."""
    pixels = matplotlib.image.imread(io.BytesIO(png))[:, :, :3].reshape(-1, 3)
    return Counter("#" + "".join(f"{round(v * 255):02X}" for v in pixel) for pixel in pixels)


def test_what_a_learner_opens(tmp_path: Path) -> None:
    """The first page, rendered, leads to lessons; nothing asks or offers anything else."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with jupyterlab(tmp_path) as about, browser_page(height=1000) as page:
        page.goto(f"{about['url']}?token={about['token']}")
        page.wait_for_selector(".jp-MarkdownViewer table")
        page.wait_for_selector(".jp-DirListing-itemText >> text=toy.py")
        shown = {one.inner_text() for one in page.query_selector_all(".jp-DirListing-itemText")}
        lessons = {path.name for path in LESSONS.glob("[0-9]*.ipynb")}
        assert shown == lessons | {"README.md", "gallery.md", "images", "solutions", "toy.py"}
        page.screenshot(path=SCREENSHOTS / "jupyterlab_first_page.png")
        page.click(".jp-MarkdownViewer a >> text=/^11 /")
        # The pictures that a lesson brings are drawn, because its copy is trusted.
        page.wait_for_selector(".jp-RenderedSVG svg, .jp-RenderedSVG img")
        page.screenshot(path=SCREENSHOTS / "jupyterlab_lesson.png")
        assert not page.query_selector("text=/Jupyter news/")
        assert not page.query_selector('[title^="IPython Parallel"]')
        assert not list((tmp_path / "lessons").glob("[0-9]*.md"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_are_seen_in_jupyterlab(theme: str, tmp_path: Path) -> None:
    set_theme(tmp_path, theme)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with jupyterlab(tmp_path) as about, browser_page(height=1900) as page:
        cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
        nbformat.write(notebook, tmp_path / "lessons" / "pictures.ipynb")
        run_notebook(page, about, "pictures.ipynb")
        page.wait_for_function(DRAWN, arg=len(TITLES))
        assert page.get_attribute("body", "data-jp-theme-light") == str(theme == "light").lower()
        page.screenshot(path=SCREENSHOTS / f"jupyterlab_{theme}.png")
        seen = page.query_selector_all(".mcnb-picture")
        assert len(seen) == len(TITLES)
        for picture, title in zip(seen, TITLES, strict=True):
            check(picture, title, theme)
            # As a screen reader says it: the title, and what the picture shows.
            said = " ".join(title.split())
            told = page.get_by_role("img", name=re.compile(re.escape(said)))
            assert told.count() == 1
        part = page.get_by_role("img", name=re.compile(re.escape(PART)))
        assert part.count() == 1
        hints = [one.text_content() for one in page.query_selector_all("rect > title")]
        assert PART in hints
        stored = nbformat.read(tmp_path / "lessons" / "pictures.ipynb", 4)
        assert stored.cells[0].source == CELLS[0]


def check(picture: Any, title: str, theme: str) -> None:
    """Check that a picture is there, large enough to be read, and drawn in its colours."""
    picture.scroll_into_view_if_needed()
    drawn = picture.query_selector("svg")
    assert drawn.is_visible()
    box = drawn.bounding_box()
    assert 300 < box["width"] <= picture.bounding_box()["width"]
    assert box["height"] > 100
    # Clipped between two pixels, it would lose the lower line of its frame.
    assert drawn.evaluate("e => getComputedStyle(e).overflow") == "visible"
    svg = drawn.evaluate("e => e.outerHTML")
    assert title in svg.replace("&#x27;", "'").replace("&#39;", "'")
    number = TITLES.index(title) + 1
    png = drawn.screenshot(path=SCREENSHOTS / f"picture_{number}_{theme}.png")
    colors = colors_of(png)
    assert all(colors[color_of(process)] > 100 for process in range(4)), colors.most_common(9)
    light, dark = (colors[color] / colors.total() for color in PAPER_OF)
    assert (light > 0.3 > dark) == (theme == "light"), colors.most_common(9)
    assert (dark > 0.3 > light) == (theme == "dark"), colors.most_common(9)
    assert not picture.query_selector("pre").is_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_layout_is_chosen_in_jupyterlab(theme: str, tmp_path: Path) -> None:
    set_theme(tmp_path, theme)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    # The same page twice: each has its own controls.
    cells = [nbformat.v4.new_code_cell("import mcnb\nmcnb.explore((8, 4))") for _ in range(2)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    with jupyterlab(tmp_path) as about, browser_page(height=1400) as page:
        failed: list[str] = []
        page.on("pageerror", lambda error: failed.append(str(error)))
        nbformat.write(notebook, tmp_path / "lessons" / "explore.ipynb")
        run_notebook(page, about, "explore.ipynb")
        page.wait_for_function("() => document.querySelectorAll('[data-begun]').length === 2")
        second = page.locator(".mcnb-explore").nth(1)
        second.locator("select[name=mesh]").select_option("(2, 2, 2)")
        assert second.locator("label[data-axis='2']").is_visible()
        second.locator("label[data-axis='2'] select").select_option("dimension 0")
        assert second.locator(".code").inner_text().endswith("jax.P(('x', 'z'), 'y')))")
        assert "[2:4, 0:2]: float32[2,2], 16 B, on P0.1" in second.locator(".view").inner_html()
        first = page.locator(".mcnb-explore").nth(0)
        assert first.locator(".code").inner_text().endswith("jax.P('x', 'y')))")
        assert not first.locator("label[data-axis='2']").is_visible()
        first.locator("select[name=mesh]").select_option("(8,)")
        first.locator("label[data-axis='0'] select").select_option("dimension 1")
        assert "can't be split evenly into 8 parts" in first.locator(".view").inner_text()
        page.screenshot(path=SCREENSHOTS / f"explore_{theme}.png")
        assert not failed


PLAYED = """%%mcjax
import jax, mcnb
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("a", "b"))
before, after = NamedSharding(mesh, P("a", "b")), NamedSharding(mesh, P("b", "a"))
mcnb.play(before, after, (8, 4), name="x")"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_change_of_layout_is_played_in_jupyterlab(theme: str, tmp_path: Path) -> None:
    with opened_lab(tmp_path, theme, Lab) as opened:
        opened.write("play.ipynb", CELLS[0], PLAYED)
        opened.open("play.ipynb")
        opened.choose("Run", "Run All Cells")
        page = opened.page
        page.wait_for_selector(".mcnb-play[data-begun]")
        assert len(page.query_selector_all(".mcnb-play")) == 1  # all processes have the same one
        said = page.locator(".mcnb-play [role=status]")
        assert said.text_content() == "Before: P('a', 'b')."
        page.focus(".mcnb-play input")
        page.keyboard.press("ArrowRight")
        assert str(said.text_content()).startswith("Step 1 of 3: 8 elements in all, from P0 to P1")
        assert "+P1.0" in page.locator(".mcnb-play .view").inner_text()
        opened.keep(f"play_{theme}")
        page.click(".mcnb-play >> text=Play")
        page.wait_for_function(
            "() => document.querySelector('.mcnb-play [role=status]').textContent"
            ".startsWith('After: ')"
        )
        page.wait_for_selector(".mcnb-play button >> text=Play")
        opened.keep(f"play_{theme}_end")


HELPED = """import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4, 2), ("a", "b"))
layer = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P("a", "b")))"""


def test_names_of_the_processes_are_offered_in_jupyterlab(tmp_path: Path) -> None:
    set_theme(tmp_path, "light")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    cells = [CELLS[0], f"%%mcjax\n{HELPED}", "%%mcjax\nlayer.sharding.mesh.axis_n"]
    with jupyterlab(tmp_path) as about, browser_page(height=1100) as page:
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        made = [nbformat.v4.new_code_cell(source) for source in cells]
        notebook = nbformat.v4.new_notebook(cells=made, metadata=kernel)
        nbformat.write(notebook, tmp_path / "lessons" / "names.ipynb")
        run_notebook(page, about, "names.ipynb")
        editor = page.locator(".jp-CodeCell .cm-content").nth(2)
        editor.click()
        page.keyboard.press("Control+End")
        page.keyboard.press("Tab")
        page.wait_for_selector(".jp-Completer >> text=axis_names")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "() => document.querySelectorAll('.cm-content')[2].innerText.includes('axis_names')"
        )
        page.keyboard.press("Control+a")
        page.keyboard.type("%%mcjax\nlayer.")
        page.keyboard.press("Tab")
        page.wait_for_selector(".jp-Completer >> text=sharding")
        page.screenshot(path=SCREENSHOTS / "completion.png")
        page.keyboard.press("Escape")
        page.keyboard.press("Backspace")
        page.keyboard.press("Shift+Tab")
        page.wait_for_selector(".jp-Tooltip >> text=8, of 4 processes")
        page.screenshot(path=SCREENSHOTS / "tooltip.png")


STEP = """%%mcjax
import time, mcnb, jax
def step(rows):
    time.sleep(1.5)  # until the live view is shown
    mcnb.breakpoint(2)
    total = sum(rows)
    return total
total = step([1, 2, jax.process_index()])
time.sleep(2)  # until it is shown again
total"""


# The prompt of the line before stays for a moment.
EMPTY_PROMPT = """() => {
    const prompts = [...document.querySelectorAll('.jp-Stdin-input')];
    return prompts.length === 1 && !prompts[0].value;
}"""


def type_command(page: Any, line: str) -> None:
    page.wait_for_function(EMPTY_PROMPT)
    page.fill(".jp-Stdin-input", line)
    page.press(".jp-Stdin-input", "Enter")


def test_a_person_debugs_in_jupyterlab(tmp_path: Path) -> None:
    """What is typed and what comes of it stays below the cell, and the stop button ends it."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    sources = ["%load_ext mcnb\n%mcjax start -n 4 -d 1", STEP]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    with jupyterlab(tmp_path) as about, browser_page(height=1100) as page:
        nbformat.write(notebook, tmp_path / "lessons" / "debug.ipynb")
        page.goto(f"{about['url']}lab/tree/debug.ipynb?reset&token={about['token']}")
        page.wait_for_selector("text=/ [|] Idle$/")
        page.click("text=Run >> nth=0")
        page.click("text=Run All Cells >> nth=0")
        for line in ("p rows", "next", "next", "p total"):
            type_command(page, line)
            assert "have been running" not in page.inner_text(".jp-CodeCell >> nth=1")
            page.wait_for_selector(f"text='process 2 (pdb)  {line}'")
        page.wait_for_function(EMPTY_PROMPT)
        page.screenshot(path=SCREENSHOTS / "jupyterlab_debugger.png")
        type_command(page, "continue")
        page.wait_for_selector("text=/Process 2 has been running for/")
        page.screenshot(path=SCREENSHOTS / "jupyterlab_goes_on.png")
        page.wait_for_selector("text=/3.*6/")
        page.wait_for_selector("text=/ [|] Idle$/")
        page.screenshot(path=SCREENSHOTS / "jupyterlab_debugged.png")
        shown = page.inner_text(".jp-CodeCell >> nth=1")
        assert "been running" not in shown
        for text in ("[1, 2, 2]", "-> total = sum(rows)", "-> return total", "\n5\n"):
            assert text in shown
        # Again, and the stop button while the prompt is open.
        page.click("text=Run >> nth=0")
        page.click("text=Run All Cells >> nth=0")
        page.wait_for_function(EMPTY_PROMPT)
        page.click("[data-command='notebook:interrupt-kernel'], [title^='Interrupt']")
        page.wait_for_selector("text=/The cluster is intact; all variables are kept/")
        page.screenshot(path=SCREENSHOTS / "jupyterlab_debugger_stopped.png")
