"""The output of a running cell: a person sees it as it comes, folded as at its end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# A person's notebook: it lets a cell go on as soon as it shows what the cell waits for.
PERSON = """
import json, pathlib, sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
said = []
for source, awaited in json.loads(sys.argv[1]):
    request = client.execute(source, allow_stdin=True)
    said.append([])
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        said[-1].append([message["msg_type"], content])
        shown = content.get("data", {}).get("text/plain", "")
        while awaited and awaited[0][0] in shown:
            pathlib.Path(awaited.pop(0)[1]).touch()
        if content.get("execution_state") == "idle":
            break
client.stop_channels()
manager.shutdown_kernel()
json.dump(said, sys.stdout)
"""
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
        ("[all 4] step 0 loss 0.5\n", first),
        (
            "[all 4] step 0 loss 0.5\n        step 20 loss 0.4\n[0,1]   mine 0\n[2,3]   mine 1\n",
            second,
        ),
    ]
    cells = [
        ("%load_ext mcnb\n%mcjax start -n 4 -d 1", []),
        (CELL.format(first=first, second=second), awaited),
    ]
    ran = subprocess.run(
        [sys.executable, "-c", PERSON, json.dumps(cells)],
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    _, said = json.loads(ran.stdout)
    # It has come to its end, so each text was shown before the processes went on.
    kinds: list[Any] = [kind for kind, _ in said]
    assert kinds[-3:] == ["clear_output", "stream", "status"]
    assert said[-2][1]["text"] == (
        "[all 4] step 0 loss 0.5\n        step 20 loss 0.4\n"
        "[0,1]   mine 0\n[2,3]   mine 1\n[all 4] 100%\n"
    )
