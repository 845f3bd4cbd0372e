"""The page on TPU pods, executed on two hosts with CPU devices."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcnb.output.terminal import without_escapes
from tests.conftest import ROOT, once, wait_until
from tests.support import hosts
from tests.support.clients import HANG_S
from tests.support.markdown import blocks

pytestmark = [once, pytest.mark.thorough("needs hosts in network namespaces")]

PAGE = ROOT / "docs" / "tpus.md"
# Runs the cells of its standard input, and prints what each prints, and its error.
NOTEBOOK = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
said = []
for cell in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        shell.run_cell(cell, store_history=True)
    said.append([out.getvalue(), err.getvalue()])
print(json.dumps(said))
"""


@pytest.fixture
def shared_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two hosts, and a home that both have, with this Python in it."""
    if not hosts.available():
        pytest.skip(hosts.WHY_NOT)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "venv").symlink_to(sys.prefix)
    (tmp_path / "nfs").mkdir()
    with hosts.hosts():
        yield tmp_path


@contextlib.contextmanager
def running(host: str, command: str, home: Path) -> Iterator[None]:
    """Run a command of the page on a host, which is to end by itself."""
    with (
        (home / "log").open("ab") as log,
        subprocess.Popen(
            hosts.on(host, "bash", "-c", command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield
            process.wait(HANG_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_the_page_on_two_hosts(shared_home: Path) -> None:
    found = blocks(PAGE)
    _, controller, engine = (block.text for block in found if block.language == "bash")
    cells = [b.text for b in found if b.language == "python" or b.text.startswith("%")]
    with contextlib.ExitStack() as stack:
        stack.enter_context(running("one", controller, shared_home))
        file = shared_home / "nfs" / "security" / "ipcontroller-engine.json"
        assert wait_until(file.is_file, HANG_S)
        for host in hosts.OTHERS:
            stack.enter_context(running(host, engine, shared_home))
        done = subprocess.run(
            hosts.on("one", sys.executable, "-c", NOTEBOOK),
            # There are no TPUs here.
            input=json.dumps([cell.replace(" --platform tpu", "") for cell in cells]),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            cwd=shared_home,
            env=os.environ | {"JAX_PLATFORMS": ""},
        )
        assert done.returncode == 0, done.stderr[-3000:]
    said = dict(zip(cells, json.loads(done.stdout), strict=True))
    assert said[cells[0]] == ["Ready: 2 processes x 4 CPU devices\n", ""]
    # ipyparallel's own thread may log that the socket from which it reads is closed.
    assert said[cells[-1]][0] == ""
    compared = 0
    for cell, after in itertools.pairwise(found):
        if cell.text in said and not after.language and after.text not in said:
            assert [without_escapes(text) for text in said[cell.text]] == [after.text, ""]
            compared += 1
    assert compared == 3
