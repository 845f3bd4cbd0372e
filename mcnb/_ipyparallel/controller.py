"""A controller that starts fast, keeps no records, and ends where it can't do all of its work.

The module depends on these internals of ipyparallel's controller: the heart monitor that it
instantiates and when that counts a heart as new, the socket on which its hub receives copies of
messages, the effects of encryption, its module `time`, how it names the addresses of its sockets
and writes them to connection files, and how its relays, devices of pyzmq's, bind them.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ipyparallel.controller.app as controller_app
import ipyparallel.controller.heartmonitor as heartmonitor
from traitlets import Integer, observe

from mcnb._system import die_with_parent

__all__ = ["QuietController", "run_controller"]


class _EagerHeartMonitor(heartmonitor.HeartMonitor):
    """A heart monitor that registers an engine as soon as its heart beats.

    ipyparallel registers a new engine one beat after its heart has answered. The period is short,
    so that this is soon. Once all engines are registered the beats stop: the fork server detects
    deaths, and each beat would wake all engines.
    """

    expected = Integer(config=True, help="How many engines will register.")

    def handle_pong(self, msg: list[bytes]) -> None:
        """Register the engine whose heart answered a beat, even if the answer is late."""
        heart = msg[0]
        self.responses.add(heart)
        if heart not in self.hearts:
            self.handle_new_hearts({heart})
        if len(self.hearts) >= self.expected:
            self.caller.stop()


class QuietController(controller_app.IPController):
    """A controller whose hub does not record the messages between client and engines.

    The hub would read every message again and keep it, but these records have no use.

    Messages are signed, although they are encrypted or pass through sockets in a private folder:
    without a key, each session would warn.

    ipyparallel chooses its ports long before threads of the controller bind them, and writes them
    to its connection files in between. If another program takes such a port meanwhile, only that
    thread ends, and one kind of message is lost as long as the cluster lives. Here, the files are
    written when all ports are bound, and a thread that fails ends the controller.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._unwritten: list[tuple[str, dict[str, Any]]] = []
        self._binding = 0
        self._lock = threading.Lock()  # guards `_binding`

    @observe("enable_curve")
    def _enable_curve_changed(self, change: Any) -> None:
        if change.new:
            self._ensure_curve_keypair()

    def construct_url(self, kind: str, channel: str, index: Any = None) -> str:
        """Return the address of a socket, as clients and engines name it.

        Between the path of a Unix socket and its number, they have a colon, and ipyparallel's
        controller a dash.
        """
        url: str = super().construct_url(kind, channel, index)
        if url.startswith("ipc:"):
            path, _, number = url.rpartition("-")
            url = f"{path}:{number}"
        return url

    def init_hub(self) -> None:
        """Create the hub, subscribed to heartbeats and registrations only."""
        super().init_hub()
        passing = self.hub.monitor.socket
        passing.unsubscribe(b"")
        passing.subscribe(b"heartmonitor")

    def save_connection_dict(self, fname: str, cdict: dict[str, Any]) -> None:
        """Keep what a connection file will contain."""
        self._unwritten.append((fname, cdict))

    def start(self) -> None:
        """Relay messages; return when the controller ends."""
        threading.excepthook = _end_process
        relays = [*self.children, self.heartmonitor_process]
        devices = [relay for relay in relays if hasattr(relay, "_setup_sockets")]
        self._binding = len(devices)
        for device in devices:
            device._setup_sockets = functools.partial(self._bind, device._setup_sockets)
        super().start()

    def _bind(self, bind: Callable[[], Any]) -> Any:
        """Bind the ports of a relay, in its thread; write the files after the last one."""
        sockets = bind()
        with self._lock:
            self._binding -= 1
            if self._binding == 0:
                for name, content in self._unwritten:
                    super().save_connection_dict(name, content)
        return sockets


def _end_process(args: threading.ExceptHookArgs) -> None:
    """End this process after an error in a thread, which it can't do without."""
    threading.__excepthook__(args)
    sys.stderr.flush()
    os._exit(1)


def _end_children_with_parents() -> None:
    """Let each process that is forked from now on end with the process that forks it."""
    parent = os.getpid()

    def before_fork() -> None:
        nonlocal parent
        parent = os.getpid()

    os.register_at_fork(before=before_fork, after_in_child=lambda: die_with_parent(parent))


def run_controller() -> None:
    """Run ipyparallel's controller, with its own arguments on the command line.

    The controller's child processes end with it, even if it is killed.
    """
    _end_children_with_parents()
    heartmonitor.HeartMonitor = controller_app.HeartMonitor = _EagerHeartMonitor
    # The controller sleeps a quarter of a second between binding its ports and connecting to one.
    controller_app.time = SimpleNamespace(**{**vars(time), "sleep": lambda _: None})
    QuietController.launch_instance()
