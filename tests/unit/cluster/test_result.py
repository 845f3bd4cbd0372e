"""What came of a cell: by process, and as one text and one error."""

from __future__ import annotations

from typing import Any

import pytest

import mcnb
from mcnb.cluster.outcome import Outcome, died_sentence
from mcnb.cluster.result import Result
from mcnb.lockstep.model import Launch, Meeting, ProcessState, Verdict
from mcnb.messages import Display, ProcessError, Reply, Text
from tests.support.results import F, G, made
from tests.support.verdicts import FINISHED, WAS_KILLED, at, exited, killed, states

OK = Reply()
DIVISION = ProcessError("ZeroDivisionError", "division by zero", 4, "\x1b[31mtraceback\x1b[39m")
KEY = ProcessError("KeyError", "'x'", 2, "key traceback")
STOPPED = ProcessError("KeyboardInterrupt", "", 7, "stopped traceback")
RESTARTED = (
    "All 4 processes are being restarted: their variables are lost. To restore them, re-run "
    "the cells that succeeded: %mcjax restart --replay"
)


def failed(error: ProcessError, *texts: str) -> Reply:
    return Reply(tuple(Text("stdout", text) for text in texts), error)


def message(result: Result) -> str:
    error = result.error()
    assert error is not None
    with pytest.raises(type(error)) as raised:
        result.raise_for_errors()
    assert str(raised.value) == str(error)
    return str(error)


def test_a_result_by_process() -> None:
    events = (Text("stdout", "a\n"), Text("stderr", "b\n"), Text("stdout", "c"))
    result = Result({0: Reply(events, None, "8"), 2: Reply()}, 4)
    assert result.ok
    assert result.stdout == {0: "a\nc", 2: ""}
    assert result.stderr == {0: "b\n", 2: ""}
    assert result.value == {0: "8", 2: None}
    assert result.errors == {}
    assert result.error() is None
    result.raise_for_errors()
    assert result.text() == "[0] a\n[0] b\n[0] c\n"


def test_a_result_of_no_process() -> None:
    result = Result({}, 4)
    assert result.ok
    assert result.text() == ""


def test_text_tells_of_what_is_more_than_text() -> None:
    figure = Display({"image/png": "iVBO", "text/plain": "<Figure>"})
    page = Display({"text/html": "<b>", "application/json": {}})
    value = Display({"text/plain": "8"}, is_value=True)
    result = Result({k: Reply((figure, page, value)) for k in range(2)}, 2)
    assert result.text() == (
        "[all 2]\n<Figure>\n[all 2]\n<application/json, text/html>\n[all 2] 8\n"
    )


def test_one_error() -> None:
    result = Result({0: OK, 1: failed(DIVISION, "before\n"), 2: OK, 3: OK}, 4)
    assert not result.ok
    assert result.errors == {1: DIVISION}
    assert message(result) == "process 1 raised ZeroDivisionError: division by zero (line 4)"
    assert isinstance(result.error(), mcnb.CellError)
    assert result.text() == "[1] before\n[1] ZeroDivisionError in line 4\ntraceback\n"


def test_equal_errors_are_folded_and_others_follow() -> None:
    result = Result({0: failed(KEY), 1: failed(DIVISION), 2: failed(KEY), 3: OK}, 4)
    assert message(result) == (
        "processes 0,2 raised KeyError: 'x' (line 2); "
        "process 1 raised ZeroDivisionError: division by zero (line 4)"
    )
    error = result.error()
    assert error is not None
    assert error.lines == [
        "[0,2] KeyError in line 2",
        "key traceback",
        "",
        "[1] ZeroDivisionError in line 4",
        "\x1b[31mtraceback\x1b[39m",
    ]
    everywhere = Result({k: failed(KEY) for k in range(4)}, 4)
    assert message(everywhere) == "all 4 processes raised KeyError: 'x' (line 2)"


def test_errors_that_differ_in_anything_stay_apart() -> None:
    other = ProcessError("KeyError", "'x'", 2, "another traceback")
    result = Result({0: failed(KEY), 1: failed(other)}, 2)
    assert message(result) == (
        "process 0 raised KeyError: 'x' (line 2); process 1 raised KeyError: 'x' (line 2)"
    )


def test_long_errors_of_one_kind_are_told_together() -> None:
    def raised(text: str) -> Reply:
        return failed(ProcessError("AssertionError", text, 3, f"stack\nAssertionError: {text}"))

    replies = {k: raised(f"{k} {'no ' * 400}") for k in range(3)} | {3: failed(KEY)}
    result = Result(replies, 4)
    assert message(result) == (
        "processes 0-2 raised AssertionError in line 3, with 3 different texts, for "
        f"example on process 0: 0 {'no ' * 332}no…; process 3 raised KeyError: 'x' (line 2)"
    )
    error = result.error()
    assert error is not None
    assert all(f"AssertionError: {k} no no" in "\n".join(error.lines) for k in range(3))
    elsewhere = ProcessError("KeyError", "'x'", 2, "another traceback")
    result = Result({0: failed(KEY), 1: failed(elsewhere)}, 2)
    assert result.summaries(50) == ["both processes raised KeyError: 'x' (line 2)"]


