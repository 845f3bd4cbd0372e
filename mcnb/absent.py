"""What to run first, where a cell uses a name that its processes do not know."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from mcnb.messages import ProcessError

_MESSAGE = re.compile(r"name '(\w+)' is not defined")


def missing_name(errors: Mapping[int, ProcessError], count: int, notebook: Container[str]) -> str:
    """Return what to do where all processes lack the same name; empty where that is not so.

    Args:
        errors: The errors that ended the cell, by process index.
        count: How many processes ran it.
        notebook: The names that the notebook's own Python knows.

    Example:
        >>> error = ProcessError("NameError", "name 'jnp' is not defined", 2, "")
        >>> missing_name({0: error, 1: error}, 2, {})
        'Hint: run the cell first that defines jnp'
    """
    found = {
        match[1] if error.name == "NameError" and (match := _MESSAGE.match(error.message)) else ""
        for error in errors.values()
    }
    if len(errors) < count or len(found) != 1 or "" in found:
        return ""
    (name,) = found
    if name in notebook:
        return (
            f"Hint: {name} is defined in the notebook's own Python, which is none of the "
            f"processes. Define it in a cell that begins with %%mcjax"
        )
    return f"Hint: run the cell first that defines {name}"
