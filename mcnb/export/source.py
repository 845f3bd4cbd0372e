r"""Convert the code of notebook cells to plain Python, by pure functions on text.

Code that a plain program can't run becomes a comment in the same place; other code is unchanged.
"""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Collection, Iterable, Sequence

from mcnb.export.needs import bound


def comment(code: str) -> str:
    r"""Comment out all lines of code.

    Example:
        >>> comment("for x in y:\n\n    f(x)")
        '# for x in y:\n#\n#     f(x)'
    """
    return textwrap.indent(code, "# ", lambda _: True).replace("# \n", "#\n").rstrip()


def indent(code: str, by: str = "    ") -> str:
    r'''Indent code by one level, but not the lines inside its strings.

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
        if name in ("STRING", "FSTRING_START", "TSTRING_START"):
            opened.append(token.start[0])
        if name in ("STRING", "FSTRING_END", "TSTRING_END"):
            inside.update(range(opened.pop() + 1, token.end[0] + 1))
    lines = enumerate(code.split("\n"), 1)
    return "\n".join(
        line if number in inside or not line.strip() else by + line for number, line in lines
    )


def commented(code: str, statement: ast.stmt, *, keep: bool = False) -> tuple[int, int, str]:
    """Return the edit that comments out a statement.

    Args:
        code: The code.
        statement: A statement of the code.
        keep: Whether a `pass` must replace the statement.
    """
    start, end = span(code, statement)
    line = code.rfind("\n", 0, start) + 1
    rest = code[end:].partition("\n")[0]
    if code[line:start].strip() or rest.strip().strip(";").split("#")[0].strip():
        return start, end, "pass"  # it shares its line with other code
    end += len(rest)
    margin = code[line:start]
    told = comment(textwrap.dedent(code[line:end]))
    told = f"pass\n{told}" if keep else told
    return line, end, textwrap.indent(told, margin)


def span(code: str, node: ast.stmt | ast.expr) -> tuple[int, int]:
    """Return the start and end of a statement or an expression in code, in characters."""
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
    """Apply edits to code; each has the start and the end of a range, and its new text."""
    for start, end, text in sorted(edits, reverse=True):
        code = code[:start] + text + code[end:]
    return code


def only(code: str, kept: Sequence[bool]) -> str:
    r"""Comment out some of the top-level statements of code.

    Args:
        code: The code.
        kept: For each top-level statement, whether to keep it.

    Example:
        >>> print(only("x = 1\nf(x)", [True, False]))
        x = 1
        # f(x)
    """
    pairs = zip(ast.parse(code).body, kept, strict=True)
    return edited(code, [commented(code, statement) for statement, stays in pairs if not stays])


# A line that only IPython understands: a magic, a shell command, or a help request.
_IPYTHON = re.compile(r"\s*([%!?]|[\w.,\s]+=\s*[%!]|.*\?\s*$)")
# What IPython times: a cell from its first line on, a statement, or the value of one.
_TIMED_CELL = re.compile(r"\A\s*%%time\b[ \t]*")
_TIMED = re.compile(r"(\s*(?:[\w.,\s]+=\s*)?)%time\s+(?=[^\s-])")


def plain(code: str) -> str:
    r"""Comment out the lines of code that only IPython understands.

    Of a line with `%time`, and of a cell with `%%time`, the code that is timed stays.

    Raises:
        SyntaxError: The result is still not valid Python.

    Example:
        >>> plain("x = 1\n%timeit f(x)")
        'x = 1\n# %timeit f(x)'
        >>> plain("%%time\ny = %time f(x)")
        '\ny = f(x)'
    """
    lines = re.sub(_TIMED_CELL, "", code, count=1).split("\n")
    while True:
        try:
            ast.parse("\n".join(lines))
        except SyntaxError as error:
            number = (error.lineno or 0) - 1
            line = lines[number] if 0 <= number < len(lines) else ""
            if not _IPYTHON.match(line) or line.lstrip().startswith("%%"):
                raise
            timed = _TIMED.match(line)
            lines[number] = (
                timed[1] + line[timed.end() :] if timed else re.sub(r"^\s*", r"\g<0># ", line)
            )
        else:
            return "\n".join(lines)


def awaits(code: str) -> bool:
    """Return whether code uses `await` outside a function, which only notebooks support.

    Example:
        >>> awaits("x = await f()"), awaits("async def g(): await f()")
        (True, False)
    """
    ahead: list[ast.AST] = [ast.parse(code)]
    while ahead:
        node = ahead.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)):
            return True
        if isinstance(node, ast.comprehension) and node.is_async:
            return True
        ahead += ast.iter_child_nodes(node)
    return False


def display_last(code: str, display: str, silent: Collection[str] = ()) -> str:
    r"""Make code display the value of its last expression, as a notebook does.

    Args:
        code: The code.
        display: The function that shows a value.
        silent: Functions that are known to return nothing.

    Example:
        >>> display_last("x = 1\nx, -x  # both", "display")
        'x = 1\ndisplay((x, -x))  # both'
        >>> display_last("x;", "display"), display_last("print(x)", "display")
        ('x;', 'print(x)')
    """
    body = ast.parse(code).body
    if not body or not isinstance(body[-1], ast.Expr) or _ends_in_semicolon(code):
        return code
    match body[-1].value:
        case ast.Call(ast.Name(name)) if name in ("print", "exec", display, *silent):
            return code
    start, end = span(code, body[-1])
    text = code[start:end]
    if not _is_one_argument(text):
        text = f"({text})"
    return edited(code, [(start, end, f"{display}({text})")])


def silent_functions(code: str) -> dict[str, bool]:
    r"""Return, for each function that code defines, whether it never returns a value.

    Example:
        >>> silent_functions("def f(): print(1)\ndef g(): return 1")
        {'f': True, 'g': False}
    """
    found = {}
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef):
            says = any(
                isinstance(inner, (ast.Yield, ast.YieldFrom))
                or (isinstance(inner, ast.Return) and inner.value is not None)
                for statement in node.body
                for inner in ast.walk(statement)
            )
            found[node.name] = not says and not node.decorator_list
    return found


def _is_one_argument(text: str) -> bool:
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except SyntaxError:
        return False
    assert isinstance(call, ast.Call)
    alone = ast.parse(f"({text})", mode="eval").body
    return not call.keywords and [*map(ast.dump, call.args)] == [ast.dump(alone)]


def _ends_in_semicolon(code: str) -> bool:
    passed = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    told = [token.string for token in tokens if token.type not in passed and token.string]
    return told[-1:] == [";"]


def mcnb_names(code: str) -> frozenset[str]:
    r"""Return the names under which code imports mcnb and its members.

    Example:
        >>> sorted(mcnb_names("import jax, mcnb\nfrom mcnb import show as draw"))
        ['draw', 'mcnb']
    """
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {bound(alias) for alias in node.names if _is_mcnb(node, alias)}
    return frozenset(found)


def _is_mcnb(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
    module = alias.name if isinstance(node, ast.Import) else node.module or ""
    return module.partition(".")[0] == "mcnb"


def without_mcnb(code: str, names: Collection[str]) -> str:
    r"""Remove imports of mcnb from code, and comment out calls of mcnb whose result is unused.

    Args:
        code: The code.
        names: The names of mcnb and its members in the code.

    Example:
        >>> print(without_mcnb("import jax, mcnb\nfor x in y:\n    mcnb.show(x)", ["mcnb"]))
        import jax
        for x in y:
            pass
            # mcnb.show(x)
    """
    edits: list[tuple[int, int, str]] = []
    for node in ast.walk(ast.parse(code)):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if not isinstance(block, list):
                continue
            gone = [statement for statement in block if _is_gone(statement, names)]
            empty = not isinstance(node, ast.Module) and len(gone) == len(block)
            edits += [commented(code, one, keep=empty and one is gone[0]) for one in gone]
        if isinstance(node, ast.Import):
            others = [alias for alias in node.names if not _is_mcnb(node, alias)]
            if 0 < len(others) < len(node.names):
                edits.append((*span(code, node), ast.unparse(ast.Import(others))))
    return edited(code, edits)


def _is_gone(statement: ast.stmt, names: Collection[str]) -> bool:
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return all(_is_mcnb(statement, alias) for alias in statement.names)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return root(statement.value) in names


def root(node: ast.expr) -> str:
    """Return the first name of an expression such as `a.b(c).d`; empty if there is none."""
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