def test_a_long_text_is_cut_in_the_headline_and_tells_processes_apart() -> None:
    errors = [ProcessError("E", f"{'x' * 1400}{k}", 1, "cut") for k in range(4)]
    result = Result({k: failed(error) for k, error in enumerate(errors)}, 4)
    assert message(result) == (
        "all 4 processes raised E in line 1, with 4 different texts, for example on process 0: "
        f"{'x' * 1000}…"
    )


def test_only_the_first_line_of_a_message_is_in_the_headline() -> None:
    long = ProcessError("ValueError", "one\ntwo", None, "")
    assert message(Result({0: failed(long)}, 1)) == "process 0 raised ValueError: one"
    silent = ProcessError("AssertionError", "", 3, "")
    assert message(Result({0: failed(silent)}, 1)) == "process 0 raised AssertionError (line 3)"


def test_processes_that_were_stopped_are_no_headline() -> None:
    aftermath = f"Processes 0,1,3 (line 7) were waiting, so mcnb interrupted them. {RESTARTED}"
    replies = {k: failed(STOPPED) for k in (0, 1, 3)} | {2: failed(DIVISION)}
    result = Result(replies, 4, Outcome(stopped=dict.fromkeys((0, 1, 3), 7), intact=False))
    assert message(result) == (
        f"process 2 raised ZeroDivisionError: division by zero (line 4). {aftermath}"
    )
    assert result.text() == f"[2] ZeroDivisionError in line 4\ntraceback\n\n{aftermath}\n"


def test_own_errors_come_before_those_of_stopped_processes() -> None:
    result = Result(
        {0: failed(KEY), 1: failed(STOPPED), 3: failed(DIVISION)}, 4, Outcome(stopped={0: 7, 1: 7})
    )
    assert message(result) == (
        "process 3 raised ZeroDivisionError: division by zero (line 4); "
        "process 0 raised KeyError: 'x' (line 2). Processes 0,1 (line 7) were waiting, so mcnb "
        "interrupted them"
    )


def test_a_keyboard_interrupt_of_the_cells_own_is_an_error() -> None:
    result = Result({0: failed(STOPPED), 1: failed(STOPPED)}, 2, Outcome(stopped={1: 7}))
    assert message(result) == (
        "process 0 raised KeyboardInterrupt (line 7). Process 1 (line 7) was waiting, so mcnb "
        "interrupted it"
    )


def test_an_interrupted_cell() -> None:
    aftermath = (
        "Both processes (line 7) were interrupted. The cluster is intact; all variables are kept"
    )
    result = Result(
        {0: failed(STOPPED, "0\n"), 1: failed(STOPPED, "0\n")},
        2,
        Outcome(stopped={0: 7, 1: 7}, interrupted=True, verified=True),
    )
    assert message(result) == f"The cell was interrupted. {aftermath}"
    assert result.text() == f"[all 2] 0\n\n{aftermath}\n"


def test_a_process_that_died() -> None:
    result = Result(
        {0: failed(KEY, "a\n"), 1: Reply((Text("stdout", "a\n"),)), 2: failed(STOPPED)},
        4,
        Outcome(stopped={2: None}, exits={1: killed(15), 3: killed(15)}, intact=False),
    )
    aftermath = f"Process 2 was waiting, so mcnb interrupted it. {RESTARTED}"
    assert not result.ok
    assert isinstance(result.error(), mcnb.ClusterError)
    assert message(result) == f"processes 1,3 were killed by SIGTERM. {aftermath}"
    assert result.text() == (
        "[0,1] a\n"
        f"ClusterError: processes 1,3 were killed by SIGTERM. {aftermath}\n"
        "[0] KeyError in line 2\n"
        "key traceback\n"
    )
    assert result.died == {1: "was killed by SIGTERM", 3: "was killed by SIGTERM"}
    assert not Result({}, 1, Outcome(exits={0: exited(3)})).ok


def test_how_processes_died() -> None:
    assert died_sentence({0: WAS_KILLED, 2: exited(3), 3: WAS_KILLED}, 4) == (
        "processes 0,3 were killed; process 2 ended with exit code 3"
    )
    assert died_sentence({0: WAS_KILLED, 1: WAS_KILLED}, 2) == "both processes were killed"


