"""Format the errors of cells, with tracebacks that begin at the learner's first line.

IPython's own formatter is not used: its excerpts of the source sometimes depend on the addresses of
objects, so that equal errors would differ; and it takes seconds for a deep stack.
"""

from __future__ import annotations

import builtins
import difflib
import linecache
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile, groupby
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import TypeAlias, TypeVar

from mcnb._text import LIBRARY_PATH, cell_label, cell_name, plural
from mcnb.lockstep.advice import advice_on
from mcnb.lockstep.threads import current_frames, line_at, line_of, stack_of
from mcnb.messages import LEFT_OUT, ProcessError
from mcnb.worker.cellcode import MAGIC_CALLS

_T = TypeVar("_T")
CONTEXT_LINES = 2
MOST_FRAMES = 24
# The longest text of an exception that is shown whole; of a longer one, the beginning and the end
# are. All in characters.
MOST_TEXT, HEAD, TAIL = 6000, 2000, 500
# How much alike two names are that may be meant for each other, from 0 to 1.
CLOSE = 0.75
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# Gloo's errors contain the peer's port, which changes from run to run.
_PEER = re.compile(r"\[\d+\.\d+\.\d+\.\d+\]:\d+")
# A set of devices, whose order changes from process to process.
_DEVICES = re.compile(r"\{(\w*Device\(id=\d+\)(?:, \w*Device\(id=\d+\))+)\}")
_NUMBER = re.compile(r"\d+")
# A traceback in the text of an error. XLA writes one of the stack where a callback failed, without
# lines of source.
_EMBEDDED = re.compile(r"(?<=Traceback \(most recent call last\):\n)(?:  File .+\n(?:    .*\n)*)+")
_ENTRY = re.compile(
    r"  File \"(?P<file>.+)\", line (?P<line>\d+), in (?P<function>.+)\n(?:    .*\n)*"
)
_INTERNAL = re.compile(rf"{re.escape(str(Path(__file__).parent.parent))}/|.*/jax/_src/")
_RED, _GREEN, _END = "\x1b[31m", "\x1b[32m", "\x1b[39m"
# A place on a stack: a key, the code, and the line.
_At: TypeAlias = tuple[object, CodeType, int]
_JAX = "jax"  # the key of JAX's own
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"


def describe_error(error: BaseException, label: str) -> ProcessError:
    """Describe an exception of a cell.

    Args:
        error: The exception.
        label: The label of the cell that the exception ended.
    """
    try:
        message = str(error)
    except Exception as failure:
        message = f"<its text can't be shown: str() raised {type(failure).__name__}>"
    undefined = _undefined(error)
    return ProcessError(
        name=type(error).__name__,
        message=_alike(_ESCAPES.sub("", message)),
        line=cell_line(error, label),
        traceback=format_error(error),
        undefined=undefined,
        close=_close_to(undefined, error) if undefined else "",
    )


def _alike(text: str) -> str:
    """Return the text of an error without what differs between processes by chance."""

    def in_order(found: re.Match[str]) -> str:
        devices = sorted(found[1].split(", "), key=lambda one: int(_NUMBER.findall(one)[-1]))
        return f"{{{', '.join(devices)}}}"

    text = _EMBEDDED.sub(_learner_entries, text)
    return _DEVICES.sub(in_order, _PEER.sub("[peer]", text))


def _learner_entries(found: re.Match[str]) -> str:
    """Return an embedded traceback from a cell on, without the files of mcnb and JAX."""
    entries = list(_ENTRY.finditer(found[0]))
    cells = [i for i, entry in enumerate(entries) if cell_label(entry["file"])]
    shown = [one for one in entries[min(cells, default=0) :] if not _INTERNAL.match(one["file"])]
    return "".join(_entry(one) for one in shown) or found[0]


def _entry(entry: re.Match[str]) -> str:
    if not (label := cell_label(entry["file"])):
        return entry[0]
    line = int(entry["line"])
    where = "" if entry["function"] == "<module>" else f", in {entry['function']}"
    code = linecache.getline(entry["file"], line).strip()
    return f"  Cell In[{label}], line {line}{where}\n" + (f"    {code}\n" if code else "")


def _undefined(error: BaseException) -> str:
    """Return the undefined global variable of a NameError; empty for other errors."""
    if type(error) is not NameError:  # an UnboundLocalError is about a local variable
        return ""
    entries = _entries(error)
    closed_over = entries[-1].tb_frame.f_code.co_freevars if entries else ()
    return "" if error.name in closed_over else str(error.name or "")


