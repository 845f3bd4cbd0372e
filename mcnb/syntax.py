"""Syntax errors, found in the notebook: no process has to be asked for them."""

from __future__ import annotations

import ast

from mcnb.messages import ProcessError
from mcnb.process.cellcode import leading_blank_lines


def syntax_error(source: str, label: str, first_line: int) -> ProcessError | None:
    r"""Return the cell's syntax error, if it has one.

    Args:
        source: The cell's code.
        label: What stands in the notebook's prompt for it.
        first_line: Which line of the notebook's cell the first line of the code is.

    Example:
        >>> error = syntax_error("x = 1\ny = (", label="3", first_line=2)
        >>> error.summary() if error else None
        "SyntaxError: '(' was never closed (line 3)"
    """
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        code = TransformerManager().transform_cell(source)
        compile(code, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except SyntaxError as error:
        blank = leading_blank_lines(source)
        number = (error.lineno or 1) + blank
        line = number + first_line - 1
        lines = source.splitlines()
        shown = lines[number - 1] if number <= len(lines) else ""
        caret = " " * max((error.offset or 1) - 1, 0) + "^"
        return ProcessError(
            name=type(error).__name__,
            message=error.msg,
            line=line,
            traceback=f"Cell In[{label}], line {line}\n    {shown}\n    {caret}\n"
            f"{type(error).__name__}: {error.msg}\nNo process ran the cell.",
        )
    except (ValueError, OverflowError) as error:  # null bytes, for one
        return ProcessError("SyntaxError", str(error), None, f"{error}\nNo process ran the cell.")
    return None
