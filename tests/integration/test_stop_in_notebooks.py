"""The stop button of a notebook: what a person is shown, and what a file keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import once
from tests.support.people import STOP, at_a_notebook, executed

pytestmark = [once, pytest.mark.thorough("executes notebooks")]

START = "%load_ext mcnb\n%mcjax start -n 2 -d 1"
SLEEP = "%%mcjax\nimport time\nprint('slept a little')\ntime.sleep(1000)"
LOOP = (
    "%%mcjax\nimport jax.numpy as jnp\nfrom jax import lax\n"
    "(lambda t: print('launched') or t.block_until_ready())("
    "lax.fori_loop(0, 10**9, lambda i, a: a @ a, jnp.ones((64, 64))))"
)
INTACT = "Both processes (line 4) were interrupted. The cluster is intact; all variables are kept"
# Nothing is shown to this one: it stops when the processes have made two folders.
EXECUTE = """
import json, os, signal, sys, threading, time
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

sources = json.loads(sys.argv[1])
cells = [nbformat.v4.new_code_cell(source) for source, _ in sources]
client = NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=120, coalesce_streams=True)

def stop():
    [folder] = [stop_at for _, stop_at in sources if stop_at]
    while len(os.listdir(folder)) < 2:
        time.sleep(0.1)
    os.kill(client.km.provisioner.pid, signal.SIGINT)

threading.Thread(target=stop).start()
try:
    client.execute()
except CellExecutionError:
    json.dump([cell.outputs for cell in cells], sys.stdout)
"""


def shown(messages: list[tuple[str, Any]]) -> list[str]:
    """Return what was shown one after the other, in the same place."""
    kinds = "display_data", "update_display_data"
    return [content["data"]["text/plain"] for kind, content in messages if kind in kinds]


def errors(messages: list[tuple[str, Any]]) -> list[str]:
    return [content["evalue"] for kind, content in messages if kind == "error"]


@pytest.mark.promise("the stop button")
def test_what_a_person_is_shown() -> None:
    _, stopped, after = at_a_notebook(
        (START, []),
        (SLEEP, [(["[all 2] line 4", "[all 2] slept a little"], STOP)]),
        ("%%mcjax\nprint(1 + 1)", []),
    )
    stages = [text.splitlines()[-2:] for text in shown(stopped) if "Stopping" in text]
    again = "Press stop again to restart the processes now; their variables are lost"
    assert stages[0] == ["Stopping: interrupting both processes …", again]
    assert errors(stopped) == [INTACT]
    # What was shown meanwhile is taken away, and what the cell printed stays.
    assert [kind for kind, _ in stopped][-4:-1] == ["clear_output", "stream", "error"]
    assert "".join(content.get("text", "") for _, content in after) == "[all 2] 2\n"


def test_the_next_cell_waits_for_new_processes() -> None:
    _, stopped, after = at_a_notebook(
        (START, []),
        (LOOP, [(["[all 2] line 4", "[all 2] launched"], STOP)]),
        ("%%mcjax\nprint(1 + 1)", []),
    )
    [lost] = errors(stopped)
    assert "on device 0; the newest launch is fori_loop (In[2], line 4). A computation" in lost
    assert lost.endswith(
        "Both processes are being restarted: their variables are lost. To restore them, re-run "
        "the cells that succeeded: %mcjax restart --replay"
    )
    waiting = "The processes are being restarted. The cell runs when they are ready …"
    assert shown(after)[0] == waiting
    assert "".join(content.get("text", "") for _, content in after) == "[all 2] 2\n"


def test_what_a_file_keeps(tmp_path: Path) -> None:
    """Nobody looks while nbclient executes a notebook: it has the outcome, and nothing else."""
    # Processes report four times a second at which line they are.
    sleep = SLEEP.replace(
        "time.sleep(1000)",
        f"time.sleep(2); __import__('tempfile').mkdtemp(dir='{tmp_path}'); time.sleep(1000)",
    )
    _, outputs, not_run = executed(
        EXECUTE, [(START, None), (sleep, str(tmp_path)), ("%%mcjax\n1", None)]
    )
    assert [(one["output_type"], one.get("text", one.get("evalue"))) for one in outputs] == [
        ("stream", "[all 2] slept a little\n"),
        ("error", INTACT),
    ]
    assert not_run == []
