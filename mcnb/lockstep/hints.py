"""Advise what to change in a program whose processes diverged."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from mcnb._text import name_processes
from mcnb.lockstep.model import Condition, Detail, Launch, Origin, ProcessState, Verdict
from mcnb.lockstep.syntax import last_name, negated

# Processes with equal states.
Group: TypeAlias = tuple[list[int], ProcessState]
# multihost_utils.broadcast_one_to_all goes through NumPy, which refuses keys.
SAME_SEED = "Make the key from the same seed on every process"
# It refuses arrays of which other processes hold other parts, and needs all processes.
SAME_SOURCE = "Compute it from the same seed or file on each of them"
_OWN_DATA = (
    "Data that is meant to differ belongs in a sharded array: "
    "jax.make_array_from_process_local_data"
)
# JAX's functions that exchange what processes pass, and the names of the hints for other shapes.
_SHAPES = {
    "process_allgather": "local shape",
    "broadcast_one_to_all": "broadcast shape",
    "device_put": "one array",
}
_HINTS = {
    "condition": (
        "{0} runs only if {1}. A collective must run on every participating process: move {2} "
        "out of the condition, and keep only local work such as printing inside"
    ),
    "part": (
        "{0} runs only if {1}. A collective must run on every participating process: "
        "remove {2} from the condition, and let it decide only about local work such as printing"
    ),
    "leaves": (
        "other processes {2} before {0} runs only if {1}. A collective must run on every "
        "participating process: {2} only after it"
    ),
    "loop": (
        "the loop {0} ran a different number of times on different processes. Run the same number "
        "of steps on every process: {1}"
    ),
    "perhaps": (
        "the loop {0} may have run a different number of times on different processes. If so, run "
        "the same number of steps on every process: {1}"
    ),
    "loops": (
        "one of the loops {0} ran a different number of times on different processes. Run the same "
        "number of steps on every process: begin at the same step, and give every process the same "
        "number of batches"
    ),
    "skipped": (
        "in the loop {0}, {1} may {2}. All processes must make the same decision: base it on a "
        "value that they share, for example one that was broadcast"
    ),
    "excepted": (
        "in the loop {0}, {1} may {2}. All processes must do so if one of them does: catch the "
        "error, and agree after the `except` clause, for example by "
        "multihost_utils.process_allgather(failed).any()"
    ),
    "shape": (
        "all processes must pass the same global shape. Pad to a common length and mask the "
        "padding, or give every process the same number of full batches"
    ),
    "local shape": (
        "process_allgather takes an array of the same shape from every process. Pad to a common "
        "length, which all processes know, and mask the padding"
    ),
    "broadcast shape": (
        "broadcast_one_to_all uses the values of process 0 alone, but every process must pass "
        "arrays of the same shapes, such as zeros"
    ),
    "one array": (
        "device_put takes the same array on every process. If each process has its own part of the "
        "data, pad the parts to one shape, and use jax.make_array_from_process_local_data, with a "
        "sharding that splits the array over the processes"
    ),
    "dtype": "all processes must pass the same dtype. Set the dtype where the array is created",
    "sharding": (
        "all processes must use the same sharding. Create the sharding once, from one PartitionSpec"
    ),
    "mesh": (
        "all processes must use the same mesh, with the same devices in the same order. Create it "
        "from jax.devices() or with jax.make_mesh, and let nothing in it depend on the process"
    ),
    "static": (
        "a static argument is compiled into the program, so it must be equal on all processes. "
        f"{_OWN_DATA}"
    ),
    "donation": (
        "donate the argument on all processes, or on none: what XLA compiles depends on it"
    ),
    "compiler": (
        "XLA compiled one program in two ways: compare the versions of jaxlib and the XLA_FLAGS of "
        "the processes"
    ),
    "program": (
        "what the function uses besides its arguments must be equal on all processes: constants, "
        "closed-over values, options such as out_shardings, and the conditions of Python branches. "
        f"{_OWN_DATA}"
    ),
    "order": (
        "the order of launches must not depend on the process. If it comes from a set or from a "
        "directory listing, sort the elements first; if it is random, draw from one seed"
    ),
    "unsorted": (
        "the loop {0} may take its elements in another order on other processes: then, sort them "
        "before looping over them. Otherwise, {1}"
    ),
    "barrier": (
        "all participants of a barrier must pass the same name, and reach barriers in the same "
        "order. A name must not hold what differs between processes, such as the "
        "process index, or a counter that one process advanced more often"
    ),
    "participants": "all participants of a barrier must pass the same process_ids",
    "handling": (
        "an exception led to another launch than on the other processes. Fix its cause, and run no "
        "collective in an `except` or a `finally` clause: the other processes are elsewhere then"
    ),
    "ended": (
        "a test that fails or is skipped on one process makes none of its other launches there, "
        "and the other processes wait for them. Find out why that happened on {0}"
    ),
    "branch": (
        "the processes took different branches, or one of them has an extra or a missing launch. "
        "Every participant must run the same launches in the same order"
    ),
    "cause": (
        "make this value the same on all processes. If it is meant to differ, move every launch to "
        "a line that all participants run, in the same order, whatever the value is"
    ),
    "branches": (
        "the processes took different branches of {0}{1}. Every participant must run the same "
        "launches in the same order: launch outside of the branches, or decide by a value that all "
        "processes share"
    ),
    "value": (
        "a replicated argument must be equal on all processes; otherwise the results are wrong, "
        "without an error. Compute it from the same seed or file on every process, or send it from "
        "process 0 to the others: jax.experimental.multihost_utils.broadcast_one_to_all{0}"
    ),
    "value on some": (
        "what several processes hold of an argument must be equal on all of them; otherwise the "
        f"results are wrong, without an error. {SAME_SOURCE}"
    ),
    "key": (
        "a replicated argument must be equal on all processes; otherwise the results are wrong, "
        f"without an error. {SAME_SEED}"
    ),
    "late": ("{0} kept {1} waiting. If the code only needs more time, use a larger --timeout"),
    "slow": (
        "no process waited for a launch of another one. If the code only needs more time, use a "
        "larger --timeout. Otherwise, look for a loop that does not end, or for a wait for "
        "something outside the cell, such as a file or a thread"
    ),
    "not invited": (
        "the launch needs {0}: run the cell on all of them, without -p, or place the computation "
        "on a mesh of devices that belong to the processes of the cell"
    ),
    "cycle": (
        "all processes must launch their collectives in one order. Sort the collectives by the "
        "processes that take part, such as (0,1), (0,2), (1,2), and let each process launch its "
        "own in that order"
    ),
}
# Advice that names no cause.
WITHOUT_CAUSE = frozenset((_HINTS["branch"], _HINTS["order"]))
# The first line of a loop that runs equally often everywhere.
_CONSTANT = re.compile(r" in range\([-\d\s,]+\)\s*:?$")
# Functions and methods whose elements may have another order in each process.
_UNSORTED = frozenset(
    [
        *("items", "keys", "values", "set", "frozenset"),
        *("listdir", "scandir", "walk", "iterdir", "glob", "rglob", "iglob"),
    ]
)
# Functions that keep the order of what they are given.
_IN_ORDER = frozenset(("enumerate", "zip", "list", "tuple", "reversed", "map", "filter"))
_OF_LOOPS = tuple(_HINTS[name].partition("{")[0] for name in ("loop", "loops", "skipped"))


def is_uncertain(hint: str) -> bool:
    """Return whether advice leaves open why processes diverged, as there may be several reasons.

    Example:
        >>> is_uncertain(""), is_uncertain(_HINTS["branch"]), is_uncertain(_HINTS["dtype"])
        (True, True, False)
    """
    return not hint or hint in WITHOUT_CAUSE or hint.startswith(_OF_LOOPS)


def origin_of_rounds(hint: str, verdict: Verdict) -> Origin | None:
    """Return where the rounds of the loop that advice names begin to differ, if that is known.

    Example:
        >>> batches = Origin("batches", "line 2", "batches = range(3 + process_index())")
        >>> detail = Detail("f(x)", loops=("for b in batches:",), loops_from=(batches,))
        >>> verdict = Verdict("missing", {0: ProcessState("waits")}, details={0: detail})
        >>> origin_of_rounds(_HINTS["loop"], verdict).place
        'line 2'
    """
    if not hint.startswith(_OF_LOOPS):
        return None
    several = hint.startswith(_OF_LOOPS[1])
    each = [detail.loops_from for _, detail in sorted(verdict.details.items())]
    found = (one for known in each for one in (known if several else known[:1]))
    return next((one for one in found if one is not None), None)


def is_key(launch: Launch, argument: int) -> bool:
    """Return whether an argument of a launch, by its position, is a random key.

    Example:
        >>> launch = Launch("jit(init)", "1", (0,), ("f32[8]", "key<fry>[]"))
        >>> is_key(launch, 0), is_key(launch, 1), is_key(launch, 2)
        (False, True, False)
    """
    return any(one.startswith("key<") for one in launch.arguments[argument : argument + 1])


def advise(verdict: Verdict, groups: Sequence[Group], why: str, count: int) -> str:
    """Return advice about a verdict, as far as its cause is known; empty if it is not.

    Args:
        verdict: The verdict.
        groups: The processes with equal states.
        why: The kind of difference between the launches, as `mcnb.lockstep.messages` finds it.
        count: The number of processes.

    Example:
        >>> from mcnb.lockstep.model import Launch
        >>> f = Launch("jit(f)", "1", (0, 1))
        >>> states = {0: ProcessState("waits", f, line=4), 1: ProcessState("finished")}
        >>> details = {0: Detail("f(x)", (Condition("k == 0"),))}
        >>> groups = [([k], state) for k, state in states.items()]
        >>> advise(Verdict("missing", states, details=details), groups, "", 2)[:36]
        'this line runs only if `k == 0`. A c'
    """
    known = [
        (verdict.details[k], state) for ks, state in groups for k in ks if k in verdict.details
    ]
    handling = {bool(detail.handling) for detail, _ in known}
    if verdict.kind == "cycle":
        return f"{_HINTS['cycle']}{_of_order([detail for detail, _ in known])}"
    if verdict.kind == "stalled":
        return _of_stalled(verdict, count)
    if verdict.kind == "not invited":
        needed = {k for _, s in groups if s.launch is not None for k in s.launch.participants}
        return _HINTS["not invited"].format(name_processes(sorted(needed), count))
    if why == "value" and any(
        state.launch and state.value and is_key(state.launch, state.value.argument)
        for _, state in groups
    ):
        return _HINTS["key"]
    if why == "value":
        return _of_value(verdict, count)
    if why in ("barrier", "participants"):
        return _HINTS[why]
    if any(state.doing == "raised" for _, state in groups) or verdict.kind == "died":
        return ""
    if verdict.parted is not None:
        # A process that has ended has no details, and launched from another line.
        ended = verdict.parted.lines.keys() - verdict.details.keys()
        earlier = [detail.before for detail, _ in known]
        each = (one for before in earlier for one in before)
        first = next((c for c in each if ended or not all(c in one for one in earlier)), None)
        return _HINTS["branch"] if first is None else _of_condition(first, "")
    after = [k for k, detail in sorted(verdict.details.items()) if detail.ended]
    if after and len(after) < len(verdict.states):
        return _HINTS["ended"].format(name_processes(after, count))
    if verdict.kind == "missing" and why:
        return _HINTS[why]
    if verdict.kind == "missing":
        conditions = {_governs(detail, verdict) for detail, _ in known}
        if len(conditions) == 1 and (condition := conditions.pop()) is not None:
            return _of_condition(condition, "this line")
    if handling == {True, False} or (handling == {True} and verdict.kind == "missing"):
        return _HINTS["handling"]
    if verdict.kind == "missing":
        return _of_loops(verdict, [detail for detail, _ in known])
    inside = {
        k: [one for one in verdict.details[k].conditions if not _is_common(one, verdict)]
        for ks, state in groups
        for k in ks
        if k in verdict.details
    }
    if verdict.kind == "mismatch" and all(
        any(inside.get(k) for k in ks) for ks, state in groups if state.launch is not None
    ):
        return _of_branches([each for each in inside.values() if each])
    for ks, state in groups:
        for condition in (one for k in ks for one in inside.get(k, ())):
            line = "" if _same_line(groups) else state.where
            return _of_condition(condition, line or "this line")
    if why == "order" and not _same_line(groups):
        return _HINTS["branch"]
    called = {state.launch.name for _, state in groups if state.launch is not None}
    hint = _HINTS.get(why, "")
    if why == "shape" and len(called) == 1 and called <= _SHAPES.keys():
        hint = _HINTS[_SHAPES[called.pop()]]
    inner = {detail.loops[:1] for detail, _ in known}
    if why in ("shape", "dtype", "sharding") and len(inner) == 1 and _same_line(groups):
        (around,) = inner
        if around and _is_unsorted(around[0]):
            place = next(iter(known[0][0].loops_at), "")
            return _HINTS["unsorted"].format(_quoted(around[0], place), hint)
    return hint


def _of_order(details: Sequence[Detail]) -> str:
    """Return a sentence on the innermost loop around launches that have no common order."""
    loops = {(detail.loops[:1], detail.loops_at[:1]) for detail in details}
    if len(loops) != 1:
        return ""
    [(loop, at)] = loops
    if not loop:
        return ""
    return f". Here, the loop {_quoted(loop[0], next(iter(at), ''))} has the order"


def _of_stalled(verdict: Verdict, count: int) -> str:
    """Return advice about a cell that did not finish within its time limit."""
    by_waiting: dict[bool, list[int]] = {True: [], False: []}
    for k, state in sorted(verdict.states.items()):
        if state.doing in ("waits", "runs", "hangs"):
            by_waiting[state.doing == "waits"].append(k)
    if not all(by_waiting.values()):
        return _HINTS["slow"]
    late, waiting = (name_processes(by_waiting[one], count) for one in (False, True))
    return _HINTS["late"].format(late, waiting)


def _of_value(verdict: Verdict, count: int) -> str:
    """Return advice about a replicated argument that is not equal."""
    if len([state for state in verdict.states.values() if state.value is not None]) < count:
        return _HINTS["value on some"]
    words = ""
    for k, state in sorted(verdict.states.items()):
        detail = verdict.details.get(k)
        if detail is None or state.value is None or words:
            continue
        at = state.value.argument
        name = detail.names[at] if at < len(detail.names) else ""
        words = next((w for p, w in detail.passed.items() if belongs_to(name, p)), "")
    return _HINTS["value"].format(f"({words.strip('`')})" if words else "")


def belongs_to(name: str, parameter: str) -> bool:
    """Return whether an argument, by its name, is the one passed for a parameter, or a part of it.

    Example:
        >>> belongs_to("params['w']", "params"), belongs_to("params2", "params")
        (True, False)
    """
    return bool(parameter) and (
        name == parameter or name.startswith((f"{parameter}.", f"{parameter}["))
    )


def with_cause(hint: str, verdict: Verdict) -> str:
    """Return advice that does not guess at a cause, unless there is a loop that has an order.

    Args:
        hint: The advice.
        verdict: The verdict, whose launches are known to differ in what a name refers to.
    """
    loops = any(detail.loops for detail in verdict.details.values())
    return hint if hint == _HINTS["order"] and loops else _HINTS["cause"]


def _of_condition(condition: Condition, line: str) -> str:
    """Return advice about a condition.

    Args:
        condition: The condition.
        line: The line of the launch, in words; empty if the launch is none of those shown.
    """
    where, what = condition.line or line, "it"
    if line and where != line:
        way = f"to which {line} leads" if condition.within else f"which leads to {line}"
        where, what = f"{where}, {way},", "it" if condition.within else "the call"
    place = "" if condition.near else condition.at
    quoted = _quoted(_condition_of_else(condition.words) or condition.words, place)
    # As the program has it: only an `else` makes words that no condition has.
    quoted += f"{' is false' if _condition_of_else(condition.words) else ''}{_asks(condition)}"
    if condition.leaves:
        which = f"{where} and" if where.endswith(",") else f"{where}, which"
        return _HINTS["leaves"].format(which, quoted, condition.leaves)
    if condition.part:
        return _HINTS["part"].format(where, quoted, f"`{condition.part}`")
    return _HINTS["condition"].format(where, quoted, what)


def _of_branches(each: Sequence[Sequence[Condition]]) -> str:
    """Return advice about processes in several branches, given the conditions of each process."""
    for one in (one for conditions in each for one in conditions):
        both = {one.words, _otherwise(one.words)}
        held = [[c for c in found if c.at == one.at and c.words in both] for found in each]
        words = {c.words for found in held for c in found}
        if all(held) and {one.words} < words:
            near = all(c.near for found in held for c in found)
            return _HINTS["branches"].format(_quoted(one.words, "" if near else one.at), _asks(one))
    return _HINTS["branch"]


def _condition_of_else(words: str) -> str:
    """Return the condition that does not hold, if words are its negation in brackets; else "".

    Example:
        >>> _condition_of_else("not (k == 0)"), _condition_of_else("not k")
        ('k == 0', '')
    """
    if not words.startswith("not ("):
        return ""
    test = ast.parse(words, mode="eval").body
    return ast.unparse(test.operand) if isinstance(test, ast.UnaryOp) else ""


def _otherwise(words: str) -> str:
    """Return the words of the branch that is taken if a condition does not hold.

    The words themselves are returned if they are no condition as a program has it: a case of a
    match, or what was negated already.
    """
    try:
        test = ast.parse(words, mode="eval").body
    except SyntaxError:
        return words
    return words if isinstance(test, ast.UnaryOp) else negated(test)


def _asks(condition: Condition) -> str:
    if not condition.asks and not condition.part:
        return ""
    which = f"of which `{condition.part}`" if condition.part else "which"
    place = f" ({condition.asks})" if condition.asks else ""
    return f", {which} depends on the process{place}"


def _quoted(source: str, place: str) -> str:
    return f"`{source}` ({place})" if place else f"`{source}`"


def _is_common(condition: Condition, verdict: Verdict) -> bool:
    """Return whether a condition explains nothing: whose launches do not match are all inside."""
    if verdict.kind != "mismatch":
        return False
    waiting = [k for k, state in verdict.states.items() if state.launch is not None]
    place = condition.words, condition.at
    return all(
        k in verdict.details
        and any((one.words, one.at) == place for one in verdict.details[k].conditions)
        for k in waiting
    )


def _governs(detail: Detail, verdict: Verdict) -> Condition | None:
    """Return the innermost condition because of which others may not make a launch, or None.

    Others that have made launches from the same lines were inside the condition, too; only if no
    loop is inside it, the condition may have been another one at the end.
    """
    missing = [state for state in verdict.states.values() if state.launch is None]
    been = any(state.visits for state in missing)
    found = (one for one in detail.conditions if not (been and one.loops))
    return next(found, None)


def _of_loops(verdict: Verdict, details: list[Detail]) -> str:
    """Return advice about the loops around a launch that others have not made.

    The number of rounds is known to differ only if all have launched from the same lines before,
    equally often, and if no library's loop may have led there, such as that of `jax.device_put`
    over the leaves of a PyTree.
    """
    loops = {detail.loops for detail in details}
    visits = {state.visits for state in verdict.states.values()}
    if len(loops) != 1 or not loops.pop():
        return ""
    detail, skips = details[0], {detail.skip for detail in details}
    places = itertools.chain(detail.loops_at, itertools.repeat(""))
    around = [*map(_quoted, detail.loops, places)]
    if "" not in skips:
        detail = min(details, key=lambda one: one.skip)
        what = "end the loop" if detail.skip_ends else "skip this line"
        which = "excepted" if detail.skip.startswith("except") else "skipped"
        return _HINTS[which].format(around[0], _quoted(detail.skip, detail.skip_at), what)
    if visits == {0} or len(visits) > 1 or all(map(_CONSTANT.search, detail.loops)):
        return ""
    if not all(detail.direct for detail in details):
        return _HINTS["perhaps"].format(around[0], _how_often(detail.loops[0]))
    if len(around) == 1:
        return _HINTS["loop"].format(*around, _how_often(detail.loops[0]))
    return _HINTS["loops"].format(", ".join(reversed(around)))


def _is_unsorted(loop: str) -> bool:
    """Return whether a loop, given its first line, goes over what may have another order elsewhere.

    That is a dictionary, a set, or the files of a folder.
    """
    statement = _statement_of(loop)
    return isinstance(statement, ast.For) and _has_no_order(statement.iter)


def loop_targets(loop: str) -> set[str]:
    """Return the names that a loop, given its first line, assigns.

    Example:
        >>> sorted(loop_targets("for i, (a, b) in pairs:")), loop_targets("while True:")
        (['a', 'b', 'i'], set())
    """
    statement = _statement_of(loop)
    if not isinstance(statement, ast.For):
        return set()
    return {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}


def _statement_of(loop: str) -> ast.stmt | None:
    """Return a loop, given its first line; None if that ends in the middle of an expression."""
    try:
        [statement] = ast.parse(f"{loop.rstrip(':')}: pass").body
    except SyntaxError:
        return None
    return statement


def _has_no_order(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        called = last_name(node.func)
        return called in _UNSORTED or (called in _IN_ORDER and any(map(_has_no_order, node.args)))
    return isinstance(node, (ast.Set, ast.SetComp, ast.Dict, ast.DictComp))


def _how_often(loop: str) -> str:
    """Return how to let a loop, given its first line, run equally often on all processes."""
    if loop.startswith("while"):
        return "base the condition on values that all processes share"
    if "range(" in loop:
        return "compute the range from values that all processes share"
    return "give every process the same number of batches"


def _same_line(groups: Iterable[Group]) -> bool:
    return len({(state.line, state.place) for _, state in groups if state.launch}) == 1
