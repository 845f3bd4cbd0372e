"""Take out of a text what differs between processes by chance."""

from __future__ import annotations

import ast
import re

from mcnb.output.bars import plain, without_pace

# As in "<function step at 0x7f1b2c3d4e5f>". Other hexadecimal numbers may mean something.
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]{6,16}(?=>)")
# "This BatchTracer with object id 139908830018048 was created on line:", in errors of JAX.
_TRACER = re.compile(r"(?<=Tracer with object id )\d+")
_SET = re.compile(r"\{[^{}:\n]{1,2000}\}")

_TIME = r"\d\d:\d\d:\d\d"
# The time, and the number of the process or thread, in logs of XLA and of Python packages that use
# absl: "W1127 13:04:50.117942     839 bfc_allocator.cc:598] ..." (in C++ also without a thread,
# "2026-11-27 13:04:50.117942: W bfc_allocator.cc:598] ...").
_ABSL = re.compile(
    rf"^(?:([IWEF])\d{{4}} {_TIME}\.\d{{6}} +\d+|\d{{4}}-\d\d-\d\d {_TIME}\.\d{{6}}: ([IWEF])) "
    r"(?=[^\s:]+:\d+\] )",
    re.MULTILINE,
)
# "DEBUG:2026-11-27 13:04:50,117:jax._src.xla_bridge:590: Initializing backend 'cpu'"
_JAX = re.compile(rf"^([A-Z]+:)\d{{4}}-\d\d-\d\d {_TIME},\d{{3}}(?=:jax\.)", re.MULTILINE)


def comparable(text: str) -> str:
    """Return a text without what differs between processes by chance.

    That is the address in the text of an object, the number of a tracer in JAX's errors, the order
    in which a set is printed, the times and thread numbers in the logs of XLA, JAX and absl, and
    the pace of a progress bar, with what the bar has overwritten.

    Example:
        >>> comparable("<Model object at 0x7f1b2c3d4e5f>"), comparable("{'b', 'a'} {'b': 'a'}")
        ('<Model object at 0x>', "{'a', 'b'} {'b': 'a'}")
        >>> comparable("W1127 13:04:50.117942     839 bfc_allocator.cc:598] Out of memory")
        'W bfc_allocator.cc:598] Out of memory'
    """
    if "\r" in text:
        text = without_pace(plain(text))
    if " at 0x" in text:
        text = _ADDRESS.sub("0x", text)
    if "Tracer with object id " in text:
        text = _TRACER.sub("", text)
    if "] " in text:
        text = _ABSL.sub(lambda found: f"{found[1] or found[2]} ", text)
    if ":jax." in text:
        text = _JAX.sub(r"\1", text)
    return _SET.sub(_in_order, text) if "{" in text else text


def _in_order(found: re.Match[str]) -> str:
    try:
        value = ast.literal_eval(found[0])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return found[0]
    return f"{{{', '.join(sorted(map(repr, value)))}}}" if isinstance(value, set) else found[0]
