"""Complete and describe, in cells that begin with `%%mcjax`, the names of the processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple, cast

from IPython.core import completer
from IPython.utils.tokenutil import token_at_cursor

from mcnb.cluster import cluster as clusters
from mcnb.messages import ProcessError
from mcnb.notebook.suggestions import Suggestions, suggestions
from mcnb.worker.introspection import complete, describe

# Google Colab has IPython 7, which passes a matcher no more than a word.
HAS_CONTEXTS = hasattr(completer, "context_matcher")
# The magic's line, with comments and blank lines above it.
_CELL = re.compile(r"(?:[ \t]*(?:#.*)?\n)*[ \t]*%%mcjax\b(?![-\w])(.*)\n")
# How long a process may take to answer. The notebook kernel does nothing else meanwhile.
PATIENCE_S = 0.5


def _matcher(**options: Any) -> Callable[[Any], Any]:
    if HAS_CONTEXTS:
        return cast("Callable[[Any], Any]", completer.context_matcher(**options))
    return lambda function: function


class Body(NamedTuple):
    """The part of a `%%mcjax` cell that runs on the processes.

    Attributes:
        options: The text after `%%mcjax`.
        start: The position in the cell at which the part begins.
        source: The part.
    """

    options: str
    start: int
    source: str


def body_of(cell: str) -> Body | None:
    r"""Return the part of a cell that runs on the processes, or None if it is no `%%mcjax` cell.

    Example:
        >>> body_of("%%mcjax -p 2\nx = 1")
        Body(options='-p 2', start=13, source='x = 1')
    """
    found = _CELL.match(cell)
    return None if found is None else Body(found[1].strip(), found.end(), cell[found.end() :])


class Assistance:
    """Completions and tooltips for the names of the processes.

    A process is asked only while no cell runs, and nothing is shown if it does not answer soon.

    Args:
        shell: The notebook kernel's shell.
        first_process: Returns the first process of a cell, given the text after `%%mcjax`.
        is_implied: Returns whether a cell without `%%mcjax` runs on the processes.
        commands: The commands of `%mcjax`.
    """

    def __init__(
        self,
        shell: Any,
        first_process: Callable[[str], int],
        is_implied: Callable[[str], bool],
        commands: Collection[str] = (),
    ) -> None:
        self._commands = commands
        self._shell = shell
        self._first_process = first_process
        self._is_implied = is_implied
        self._kernel = getattr(shell, "kernel", None)

    def install(self) -> None:
        """Begin to complete and describe, if IPython tells a matcher which cell it completes."""
        if not HAS_CONTEXTS:
            return
        self._shell.Completer.custom_matchers.append(self.names)
        if self._kernel is not None:
            self._kernel.do_inspect = partial(self.inspect, self._kernel.do_inspect)

    def remove(self) -> None:
        """Leave completions and tooltips to IPython again."""
        if not HAS_CONTEXTS:
            return
        self._shell.Completer.custom_matchers.remove(self.names)
        if self._kernel is not None:
            del self._kernel.do_inspect

    # Before IPython's own matchers, which know the names of the notebook kernel.
    @_matcher(identifier="mcnb.names", priority=1000)
    def names(self, context: Any) -> dict[str, Any]:
        """Return the completions at the cursor, as a matcher of IPython's."""
        lines = context.full_text.split("\n")
        before = lines[: context.cursor_line]
        cursor = sum(len(line) + 1 for line in before) + context.cursor_position
        body = self._body_of(context.full_text)
        if body is None or cursor < body.start:
            line = lines[context.cursor_line][: context.cursor_position]
            offered = suggestions(line, self._commands, self._shell.user_ns)
            if offered is not None and not offered.files:
                return self._offer(offered)
        found = None
        if body is not None and cursor >= body.start:
            cursor -= body.start
            found = self._ask(body, complete, body.source, cursor)
        if body is None or not found:
            return {"completions": []}
        return {
            "completions": [completer.SimpleCompletion(o.text, type=o.kind) for o in found],
            "matched_fragment": body.source[found[0].start : cursor],
            "suppress": True,
            "ordered": True,
        }

    def _offer(self, offered: Suggestions) -> dict[str, Any]:
        """Return what may follow in a line of the magics, as a matcher of IPython's."""
        fragment, found = offered.fragment, [completer.SimpleCompletion(w) for w in offered.words]
        if offered.expression:
            expression = offered.expression
            body = Body("", 0, expression)
            answer = self._ask(body, complete, expression, len(expression)) or ()
            found = [completer.SimpleCompletion(one.text, type=one.kind) for one in answer]
            fragment = expression[answer[0].start :] if answer else fragment
        return {
            "completions": found,
            "matched_fragment": fragment,
            "suppress": True,
            "ordered": True,
        }

    def inspect(
        self,
        original: Callable[..., Any],
        code: str,
        cursor_pos: int,
        detail_level: int = 0,
        omit_sections: Any = (),
    ) -> Any:
        """Reply to a request of Jupyter's to describe the name at the cursor.

        Args:
            original: The kernel's own method, for other cells.
            code: The cell.
            cursor_pos: The position of the cursor in it.
            detail_level: 0, or 1 for the source, too.
            omit_sections: Parts of IPython's description that are not wanted.
        """
        body = self._body_of(code)
        found = None
        if body is not None and cursor_pos >= body.start:
            name = token_at_cursor(body.source, cursor_pos - body.start)
            found = self._ask(body, describe, name, detail_level) if name else None
        if found is None:
            return original(code, cursor_pos, detail_level, omit_sections)
        if not self._shell.enable_html_pager:
            found.pop("text/html", None)
        return {"status": "ok", "data": found, "metadata": {}, "found": bool(found)}

    def _body_of(self, cell: str) -> Body | None:
        return Body("", 0, cell) if self._is_implied(cell) else body_of(cell)

    def _ask(self, body: Body, function: Callable[..., Any], *args: Any) -> Any:
        cluster = clusters.current
        if cluster is None:
            return None
        process = self._first_process(body.options)
        found = cluster.ask_idle(function, *args, processes=[process], within_s=PATIENCE_S)
        answer = found.get(process)
        return None if isinstance(answer, ProcessError) else answer
