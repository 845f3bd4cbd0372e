"""Whether a launch of native code is about to be made, from the frames of its thread."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from types import FrameType

from mcnb.lockstep.ordering import Passage, is_called_by


def module(name: str) -> types.ModuleType:
    """Return a module with a function that calls another one."""
    made = types.ModuleType(name)
    exec("def calls(f):\n    return f()\n", made.__dict__)
    return made


def passage_of(frame: FrameType) -> Passage:
    code = frame.f_code
    return Passage(0, 0, None, id(frame), code, frame.f_lasti)


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