def _close_to(name: str, error: BaseException) -> str:
    """Return the name that is spelled most like one that is not defined; empty if none is close."""
    frame = _entries(error)[-1].tb_frame
    known = {*frame.f_locals, *frame.f_globals, *vars(builtins)}
    named = sorted(one for one in known if name.startswith("_") or not one.startswith("_"))
    return next(iter(difflib.get_close_matches(name, named, 1, CLOSE)), "")


def cell_line(error: BaseException, label: str) -> int | None:
    """Return the innermost line of the cell with that label in an error's traceback."""
    if not label:
        return None
    name = cell_name(label)
    if isinstance(error, SyntaxError) and error.filename == name:
        return error.lineno
    inside = [entry for entry in _entries(error) if entry.tb_frame.f_code.co_filename == name]
    return _line(inside[-1]) if inside else None


def format_error(error: BaseException) -> str:
    """Format an exception's traceback, with those of the exceptions that led to it.

    The traceback begins at the learner's first line, and omits frames of mcnb and frames that
    libraries hide. JAX's frames are only counted, unless JAX's own option `jax_traceback_filtering`
    is `"off"`. A hint follows if `mcnb.lockstep.advice` has one.
    """
    parts: list[str] = []
    for reason, link in _chain(error):
        if reason:
            parts += ["", reason, ""]
        parts += [*_frames(learner_entries(link)), *_exception_only(link)]
    if advice := advice_on(error):
        parts.append(f"Hint: {advice}")
    return "\n".join(parts)


def learner_entries(error: BaseException) -> list[TracebackType]:
    """Return the entries of a traceback from a cell on, without hidden frames.

    Between a magic of the cell and the code that it runs, the frames are IPython's own.
    """
    return _learners(_entries(error), lambda entry: entry.tb_frame)


def learner_frames(frames: Sequence[FrameType]) -> list[FrameType]:
    """Return the frames of a stack, from the outermost, as `learner_entries` of a traceback."""
    return _learners(list(frames), lambda frame: frame)


def _learners(stack: list[_T], frame_of: Callable[[_T], FrameType]) -> list[_T]:
    return [one for one in _from_cell(stack, frame_of) if not _is_hidden(frame_of(one))]


def _from_cell(stack: list[_T], frame_of: Callable[[_T], FrameType]) -> list[_T]:
    """Return a stack from a cell on, without what is between a magic and the code that it runs."""

    def is_before_cell(one: _T) -> bool:
        # A cell with an empty label is mcnb's own.
        return not cell_label(frame_of(one).f_code.co_filename)

    return _without_magics(list(dropwhile(is_before_cell, stack)), frame_of)


def _without_magics(stack: list[_T], frame_of: Callable[[_T], FrameType]) -> list[_T]:
    """Leave out what is between a magic of a cell and the code of the cell that it runs."""
    codes = [frame_of(one).f_code for one in stack]
    for number, code in enumerate(codes):
        if number and code in MAGIC_CALLS:
            cell = codes[number - 1].co_filename
            inside = next((i for i in range(number, len(codes)) if codes[i].co_filename == cell), 0)
            if inside:
                return stack[: number - 1] + _without_magics(stack[inside:], frame_of)
    return stack


def _is_hidden(frame: FrameType) -> bool:
    """Return whether a frame is mcnb's, or has the mark of JAX, pytest and IPython."""
    return bool(_is_own(frame) or frame.f_locals.get("__tracebackhide__"))


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "mcnb"


def _entries(error: BaseException) -> list[TracebackType]:
    entries = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    return entries


def _line(entry: TracebackType) -> int:
    return entry.tb_lineno or line_at(entry.tb_frame.f_code, entry.tb_lasti)


def _chain(error: BaseException) -> list[tuple[str, BaseException]]:
    """Return an exception and those that led to it, oldest first, each with its relation."""
    links: list[tuple[str, BaseException]] = []
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        before = link.__cause__
        if before is None and not link.__suppress_context__:
            before = link.__context__
        reason = _CAUSE if link.__cause__ is not None else _CONTEXT
        links.append((reason if before is not None and id(before) not in seen else "", link))
        link = before
    return links[::-1]


