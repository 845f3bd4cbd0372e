"""Call functions on engines, at a fraction of what a view of ipyparallel's costs.

A view serializes the arguments for each engine, wakes the client's thread for each, and waits for
each engine's last status. A cell that does nothing takes two thirds of the time without.

The module depends on these internals of ipyparallel's client: its stream for requests to engines,
the event loop of its thread, the engines' identities, the futures and metadata of its requests, and
the handlers of their replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from ipyparallel.serialize import PrePickled

__all__ = ["Answer", "apply_on_engines", "describe_unreadable", "unsendable"]


class Answer(Future[Any]):
    """The result of a function that an engine applies, which may not be there yet.

    ipyparallel's own `AsyncResult` also waits until the engine has published that it is idle.
    """

    _output: Any = None  # the client's future of the output; None until the request is sent

    @property
    def data(self) -> Mapping[str, Any]:
        """What the engine has published since it began with the function: the newest of each kind.

        What arrives after the result is lost.
        """
        data: Mapping[str, Any] = {} if self._output is None else self._output.metadata["data"]
        return data

    def follow(self, reply: Any) -> None:
        """Take over what arrives for a request; to be called in the client's thread.

        Args:
            reply: The client's future of the reply.
        """
        self._output = reply.output
        reply.add_done_callback(self._take)

    def _take(self, reply: Any) -> None:
        # No status follows the reply. The client would keep the request until then.
        if not reply.output.done():
            reply.output.set_result(None)
        result = reply.result()
        if isinstance(result, Exception):
            self.set_exception(result)
        else:
            self.set_result(result)


def describe_unreadable(client: Any, describe: Callable[[Exception], Any]) -> None:
    """Replace results that can't be read; else their requests would never be answered.

    Args:
        client: ipyparallel's client.
        describe: Returns the replacement, given what was raised while the result was read.
    """
    handle = client._queue_handlers["apply_reply"]

    def handle_any(message: Any) -> None:
        try:
            handle(message)
        except Exception as error:
            future = client._futures.get(message["parent_header"]["msg_id"])
            if future is None or future.done():
                raise
            future.set_result(describe(error))

    client._queue_handlers["apply_reply"] = handle_any


def apply_on_engines(
    client: Any, engines: Sequence[int], function: Callable[..., Any], args: Sequence[Any]
) -> list[Answer]:
    """Apply a function on engines, without waiting; the arguments are serialized only once.

    Args:
        client: ipyparallel's client.
        engines: The engines' ids.
        function: The function, which the engines' kernels have to execute themselves.
        args: The function's arguments.

    Returns:
        The answers, in the order of the engines. In the place of a result, there is an exception of
        ipyparallel's if the engine has ended, or could not apply the function.

    Raises:
        IndexError: There is no such engine.
        OSError: The client is closed.
    """
    if client._closed:
        raise OSError("the client is closed")
    missing = [engine for engine in engines if engine not in client._engines]
    if missing:
        raise IndexError(f"No such engine: {missing[0]}")
    identities = [client._engines[engine].encode() for engine in engines]
    packed, arguments = PrePickled(function), [PrePickled(argument) for argument in args]
    answers = [Answer() for _ in engines]

    def send() -> None:
        # What an engine publishes may arrive after its reply, and leaves an entry behind.
        for message in client.metadata.keys() - client._futures.keys():
            del client.metadata[message]
        for identity, answer in zip(identities, answers, strict=True):
            try:
                answer.follow(
                    client.send_apply_request(client._mux_stream, packed, arguments, ident=identity)
                )
            except Exception as error:
                answer.set_exception(error)

    # All requests in one step of the client's thread, which each of them would wake.
    client._io_loop.add_callback(send)
    return answers


def unsendable(value: Any) -> str:
    """Return why a value can't be sent to engines; empty if it can.

    Example:
        >>> unsendable([1, 2])
        ''
    """
    try:
        PrePickled(value)
    except Exception as error:
        return str(error) or type(error).__name__
    return ""
