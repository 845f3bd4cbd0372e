"""Lessons as a learner sees them: `python tools/screenshots.py [--dark] [LESSON ...]`.

Each is opened in JupyterLab in a headless browser, all of its cells are run, and windows of it,
from its top to its bottom, are left in build/screenshots, to be looked at.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.jupyterlab import (  # noqa: E402
    SCREENSHOTS,
    browser_page,
    jupyterlab,
    run_notebook,
    set_theme,
)

WIDTH, HEIGHT = 1100, 1600
LESSON_S = 180.0
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer"


def show_all_cells(folder: Path) -> None:
    """Have JupyterLab keep all cells in the page, also those that are out of sight."""
    path = folder / "settings" / "@jupyterlab" / "notebook-extension"
    path.mkdir(parents=True, exist_ok=True)
    (path / "tracker.jupyterlab-settings").write_text(json.dumps({"windowingMode": "none"}))


def windows(page: Any, folder: Path) -> int:
    """Leave pictures of a notebook, window by window; return how many."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    page.evaluate(f"document.querySelector('{PANEL}').scrollTop = 0")
    number, position = 0, -1
    while True:
        reached = page.evaluate(f"document.querySelector('{PANEL}').scrollTop")
        if reached == position:
            return number
        position, number = reached, number + 1
        page.screenshot(path=folder / f"{number:02d}.png")
        page.evaluate(f"document.querySelector('{PANEL}').scrollTop += {HEIGHT - 200}")
        page.wait_for_timeout(200)


def main(words: list[str]) -> int:
    """Run lessons and leave their windows; return 0."""
    theme = "dark" if "--dark" in words else "light"
    given = [Path(word).stem for word in words if word != "--dark"]
    names = given or [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        set_theme(folder, theme)
        show_all_cells(folder)
        with jupyterlab(folder) as about:
            for lesson in names:
                with browser_page(WIDTH, HEIGHT) as page:
                    began = time.monotonic()
                    run_notebook(page, about, f"{lesson}.ipynb", LESSON_S)
                    took = time.monotonic() - began
                    count = windows(page, SCREENSHOTS / f"{lesson}_{theme}")
                    print(f"{lesson}: {took:.0f} s, {count} windows", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
