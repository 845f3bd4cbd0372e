"""Engines that execute some calls themselves, redirect no output, and leave signals to a subclass.

The module depends on these internals of ipyparallel's engine: the kernel class that `IPEngine`
instantiates, whether kernels have a debugger, the redirection of output, the signal handlers, the
warning that there is no encryption, and how a kernel applies functions and publishes its status.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any, ClassVar

import ipyparallel.engine.app as engine_app
from ipyparallel.engine.datapub import publish_data
from ipyparallel.engine.kernel import IPythonParallelKernel
from ipyparallel.serialize import deserialize_object, serialize_object, unpack_apply_message
from IPython.core.getipython import get_ipython

from mcnb.errors import ClusterError

__all__ = ["Engine", "Kernel", "adopt_engine", "publish_data"]


class Kernel(IPythonParallelKernel):
    """An engine's kernel that executes some calls itself, without a trace in the namespace."""

    # The id of the newest message whose call the kernel has executed itself.
    _answered = ""

    def answers(self, function: Any) -> bool:
        """Return whether this kernel executes a call of that function itself."""
        raise NotImplementedError

    def answer(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Execute a call that `answers` accepts, and return its result."""
        raise NotImplementedError

    def describe(self, error: BaseException) -> Any:
        """Return a replacement for a result that is missing."""
        raise NotImplementedError

    def describe_unsendable(self, error: BaseException) -> Any:
        """Return a replacement for a result that can't be sent."""
        raise NotImplementedError

    def describe_unreadable(self, error: Exception) -> Any:
        """Return a replacement for a result, if the arguments of a call can't be read."""
        raise NotImplementedError

    def pre_handler_hook(self) -> None:
        """Leave SIGINT to the engine's own handler, which decides where it is raised."""

    def post_handler_hook(self) -> None:
        """Leave SIGINT to the engine's own handler."""

    def _publish_status(self, status: str, channel: str, *args: Any, **kwargs: Any) -> None:
        """Publish that the kernel is idle, if a client may wait for it, but not that it is busy."""
        if status == "busy":
            return
        if channel == "shell" and self._answered:
            of = self.get_parent("shell").get("header", {}).get("msg_id")
            if of == self._answered:
                return
        super()._publish_status(status, channel, *args, **kwargs)

    def do_apply(
        self, content: Any, bufs: Any, msg_id: str, reply_metadata: Any
    ) -> tuple[dict[str, Any], list[Any]]:
        """Apply a function, or execute a call that `answers` accepts."""
        function, _ = deserialize_object(list(bufs), self.shell.user_ns)
        if not self.answers(function):
            reply: tuple[dict[str, Any], list[Any]] = super().do_apply(
                content, bufs, msg_id, reply_metadata
            )
            return reply
        self._answered = msg_id
        reply_metadata.pop("started", None)  # a date that the client would have to parse
        try:
            # Without this, a call whose arguments can't be read would never be answered.
            _, args, kwargs = unpack_apply_message(bufs, self.shell.user_ns, copy=False)
        except Exception as error:
            return {"status": "ok"}, self._serialize(self.describe_unreadable(error))
        try:
            answer = self.answer(function, args, kwargs)
        except (Exception, KeyboardInterrupt) as error:
            answer = self.describe(error)
        try:
            return {"status": "ok"}, self._serialize(answer)
        except (Exception, KeyboardInterrupt) as error:
            return {"status": "ok"}, self._serialize(self.describe_unsendable(error))

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

    def load_connection_file(self) -> None:
        """Load the connection file; without encryption, the sockets are in a private folder."""
        self.log.addFilter(_has_another_subject)
        try:
            super().load_connection_file()
        finally:
            self.log.removeFilter(_has_another_subject)

    def handle_signals(self) -> None:
        """Install the signal handlers."""
        raise NotImplementedError

    def init_signal(self) -> None:
        """Install the signal handlers."""
        self.handle_signals()

    def redirect_output(self, iopub_socket: Any) -> None:
        """Redirect nothing, because the streams are already replaced."""


def _has_another_subject(record: logging.LogRecord) -> bool:
    """Return whether a message does not concern encryption."""
    return "CurveZMQ" not in str(record.msg)


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