def test_an_interrupted_cell_without_an_answer_is_not_ok() -> None:
    # Processes that are blocked in native code don't answer: nothing of theirs is an error.
    result = Result({0: Reply()}, 1, Outcome(stopped={0: None}, interrupted=True, verified=True))
    assert not result.ok
    assert str(result.error()) == (
        "The cell was interrupted. Process 0 was interrupted. The cluster is intact; all variables "
        "are kept"
    )


@pytest.mark.parametrize(
    "outcome",
    [Outcome(stopped={0: 3}), Outcome(verdict=Verdict("missing", states(at(), FINISHED)))],
)
def test_a_cell_that_was_stopped_or_diverged_is_not_ok(outcome: Outcome) -> None:
    assert not Result({0: OK, 1: OK}, 2, outcome).ok


def test_processes_of_another_tool_are_not_said_to_be_restarted() -> None:
    result = Result({0: failed(STOPPED)}, 1, Outcome(interrupted=True, intact=False), ours=False)
    assert result.aftermath == (
        "The processes can't communicate any more. Restart them with the tool that started them; "
        "then: %mcjax connect"
    )


def test_launches_of_all_processes_are_in_the_order_of_their_times() -> None:
    first = [made(0, F, 2, 1.0, 2.0), made(0, G, 3, 4.0, 5.0)]
    second = [made(1, F, 2, 1.0, 2.0), made(1, G, 3, 3.0, 5.0)]
    result = Result({1: Reply(launches=tuple(second)), 0: Reply(launches=tuple(first))}, 2)
    assert result.launches == (first[0], second[0], second[1], first[1])


ONE_PROGRAM = Launch("jit(f)", "1", (0, 1))
LAUNCHED = {
    k: Reply((Text("stdout", "1\n"),), launches=(made(k, ONE_PROGRAM, 3 + 3 * k, 0.0, 1.0),))
    for k in range(2)
}
NOTE = (
    "Process 0 launched jit(f) at line 3, and process 1 at line 6. The lines launch the same "
    "computation, so no process hung. If they are different steps of the program, the results "
    "are wrong"
)


def test_a_suspicious_launch_is_noted_below_the_output() -> None:
    result = Result(LAUNCHED, 2)
    assert result.notes == (NOTE,)
    assert result.text() == f"[all 2] 1\nNote: {NOTE}\n"


def test_a_note_precedes_the_aftermath_of_a_divergence() -> None:
    verdict = Verdict("missing", states(at(), FINISHED))
    error = Result(LAUNCHED, 2, Outcome(verdict=verdict, verified=True)).error()
    assert error is not None
    assert error.lines[-2:] == [
        f"Note: {NOTE}",
        "The cluster is intact; all variables are kept",
    ]


def test_a_verdict_that_tells_where_the_processes_parted_needs_no_note() -> None:
    parted = Meeting(ONE_PROGRAM, 1, {0: "line 3", 1: "line 6"}, {}, {})
    verdict = Verdict("missing", states(at(), FINISHED), parted=parted)
    assert Result(LAUNCHED, 2, Outcome(verdict=verdict)).notes == ()


ABORTED = ProcessError("JaxRuntimeError", "Gloo: connection closed", 4, "aborted traceback")
REFUSED = ProcessError("JaxRuntimeError", "in a callback: LockstepError: missing", 4, "refused")
DIVERGED = ProcessError("LockstepError", "missing", 4, "diverged traceback")


@pytest.mark.parametrize(
    ("error", "state", "happened", "remains"),
    [
        (DIVERGED, ProcessState("runs"), "", False),
        (ABORTED, at(), "", False),
        (ABORTED, ProcessState("runs"), "hung", False),
        (REFUSED, ProcessState("runs"), "", False),
        (ABORTED, ProcessState("runs"), "", True),
        (KEY, at(), "hung", True),
    ],
)
def test_errors_that_follow_from_a_divergence_are_not_listed(
    error: ProcessError, state: ProcessState, happened: Any, remains: bool
) -> None:
    verdict = Verdict("mismatch", states(at(), at(6), state), happened=happened)
    told = Result({2: failed(error)}, 3, Outcome(verdict=verdict)).error()
    assert told is not None
    assert (error.traceback in told.lines) == remains


def test_errors_of_other_processes_follow_the_time_limit() -> None:
    verdict = Verdict("stalled", states(ProcessState("runs", line=3), ProcessState("raised")))
    outcome = Outcome(stopped={0: 3}, time_limit=2.0, verdict=verdict, verified=True)
    error = Result({0: failed(STOPPED), 1: failed(KEY)}, 2, outcome).error()
    assert error is not None
    assert error.lines[0] == "CellError: The cell did not finish within its time limit"
    assert error.lines[-3:] == ["", "[1] KeyError in line 2", "key traceback"]
