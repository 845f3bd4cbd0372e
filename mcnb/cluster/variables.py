"""Compare the variables of processes, and say in words where they differ."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mcnb._text import grouped, index_ranges, is_expression, name_processes, plural
from mcnb.errors import CellError, OptionError
from mcnb.lockstep.comparison import Comparison, Question
from mcnb.lockstep.wire import Message
from mcnb.messages import LEAKED_TRACER, Leaf, Variable

TITLES = ("name", "on the processes", "bytes per device", "what it is")
# The most columns of the texts in a table, and of a value in a sentence.
WIDEST = 60
# The most values of a PyTree that a sentence names.
MOST_TOLD = 3
_SPLIT = "one array, of which no two processes have a part in common"


def check_names(names: Iterable[str]) -> None:
    """Raise a CellError if one of some names can't be that of a variable."""
    for name in names:
        if not name.isidentifier():
            raise CellError(f"{name!r} is not a valid variable name")


def refusal_of(values: Mapping[str, Any]) -> CellError | None:
    """Return the error that names the first value that can't be sent to processes, if there is one.

    Args:
        values: The values by variable name.
    """
    from mcnb._ipyparallel.calls import unsendable

    for name, value in values.items():
        if why := unsendable(value):
            return CellError(
                f"`{name}` can't be sent to the processes: {why}. Send numbers, texts and NumPy "
                "arrays, or create it in a cell that begins with %%mcjax"
            )
    return None


def table(by_process: Mapping[int, Sequence[Variable]], count: int) -> str:
    r"""Return a table of the variables of processes, which says where they are the same.

    Args:
        by_process: The variables of each process.
        count: The number of processes of the cluster.

    Example:
        >>> from mcnb.messages import Leaf
        >>> found = {k: [Variable("n", "int", (Leaf("", "int", str(k // 3)),))] for k in range(4)}
        >>> print(table(found, 4))
        name  on the processes  bytes per device  what it is
        n     differs on 3                        int 0
    """
    named: dict[str, dict[int, Variable]] = {}
    for k, variables in by_process.items():
        for variable in variables:
            named.setdefault(variable.name, {})[k] = variable
    if not named:
        return "The processes have no variables that hold data"
    rows = [TITLES]
    for name, found in sorted(named.items()):
        one = found[_alike(found)[0][1][0]]
        agreement = _agreement(found, [*by_process], count)
        size = f"{one.bytes:,}" if one.bytes else ""
        rows.append((name, agreement, size, _what(one)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, agreement, size, what in rows:
        size = size.ljust(widths[2]) if size == TITLES[2] else size.rjust(widths[2])
        lines.append(f"{name:<{widths[0]}}  {agreement:<{widths[1]}}  {size}  {what}".rstrip())
    return "\n".join(lines)


def _alike(found: Mapping[int, Variable]) -> list[tuple[object, list[int]]]:
    """Return the processes grouped by equal variables, the largest group first.

    Of arrays, only slices are compared that all of the processes have: two may have other slices in
    common with others than with each other.
    """
    common = set.intersection(*({*_digests(variable)} for variable in found.values()))
    fingerprints = {
        k: (
            variable.type,
            variable.truncated,
            *((one.path, one.kind, one.text) for one in variable.leaves),
            *(item for item in sorted(_digests(variable).items()) if item[0] in common),
        )
        for k, variable in found.items()
    }
    return sorted(grouped(fingerprints), key=lambda group: (-len(group[1]), group[1]))


def _digests(variable: Variable) -> dict[str, str]:
    """Return the digest of each slice of a variable, by the slice's name."""
    return {part: text for leaf in variable.leaves for part, text in leaf.digests.items()}


def _what(variable: Variable) -> str:
    leaves = variable.leaves
    if not leaves:
        what = "None" if variable.type == "NoneType" else f"{variable.type}, empty"
    elif len(leaves) == 1 and not leaves[0].path:
        kind, text = leaves[0].kind, leaves[0].text
        what = text if text.startswith(kind) else f"{kind} {text}".rstrip()
    else:
        more = "more than " if variable.truncated else ""
        what = f"{variable.type} of {more}{plural(len(leaves), 'leaf', 'leaves')}"
        if leaked := sum(leaf.kind == LEAKED_TRACER for leaf in leaves):
            what += f", with {plural(leaked, 'leaked tracer', 'leaked tracers')}"
    return what if len(what) <= WIDEST else f"{what[: WIDEST - 1]}…"


def _agreement(found: Mapping[int, Variable], asked: Sequence[int], count: int) -> str:
    if len(found) < len(asked):
        return f"only on {index_ranges([*found])}"
    (_, most), *others = _alike(found)
    if others and len(most) > len(others[0][1]):
        return f"differs on {index_ranges(sorted(k for _, ks in others for k in ks))}"
    if others and len(most) == 1:
        return "different on each"
    if others:
        return (
            f"differs: {' | '.join(index_ranges(ks) for ks in (most, *(ks for _, ks in others)))}"
        )
    if differing := differing_parts(found):
        few = _fewest(found, differing[0])
        return (
            f"differs on {index_ranges(few)}" if len(few) < len(found) - 1 else "different on each"
        )
    unknown, leaves = _unknown(found), len(next(iter(found.values())).leaves)
    if unknown and len(unknown) == leaves:
        return "parts of one array" if all(one.shared for one in unknown) else "not compared"
    truncated = any(variable.truncated for variable in found.values())
    among = f"the first {leaves} leaves" if truncated else f"{leaves} leaves"
    parts = [among] if truncated else []
    if unknown:
        parts = [f"{leaves - len(unknown)} of {among}"]
    if any(variable.sampled for variable in found.values()):
        parts.append("part of the elements")
    compared = f" (compared: {', '.join(parts)})" if parts else ""
    return f"same on {_all(len(found), count)}{compared}"


def _all(found: int, count: int) -> str:
    if count == found == 2:
        return "both"
    return f"all {count}" if found == count else f"these {found}"


def _unknown(found: Mapping[int, Variable]) -> list[Leaf]:
    """Return the leaves of which processes have nothing in common that could be compared.

    The variables are alike otherwise.
    """
    by_position = zip(*(variable.leaves for variable in found.values()), strict=True)
    return [
        leaves[0] for leaves in by_position if not any(leaf.text or leaf.digests for leaf in leaves)
    ]


def differing_parts(found: Mapping[int, Variable]) -> list[str]:
    """Return the names of slices whose digests differ, of variables that are alike otherwise."""
    first: dict[str, str] = {}
    return [
        part
        for variable in found.values()
        for leaf in variable.leaves
        for part, text in leaf.digests.items()
        if first.setdefault(part, text) != text
    ]


def _in_brackets(expression: str) -> str:
    """Return an expression as it stands before an index."""
    try:
        node = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):
        return expression
    primary = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call))
    return expression if primary else f"({expression})"


