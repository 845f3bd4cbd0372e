"""The end of a process that nobody keeps: it leaves when its notebook is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from pathlib import Path

GRACE_S = 1.0  # for atexit handlers and open files


def leave() -> None:
    """End this process, from another thread than its main one."""
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        if _sent is not None:
            shutil.rmtree(_sent, ignore_errors=True)
        time.sleep(GRACE_S)
    finally:
        os._exit(1)


def forget(output: str) -> None:
    """Remove this process's output files, and the notebook's folder if they were the last there.

    For a process that goes on without its notebook, which may have been killed.

    Args:
        output: The files' common path.
    """
    own = Path(output).parent
    shutil.rmtree(own, ignore_errors=True)
    with contextlib.suppress(OSError):  # others have not removed theirs
        own.parent.rmdir()


_sent: Path | None = None


def leave_with_connection(folder: Path) -> None:
    """Have this process leave when the connection over which it was started ends.

    Args:
        folder: What was sent to it, which is removed then.
    """
    global _sent
    _sent = folder
    threading.Thread(target=_watch, name="mcnb connection", daemon=True).start()


def _watch() -> None:
    while os.read(0, 1 << 10):
        pass
    leave()
