"""The moving picture of the README: `python tools/dev.py recording`.

A session in JupyterLab, in a headless browser: cells appear line by line and run. Waiting is shown
as long as it takes, typing and reading as long as a reader needs. The picture and its last frame,
for those who prefer a still one, are left in notebooks/images.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.clients import HANG_S  # noqa: E402
from tests.support.jupyterlab import browser_page, jupyterlab, set_theme  # noqa: E402

IMAGES = ROOT / "notebooks" / "images"
MOST_BYTES = 1_000_000
WIDTH, HEIGHT = 800, 700
# Each cell, and how long its output is to be read, in milliseconds.
CELLS = (
    ("%load_ext mcnb\n%mcjax start -n 4 -d 2", 1500),
    (
        "%%mcjax\nimport jax, jax.numpy as jnp, numpy as np, mcnb\n"
        "from jax.sharding import NamedSharding, PartitionSpec as P\n"
        "k = jax.process_index()\n"
        'print("I am process", k)\njax.device_count()',
        3000,
    ),
    (
        '%%mcjax\nmesh = jax.make_mesh((4, 2), ("a", "b"))\n'
        'split = NamedSharding(mesh, P("a", "b"))\n'
        "x = jax.device_put(np.arange(32.0).reshape(8, 4), split)\n"
        "mcnb.show(x)",
        4000,
    ),
    ('%%mcjax\nif k == 0:\n    print("the sum is", jnp.sum(x))', 7000),
)
LINE_MS, FRAME_MS = 350, 150
STYLE = """
.jp-cell-toolbar, .jp-cell-menu, .jp-Notebook-footer, .jp-Toolbar { display: none !important }
.cm-cursorLayer { visibility: hidden }
"""
PANEL = ".jp-NotebookPanel .jp-WindowedPanel-outer"
HAS_RUN = """number => {
    const prompts = document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt');
    return prompts.length >= number && /^\\[\\d+\\]:$/.test(prompts[number - 1].textContent.trim());
}"""


class Recording:
    """The frames of a page, and how long each is shown.

    Args:
        page: The page.
    """

    def __init__(self, page: Any) -> None:
        self._page = page
        self.frames: list[tuple[bytes, int]] = []

    def frame(self, shown_ms: int) -> None:
        """Add what the page shows now, for so many milliseconds."""
        panel = self._page.locator(PANEL)
        panel.evaluate("panel => { panel.scrollTop = panel.scrollHeight }")
        seen = panel.screenshot()
        if self.frames and self.frames[-1][0] == seen:
            shown_ms += self.frames.pop()[1]
        self.frames.append((seen, shown_ms))

    def save(self, path: Path) -> None:
        """Write the frames as a GIF, and the last one as a PNG."""
        pictures = [Image.open(io.BytesIO(seen)).convert("RGB") for seen, _ in self.frames]
        pictures[-1].save(path.with_suffix(".png"), optimize=True)
        # One palette for all frames, so that what stays as it is takes no bytes.
        tall = Image.new("RGB", (pictures[0].width, sum(one.height for one in pictures)))
        top = 0
        for one in pictures:
            tall.paste(one, (0, top))
            top += one.height
        palette = tall.quantize(64)
        few = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures]
        few[0].save(
            path,
            save_all=True,
            append_images=few[1:],
            duration=[shown_ms for _, shown_ms in self.frames],
            loop=0,
            optimize=True,
        )


def record(page: Any, about: dict[str, Any]) -> Recording:
    """Type and run the cells in an empty notebook."""
    page.goto(f"{about['url']}doc/tree/session.ipynb?reset&token={about['token']}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector(".jp-NotebookPanel [data-status=idle]")
    page.add_style_tag(content=STYLE)
    recording = Recording(page)
    page.click(".jp-CodeCell .cm-content")
    recording.frame(600)
    for number, (source, read_ms) in enumerate(CELLS, 1):
        for i, line in enumerate(source.split("\n")):
            if i:
                page.keyboard.press("Enter")  # indents the next line, too
            page.keyboard.insert_text(line.lstrip())
            recording.frame(LINE_MS)
        page.keyboard.press("Shift+Enter")
        while not page.evaluate(HAS_RUN, number):
            page.wait_for_timeout(FRAME_MS)
            recording.frame(FRAME_MS)
        page.wait_for_timeout(500)
        recording.frame(read_ms)
    return recording


def main(words: list[str]) -> int:
    """Record the session; return 0."""
    del words
    empty = {"cell_type": "code", "execution_count": None, "id": "first", "metadata": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        set_theme(folder, "light")
        settings = folder / "settings" / "@jupyterlab" / "notebook-extension"
        settings.mkdir(parents=True)
        (settings / "tracker.jupyterlab-settings").write_text(
            json.dumps({"scrollPastEnd": False, "windowingMode": "none"})
        )
        with jupyterlab(folder) as about, browser_page(WIDTH, HEIGHT) as page:
            page.set_default_timeout(HANG_S * 1000)
            kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
            notebook = {
                "cells": [{**empty, "outputs": [], "source": ""}],
                "metadata": {"kernelspec": kernel},
            }
            (folder / "lessons" / "session.ipynb").write_text(
                json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5})
            )
            recording = record(page, about)
    path = IMAGES / "readme_session.gif"
    recording.save(path)
    size, seconds = path.stat().st_size, sum(shown_ms for _, shown_ms in recording.frames) / 1000
    print(f"{path.relative_to(ROOT)}: {len(recording.frames)} frames, {seconds:.0f} s, {size} B")
    return int(size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