def _fewest(found: Mapping[int, Variable], part: str) -> list[int]:
    """Return the processes whose digest of a slice is not that of the most processes."""
    at = int(part.partition(" ")[0])
    digests = {k: one.leaves[at].digests.get(part) for k, one in found.items()}
    held = {k: text for k, text in digests.items() if text is not None}
    groups = sorted(grouped(held), key=lambda group: (-len(group[1]), group[1]))
    return sorted(k for _, ks in groups[1:] for k in ks)


def check_expression(text: str) -> None:
    """Check what is to be compared before any process is asked.

    Args:
        text: The name of a variable, or an expression.

    Raises:
        OptionError: It is neither.

    Example:
        >>> check_expression("params['w']")
        >>> check_expression("w b")
        Traceback (most recent call last):
        mcnb.errors.OptionError: Can't compare w b: it is neither a variable's name nor an
        expression of Python. One is compared at a time. For example: %mcjax compare params
    """
    if not is_expression(text):
        raise OptionError(
            f"Can't compare {text}: it is neither a variable's name nor an expression of Python. "
            "One is compared at a time. For example: %mcjax compare params"
        )


def difference(
    name: str,
    found: Mapping[int, Variable | None],
    count: int,
    ask: Callable[[Question], Mapping[int, Message]],
) -> str:
    """Return a sentence on where a variable differs between processes, or that it does not.

    Args:
        name: The name of the variable.
        found: The variable on each process; None where there is none.
        count: The number of processes of the cluster.
        ask: Asks processes for digests or elements of slices.
    """
    held = {k: variable for k, variable in found.items() if variable is not None}
    if not held and len(found) == count > 1:
        return f"{name} is not defined on any process"
    if len(held) < len(found):
        missing = name_processes(sorted(found.keys() - held.keys()), count)
        return f"{name} is not defined on {missing}"
    who = name_processes(sorted(held), count)
    if said := _other_structure(name, held, count):
        return said
    unequal = _unequal(held)
    whole = _in_brackets(name)
    first = ""
    others = []
    for i, at in enumerate(unequal):
        path = next(iter(held.values())).leaves[at].path
        said = _difference_of(f"{whole if path else name}{path}", at, held, count, ask)
        if first and said:
            others.append(f"{whole if path else name}{path}")
        first = first or said
        if len(others) == MOST_TOLD:
            if left := len(unequal) - i - 1:
                others.append(f"{left} more")
            break
    if others:
        *most, last = others
        listed = f"{', '.join(most)} and {last} differ" if most else f"{last} differs"
        return f"{first}. {listed}, too"
    if first:
        return first
    one = next(iter(held.values()))
    unknown = _unknown(held)
    if unknown and unknown[0].path == "":
        if unknown[0].shared:
            return f"{name} is {_SPLIT}"
        return f"{name} is {_what(one)} on {who}; no more of it can be compared"
    truncated = any(variable.truncated for variable in held.values())
    if not (unknown or truncated):
        return f"{name} is the same on {who}"
    told = [f"{leaf.path}, {_SPLIT if leaf.shared else leaf.kind}" for leaf in unknown[:MOST_TOLD]]
    if len(unknown) > MOST_TOLD:
        told.append(f"and {len(unknown) - MOST_TOLD} more")
    if truncated:
        told.append(f"leaves after the first {len(one.leaves)}")
    listed = "; ".join(told)
    if len(unknown) == len(one.leaves):
        return f"{name} has the same structure on {who}; no more of it can be compared: {listed}"
    return f"{name} is the same on {who}, but not all of it can be compared: {listed}"


