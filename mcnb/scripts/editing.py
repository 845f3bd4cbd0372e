"""Changing stretches of Python's text, with all else left as it was written: pure functions."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterable, Sequence

_OPENS = ("FSTRING_START", "TSTRING_START")
_CLOSES = ("FSTRING_END", "TSTRING_END")


def comment(code: str) -> str:
    r"""Return code as comments.

    Example:
        >>> comment("for x in y:\n\n    f(x)")
        '# for x in y:\n#\n#     f(x)'
    """
    return textwrap.indent(code, "# ", lambda _: True).replace("# \n", "#\n").rstrip()


def indent(code: str, by: str = "    ") -> str:
    r'''Return code one level deeper, with what stands in its strings as it was.

    Example:
        >>> print(indent('text = """a\n  b"""\nprint(text)'))
            text = """a
          b"""
            print(text)
    '''
    inside: set[int] = set()  # lines that begin within a string
    opened: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        name = tokenize.tok_name[token.type]
        if name == "STRING":
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
        elif name in _OPENS:
            opened.append(token.start[0])
        elif name in _CLOSES:
            inside.update(range(opened.pop() + 1, token.end[0] + 1))
    lines = enumerate(code.split("\n"), 1)
    return "\n".join(
        line if number in inside or not line.strip() else by + line for number, line in lines
    )


def commented(code: str, statement: ast.stmt, *, keep: bool = False) -> tuple[int, int, str]:
    """Return the edit that makes a comment of a statement.

    Args:
        code: The code.
        statement: A statement of it.
        keep: Whether something has to stand there.
    """
    start, end = span(code, statement)
    line = code.rfind("\n", 0, start) + 1
    rest = code[end:].partition("\n")[0]
    if code[line:start].strip() or rest.strip().strip(";").split("#")[0].strip():
        return start, end, "pass"  # it shares its line
    end += len(rest)
    margin = code[line:start]
    told = comment(textwrap.dedent(code[line:end]))
    told = f"pass\n{told}" if keep else told
    return line, end, textwrap.indent(told, margin)


def span(code: str, node: ast.stmt | ast.expr) -> tuple[int, int]:
    """Return where a statement or an expression begins and ends in code, in characters."""
    lines = code.split("\n")
    starts = [0]
    for text in lines:
        starts.append(starts[-1] + len(text) + 1)

    def place(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    line, column = node.lineno, node.col_offset
    for decorator in getattr(node, "decorator_list", []):
        line, column = min((line, column), (decorator.lineno, decorator.col_offset - 1))
    return place(line, column), place(node.end_lineno, node.end_col_offset)


def edited(code: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return code with stretches of it replaced, each given by its begin, its end and the text."""
    for start, end, text in sorted(edits, reverse=True):
        code = code[:start] + text + code[end:]
    return code


def only(code: str, kept: Sequence[bool]) -> str:
    r"""Return code with some of its statements as comments.

    Args:
        code: The code.
        kept: For each statement at the top level, whether it stays.

    Example:
        >>> print(only("x = 1\nf(x)", [True, False]))
        x = 1
        # f(x)
    """
    pairs = zip(ast.parse(code).body, kept, strict=True)
    return edited(code, [commented(code, statement) for statement, stays in pairs if not stays])
