"""A real JupyterLab, and a real browser that looks at it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import nbformat
import psutil
import pytest

from tests.conftest import ROOT, wait_until
from tests.support.clients import HANG_S

# What a browser needs to be quiet: no traffic but to the page that it is shown.
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Where pictures of the browser's window are left, to be looked at.
SCREENSHOTS = ROOT / "build" / "screenshots"
# Before it has a kernel, the indicator beside a notebook's name says idle, too: the status bar does
# not.
IDLE = "text=/ [|] Idle$/"


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which Jupyter knows nothing of the user's own settings."""
    return {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_PREFER_ENV_PATH": "0",
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }


def set_theme(folder: Path, theme: str) -> None:
    """Choose JupyterLab's theme, `"light"` or `"dark"`."""
    path = folder / "settings" / "@jupyterlab" / "apputils-extension"
    path.mkdir(parents=True, exist_ok=True)
    names = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
    (path / "themes.jupyterlab-settings").write_text(json.dumps({"theme": names[theme]}))
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (path / "notification.jupyterlab-settings").write_text(json.dumps(quiet))


@contextlib.contextmanager
def jupyterlab(folder: Path, end_by: signal.Signals = signal.SIGTERM) -> Iterator[dict[str, Any]]:
    """Run `mcnb lab` in a folder; yield what the server says of itself.

    Args:
        folder: Where its lessons, settings and log go.
        end_by: The signal that ends it; it is sent to `mcnb lab` alone.
    """
    code = "from mcnb.cli.main import main; raise SystemExit(main())"
    options = ["--no-browser", "--allow-root", "--ServerApp.port=0"]
    command = [sys.executable, "-c", code, "lab", "lessons", "--", *options]
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            env=environment(folder),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        about: dict[str, Any] = {}
        assert wait_until(lambda: about.update(server(folder)) or about, HANG_S), log.read_text()
        yield about
    finally:
        # As a person ends it, also after an error: what is left would be another one.
        process.send_signal(end_by)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(HANG_S)
        if process.poll() is None:
            for member in psutil.Process(process.pid).children(recursive=True):
                member.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(HANG_S)  # mcnb itself removes its folder then
            process.kill()
            process.wait()
    assert process.returncode == 0, log.read_text()


def server(folder: Path) -> dict[str, Any]:
    """Return what a running server says of itself, nothing while it does not answer."""
    for path in (folder / "runtime").glob("jpserver-*.json"):
        try:
            about: dict[str, Any] = json.loads(path.read_text())
            ask(about, "status")
        except (OSError, json.JSONDecodeError):
            continue
        return about
    return {}


def ask(about: dict[str, Any], what: str) -> Any:
    """Return what a server's interface answers."""
    url = f"{about['url']}api/{what}?token={about['token']}"
    with urllib.request.urlopen(url, timeout=HANG_S) as answer:
        return json.load(answer)


@contextlib.contextmanager
def browser_page(width: int = 1200, height: int = 900) -> Iterator[Any]:
    """Open a page in headless Chromium; skip the test where there is none.

    With MCNB_BROWSER=needed in the environment, as in CI, there has to be one.
    """
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing = f"no browser: none of {', '.join(NAMES)} is on the path"
        assert os.environ.get("MCNB_BROWSER") != "needed", missing
        pytest.skip(missing)
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=list(OPTIONS), timeout=HANG_S * 1000
        )
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(HANG_S * 1000)
        try:
            yield page
        except Exception:
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(Error):  # the first one is to be shown
                page.screenshot(path=SCREENSHOTS / "failed.png")
            raise
        finally:
            browser.close()


def run_notebook(page: Any, about: dict[str, Any], path: str, timeout_s: float = HANG_S) -> None:
    """Open a notebook in JupyterLab, run all of its cells, and wait until they have run."""
    page.goto(f"{about['url']}lab/tree/{path}?reset&token={about['token']}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector(IDLE)
    page.click("text=Run >> nth=0")
    page.click("text=Run All Cells >> nth=0")
    page.wait_for_function(
        """() => {
            const prompts = [...document.querySelectorAll(
                '.jp-Notebook .jp-CodeCell .jp-InputArea-prompt')].map(p => p.textContent.trim());
            return prompts.length > 0 && prompts.every(p => /^\\[\\d+\\]:$/.test(p));
        }""",
        timeout=timeout_s * 1000,
    )


class Lab:
    """JupyterLab in a browser.

    Attributes:
        page: The browser's page.
        folder: Where its lessons are, in `lessons`.
        failed: What failed on the page.
    """

    def __init__(self, page: Any, about: dict[str, Any], folder: Path) -> None:
        self.page = page
        self.folder = folder
        self._about = about
        self.failed: list[str] = []
        page.on("pageerror", lambda error: self.failed.append(str(error)))

    def write(self, name: str, *sources: str, output: Mapping[str, Any] | None = None) -> None:
        """Write a notebook of these cells; the last one has an output."""
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        if output is not None:
            cells[-1].outputs = [nbformat.v4.new_output("display_data", dict(output))]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
        nbformat.write(notebook, self.folder / "lessons" / name)

    def open(self, name: str) -> None:
        """Open a notebook in a new workspace."""
        about = self._about
        self.page.goto(f"{about['url']}lab/tree/{name}?reset&token={about['token']}")
        self.page.wait_for_selector(IDLE)

    def choose(self, menu: str, entry: str) -> None:
        """Choose an entry of a menu."""
        self.page.click(f"text={menu} >> nth=0")
        self.page.click(f".lm-Menu >> text=/^{entry}/ >> nth=0")

    def shown(self) -> str:
        """Return what the notebooks show that are visible."""
        return str(self.page.inner_text(".jp-Notebook:visible"))

    def keep(self, name: str) -> None:
        """Leave a picture, to be looked at."""
        self.page.screenshot(path=SCREENSHOTS / f"jupyterlab_{name}.png")


_Opened = TypeVar("_Opened", bound=Lab)


@contextlib.contextmanager
def opened_lab(folder: Path, theme: str, kind: type[_Opened]) -> Iterator[_Opened]:
    """Open JupyterLab; at the end, nothing on the page has failed."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    set_theme(folder, theme)
    # The page ends first: Jupyter's server has been seen to hang at its end while one was open.
    with jupyterlab(folder) as about, browser_page(height=1000) as page:
        opened = kind(page, about, folder)
        yield opened
        assert opened.failed == []
