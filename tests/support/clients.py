"""Two processes' clients and their referee, in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

from mcnb.lockstep.client import Client
from mcnb.lockstep.model import Launch
from mcnb.lockstep.source import Place

F, G, LONG = (Launch(f"jit({name})", name, (0, 1)) for name in ("f", "g", "long"))
LOCAL = Launch("jit(local)", "local", (0,))
# Only a thread that hangs takes so long, however busy the machine is.
HANG_S = 120


def learners_of(process: int) -> Callable[[FrameType], bool]:
    """Tell the two processes' threads apart, which run in one here."""

    def is_learners(frame: FrameType) -> bool:
        named = frame.f_code.co_name.startswith("learner")
        return named and frame.f_locals.get("process") == process

    return is_learners


class Learner:
    """A thread that launches something, and what came of it."""

    def __init__(self, client: Client, *launches: Launch, order: list[str] | None = None) -> None:
        self.made: list[str] = [] if order is None else order
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.learner_runs, args=(client, launches))
        self.thread.start()

    def learner_runs(self, client: Client, launches: tuple[Launch, ...]) -> None:
        process = client.process  # noqa: F841
        try:
            for launch in launches:
                client.make(launch, Place(1), partial(self.made.append, launch.name))
        except BaseException as error:
            self.error = error

    def joined(self) -> Learner:
        self.thread.join(HANG_S)
        assert not self.thread.is_alive()
        return self
