"""The output of a running cell: a person sees it as it comes, folded as at its end."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import once
from tests.support.people import at_a_notebook

pytestmark = once

CELL = """%%mcjax
import jax, os, time
def wait(name):
    while not os.path.exists(name): time.sleep(0.02)
k = jax.process_index()
print("step 0 loss 0.5")
wait({first!r})
print("step 20 loss 0.4")
print("mine", k // 2)
wait({second!r})
print("50%\\r100%")
"""


def test_output_is_shown_while_the_cell_runs(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    awaited = [
        (["[all 4] step 0 loss 0.5\n"], first),
        (
            ["[all 4] step 0 loss 0.5\n        step 20 loss 0.4\n[0,1]   mine 0\n[2,3]   mine 1\n"],
            second,
        ),
    ]
    _, said = at_a_notebook(
        ("%load_ext mcnb\n%mcjax start -n 4 -d 1", []),
        (CELL.format(first=first, second=second), awaited),
    )
    # It has come to its end, so each text was shown before the processes went on.
    kinds = [kind for kind, _ in said]
    assert kinds[-3:] == ["clear_output", "stream", "status"]
    assert said[-2][1]["text"] == (
        "[all 4] step 0 loss 0.5\n        step 20 loss 0.4\n"
        "[0,1]   mine 0\n[2,3]   mine 1\n[all 4] 100%\n"
    )


def test_what_a_cell_has_printed_stays_when_processes_start_below_it() -> None:
    began, again = at_a_notebook(
        ("%load_ext mcnb\n%mcjax start -n 2 -d 1", []),
        ("%mcjax stop\n%mcjax start -n 2 -d 2", []),
    )
    assert "clear_output" in [kind for kind, _ in began]
    assert "clear_output" not in [kind for kind, _ in again]
    texts = [content["text"] for kind, content in again if kind == "stream"]
    assert "".join(texts) == (
        "Stopped: 2 processes x 1 CPU device\nReady: 2 processes x 2 CPU devices\n"
    )
    updates = [content["data"] for kind, content in again if kind == "update_display_data"]
    assert updates[-1] == {"text/plain": ""}
