"""Check and record the launches of a process's cells."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_stack
from types import FrameType
from typing import NamedTuple

from mcnb._text import cell_label, cell_name, place_name
from mcnb.errors import LockstepError
from mcnb.lockstep import _jax
from mcnb.lockstep.abort import callbacks
from mcnb.lockstep.checking import check_launches
from mcnb.lockstep.client import Client
from mcnb.lockstep.model import Caught, LaunchRecord
from mcnb.lockstep.source import Place, Places, is_script
from mcnb.lockstep.threads import current_frames
from mcnb.lockstep.trace import Trace, Tracer
from mcnb.lockstep.wire import Address
from mcnb.worker import signals
from mcnb.worker.cellcode import frame_line

ALONE = (
    "In the debugger a process runs alone: a computation that needs other processes can't run. "
    "This process's part of an array x: x.addressable_shards[0].data"
)


def _is_learners(filename: str) -> bool:
    return cell_label(filename) is not None or is_script(filename)


class Ended(NamedTuple):
    """What is known of a cell at its end, as a `Reply` has it."""

    launches: tuple[LaunchRecord, ...]
    busy: bool
    caught: tuple[Caught, ...]
    trace: Trace


class Session:
    """The connection of a process's cells to the lockstep client and the tracer.

    Attributes:
        client: The client that announces launches; None if they can't be checked.
        tracer: The tracer, which records what a cell does over time.
        newest_launch: The name and the line of the newest launch that may take long.
        newest_cell: The label of the cell that made that launch.
        command: Called in a thread of its own with the number of a halt at a breakpoint, and a
            command for the debugger.
    """

    def __init__(self) -> None:
        self.client: Client | None = None
        self._places = Places(_is_learners, place_name)
        self.tracer = Tracer(self._places)
        self._label = ""
        self._threads_before: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self.newest_launch = self.newest_cell = ""
        self.command: Callable[[int, str], None] = lambda *_: None
        self.ask: Callable[[int], None] = lambda _: None
        self._suspended = False

    @staticmethod
    def _is_news(record: logging.LogRecord) -> bool:
        """Return whether a callback failed for a reason other than an abort or an interrupt."""
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, (LockstepError, KeyboardInterrupt))

    def enter(
        self, referee: Address, process_index: int, gone: Callable[[], None] | None = None
    ) -> str:
        """Check the launches of this process from now on.

        Args:
            referee: The referee's address.
            process_index: This process's index.
            gone: Called when the referee is gone.

        Returns:
            Why launches are not checked; empty if they are.
        """
        import jax

        logging.getLogger(_jax.CALLBACK_LOGGER).addFilter(self._is_news)
        jax.monitoring.register_event_duration_secs_listener(self.tracer.compiled)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.client = check_launches(
                referee,
                process_index,
                self._places,
                gone,
                signals.deliver,
                self._note,
                command=lambda number, line: self.command(number, line),
                ask=lambda number: self.ask(number),
            )
        return "; ".join(str(warning.message) for warning in caught)

    def begin(
        self, number: int, label: str = "", *, checked: bool = True, values: bool | None = None
    ) -> None:
        """Begin a cell, and identify launches by their lines in it.

        Args:
            number: The number that the referee's server gave the cell.
            label: The cell's label; empty for code that is no cell.
            checked: Whether launches wait until all participants have reached them.
            values: Whether to compare the values of replicated arguments; see `Client`. Code that
                is no cell keeps what the cell before it had.
        """
        if label:
            self._places.cell, self._label = cell_name(label), label
            self._threads_before = weakref.WeakSet(threading.enumerate())
            self.tracer.begin()
        if self.client is not None:
            self.client.take_records()
            kept = values if label else self.client.values
            self.client.begin(number, holding=checked, values=kept)

    def end(self) -> Ended:
        """End the cell."""
        trace = self.tracer.end()
        if self.client is None:
            return Ended((), False, (), trace)
        busy = self.client.finish()
        return Ended(self.client.take_records(), busy, self.client.caught.recent, trace)

    def callbacks_run(self) -> bool:
        """Return whether callbacks of computations run the learner's code."""
        return bool(callbacks(self.runs_learners_code))

    def runs_learners_code(self, frame: FrameType) -> bool:
        """Return whether a frame runs the learner's code."""
        return self._places.runs(frame.f_code.co_filename)

    def _note(self, name: str, place: Place) -> None:
        if not self._suspended:
            where = place.name if place.line is None else f"In[{self._label}], line {place.line}"
            self.newest_launch = f"{name} ({where})" if where else name
            self.newest_cell = self._label

    def threads_of_the_cell(self) -> dict[int, int | None]:
        """Return the threads that the last cell started and that run the learner's code.

        An older thread, such as one of a pool, also counts if it runs code of the cell.

        Returns:
            The line of the cell that each thread runs, or None, by the thread's identifier.
        """
        found: dict[int, int | None] = {}
        before = {thread.ident for thread in self._threads_before}
        own = {threading.get_ident(), threading.main_thread().ident}
        with current_frames() as frames:
            for thread, frame in frames.items():
                if thread in own:
                    continue
                line = frame_line(frame, self._label)
                runs = any(self.runs_learners_code(outer) for outer, _ in walk_stack(frame))
                if line is not None or (runs and thread not in before):
                    found[thread] = line
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Refuse launches of this thread that need other processes, which are not making them."""
        thread = threading.get_ident()
        assert self.client is not None
        before = self.client.alone.get(thread)
        self.client.alone[thread] = LockstepError(ALONE)
        try:
            yield
        finally:
            if before is None:
                self.client.alone.pop(thread, None)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Let mcnb's own launches pass, unchecked and unrecorded."""
        self._suspended = True
        try:
            with self.client.suspended() if self.client else contextlib.nullcontext():
                yield
        finally:
            self._suspended = False
