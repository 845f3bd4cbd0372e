"""Waits of JAX's coordination service that Ctrl-C can end."""

from __future__ import annotations

import functools
import threading
from concurrent.futures import Future
from typing import Any


class InterruptibleClient:
    """The coordination service's client, with waits that Ctrl-C ends.

    JAX's own waits in native code, where no signal reaches it. Here it waits in a thread that may
    be left behind; it ends when the service is shut down.
    """

    _WAITS = ("wait_at_barrier", "blocking_key_value_get", "blocking_key_value_get_bytes")

    def __init__(self, client: Any) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.client, name)
        if name not in self._WAITS:
            return attribute

        @functools.wraps(attribute)
        def wait(*args: Any, **kwargs: Any) -> Any:
            future: Future[Any] = Future()

            def run() -> None:
                try:
                    future.set_result(attribute(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)

            threading.Thread(target=run, name=f"mcnb {name}", daemon=True).start()
            return future.result()

        return wait
