"""Format the errors of cells, with tracebacks that begin at the learner's first line.

IPython's own formatter is not used: its excerpts of the source sometimes depend on the addresses of
objects, so that equal errors would differ; and it takes seconds for a deep stack.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from types import TracebackType

from mcnb._text import LIBRARY_PATH, cell_label, cell_name, plural
from mcnb.lockstep.threads import line_at
from mcnb.messages import ProcessError

CONTEXT_LINES = 2
MOST_FRAMES = 24
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# Gloo's errors contain the peer's port, which changes from run to run.
_PEER = re.compile(r"\[\d+\.\d+\.\d+\.\d+\]:\d+")
_RED, _GREEN, _END = "\x1b[31m", "\x1b[32m", "\x1b[39m"
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
    return ProcessError(
        name=type(error).__name__,
        message=_PEER.sub("[peer]", _ESCAPES.sub("", message)),
        line=cell_line(error, label),
        traceback=format_error(error),
        undefined=_undefined(error),
    )


def _undefined(error: BaseException) -> str:
    """Return the undefined global variable of a NameError; empty for other errors."""
    if type(error) is not NameError:  # an UnboundLocalError is about a local variable
        return ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    closed_over = frames[-1].f_code.co_freevars if frames else ()
    return "" if error.name in closed_over else str(error.name or "")


def cell_line(error: BaseException, label: str) -> int | None:
    """Return the innermost line of the cell with that label in an error's traceback."""
    if not label:
        return None
    name = cell_name(label)
    if isinstance(error, SyntaxError) and error.filename == name:
        return error.lineno
    found = None
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == name:
            found = _line(frame)
        frame = frame.tb_next
    return found


def format_error(error: BaseException) -> str:
    """Format an exception's traceback, with those of the exceptions that led to it.

    The traceback begins at the learner's first line, and omits frames of mcnb and frames that
    libraries hide.
    """
    parts: list[str] = []
    for reason, link in _chain(error):
        if reason:
            parts += ["", reason, ""]
        parts += [line for frames in _frames(learner_traceback(link)) for line in frames]
        parts += _exception_only(link)
    return "\n".join(parts)


def learner_traceback(error: BaseException) -> TracebackType | None:
    """Return the error's traceback from the first line of a cell on, without hidden frames.

    Returns:
        The traceback, or None if it contains no cell.
    """
    frames: list[TracebackType] = []
    frame = error.__traceback__
    while frame:
        # A cell with an empty label is mcnb's own.
        if frames or cell_label(frame.tb_frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.tb_next
    shown = None
    for frame in reversed(frames):
        module = str(frame.tb_frame.f_globals.get("__name__", ""))
        # JAX marks its inner frames with this variable, which pytest and IPython also use.
        hidden = frame.tb_frame.f_locals.get("__tracebackhide__", False)
        if not (hidden or module.partition(".")[0] == "mcnb"):
            shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, _line(frame))
    return shown


def _line(frame: TracebackType) -> int:
    return frame.tb_lineno or line_at(frame.tb_frame.f_code, frame.tb_lasti)


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


def _frames(shown: TracebackType | None) -> Iterator[list[str]]:
    places = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(shown)
    ]
    left_out = len(places) - MOST_FRAMES
    for number, (filename, line, function) in enumerate(places):
        if left_out <= 0 or not MOST_FRAMES // 2 <= number < len(places) - MOST_FRAMES // 2:
            yield _frame(filename, line, function)
        elif number == MOST_FRAMES // 2:
            yield [f"… {plural(left_out, 'frame is', 'frames are')} left out here …", ""]


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
    text = _PEER.sub("[peer]", text)
    name, colon, rest = LIBRARY_PATH.sub("", text).rstrip("\n").partition(":")
    return [*f"{_RED}{name}{_END}{colon}{rest}".split("\n")]