def main_thread_lines() -> tuple[str, ...]:
    """Return where the main thread is: the learner's functions on its stack, a line for each.

    To be called from another thread. JAX's frames are only counted, as in a traceback.
    """
    # Whoever holds a frame keeps its variables alive, and so do its local variables once they were
    # asked for; so marks in them, by which libraries hide frames, are not looked for.
    with current_frames() as frames:
        stack = stack_of(frames.get(threading.main_thread().ident or 0))[::-1]
        shown = [_at(one, line_of(one)) for one in _from_cell(stack, _same) if not _is_own(one)]
        del stack
    found = []
    for run in _runs(shown):
        key, code, line = run[0]
        if key == _JAX:
            found.append(_count_of_jax(run))
            continue
        label = cell_label(code.co_filename)
        name = LIBRARY_PATH.sub("", code.co_filename)
        where = f"{name}:{line}" if label is None else f"In[{label}], line {line}"
        function = "" if code.co_name == "<module>" else f", in {code.co_name}"
        source = linecache.getline(code.co_filename, line).strip()
        found.append(f"{where}{function}" + (f": {source}" if source else ""))
    return tuple(found)


def _same(frame: FrameType) -> FrameType:
    return frame


def _frames(shown: list[TracebackType]) -> Iterator[str]:
    runs = _runs([_at(entry.tb_frame, _line(entry)) for entry in shown])
    half = MOST_FRAMES // 2
    left_out = runs[half : len(runs) - half] if len(runs) > MOST_FRAMES else []
    for number, run in enumerate(runs):
        if not half <= number < half + len(left_out):
            key, code, line = run[0]
            if key == _JAX:
                yield from (_count_of_jax(run), "")
            else:
                yield from _frame(code.co_filename, line, code.co_name)
        elif number == half:
            count = sum(map(len, left_out))
            yield from (f"… {plural(count, 'frame is', 'frames are')} left out here …", "")


def _count_of_jax(run: list[_At]) -> str:
    return f"… {plural(len(run), 'frame', 'frames')} of JAX …"


def _runs(shown: list[_At]) -> list[list[_At]]:
    """Return places on a stack, those one after another together that are shown as one."""
    return [[*run] for _, run in groupby(shown, key=lambda one: one[0])]


def _at(frame: FrameType, line: int) -> _At:
    """Return a place on a stack, with a key that is equal for all that are shown as one."""
    of_jax = str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("jax", "jaxlib")
    return _JAX if of_jax and not _shows_jax() else id(frame), frame.f_code, line


def _shows_jax() -> bool:
    """Return whether the program has asked JAX for all frames of tracebacks."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return getattr(config, "jax_traceback_filtering", "") == "off"


def _frame(filename: str, line: int, function: str) -> list[str]:
    label = cell_label(filename)
    where = "" if function == "<module>" else f", in {function}"
    source = linecache.getlines(filename)
    if label is None:
        path = LIBRARY_PATH.sub("", filename)
        code = source[line - 1].strip() if 0 < line <= len(source) else ""
        return [f"File {_GREEN}{path}:{line}{_END}{where}", f"    {code}", ""]
    lines = [f"Cell {_GREEN}In[{label}], line {line}{_END}{where}"]
    first = max(line - CONTEXT_LINES, 1)
    while first < line and not "".join(source[first - 1 : first]).strip():
        first += 1
    for number in range(first, min(line + CONTEXT_LINES, len(source)) + 1):
        text = source[number - 1].rstrip("\n")
        if number == line:
            lines.append(f"{_GREEN}{'-' * (5 - len(str(number)))}> {number}{_END} {text}")
        elif text or number < line:
            lines.append(f"{number:>7} {text}")
    return [*(text.rstrip() for text in lines), ""]


def _exception_only(error: BaseException) -> list[str]:
    try:
        if isinstance(error, BaseExceptionGroup):
            described = traceback.TracebackException(type(error), error, None)
            described.__cause__ = described.__context__ = None  # already shown above
            text = "".join(described.format())
        else:
            text = "".join(traceback.format_exception_only(type(error), error))
    except Exception:  # its own __str__ or __notes__ may fail
        text = f"{type(error).__name__}: <its text can't be shown>"
    text = _shortened(_alike(text))
    name, colon, rest = LIBRARY_PATH.sub("", text).rstrip("\n").partition(":")
    return f"{_RED}{name}{_END}{colon}{rest}".split("\n")


def _shortened(text: str) -> str:
    """Return a text without its middle if it is very long; what a process sends has all of it."""
    if len(text) <= MOST_TEXT:
        return text
    return f"{text[:HEAD]}\n… {len(text) - HEAD - TAIL} {LEFT_OUT} …\n{text[-TAIL:]}"
