"""Take out of a text what differs between processes by chance."""

from __future__ import annotations

import ast
import re

# As in "<function step at 0x7f1b2c3d4e5f>". Other hexadecimal numbers may mean something.
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]{6,16}(?=>)")
# "This BatchTracer with object id 139908830018048 was created on line:", in errors of JAX.
_TRACER = re.compile(r"(?<=Tracer with object id )\d+")
_SET = re.compile(r"\{[^{}:\n]{1,2000}\}")


def comparable(text: str) -> str:
    """Return a text without what differs between processes by chance.

    That is the address in the text of an object, the number of a tracer in JAX's errors, and the
    order in which a set is printed.

    Example:
        >>> comparable("<Model object at 0x7f1b2c3d4e5f>"), comparable("{'b', 'a'} {'b': 'a'}")
        ('<Model object at 0x>', "{'a', 'b'} {'b': 'a'}")
    """
    if " at 0x" in text:
        text = _ADDRESS.sub("0x", text)
    if "Tracer with object id " in text:
        text = _TRACER.sub("", text)
    return _SET.sub(_in_order, text) if "{" in text else text


def _in_order(found: re.Match[str]) -> str:
    try:
        value = ast.literal_eval(found[0])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return found[0]
    return f"{{{', '.join(sorted(map(repr, value)))}}}" if isinstance(value, set) else found[0]
