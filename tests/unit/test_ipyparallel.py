"""Calls on engines: what ipyparallel's client is given, and what it keeps."""

from __future__ import annotations

import operator
import pickle
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ipyparallel.client.client import Metadata
from ipyparallel.client.futures import MessageFuture
from ipyparallel.serialize import pack_apply_message, unpack_apply_message

from mcnb._ipyparallel.calls import apply_on_engines
from mcnb._ipyparallel.engine import Kernel


class Client:
    """ipyparallel's client of three engines, whose thread runs when it is asked to."""

    def __init__(self) -> None:
        self._engines = {0: "zero", 5: "five", 7: "seven"}
        self._mux_stream = object()
        self._io_loop = SimpleNamespace(add_callback=lambda step: self.steps.append(step))
        self._futures: dict[str, Any] = {}
        self.metadata: dict[str, Metadata] = defaultdict(Metadata)
        self.steps: list[Callable[[], object]] = []
        self.sent: list[tuple[bytes, list[Any]]] = []
        self._closed = False

    def send_apply_request(self, stream: object, f: Any, args: Any, *, ident: bytes) -> Any:
        if self._closed:
            raise RuntimeError("closed")
        assert stream is self._mux_stream
        self.sent.append((ident, pack_apply_message(f, args, {})))
        name = ident.decode()
        future = self._futures[name] = MessageFuture(name)
        future.output = MessageFuture(name)
        future.output.metadata = self.metadata[name]
        return future

    def run(self) -> None:
        """Let the client's thread do what waits for it."""
        while self.steps:
            self.steps.pop(0)()


def test_all_engines_are_sent_the_same_at_once() -> None:
    client = Client()
    array = np.arange(3)
    answers = apply_on_engines(client, [7, 0], operator.add, (array, "x"))
    assert len(client.steps) == 1
    assert client.sent == []
    assert [answer.data for answer in answers] == [{}, {}]
    client.run()
    assert [ident for ident, _ in client.sent] == [b"seven", b"zero"]
    first, second = (buffers for _, buffers in client.sent)
    assert all(one is other for one, other in zip(first[2:], second[2:], strict=True))
    function, (sent, word), keywords = unpack_apply_message(first)
    assert (function, word, keywords) == (operator.add, "x", {})
    np.testing.assert_array_equal(sent, array)


def test_an_answer_is_what_the_engine_returns_or_raises() -> None:
    client = Client()
    told: list[Any] = []
    good, bad = apply_on_engines(client, [0, 5], operator.neg, (1,))
    for answer in (good, bad):
        answer.add_done_callback(told.append)
    client.run()
    client.metadata["zero"]["data"]["progress"] = 3
    assert (good.data, bad.data) == ({"progress": 3}, {})
    assert not good.done()
    client._futures["zero"].set_result(-1)
    client._futures["five"].set_result(ZeroDivisionError("here"))  # as ipyparallel has it
    assert told == [good, bad]
    assert good.result() == -1
    with pytest.raises(ZeroDivisionError, match=r"^here$"):
        bad.result()
    # The client need not keep them until a status comes.
    assert all(client._futures[name].output.done() for name in ("zero", "five"))


def test_a_status_that_comes_first_is_no_harm() -> None:
    client = Client()
    [answer] = apply_on_engines(client, [0], operator.neg, (1,))
    client.run()
    client._futures["zero"].output.set_result(None)
    assert not answer.done()
    client._futures["zero"].set_result(-1)
    assert answer.result() == -1


def test_data_that_comes_after_its_reply_is_forgotten() -> None:
    client = Client()
    apply_on_engines(client, [0], operator.neg, (1,))
    client.run()
    client.metadata["late"]["data"]["progress"] = 3
    apply_on_engines(client, [5], operator.neg, (1,))
    client.run()
    assert client.metadata.keys() == {"zero", "five"}


def test_a_request_that_can_not_be_sent_fails() -> None:
    client = Client()
    with pytest.raises(IndexError, match=r"^No such engine: 3$"):
        apply_on_engines(client, [0, 3], operator.neg, (1,))
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        apply_on_engines(client, [0], operator.neg, ((k for k in "ab"),))
    assert client.steps == []
    answers = apply_on_engines(client, [0, 5], operator.neg, (1,))
    client._closed = True
    client.run()
    for answer in answers:
        with pytest.raises(RuntimeError, match=r"^closed$"):
            answer.result()
    with pytest.raises(OSError, match=r"^the client is closed$"):
        apply_on_engines(client, [0], operator.neg, (1,))


class Current(Kernel):
    """A kernel that is at one message."""

    def get_parent(self, channel: Any = None) -> Any:
        del channel
        return {"header": {"msg_id": "current"}}


def test_only_calls_that_a_kernel_executes_itself_have_no_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published: list[Any] = []
    monkeypatch.setattr(
        "ipykernel.kernelbase.Kernel._publish_status",
        lambda self, status, channel, parent=None: published.append((status, channel)),
    )
    kernel = object.__new__(Current)
    kernel._publish_status("busy", "shell")
    kernel._publish_status("idle", "shell")
    assert published == [("idle", "shell")]
    kernel._answered = "current"
    kernel._publish_status("idle", "shell")
    assert len(published) == 1
    kernel._publish_status("idle", "control")
    kernel._answered = "an earlier one"
    kernel._publish_status("idle", "shell")
    assert published == [("idle", "shell"), ("idle", "control"), ("idle", "shell")]
