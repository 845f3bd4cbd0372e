"""Check this process's launches, by hooks in JAX that ask the lockstep client."""

from __future__ import annotations

import atexit
import contextlib
import functools
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mcnb._text import error_line
from mcnb.errors import LockstepError
from mcnb.lockstep import _jax, multihost, programs
from mcnb.lockstep.abort import abort
from mcnb.lockstep.around import Spot, along, conditions_of, span_at
from mcnb.lockstep.callee import called_by, words_of_arguments
from mcnb.lockstep.caught import CaughtExceptions
from mcnb.lockstep.client import Client
from mcnb.lockstep.independent import depends
from mcnb.lockstep.model import Detail, Launch, Origin
from mcnb.lockstep.origins import origin_inside, origin_of_options, origins_of
from mcnb.lockstep.source import WRAPPERS, Place, Places, is_of_jax
from mcnb.lockstep.threads import line_of, raise_after_call
from mcnb.lockstep.values import Replicas
from mcnb.lockstep.variables import variables_at
from mcnb.lockstep.wire import Address

# The delay of an interrupt that arrived while a launch was on its way.
INTERRUPT_AFTER_S = 0.01
# How the names of mcnb's own files begin.
_OWN = f"{Path(__file__).parents[1]}/"


def check_launches(
    address: Address,
    process: int,
    places: Places,
    gone: Callable[[], None] | None = None,
    interrupt: Callable[[int, int], None] = lambda *_: None,
    note: Callable[[str, Place], None] | None = None,
    values: bool | None = None,
    command: Callable[[int, str], None] = lambda *_: None,
    ask: Callable[[int], None] = lambda _: None,
) -> Client | None:
    """Check this process's launches.

    Args:
        address: The referee's address.
        process: This process's index.
        places: Finds the learner's lines.
        gone: Called when the referee is gone, even if launches can't be checked.
        interrupt: Called in the client's own thread, with the number of the cell to interrupt and
            the number of its interrupts so far.
        note: Called with the name and the place of each launch that may take long, including
            launches on devices of this process alone.
        values: Whether to compare the values of replicated arguments; see `Client`.
        command: Called in the client's own thread with commands for a debugger; see `Client`.
        ask: Called in the client's own thread with questions where the process is; see `Client`.

    Returns:
        The client; None, with a warning, if this version of JAX can't be checked.

    Raises:
        OSError: The referee can't be reached.
    """

    def runs(frame: FrameType) -> bool:
        return places.runs(frame.f_code.co_filename)

    def abort_here(ports: list[int]) -> None:
        abort(ports, runs)

    caught = CaughtExceptions()
    client = Client(
        address,
        process,
        runs,
        places.lines,
        functools.partial(_detail, places),
        abort_here,
        gone or (lambda: None),
        interrupt,
        values,
        _jax.launch_from_python,
        caught,
        command,
        ask,
    )
    caught.watch(places.runs, places.name)

    def locate(name: str, caller: FrameType) -> tuple[Place, CodeType | None]:
        place, called = places.find(caller)
        if note is not None:
            note(_known_as(name, called), place)
        return place, called

    # Launches that nothing waits for, by name, program and place, with the cause of each.
    explained: dict[tuple[str, str, str, int], Launch] = {}

    def with_cause(launch: Launch, place: Place, frame: FrameType) -> Launch:
        """Return a launch; with its cause, searched the first time, if nothing waits for it."""
        if launch.communicates:
            return launch
        key = launch.name, launch.program, place.filename, place.file_line
        if key not in explained:  # JAX has just compiled it
            cause = _cause(places, place, frame) if len(launch.processes) > 1 else ""
            explained[key] = replace(launch, cause=cause) if cause else launch
        return explained[key]

    def make_launch(launch: Launch, make: Callable[[], Any], replicas: Replicas) -> Any:
        # Skips the frames of the hook and of this function.
        frame = sys._getframe(1)
        place, called = locate(launch.name, sys._getframe(2))

        def names() -> Sequence[str]:
            return _names(places, place, frame)

        launch = with_cause(_as_called(launch, called, frame), place, frame)
        return client.make(launch, place, make, replicas, names=names)

    def before_launch(launch: Launch, caller: FrameType) -> None:
        place, called = locate(launch.name, caller)
        launch = with_cause(_as_called(launch, called, caller), place, caller)
        passage = client.arrive(launch, place, caller)
        if passage is None or passage.interrupt is None:
            return
        # The other participants go ahead: without this launch, they would wait for ever.
        if isinstance(passage.interrupt, KeyboardInterrupt):
            threading.Timer(INTERRUPT_AFTER_S, signal.raise_signal, (signal.SIGINT,)).start()
        else:
            raise_after_call(caller, passage.interrupt)

    def meet(launch: Launch, limit_s: float, reach: Callable[[float], Any]) -> Any:
        place, _ = places.find(sys._getframe(2))
        if note is not None:
            note(launch.name, place)
        until = time.monotonic() + limit_s
        return client.make(launch, place, lambda: reach(until), until=until)

    try:
        _jax.install(
            make_launch, before_launch, programs.describe, note and locate, meet, programs.recall
        )
    except _jax.UnsupportedJaxError as error:
        if gone is None:
            client.close()
        warnings.warn(
            f"mcnb does not support the internals of this version of JAX ({error}): launches are "
            f"not checked, so processes that diverge hang. Supported versions: 0.8 to 0.12",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    if values:
        _jax.launch_from_python(True)
    # Called before JAX's exit handlers, which wait for processes that may wait for this one.
    atexit.register(client.close)
    return client


@functools.lru_cache(maxsize=4096)
def _named(launch: Launch, called: CodeType | None) -> Launch:
    """Return a launch under the name of the function that the learner or a library called.

    JAX compiles functions of its own under internal names.
    """
    internal = launch.name.startswith("jit(_")
    return replace(launch, name=_known_as(launch.name, called)) if internal else launch


def _as_called(launch: Launch, called: CodeType | None, frame: FrameType) -> Launch:
    """Return a launch as the caller of JAX's function knows it: its name, and what was passed."""
    launch = _named(launch, called)
    if multihost.synchronizes(called):
        return replace(launch, label=multihost.barrier_name(frame))
    return multihost.as_passed(launch, frame)


def _known_as(name: str, called: CodeType | None) -> str:
    """Return the name of the JAX function that was called, or else that of the computation."""
    return called.co_name if called and programs.is_public(called.co_name) else name


def _detail(
    places: Places,
    place: Place,
    frame: FrameType | None,
    handled: BaseException | None,
    earlier: Place,
) -> Detail:
    call = programs.call_under_way(frame)
    program = () if call.execute is None else programs.lines_of(call.execute)
    spots, below = _spots(places, place, frame)
    own = next((i for i, spot in enumerate(spots) if spot.is_at(place)), 0)
    detail = along(spots, places.name, own) if spots else Detail()
    handling = _handling(places, handled)
    libraries = [code for code in below if places.in_library(code.co_filename)]
    parameters = () if _is_within(below) else call.parameters
    before = conditions_of(earlier, places.name)
    origins = origins_of(spots, parameters, places.name)
    names, passed = call.names, _passed(call, spots, below)
    if (exchange := multihost.exchange_at(frame)) is not None:
        names, passed = _of_exchange(exchange, call, spots, below), {}
    elif call.of_jax:
        names = tuple(_in_words(names, passed))
        origins = {passed.get(parameter, parameter): one for parameter, one in origins.items()}
        passed = {words: words for words in passed.values()}
    return replace(
        detail,
        static=call.static,
        names=names,
        passed=passed,
        program=program,
        handling=handling,
        before=before,
        variables=variables_at(spots, places.name),
        library=called_by(spots[0].frame if spots else None, libraries),
        origins=origins,
        inside=None if call.of_jax else _origin_of_program(call, spots, below, places),
        ended=place.ended,
    )


def _names(places: Places, place: Place, frame: FrameType | None) -> Sequence[str]:
    """Return the names of a launch's arguments, in the learner's words where JAX has its own."""
    call = programs.call_under_way(frame)
    if not call.of_jax:
        return call.names
    spots, below = _spots(places, place, frame)
    return _in_words(call.names, _passed(call, spots, below), "argument ")


def _origin_of_program(
    call: programs.Call, spots: Sequence[Spot], below: Sequence[CodeType], places: Places
) -> Origin | None:
    """Return where the program that is launched begins to differ, apart from its arguments."""
    inside = origin_inside(call.function, places.name)
    return inside if inside or _is_within(below) else origin_of_options(spots, places.name)


def _cause(places: Places, place: Place, frame: FrameType) -> str:
    """Return where the program that is launched begins to differ, as a sentence, or nothing."""
    with contextlib.suppress(Exception):  # of any kind: a hint is not worth a launch
        call = programs.call_under_way(frame)
        spots, below = _spots(places, place, frame)
        if call.of_jax:
            return ""
        origin = _origin_of_program(call, spots, below, places)
        if origin is None and not _is_within(below):
            origins = origins_of(spots, call.parameters, places.name)
            origin = next((origins[name] for name in call.static or () if name in origins), None)
        return "" if origin is None else depends(origin)
    return ""


def _passed(
    call: programs.Call, spots: Sequence[Spot], below: Sequence[CodeType]
) -> dict[str, str]:
    """Return the learner's expressions for the arguments of a call, by parameter."""
    own = spots[0].frame if spots else None
    return words_of_arguments(own, call.given, direct=not _is_within(below))


def _of_exchange(
    exchange: multihost.Exchange,
    call: programs.Call,
    spots: Sequence[Spot],
    below: Sequence[CodeType],
) -> tuple[str, ...]:
    """Return the names of the arrays that are exchanged; empty for one that has none."""
    own = spots[0].frame if spots else None
    direct = all(is_of_jax(code.co_filename) for code in below)
    words = words_of_arguments(own, {"": exchange.given}, direct=direct).get("", "")
    if exchange.array is not None:
        path = exchange.path()
        return (f"{words}{path}" if words and path is not None else "",)
    return tuple(f"{words}{name[len(_parameter(name)) :]}" for name in call.names) or ("",)


def _parameter(name: str) -> str:
    """Return the parameter of which an argument, by its name, is a part."""
    return re.split(r"[.\[]", name)[0]


def _in_words(names: Sequence[str], words: Mapping[str, str], otherwise: str = "") -> list[str]:
    """Return the names of arguments, with the learner's words in place of the parameters."""
    found = []
    for name in names:
        parameter = _parameter(name)
        rest = name[len(parameter) :]
        found.append(f"{words.get(parameter, otherwise + parameter)}{rest}")
    return found


def _spots(
    places: Places, place: Place, frame: FrameType | None
) -> tuple[list[Spot], list[CodeType]]:
    """Return the learner's lines on a stack, from the innermost; without one, that of the place.

    Also return the functions of libraries that the innermost one calls, from the innermost.
    """
    spots: list[Spot] = []
    between: list[CodeType] = []
    below: list[CodeType] = []
    while frame is not None:
        code = frame.f_code
        if places.runs(code.co_filename):
            direct = not between if spots else programs.launches_once(between)
            if not spots:
                below = [*between]
            span = span_at(code, frame.f_lasti)
            spots.append(Spot(code.co_filename, line_of(frame), frame, direct, span))
            between.clear()
            if code.co_filename == places.cell and code.co_name == "<module>":
                break
        elif not code.co_filename.startswith(_OWN):  # mcnb does the same on all processes
            between.append(code)
        frame = frame.f_back
    if not any(spot.is_at(place) for spot in spots):
        spots = [Spot(place.filename, place.file_line, direct=False)] if place.filename else []
        return spots, []
    return spots, below


def _is_within(below: Sequence[CodeType]) -> bool:
    """Return whether a function of a library, JAX included, calls the compiled function."""
    outer = [code.co_name for code in below if code.co_name not in WRAPPERS]
    return not outer or outer[-1] != programs.COMPILED_CALL


def _handling(places: Places, handled: BaseException | None) -> str:
    """Return the innermost exception that the learner's code handles; empty if it handles none.

    Libraries, JAX among them, handle exceptions of their own while they call other code.
    """
    while handled is not None:
        trace = [
            (frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(handled.__traceback__)
        ]
        if trace and places.runs(trace[0][0]) and not isinstance(handled, LockstepError):
            where = places.name(*[at for at in trace if places.runs(at[0])][-1])
            return f"{error_line(handled)} ({where})"
        handled = handled.__context__
    return ""
