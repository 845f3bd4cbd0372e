"""What a verdict says, word for word."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.lockstep.messages import exit_text, explain, left_waiting
from mcnb.lockstep.model import (
    Condition,
    Detail,
    Doing,
    ExitSource,
    Kind,
    LastLaunch,
    ProcessExit,
    ProcessState,
    Verdict,
)
from tests.support.verdicts import (
    ASKS_FOR_ZERO,
    FINISHED,
    IF_ZERO,
    MAX,
    NOT_INVITED,
    PROGRAM,
    SUM,
    WAS_KILLED,
    at,
    exited,
    killed,
    launch,
    sentence,
    states,
)

CYCLE = (
    "all processes must launch their collectives in one order. Sort the collectives by the "
    "processes that take part, such as (0,1), (0,2), (1,2), and let each process launch its own in "
    "that order"
)


TWO = launch("jit(f)", "1", arguments=("f32[8]", "i32[]"))


SLOW = (
    "no process waited for a launch of another one. If the code only needs more time, use a larger "
    "--timeout. Otherwise, look for a loop that does not end, or for a wait for something outside "
    "the cell, such as a file or a thread"
)


def lines(kind: Kind, *each: ProcessState, **more: Any) -> Sequence[str]:
    return explain(Verdict(kind, states(*each), **more), len(each)).lines


@pytest.mark.parametrize(
    ("kind", "each", "expected"),
    [
        (
            "missing",
            [at(), FINISHED],
            "missing: process 0 is waiting in sum, line 4; process 1 finished the cell without "
            "reaching it",
        ),
        (
            "missing",
            [FINISHED, at(what=TWO)],
            "missing: process 1 is waiting in jit(f), line 4; process 0 finished the cell without "
            "reaching it",
        ),
        (
            "missing",
            [at(), ProcessState("left")],
            "missing: process 0 is waiting in sum, line 4; process 1 exited without reaching it",
        ),
        (
            "missing",
            [at(None), FINISHED],
            "missing: process 0 is waiting in sum; process 1 finished the cell without reaching it",
        ),
        (
            "missing",
            [at(2, place="In[3], line 2"), FINISHED],
            "missing: process 0 is waiting in sum, In[3], line 2; process 1 finished the cell "
            "without reaching it",
        ),
        (
            "missing",
            [at(), at(), ProcessState("raised", error="ValueError: mine (line 2)")],
            "missing: process 2 raised ValueError: mine (line 2); "
            "processes 0,1 are waiting in sum, line 4",
        ),
        (
            "missing",
            [at(), at(6), FINISHED, ProcessState("left")],
            "missing: process 0 is waiting in sum, line 4; process 1 is waiting in sum, line 6; "
            "process 2 finished the cell without reaching it; process 3 exited without reaching it",
        ),
        (
            "died",
            [at(), ProcessState("died", exit=killed(4))],
            "died: process 1 was killed by SIGILL; process 0 is waiting in sum, line 4",
        ),
        (
            "died",
            [*[ProcessState("died", exit=killed(4))] * 2, at(), FINISHED],
            "died: processes 0,1 were killed by SIGILL; process 2 is waiting in sum, line 4; "
            "process 3 finished the cell without reaching it",
        ),
        (
            "died",
            [*[ProcessState("died", exit=exited(3))] * 2, at()],
            "died: processes 0,1 ended with exit code 3; process 2 is waiting in sum, line 4",
        ),
        (
            "not invited",
            [at(), ProcessState("not invited")],
            "not invited: process 0 is waiting in sum, line 4; process 1 was not given this cell. "
            f"Hint: the launch needs both processes: {NOT_INVITED}",
        ),
        (
            "not invited",
            [ProcessState("not invited"), at(), at(), ProcessState("not invited")],
            "not invited: processes 1,2 are waiting in sum, line 4; "
            "processes 0,3 were not given this cell. Hint: the launch needs processes 0,1: "
            f"{NOT_INVITED}",
        ),
        (
            "stalled",
            [ProcessState("hangs", line=3), ProcessState("runs", line=5)],
            "stalled: process 0 waited inside JAX at line 3; process 1 was at line 5. "
            f"Hint: {SLOW}",
        ),
        (
            "stalled",
            [ProcessState("hangs", line=3), *[ProcessState("runs", line=5)] * 2],
            "stalled: process 0 waited inside JAX at line 3; processes 1,2 were at line 5. "
            f"Hint: {SLOW}",
        ),
        (
            "stalled",
            [ProcessState("hangs"), ProcessState("runs")],
            "stalled: process 0 waited inside JAX; process 1 was still running, at an unknown "
            f"line. Hint: {SLOW}",
        ),
        (
            "stalled",
            [ProcessState("runs", place="train.py:9"), at(what=TWO), FINISHED],
            "stalled: process 1 was waiting in jit(f), line 4; process 0 was at train.py:9; "
            "process 2 finished the cell without reaching it. Hint: process 0 kept process 1 "
            "waiting. If the code only needs more time, use a larger --timeout",
        ),
        (
            "mismatch",
            [at(what=TWO), at(5, replace(TWO, program="2"))],
            "mismatch: process 0 is waiting in jit(f) f32[8] i32[], line 4; "
            "process 1 is waiting in jit(f) f32[8] i32[], line 5. "
            f"What differs: the compiled program. Hint: {PROGRAM}",
        ),
    ],
)
def test_kinds(kind: Kind, each: Sequence[ProcessState], expected: str) -> None:
    assert sentence(kind, *each) == expected


def test_what_a_process_was_handling() -> None:
    full = Detail("jnp.sum(x)", handling="OSError: disk full (line 2)")
    each = [at(), at(), at(6, MAX)]
    details = {0: full, 1: Detail("jnp.sum(x)"), 2: Detail("jnp.max(x)")}
    assert sentence("mismatch", *each, details=details).startswith(
        "mismatch: process 0 is waiting in sum, line 4, while handling OSError: disk full (line "
        "2); process 1 is waiting in sum, line 4; process 2 is waiting in max, line 6. Hint: "
        "an exception led "
    )
    assert lines("mismatch", *each, details=details)[2:7] == (
        "[0] is waiting in sum, line 4, while handling OSError: disk full (line 2)",
        "[1] is waiting in sum, line 4",
        "    ----> 4 jnp.sum(x)",
        "[2] is waiting in max, line 6",
        "    ----> 6 jnp.max(x)",
    )


def test_how_a_test_ended_after_which_a_process_waits() -> None:
    each = [at(), at(6, MAX)]
    details = {0: Detail("jnp.sum(x)"), 1: Detail(ended="was skipped: not here")}
    assert sentence("mismatch", *each, details=details).startswith(
        "mismatch: process 0 is waiting in sum, line 4; process 1 is waiting in max, line 6, which "
        "was skipped: not here. Hint: a test that "
    )


def test_a_ring_is_told_from_its_first_to_its_first() -> None:
    pairs = [(0, 2), (0, 1), (1, 2)]
    each = [at(what=launch(f"f{p}{q}", str(p), participants=(p, q))) for p, q in pairs]
    said = sentence("cycle", *each, ring=(0, 2, 1))
    assert said.startswith(
        "cycle: process 0 is waiting in f02 of processes 0,2, line 4; process 1 is waiting in "
        "f01 of processes 0,1, line 4; process 2 is waiting in f12 of processes 1,2, line 4; "
        "process 0 waits for process 2, process 2 for process 1, and process 1 for process 0. "
    )
    assert said.endswith(f". Hint: {CYCLE}")
    assert lines("cycle", *each, ring=(0, 2, 1)) == (
        "Processes diverged: they wait for each other in a cycle",
        "",
        "[0] is waiting in f02 of processes 0,2, line 4",
        "[1] is waiting in f01 of processes 0,1, line 4",
        "[2] is waiting in f12 of processes 1,2, line 4",
        "process 0 waits for process 2, process 2 for process 1, and process 1 for process 0",
        "",
        f"Hint: {CYCLE}",
    )


def test_a_ring_shows_arguments_and_a_missing_process_does_not() -> None:
    assert "in jit(f) f32[8] i32[] of both processes, line 4;" in sentence(
        "cycle", at(what=TWO), FINISHED, ring=(0, 1)
    )
    assert "in jit(f), line 4;" in sentence("missing", at(what=TWO), FINISHED)


def test_what_happened_has_a_line_of_its_own() -> None:
    assert lines("missing", at(), FINISHED, happened="crashed")[-2:] == (
        "",
        "What happened: the processes crashed",
    )


def test_the_consequence_comes_last() -> None:
    verdict = Verdict("missing", states(at(), FINISHED), details={0: ASKS_FOR_ZERO})
    wording = explain(verdict, 2, "The cluster is intact; all variables are kept")
    assert wording.sentence == (
        "missing: process 0 is waiting in sum, line 4; process 1 finished the cell without "
        "reaching it. "
        f"Hint: {IF_ZERO}. The cluster is intact; all variables are kept"
    )
    assert wording.lines[-3:] == (
        "",
        f"Hint: {IF_ZERO}",
        "The cluster is intact; all variables are kept",
    )


@pytest.mark.parametrize(
    ("count", "apart", "many", "one"),
    [
        (2, [1], "process 0 is", "process 1 finished"),
        (4, [3], "processes 0-2 are", "process 3 finished"),
        (4, [0, 1], "processes 2,3 are", "processes 0,1 finished"),
        (4, [0, 2], "processes 1,3 are", "processes 0,2 finished"),
        (12, [5], "processes 0-4,6-11 are", "process 5 finished"),
        (12, [0, 10, 11], "processes 1-9 are", "processes 0,10,11 finished"),
        (12, [0, 2, 4, 5, 6], "processes 1,3,7-11 are", "processes 0,2,4-6 finished"),
    ],
)
def test_many_processes(count: int, apart: list[int], many: str, one: str) -> None:
    each = [FINISHED if k in apart else at() for k in range(count)]
    assert sentence("missing", *each) == (
        f"missing: {many} waiting in sum, line 4; {one} the cell without reaching it"
    )


@pytest.mark.parametrize(
    ("count", "who"), [(2, "both processes"), (4, "all 4 processes"), (12, "all 12 processes")]
)
def test_all_at_one_line(count: int, who: str) -> None:
    each = [at(what=replace(TWO, program=str(k % 2))) for k in range(count)]
    verdict = Verdict("mismatch", states(*each), details={0: Detail("f(x, 1)")})
    wording = explain(verdict, count)
    assert wording.sentence == (
        f"mismatch: {who} are waiting in jit(f) f32[8] i32[], line 4. "
        f"What differs: the compiled program. Hint: {PROGRAM}"
    )
    assert wording.lines == (
        "Processes diverged: their launches do not match",
        "",
        f"[all {count}] are waiting in jit(f) f32[8] i32[], line 4",
        f"{'':{len(f'[all {count}]')}} ----> 4 f(x, 1)",
        "",
        "What differs: the compiled program",
        f"Hint: {PROGRAM}",
    )


def test_values_that_differ_name_their_processes() -> None:
    each = [at(what=replace(TWO, program=str(k), mesh=f"m{k % 3}")) for k in range(12)]
    assert (
        "What differs: the mesh: m0 on processes 0,3,6,9; m1 on processes 1,4,7,10; "
        "m2 on processes 2,5,8,11. "
    ) in sentence("mismatch", *each)


def test_lines_hold_labels_and_source() -> None:
    each = [at(), FINISHED, FINISHED, FINISHED]
    assert lines("missing", *each, details={0: ASKS_FOR_ZERO}) == (
        "Processes diverged: a participant is missing",
        "",
        "[0]   is waiting in sum, line 4",
        "      ----> 4 jnp.sum(x)",
        "[1-3] finished the cell without reaching it",
        "",
        f"Hint: {IF_ZERO}",
    )


def test_source_is_that_of_the_group() -> None:
    each = [at(7, MAX), at(4), at(4), at(None, TWO)]
    details = {0: Detail("jnp.max(x)"), 2: Detail("jnp.sum(x)"), 3: Detail("f(x, 1)")}
    assert lines("mismatch", *each, details=details)[2:8] == (
        "[0]   is waiting in max, line 7",
        "      ----> 7 jnp.max(x)",
        "[1,2] are waiting in sum, line 4",
        "      ----> 4 jnp.sum(x)",
        "[3]   is waiting in jit(f) f32[8] i32[]",
        "",
    )


def test_places_of_scripts() -> None:
    each = [at(7, place="train.py:7"), at(3, MAX, "model.py:3")]
    details = {0: Detail("jnp.sum(x)"), 1: Detail()}
    assert lines("mismatch", *each, details=details)[:5] == (
        "Processes diverged: their launches do not match",
        "",
        "[0] is waiting in sum, train.py:7",
        "    ----> 7 jnp.sum(x)",
        "[1] is waiting in max, model.py:3",
    )
    assert sentence("mismatch", *each).startswith(
        "mismatch: process 0 is waiting in sum, train.py:7; process 1 is waiting in max, "
        "model.py:3. "
    )


def test_the_same_line_of_two_files_is_two_places() -> None:
    each = [at(7, place="train.py:7"), at(7, place="model.py:7"), FINISHED]
    assert sentence("missing", *each) == (
        "missing: process 0 is waiting in sum, train.py:7; process 1 is waiting in sum, "
        "model.py:7; "
        "process 2 finished the cell without reaching it"
    )


def test_a_time_limit_says_where_each_process_was() -> None:
    assert lines("stalled", ProcessState("hangs", line=3), ProcessState("runs")) == (
        "The cell did not finish within its time limit",
        "",
        "[0] waited inside JAX at line 3",
        "[1] was still running, at an unknown line",
        "",
        f"Hint: {SLOW}",
    )


@pytest.mark.parametrize(
    ("how", "one", "several"),
    [
        (exited(0), "ended with exit code 0", "ended with exit code 0"),
        (
            killed(9),
            "was killed by SIGKILL (sent by a program, or by the system because memory ran out)",
            "were killed by SIGKILL (sent by a program, or by the system because memory ran out)",
        ),
        (
            replace(killed(6), line=4),
            "was killed by SIGABRT (native code called abort()) at line 4",
            "were killed by SIGABRT (native code called abort()) at line 4",
        ),
        (
            killed(7),
            "was killed by SIGBUS (a fault in native code, or a full disk)",
            "were killed by SIGBUS (a fault in native code, or a full disk)",
        ),
        (killed(99), "was killed by signal 99", "were killed by signal 99"),
        (
            replace(exited(3), last=LastLaunch("jit(f)", "train.py:7", made=True)),
            "ended with exit code 3, after it had launched jit(f) at train.py:7",
            "ended with exit code 3, after they had launched jit(f) at train.py:7",
        ),
        (
            replace(exited(3), last=LastLaunch("sum", "line 7", made=True, times=3)),
            "ended with exit code 3, after it had launched sum at line 7 for the 3rd time",
            "ended with exit code 3, after they had launched sum at line 7 for the 3rd time",
        ),
        (
            replace(killed(99), last=LastLaunch("sum", "", made=False)),
            "was killed by signal 99, while it waited in sum",
            "were killed by signal 99, while they waited in sum",
        ),
        (
            replace(killed(11), line=4, last=LastLaunch("sum", "line 3", made=True)),
            "was killed by SIGSEGV (a fault in native code) at line 4",
            "were killed by SIGSEGV (a fault in native code) at line 4",
        ),
        (
            ProcessExit(ExitSource.FOLLOWED, last=LastLaunch("sum", "line 3", made=True)),
            "exited after another process had died",
            "exited after another process had died",
        ),
        (WAS_KILLED, "was killed", "were killed"),
        (
            ProcessExit(ExitSource.LAUNCHER, reason="It was new"),
            "ended (It was new)",
            "ended (It was new)",
        ),
        (
            ProcessExit(ExitSource.SLURM, reason="node failure"),
            "was ended by Slurm: a node failed",
            "were ended by Slurm: a node failed",
        ),
        (
            ProcessExit(ExitSource.DISCONNECTED, reason="node1"),
            "was lost: the ssh connection to node1 broke",
            "were lost: the ssh connection to node1 broke",
        ),
        (
            ProcessExit(ExitSource.FOLLOWED),
            "exited after another process had died",
            "exited after another process had died",
        ),
        (
            ProcessExit(ExitSource.NOT_STARTED, reason="No space left on device"),
            "could not be started (No space left on device)",
            "could not be started (No space left on device)",
        ),
        (
            ProcessExit(),
            "ended, and the reason is not known",
            "ended, and the reason is not known",
        ),
    ],
)
def test_how_processes_ended(how: ProcessExit, one: str, several: str) -> None:
    assert (exit_text(how), exit_text(how, plural=True)) == (one, several)
    data = json.loads(json.dumps(asdict(how)))
    assert replace(ProcessExit(**data), last=data["last"] and LastLaunch(**data["last"])) == how


@pytest.mark.parametrize(
    ("kind", "heading"),
    [
        ("mismatch", "Processes diverged: their launches do not match"),
        ("missing", "Processes diverged: a participant is missing"),
        ("not invited", "Processes diverged: a participant was not given this cell"),
        ("cycle", "Processes diverged: they wait for each other in a cycle"),
        ("died", "A process died"),
    ],
)
def test_headings(kind: Kind, heading: str) -> None:
    assert lines(kind, at(), ProcessState("died", exit=WAS_KILLED), ring=(0, 1))[:2] == (
        heading,
        "",
    )


def test_who_stands_alike_stands_together() -> None:
    died = [ProcessState("died", exit=exited(code)) for code in (1, 2, 1)]
    assert sentence("died", *died, at()) == (
        "died: processes 0,2 ended with exit code 1; process 1 ended with exit code 2; "
        "process 3 is waiting in sum, line 4"
    )
    made = [replace(FINISHED, launches=n) for n in (0, 1)]
    assert sentence("missing", at(), *made) == (
        "missing: process 0 is waiting in sum, line 4; processes 1,2 finished the cell without "
        "reaching it"
    )


DOINGS: tuple[Doing, ...] = (
    "runs",
    "hangs",
    "waits",
    "finished",
    "raised",
    "left",
    "died",
    "not invited",
)


STANDS = st.builds(
    ProcessState,
    st.sampled_from(DOINGS),
    st.sampled_from([SUM, MAX, TWO]),
    st.sampled_from([None, 4, 5]),
    error=st.sampled_from(["OSError: full", "KeyError: 'x'"]),
    exit=st.sampled_from([WAS_KILLED, exited(3)]),
).map(lambda state: state if state.doing == "died" else replace(state, exit=None))


@given(st.lists(STANDS, min_size=2, max_size=12))
def test_each_process_is_in_one_line(each: list[ProcessState]) -> None:
    told = lines("stalled", *each)
    numbers: list[int] = []
    for line in told[2 : told.index("", 2) if "" in told[2:] else None]:
        said = re.match(r"\[(all \d+|[\d,-]+)\] ", line)
        assert said is not None
        for part in (f"0-{len(each) - 1}" if "all" in said[1] else said[1]).split(","):
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    assert sorted(numbers) == list(range(len(each)))


@given(st.permutations(range(5)))
def test_the_order_in_which_stands_are_known_changes_nothing(order: list[int]) -> None:
    each = [at(), at(5, MAX), FINISHED, ProcessState("raised", error="KeyError"), at()]
    verdict = Verdict("stalled", {k: each[k] for k in order})
    assert explain(verdict, 5) == explain(Verdict("stalled", states(*each)), 5)


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        ([], ""),
        ([FINISHED, ProcessState("raised", error="KeyError")], ""),
        ([at(), ProcessState("raised")], "process 0 waited at line 4 in sum"),
        ([at(None), ProcessState("raised")], "process 0 waited in sum"),
        ([at(), at(), ProcessState("raised")], "processes 0,1 waited at line 4 in sum"),
        ([at(), at()], "both processes waited at line 4 in sum"),
        (
            [at(), ProcessState("raised"), at(7, place="train.py:7"), at(), at(4, MAX)],
            "processes 0,3 waited at line 4 in sum; process 2 waited at train.py:7 in sum; "
            "process 4 waited at line 4 in max",
        ),
    ],
)
def test_left_waiting(each: Sequence[ProcessState], expected: str) -> None:
    assert left_waiting(states(*each), len(each)) == expected


TEXT = st.text(max_size=8)
CONDITIONS = st.lists(
    st.builds(Condition, TEXT, TEXT, TEXT, TEXT, st.integers(0, 3), st.booleans()), max_size=3
).map(tuple)


@given(
    st.builds(
        Detail,
        source=TEXT,
        conditions=CONDITIONS,
        loops=st.lists(TEXT, max_size=3).map(tuple),
        before=CONDITIONS,
        direct=st.booleans(),
        loops_at=st.lists(TEXT, max_size=3).map(tuple),
        static=st.dictionaries(TEXT, TEXT, max_size=3),
        program=st.lists(TEXT, max_size=3).map(tuple),
        names=st.lists(TEXT, max_size=3).map(tuple),
    )
)
def test_details_survive_the_wire(detail: Detail) -> None:
    assert Detail.from_data(json.loads(json.dumps(asdict(detail)))) == detail
