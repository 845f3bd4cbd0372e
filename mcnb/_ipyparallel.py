"""Adapt ipyparallel's engine and controller; no other file uses their private names.

The file fits ipyparallel 9. It depends on these internals:

- of the engine: the kernel class that `IPEngine` instantiates, whether kernels have a debugger, the
  redirection of output, the signal handlers, and how a kernel applies functions;
- of the controller: the heart monitor that it instantiates and when that counts a heart as new, the
  socket on which its hub receives copies of messages, the effects of encryption, its module
  `time`, how it writes connection files, and how its relays, devices of pyzmq's, bind their ports.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import ipyparallel.controller.app as controller_app
import ipyparallel.controller.heartmonitor as heartmonitor
import ipyparallel.engine.app as engine_app
from ipyparallel.engine.datapub import publish_data
from ipyparallel.engine.kernel import IPythonParallelKernel
from ipyparallel.serialize import serialize_object, unpack_apply_message
from IPython.core.getipython import get_ipython
from traitlets import Integer, observe

from mcnb._system import die_with_parent
from mcnb.errors import ClusterError

__all__ = ["Engine", "Kernel", "adopt_engine", "publish_data", "run_controller"]


class Kernel(IPythonParallelKernel):
    """An engine's kernel that executes some calls itself, without a trace in the namespace."""

    def answers(self, function: Any) -> bool:
        """Return whether this kernel executes a call of that function itself."""
        raise NotImplementedError

    def answer(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Execute a call that `answers` accepts, and return its result."""
        raise NotImplementedError

    def describe(self, error: BaseException) -> Any:
        """Return a replacement for a result that is missing or can't be sent."""
        raise NotImplementedError

    def pre_handler_hook(self) -> None:
        """Leave SIGINT to the engine's own handler, which decides where it is raised."""

    def post_handler_hook(self) -> None:
        """Leave SIGINT to the engine's own handler."""

    def _publish_status(self, status: str, *args: Any, **kwargs: Any) -> None:
        """Publish that the kernel is idle, which the client waits for, but not that it is busy."""
        if status != "busy":
            super()._publish_status(status, *args, **kwargs)

    def do_apply(
        self, content: Any, bufs: Any, msg_id: str, reply_metadata: Any
    ) -> tuple[dict[str, Any], list[Any]]:
        """Apply a function, or execute a call that `answers` accepts."""
        function, args, kwargs = unpack_apply_message(bufs, self.shell.user_ns, copy=False)
        if not self.answers(function):
            reply: tuple[dict[str, Any], list[Any]] = super().do_apply(
                content, bufs, msg_id, reply_metadata
            )
            return reply
        try:
            return {"status": "ok"}, self._serialize(self.answer(function, args, kwargs))
        except (Exception, KeyboardInterrupt) as error:
            return {"status": "ok"}, self._serialize(self.describe(error))

    def _serialize(self, answer: Any) -> list[Any]:
        buffers: list[Any] = serialize_object(
            answer,
            buffer_threshold=self.session.buffer_threshold,
            item_threshold=self.session.item_threshold,
        )
        return buffers


class Engine(engine_app.IPEngine):
    """An engine application that redirects no output and lets a subclass handle signals.

    Attributes:
        kernel_type: The class of the engine's kernel.
    """

    kernel_type: ClassVar[type[Kernel]]

    def initialize(self, argv: Any = None) -> None:
        """Initialize the engine with a kernel of `kernel_type`."""
        engine_app.Kernel = self.kernel_type
        # Make kernels without a debugger, which is unreachable and which each kernel would import.
        # Cells can still import debugpy.
        if "debugpy" not in sys.modules:
            sys.modules["debugpy"] = None  # type: ignore[assignment]
            importlib.import_module("ipykernel.debugger")
            del sys.modules["debugpy"]
        super().initialize(argv)

    def handle_signals(self) -> None:
        """Install the signal handlers."""
        raise NotImplementedError

    def init_signal(self) -> None:
        """Install the signal handlers."""
        self.handle_signals()

    def redirect_output(self, iopub_socket: Any) -> None:
        """Redirect nothing, because the streams are already replaced."""


def adopt_engine(kernel_type: type[Kernel]) -> Kernel:
    """Change the class of the kernel of the engine in this process, and return the kernel.

    Raises:
        ClusterError: There is no engine in this process.
    """
    kernel = getattr(get_ipython(), "kernel", None)
    if not isinstance(kernel, IPythonParallelKernel):
        raise ClusterError("is no engine of ipyparallel's")
    # In place: its sockets are in use, and it is executing a call.
    kernel.__class__ = kernel_type
    adopted: Kernel = kernel
    return adopted


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

    Messages are signed although they are encrypted: without a key, each session would warn.

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
