"""What a verdict advises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mcnb.lockstep.hints import advise
from mcnb.lockstep.model import (
    Condition,
    Detail,
    Happened,
    Kind,
    Meeting,
    ProcessState,
    Verdict,
)
from tests.support.verdicts import (
    ASKS_FOR_ZERO,
    FINISHED,
    IF_ZERO,
    MAX,
    NOT_INVITED,
    ORDER,
    SUM,
    WAS_KILLED,
    at,
    sentence,
    states,
)


def at_line(line: int, hint: str) -> str:
    return hint.replace("this line", f"line {line}")


LOOP = (
    "the loop `for batch in batches:` ran a different number of times on different processes. "
    "Run the same number of steps on every process: give every process the same number of batches"
)


BRANCH = (
    "the processes took different branches, or one of them has an extra or a missing launch. "
    "Every participant must run the same launches in the same order"
)


BRANCHES = (
    "the processes took different branches of `k == 0`. Every participant must run the same "
    "launches in the same order: launch outside of the branches, or decide by a value that all "
    "processes share"
)


HANDLING = (
    "an exception led to another launch than on the other processes. Fix its cause, and run no "
    "collective in an `except` or a `finally` clause: the other processes are elsewhere then"
)
FULL = Detail("jnp.sum(x)", handling="OSError: disk full (line 2)")
ENDED = (
    "a test that fails or is skipped on one process makes none of its other launches there, and "
    "the other processes wait for them. Find out why that happened on process 1"
)
FAILED = Detail(ended="failed with OSError: disk full (test_it.py:2)")


# A library's loop may have led there, for example over the leaves of a PyTree.
PERHAPS = LOOP.replace("ran a", "may have run a").replace(". Run the", ". If so, run the")
LOOPS = LOOP.replace(
    "the loop `for batch in batches:` ran",
    "one of the loops `for epoch in range(2):`, `for batch in batches:` ran",
).replace("process: give", "process: begin at the same step, and give")
SKIPPED = (
    "in the loop `for batch in batches:`, `if stale: continue` may skip this line. All "
    "processes must make the same decision: base it on a value that they share, for example one "
    "that was broadcast"
)
EXCEPTED = (
    "in the loop `for batch in batches:`, `except OSError:` may skip this line. All processes must "
    "do so if one of them does: catch the error, and agree after the `except` clause, for example "
    "by multihost_utils.process_allgather(failed).any()"
)
CALL_IF_ZERO = (
    "train.py:7, which leads to {}, runs only if `k == 0`. A collective must run on every "
    "participating process: move the call out of the condition, and keep only local work such as "
    "printing inside"
)
LEAVE_OUT = (
    "A collective must run on every participating process: remove `k == 0` from the condition, "
    "and let it decide only about local work such as printing"
)
LATE = (
    "process {} kept process {} waiting. If the code only needs more time, use a larger --timeout"
)
ZERO = Condition("k == 0", "line 3")
PART = replace(ZERO, words="k == 0 and loss < best", part="k == 0")
NOT_ZERO = replace(ZERO, words="not (k == 0)")
HOST = Condition("host", "line 5", asks="line 1")
NOT_HOST = replace(HOST, words="not host")
IN_LOOP = Detail("step(batch)", loops=("for batch in batches:",))
IN_LOOPS = Detail("step(batch)", loops=("for batch in batches:", "for epoch in range(2):"))
# The state of a process that launches from these lines again, and of one that will not.
AGAIN, NO_MORE = replace(at(), visits=2), replace(FINISHED, visits=2)
MET = Meeting(SUM, 4, {0: "line 2", 1: "line 7"}, {0: "line 2", 1: "line 7"})
CAME_BEFORE = (
    "the 4th launch of sum came from different lines: line 2 on process 0; line 7 on process 1. "
    "Since then, these processes may have been in different steps of the program, and results may "
    "be wrong"
)


@pytest.mark.parametrize(
    ("loops", "order"),
    [
        ([("for pair in order:", ""), ("for pair in order:", "")], "`for pair in order:`"),
        ([("for pair in order:", "line 2")] * 2, "`for pair in order:` (line 2)"),
        ([("for pair in order:", ""), ("for other in order:", "")], ""),
        ([("for pair in order:", "")], "`for pair in order:`"),
        ([], ""),
    ],
)
def test_the_loop_that_has_the_order_of_a_cycle(loops: list[tuple[str, str]], order: str) -> None:
    details = {
        k: Detail("f(x)", loops=(loop,), loops_at=(place,)) for k, (loop, place) in enumerate(loops)
    }
    verdict = Verdict("cycle", states(at(), at(5), at(6)), ring=(0, 1, 2), details=details)
    said = advise(verdict, [([k], state) for k, state in verdict.states.items()], "", 3)
    end = "let each process launch its own in that order"
    assert said.endswith(f"{end}. Here, the loop {order} has the order" if order else end)


@pytest.mark.parametrize(
    ("kind", "each", "details", "hint"),
    [
        ("missing", [at(), FINISHED], {0: ASKS_FOR_ZERO}, IF_ZERO),
        ("missing", [at(), FINISHED], {0: replace(ASKS_FOR_ZERO, loops=("for i:",))}, IF_ZERO),
        ("missing", [AGAIN, NO_MORE], {0: replace(ASKS_FOR_ZERO, loops=("for i:",))}, IF_ZERO),
        (
            "missing",
            [at(), FINISHED],
            {0: Detail("f(x)", (replace(NOT_ZERO, near=False),))},
            IF_ZERO.replace("`k == 0`", "`k == 0` (line 3) is false"),
        ),
        (
            "missing",
            [at(), FINISHED],
            {0: Detail("f(x)", (replace(NOT_ZERO, asks="line 1"),))},
            IF_ZERO.replace("`k == 0`", "`k == 0` is false, which depends on the process (line 1)"),
        ),
        ("missing", [AGAIN, NO_MORE], {0: IN_LOOP}, LOOP),
        ("missing", [AGAIN, NO_MORE], {0: IN_LOOPS}, LOOPS),
        ("missing", [at(), FINISHED], {0: IN_LOOP}, ""),
        ("missing", [replace(AGAIN, visits=1), NO_MORE], {0: IN_LOOP}, ""),
        ("missing", [AGAIN, NO_MORE], {0: replace(IN_LOOP, direct=False)}, PERHAPS),
        ("missing", [AGAIN, NO_MORE], {0: replace(IN_LOOP, skip="if stale: continue")}, SKIPPED),
        ("missing", [AGAIN, NO_MORE], {0: replace(IN_LOOP, skip="except OSError:")}, EXCEPTED),
        (
            "missing",
            [AGAIN, NO_MORE],
            {0: replace(IN_LOOP, loops=("for i in range(first, 9):",))},
            LOOP.replace("batch in batches", "i in range(first, 9)").replace(
                "give every process the same number of batches",
                "compute the range from values that all processes share",
            ),
        ),
        (
            "missing",
            [AGAIN, NO_MORE],
            {0: replace(IN_LOOP, loops=("while queue:",))},
            LOOP.replace("for batch in batches", "while queue").replace(
                "give every process the same number of batches",
                "base the condition on values that all processes share",
            ),
        ),
        # What is farther from the launch has its place.
        (
            "missing",
            [AGAIN, NO_MORE],
            {0: replace(IN_LOOP, loops_at=("train.py:3",))},
            LOOP.replace("batches:`", "batches:` (train.py:3)"),
        ),
        (
            "missing",
            [AGAIN, NO_MORE],
            {0: replace(IN_LOOPS, loops_at=("", "train.py:3"))},
            LOOPS.replace("range(2):`", "range(2):` (train.py:3)"),
        ),
        (
            "missing",
            [AGAIN, NO_MORE],
            {0: replace(IN_LOOP, skip="if stale:", loops_at=("line 2",), skip_at="line 7")},
            SKIPPED.replace("`if stale: continue`", "`if stale:` (line 7)").replace(
                "batches:`", "batches:` (line 2)"
            ),
        ),
        (
            "missing",
            [at(), FINISHED],
            {0: Detail("jnp.sum(x)", (replace(ZERO, near=False),))},
            IF_ZERO.replace("`k == 0`", "`k == 0` (line 3)"),
        ),
        # The others were inside the condition, and in the loop inside it.
        (
            "missing",
            [AGAIN, NO_MORE],
            {0: replace(IN_LOOP, conditions=(replace(ZERO, loops=1),))},
            LOOP,
        ),
        (
            "missing",
            [at(), FINISHED],
            {0: replace(IN_LOOP, conditions=(replace(ZERO, loops=1),))},
            IF_ZERO,
        ),
        (
            "missing",
            [at(), FINISHED],
            {0: Detail("f(x)", (replace(ZERO, line="train.py:7", asks="helpers.py:5"),))},
            CALL_IF_ZERO.format("this line").replace(
                "`k == 0`", "`k == 0`, which depends on the process (helpers.py:5)"
            ),
        ),
        (
            "missing",
            [at(), FINISHED],
            {0: Detail("f(x)", (replace(ZERO, line="helpers.py:7", within=True),))},
            IF_ZERO.replace("this line", "helpers.py:7, to which this line leads,"),
        ),
        # Others leave before the line, or a part of the condition is the same for all.
        (
            "missing",
            [at(), FINISHED],
            {0: Detail("f(x)", (replace(ZERO, near=False, leaves="return"),))},
            "other processes return before this line, which runs only if `k == 0` (line 3). A "
            "collective must run on every participating process: return only after it",
        ),
        (
            "missing",
            [at(), FINISHED],
            {0: Detail("f(x)", (replace(PART, line="line 9", leaves="exit"),))},
            "other processes exit before line 9, which leads to this line, and runs only if "
            "`k == 0 and loss < best`, of which `k == 0` depends on the process. A collective must "
            "run on every participating process: exit only after it",
        ),
        (
            "missing",
            [at(), FINISHED],
            {0: Detail("f(x)", (PART,))},
            "this line runs only if `k == 0 and loss < best`, of which `k == 0` depends on the "
            f"process. {LEAVE_OUT}",
        ),
        (
            "mismatch",
            [at(4), at(5, MAX)],
            {0: Detail("f(x)", (replace(PART, line="line 9", asks="line 1"),)), 1: Detail()},
            "line 9, which leads to line 4, runs only if `k == 0 and loss < best`, of which "
            f"`k == 0` depends on the process (line 1). {LEAVE_OUT}",
        ),
        ("missing", [at(), FINISHED], {0: Detail("jnp.sum(x)")}, ""),
        ("missing", [at(), at(5), FINISHED], {0: ASKS_FOR_ZERO, 1: ASKS_FOR_ZERO}, IF_ZERO),
        ("missing", [at(), at(5), FINISHED], {0: ASKS_FOR_ZERO, 1: Detail()}, ""),
        ("missing", [at(), at(5), FINISHED], {0: ASKS_FOR_ZERO, 1: IN_LOOP}, ""),
        (
            "missing",
            [at(), at(5), FINISHED],
            {0: ASKS_FOR_ZERO, 1: Detail("", (replace(ZERO, words="k == 1"),))},
            "",
        ),
        (
            "missing",
            [AGAIN, replace(at(5), visits=2), NO_MORE],
            {0: replace(IN_LOOP, conditions=(ZERO,)), 1: IN_LOOP},
            LOOP,
        ),
        ("missing", [at(), at(5), FINISHED], {0: IN_LOOP, 1: Detail(loops=("while True:",))}, ""),
        # Processes that wait at one line may have been asked at different times.
        (
            "missing",
            [AGAIN, AGAIN, NO_MORE],
            {0: replace(IN_LOOP, skip="if stale: continue"), 1: IN_LOOP},
            LOOP,
        ),
        (
            "missing",
            [AGAIN, AGAIN, NO_MORE],
            {k: replace(IN_LOOP, skip=f"if {v}: continue") for k, v in ((0, "z"), (1, "stale"))},
            SKIPPED,
        ),
        (
            "missing",
            [AGAIN, NO_MORE],
            {0: replace(IN_LOOP, skip="if stale: break", skip_ends=True)},
            SKIPPED.replace("continue` may skip this line", "break` may end the loop"),
        ),
        (
            "missing",
            [AGAIN, AGAIN, NO_MORE],
            {0: IN_LOOP, 1: replace(IN_LOOP, direct=False)},
            PERHAPS,
        ),
        # One of the others was in the loop inside the condition.
        (
            "missing",
            [AGAIN, NO_MORE, FINISHED],
            {0: replace(IN_LOOP, conditions=(replace(ZERO, loops=1),))},
            "",
        ),
        ("missing", [at(), ProcessState("raised", error="KeyError")], {0: ASKS_FOR_ZERO}, ""),
        ("died", [at(), ProcessState("died", exit=WAS_KILLED)], {0: ASKS_FOR_ZERO}, ""),
        (
            "not invited",
            [at(), ProcessState("not invited")],
            {0: ASKS_FOR_ZERO},
            f"the launch needs both processes: {NOT_INVITED}",
        ),
        ("stalled", [at(), ProcessState("runs")], {0: Detail("f(x)")}, LATE.format(1, 0)),
        ("stalled", [FINISHED, at(), ProcessState("hangs")], {}, LATE.format(2, 1)),
        ("mismatch", [at(4), at(4, MAX)], {}, ORDER),
        ("mismatch", [at(4), at(4, MAX)], {0: IN_LOOP}, ORDER),
        ("mismatch", [at(4), at(5, MAX)], {}, BRANCH),
        ("mismatch", [at(4, place="a.py:4"), at(4, MAX, "b.py:4")], {}, BRANCH),
        ("mismatch", [at(4), at(5, MAX)], {1: ASKS_FOR_ZERO}, at_line(5, IF_ZERO)),
        ("mismatch", [at(4), at(4, MAX)], {1: ASKS_FOR_ZERO}, IF_ZERO),
        ("mismatch", [at(4), at(5, MAX)], {0: ASKS_FOR_ZERO, 1: Detail()}, at_line(4, IF_ZERO)),
        (
            "mismatch",
            [at(4), at(5, MAX)],
            {0: Detail("", (replace(ZERO, words="not (k == 0)"),)), 1: ASKS_FOR_ZERO},
            BRANCHES,
        ),
        (
            "mismatch",
            [at(4), at(4), at(5, MAX), FINISHED],
            {0: Detail("", (replace(ZERO, words="not (k == 0)"),)), 2: ASKS_FOR_ZERO},
            BRANCHES,
        ),
        (
            "mismatch",
            [at(6), at(8, MAX)],
            {
                0: Detail("", (replace(HOST, near=False), NOT_ZERO)),
                1: Detail("", (replace(NOT_HOST, near=False), NOT_ZERO)),
            },
            BRANCHES.replace("`k == 0`", "`host` (line 5)").replace(
                ". Every", ", which depends on the process (line 1). Every"
            ),
        ),
        # The condition is quoted as it stands, not as it is turned around.
        (
            "mismatch",
            [at(4), at(5, MAX)],
            {0: ASKS_FOR_ZERO, 1: Detail("", (replace(ZERO, words="k != 0"),))},
            BRANCHES.replace("`k == 0`", "`k != 0`"),
        ),
        # Of three branches, the first condition parts all, the second one only two.
        (
            "mismatch",
            [at(4), at(6, MAX), at(8, replace(MAX, name="jit(min)"))],
            {
                0: ASKS_FOR_ZERO,
                1: Detail("", (HOST, NOT_ZERO)),
                2: Detail("", (NOT_HOST, NOT_ZERO)),
            },
            BRANCHES,
        ),
        # Two conditions that have nothing to do with each other.
        ("mismatch", [at(4), at(6, MAX)], {0: ASKS_FOR_ZERO, 1: Detail("", (HOST,))}, BRANCH),
        # A condition that holds for all that wait explains nothing.
        ("mismatch", [at(4), at(4, MAX)], {0: ASKS_FOR_ZERO, 1: ASKS_FOR_ZERO}, ORDER),
        (
            "mismatch",
            [at(4), at(5, MAX)],
            {0: Detail("", (replace(ZERO, at="line 2"),)), 1: ASKS_FOR_ZERO},
            BRANCH,
        ),
        (
            "mismatch",
            [at(4), at(5, MAX)],
            {0: Detail("", (replace(ZERO, line="train.py:7"),)), 1: Detail()},
            CALL_IF_ZERO.format("line 4"),
        ),
        ("mismatch", [at(4), at(4, MAX), ProcessState("raised", error="KeyError")], {}, ""),
        ("mismatch", [at(4), at(4, MAX), FINISHED], {}, ORDER),
        ("mismatch", [at(4), at(5, MAX)], {0: FULL, 1: Detail()}, HANDLING),
        ("mismatch", [at(4), at(5, MAX)], {0: FULL}, BRANCH),
        ("mismatch", [at(4), at(5, MAX)], {0: FULL, 1: FULL}, BRANCH),
        ("missing", [at(), FINISHED], {0: FULL}, HANDLING),
        ("missing", [at(), FINISHED], {0: replace(ASKS_FOR_ZERO, handling="OSError")}, IF_ZERO),
        ("missing", [at(), ProcessState("raised", error="KeyError")], {0: FULL}, ""),
        # The test ended by an error explains more than what is around the launch of the others.
        ("mismatch", [at(4), at(5, MAX)], {0: ASKS_FOR_ZERO, 1: FAILED}, ENDED),
        ("mismatch", [at(4), at(5, MAX)], {0: FAILED, 1: FAILED}, BRANCH),
        ("missing", [FINISHED, at(5, MAX)], {1: FAILED}, ENDED),
    ],
)
def test_hints(
    kind: Kind, each: Sequence[ProcessState], details: dict[int, Detail], hint: str
) -> None:
    said = sentence(kind, *each, details=details)
    assert said.partition(". Hint: ")[2] == hint
    assert said.count("Hint") == bool(hint)


@pytest.mark.parametrize(
    ("loop", "unsorted"),
    [
        ("for v in params.values():", True),
        ("for name, v in {**a, **b}.items():", True),
        ("for name in {'w', 'b'}", True),
        ("for name in set(names):", True),
        ("for file in folder.glob('*.npy'):", True),
        ("for i, file in enumerate(os.listdir(folder)):", True),
        ("for file, v in zip(set(files), values):", True),
        ('for batch in load(f"shard-{k}.npz"):', False),
        ("for i in range(len(d.values())):", False),
        ("while name in d.keys():", False),
        ("for batch in load(", False),
        ("for name, v in sorted(params.items()):", False),
        ("for batch in batches:", False),
        ("for i in range(3):", False),
        ("while reset(items):", False),
    ],
)
@pytest.mark.parametrize("aspect", ["shape", "dtype", "sharding", "local shape"])
def test_a_loop_may_have_another_order(loop: str, unsorted: bool, aspect: str) -> None:
    launches = [
        replace(
            SUM,
            name="process_allgather" if aspect == "local shape" else SUM.name,
            program=str(k),
            arguments=(argument,),
            shardings=(spec,),
        )
        for k, (argument, spec) in enumerate(
            {
                "shape": [("f32[4]", ""), ("f32[8]", "")],
                "dtype": [("f32[4]", ""), ("i32[4]", "")],
                "sharding": [("f32[4]", "P('x',)"), ("f32[4]", "P()")],
            }[aspect.removeprefix("local ")]
        )
    ]
    details = dict.fromkeys(range(2), Detail("f(v)", loops=(loop,), loops_at=("line 1",)))
    hint = sentence("mismatch", *(at(4, one) for one in launches), details=details).partition(
        ". Hint: "
    )[2]
    begins = (
        f"the loop `{loop}` (line 1) may take its elements in another order on other processes: "
        "then, sort them before looping over them. Otherwise, "
    )
    assert hint.startswith(begins) == unsorted
    assert hint.removeprefix(begins).startswith(
        (
            "all processes must pass the same",
            "all processes must use the same sharding",
            "process_allgather takes an array of the same shape from every process",
        )
    )


@pytest.mark.parametrize(
    ("details", "hint"),
    [
        ({}, BRANCH),
        ({0: IN_LOOP, 1: ASKS_FOR_ZERO}, BRANCH),
        ({0: Detail(before=(ZERO,)), 1: Detail(before=(ZERO,))}, BRANCH),
        (
            {0: Detail(before=(replace(ZERO, line="line 2"),)), 1: Detail()},
            at_line(2, IF_ZERO),
        ),
        (
            {0: Detail(before=(ZERO,)), 1: Detail(before=(ZERO, replace(ZERO, line="line 7")))},
            at_line(7, IF_ZERO),
        ),
        ({0: Detail(before=(replace(ZERO, line="line 2"),))}, at_line(2, IF_ZERO)),
    ],
)
@pytest.mark.parametrize("kind", ["missing", "mismatch"])
def test_where_processes_got_out_of_step(kind: Kind, details: dict[int, Detail], hint: str) -> None:
    waits = at(9, MAX) if kind == "mismatch" else FINISHED
    said = sentence(kind, at(4), waits, details=details, parted=MET)
    assert said.partition(". What came before: ")[2] == f"{CAME_BEFORE}. Hint: {hint}"


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        ("", ""),
        (
            "hung",
            ". What happened: the processes hung until mcnb aborted the computations",
        ),
        ("crashed", ". What happened: the processes crashed"),
        ("failed", ". What happened: a computation failed with an error"),
        (
            "returned",
            ". What happened: the launches do not match, but they ran and exchanged data. Their "
            "results may be wrong",
        ),
    ],
)
def test_what_happened(happened: Happened, expected: str) -> None:
    assert sentence("mismatch", at(4), at(4, MAX), happened=happened) == (
        "mismatch: process 0 is waiting in sum, line 4; process 1 is waiting in max, line 4"
        f"{expected}. Hint: {ORDER}"
    )
