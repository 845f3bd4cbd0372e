"""Report on a host to `mcnb doctor`, which sends this file to the host and talks to it by lines.

The host may lack mcnb, or have an older Python, so this file needs nothing but the standard library
of Python 3.7. Each line is JSON: first the report, then the answers to questions. The program ends
with its input, or after a minute.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

LIFE_S = 60
CONNECT_S = 5.0
PACKAGES = ("jax", "jaxlib", "ipyparallel", "mcnb")
# The question for the time; another one is a list of places to connect to.
TIME = "time"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
SETTINGS = ("JAX_", "XLA_FLAGS", "MEGASCALE_")
_ANY_PORT = 9


def report(asker: str, port: int) -> dict[str, Any]:
    """Return what this host is.

    Args:
        asker: The address of the host that asks.
        port: The port at which this program listens.
    """
    name = socket.gethostname()
    try:
        named = socket.gethostbyname(name)
    except OSError:
        named = ""
    try:
        boot_id = Path(_BOOT_ID).read_text().strip()
    except OSError:
        boot_id = ""
    return {
        "asker": asker,
        "name": name,
        "named": named,
        "address": address_toward(asker),
        "port": port,
        "boot_id": boot_id,
        "versions": versions(),
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(SETTINGS)},
    }


def address_toward(host: str) -> str:
    """Return the address of this host from which it connects to another one; "" without a way."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
            question.connect((host, _ANY_PORT))
            return str(question.getsockname()[0])
    except OSError:
        return ""


def versions() -> dict[str, str]:
    """Return the versions of Python and of packages, empty for those that are not installed."""
    found = {"Python": ".".join(map(str, sys.version_info[:3]))}
    for package in PACKAGES:
        try:
            from importlib.metadata import version

            found[package] = str(version(package))
        except Exception:  # it is not installed, or Python is older than this module
            found[package] = ""
    return found


def reach(address: str, port: int) -> str:
    """Return why a connection can't be made, in the system's words; "" if it can."""
    try:
        socket.create_connection((address, port), timeout=CONNECT_S).close()
    except socket.timeout:  # noqa: UP041  (another class before Python 3.10)
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def accept(server: socket.socket) -> None:
    """Accept connections, and close them, until the socket is closed."""
    while True:
        try:
            server.accept()[0].close()
        except OSError:
            return


def main(asker: str = "") -> None:
    """Report, and answer questions.

    Args:
        asker: The address of the host that asks; by default the one from which ssh logged in.
    """
    signal.alarm(LIFE_S)
    # As in ssh(1): the client's address and port, the server's address and port.
    asker = asker or os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        print(json.dumps(report(asker, server.getsockname()[1])), flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            answer = time.time() if asked == TIME else [reach(*place) for place in asked]
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
