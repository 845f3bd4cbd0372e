"""What processes import, imported before they are forked."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import threading

# In the order in which it is needed: the controller's, the processes', and what cells often use.
CONTROLLER = (
    "ipyparallel.controller.app",
    "ipyparallel.controller.broadcast_scheduler",
    "mcnb.ipyparallel_inside",
)
PROCESSES = (
    "jax",
    "mcnb.process.engine",
    "mcnb.process.bootstrap",
    "jax.experimental.multihost_utils",
    "jax.extend.backend",
    # What those import when they are first used.
    "tornado.platform.asyncio",
    "tornado.queues",
    "IPython.core.completerlib",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "jaxlib.mlir.dialects.builtin",
    "jaxlib.mlir.dialects.mhlo",
)
CELLS = ("matplotlib.pyplot", "matplotlib_inline.backend_inline")
# By the module that a process runs.
NEEDED = {"mcnb.launch.controller": CONTROLLER, "mcnb.process": (*CONTROLLER, *PROCESSES)}
GENTLE = 10  # the priority of what nobody waits for: a tenth of the usual share of a busy core


class Warmth:
    """Imports what is needed, one thing after the other, in a thread of its own or at once.

    Args:
        gently: Whether to begin at a low priority.

    Attributes:
        left: What is not imported yet.
    """

    def __init__(self, *, gently: bool) -> None:
        self.left = [*CONTROLLER, *PROCESSES, *CELLS]
        self._gently = gently
        self._thread: threading.Thread | None = None
        self._hurry = False

    @property
    def urgent(self) -> bool:
        """Whether there is something left that each process needs."""
        return not self.has(PROCESSES)

    def begin(self) -> None:
        """Import in a thread what is left, until it is stopped; what few need, gently."""
        self._hurry = False
        if self.left and self._thread is None:
            # A collection would find nothing in what is being imported, and write to all of it.
            gc.disable()
            gently = self._gently or not self.urgent
            self._thread = threading.Thread(target=self._import, args=(gently,), name="mcnb warm")
            self._thread.start()

    def stop(self) -> None:
        """Return when no thread imports any more."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._hurry = True
            if sys.platform == "linux":
                with contextlib.suppress(PermissionError, ProcessLookupError):  # users may not
                    os.setpriority(os.PRIO_PROCESS, thread.native_id or 0, _usual())
            thread.join()
            gc.enable()

    def has(self, modules: tuple[str, ...]) -> bool:
        """Return whether these are imported."""
        return not set(modules) & set(self.left)

    def get(self, modules: tuple[str, ...]) -> None:
        """Have these imported, and no other thread running."""
        self.stop()
        self._gently = False
        while not self.has(modules):
            self._step()

    def _step(self) -> None:
        name = self.left[0]
        # Whoever needs it will say why it can't be imported.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
        self.left.remove(name)

    def _import(self, gently: bool) -> None:
        # On Linux a thread has a priority of its own.
        if gently and sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(GENTLE, _usual()))
        while self.left and not self._hurry and (gently or self.urgent):
            self._step()


def _usual() -> int:
    """Return the priority of this process."""
    return os.getpriority(os.PRIO_PROCESS, os.getpid())
