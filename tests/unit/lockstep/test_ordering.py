"""Whether a launch of native code is about to be made, from the frames of its thread."""

from __future__ import annotations

import sys
import threading
import time
import types
from dataclasses import replace
from types import FrameType

import pytest

from mcnb.lockstep import ordering
from mcnb.lockstep.ordering import Ordering, Passage, is_called_by
from mcnb.lockstep.threads import current_frames
from tests.conftest import wait_until
from tests.support.clients import HANG_S, F, G


def module(name: str) -> types.ModuleType:
    """Return a module with a function that calls another one."""
    made = types.ModuleType(name)
    exec("def calls(f):\n    return f()\n", made.__dict__)
    return made


def passage_of(frame: FrameType) -> Passage:
    code = frame.f_code
    return Passage(F, 0, 0, None, id(frame), code, frame.f_lasti)


def test_a_launch_is_about_to_be_made_while_mcnb_is_called() -> None:
    hook, library = module("mcnb.lockstep.hook"), module("library")

    def asks(through: types.ModuleType) -> tuple[bool, bool]:
        """Ask in a handler, below the line that calls mcnb, or a library."""

        def handler() -> tuple[bool, bool]:
            passage = passage_of(sys._getframe(2))
            # What comes later may have the frame's id and be at the same instruction.
            other = replace(passage, code=handler.__code__)
            return is_called_by(passage), is_called_by(other)

        found: tuple[bool, bool] = through.calls(handler)
        return found

    assert asks(hook) == (True, False)
    assert asks(library) == (False, False)


def test_a_launch_is_over_when_its_frame_goes_on() -> None:
    frame = sys._getframe()
    passage = passage_of(frame)
    assert not passage.is_made_from(frame)  # one instruction later
    at = replace(passage, instruction=frame.f_lasti)
    assert not at.is_made_from(frame)


def at_rest() -> FrameType:
    """Return the frame of a function that waits at a yield."""
    waiting = (one for one in [1, 2])
    next(waiting)
    frame: FrameType = waiting.gi_frame
    _kept.append(waiting)
    return frame


_kept: list[object] = []


def test_the_code_tells_a_frame_from_a_later_one_with_its_id() -> None:
    frame = at_rest()
    passage = passage_of(frame)
    assert passage.is_made_from(frame)
    assert not replace(passage, code=at_rest.__code__).is_made_from(frame)
    assert not replace(passage, instruction=passage.instruction + 2).is_made_from(frame)
    assert not replace(passage, caller=passage.caller + 1).is_made_from(frame)


def test_a_first_call_does_not_wait_for_the_next_one_of_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread has made its launch; JAX holds back its next call, from the same instruction."""
    monkeypatch.setattr(ordering, "HELD_BACK_S", 0.0)
    held = threading.Lock()
    held.acquire()
    thread = threading.Thread(target=lambda: held.acquire())
    thread.start()
    ident = thread.ident or 0

    def waits() -> FrameType | None:
        with current_frames() as frames:
            frame = frames.get(ident)
            return frame if frame is not None and frame.f_code.co_name == "<lambda>" else None

    assert wait_until(waits)
    frame = waits()
    assert frame is not None
    turns, ended = Ordering(), threading.Event()
    code = frame.f_code
    native = Passage(F, ident, 0, None, id(frame), code, frame.f_lasti)
    turns.take(native)
    assert not native.over()
    turns.take(Passage(F, 1, 1, None, 0, None, 0))
    # The launch of another function waits until it is certain that the first one was made.
    turns.end(replace(native, done=True))
    turns._current = native
    other = threading.Thread(
        target=lambda: (turns.take(Passage(G, 2, 2, None, 0, None, 0)), ended.set())
    )
    other.start()
    assert not ended.wait(0.2)
    held.release()
    assert ended.wait(HANG_S)
    thread.join(HANG_S)
    other.join(HANG_S)


def test_how_long_a_first_call_waits() -> None:
    frame = at_rest()
    native = replace(passage_of(frame), taken=time.monotonic())
    first = Passage(F, 1, 1, None, 0, None, 0)
    other = replace(first, launch=replace(F, program="of another shape"))
    assert not native.held_back_by(first)
    waits = replace(native, taken=native.taken - 2 * ordering.HELD_BACK_S)
    assert waits.held_back_by(first)
    assert not waits.held_back_by(other)
    long = replace(native, taken=native.taken - 2 * ordering.ANOTHER_S)
    assert long.held_back_by(other)
    assert not long.held_back_by(replace(first, launch=G))
    assert not long.held_back_by(replace(first, caller=1))
    assert not replace(long, caller=0).held_back_by(first)
