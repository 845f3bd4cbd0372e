"""A person at a notebook, who acts when the notebook shows something."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

# What a person does: presses the stop button, or makes a file of this name.
STOP = None
# The client leaves event loops and sockets to the garbage collector: it has a process of its own.
_PERSON = """
import json, pathlib, sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
said = []
for source, awaited, *cell in json.loads(sys.argv[1]):
    content = {"code": source, "silent": False, "store_history": True, "allow_stdin": True}
    content |= {"user_expressions": {}, "stop_on_error": True}
    metadata = {"cellId": cell[0]} if cell else {}
    message = client.session.msg("execute_request", content, metadata=metadata)
    client.shell_channel.send(message)
    request = message["header"]["msg_id"]
    said.append([])
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        said[-1].append([message["msg_type"], content])
        shown = content.get("data", {}).get("text/plain", "")
        while awaited and all(text in shown for text in awaited[0][0]):
            _, made = awaited.pop(0)
            manager.interrupt_kernel() if made is None else pathlib.Path(made).touch()
        if content.get("execution_state") == "idle":
            break
client.stop_channels()
manager.shutdown_kernel()
json.dump(said, sys.stdout)
"""


def at_a_notebook(
    *cells: tuple[str, Sequence[tuple[Sequence[str], str | None]]]
    | tuple[str, Sequence[tuple[Sequence[str], str | None]], str],
) -> list[list[tuple[str, Any]]]:
    """Run cells as a person does, and return the type and content of each message to each cell.

    Args:
        cells: The source of each, and what the person waits for there, one after the other: texts
            that are shown at once, and then `STOP` or the file to make. Then the id of the cell,
            if the front end tells it.
    """
    return executed(_PERSON, cells)


def executed(client: str, cells: Sequence[Any]) -> list[list[Any]]:
    """Run a client of notebooks in a process of its own, and return what it has printed as JSON.

    Args:
        client: The client's program; its argument are the cells, as JSON.
        cells: The cells.
    """
    ran = subprocess.run(
        [sys.executable, "-c", client, json.dumps(cells)],
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    said: list[list[Any]] = json.loads(ran.stdout)
    return said


# A front end that answers each request for input with the next line.
_TYPIST = """
import json, sys
from jupyter_client.manager import start_new_kernel

cells, command, lines = json.loads(sys.argv[1])
manager, client = start_new_kernel(kernel_name="python3")
said = []

def hear(message):
    if message["msg_type"] == "stream":
        said.append(message["content"]["text"])

for cell in cells:
    client.execute_interactive(cell, allow_stdin=True, output_hook=lambda _: None, timeout=120)
client.execute_interactive(
    command,
    allow_stdin=True,
    output_hook=hear,
    stdin_hook=lambda _: client.input(lines.pop(0)),
    timeout=120,
)
client.stop_channels()
manager.shutdown_kernel()
assert not lines, lines
json.dump(said, sys.stdout)
"""


def at_a_debugger(cells: Sequence[str], command: str, lines: Sequence[str]) -> list[str]:
    """Run cells, then a command that asks for input; return what that printed.

    Args:
        cells: The cells before.
        command: The command.
        lines: What is typed, line by line. All of it is asked for.
    """
    return executed(_TYPIST, [list(cells), command, list(lines)])