def _other_structure(name: str, held: Mapping[int, Variable], count: int) -> str:
    """Return where types or the structures of PyTrees differ, in words; empty if they do not."""
    if len({variable.type for variable in held.values()}) > 1:
        return _in_words(name, {k: _what(variable) for k, variable in held.items()}, count)
    for at in range(max(len(variable.leaves) for variable in held.values())):
        leaves = {k: v.leaves[at] if at < len(v.leaves) else None for k, v in held.items()}
        if len({leaf and leaf.path for leaf in leaves.values()}) > 1:
            texts = {k: f"{leaf.path} next" if leaf else "no more" for k, leaf in leaves.items()}
            return _in_words(name, texts, count)
    return ""


def _unequal(held: Mapping[int, Variable]) -> list[int]:
    """Return the positions of the leaves that differ between processes, which all have."""
    parts = {int(part.partition(" ")[0]) for part in differing_parts(held)}
    by_position = enumerate(zip(*(variable.leaves for variable in held.values()), strict=True))
    return [
        at
        for at, leaves in by_position
        if at in parts or len({(leaf.kind, leaf.text) for leaf in leaves}) > 1
    ]


def _difference_of(
    what: str,
    at: int,
    held: Mapping[int, Variable],
    count: int,
    ask: Callable[[Question], Mapping[int, Message]],
) -> str:
    """Return where a leaf differs between processes, in words; empty if it does not."""
    leaves = {k: variable.leaves[at] for k, variable in held.items()}
    texts = {k: leaf.text for k, leaf in leaves.items()}
    if len({leaf.kind for leaf in leaves.values()}) > 1:
        texts = {k: f"{leaf.kind} {leaf.text}".rstrip() for k, leaf in leaves.items()}
    if len({*texts.values()}) > 1:
        return _in_words(what, texts, count)
    comparison = Comparison({k: leaf.digests for k, leaf in leaves.items()}, exact=True)
    while comparison.question is not None:
        for k, answer in ask(comparison.question).items():
            comparison.hear(k, answer)
    if not comparison.found:
        return ""
    index = next(iter(comparison.found.values())).index
    texts = {k: one.text for k, one in comparison.found.items()}
    return _in_words(f"{what} at {[*index]}" if index else what, texts, count)


def _in_words(what: str, texts: Mapping[int, str], count: int) -> str:
    each = [f"{text} on {name_processes(sorted(ks), count)}" for text, ks in grouped(texts)]
    return f"{what} differs: {', '.join(each[:-1])} and {each[-1]}"
