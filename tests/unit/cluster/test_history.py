"""The history: steps that succeeded, until the first one after a restart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcnb.cluster.history import Cell, History, Push, Step
from mcnb.cluster.replay import Replay
from mcnb.errors import OptionError

FIRST = Cell("n = 3", (0, 1), "1")
SECOND = Push({"m": 4}, (0,))
THIRD = Cell("n += m", (1,), "2", first_line=2, checked=False, timeout=1.0)


def of(*steps: Step) -> History:
    history = History()
    for step in steps:
        history.add(step)
    return history


def test_steps_are_kept_in_their_order() -> None:
    assert History().steps == []
    assert of(FIRST, SECOND, THIRD).steps == [FIRST, SECOND, THIRD]


def test_the_same_step_twice_is_two_steps() -> None:
    assert of(FIRST, FIRST).steps == [FIRST, FIRST]


def test_a_restart_forgets_nothing_by_itself() -> None:
    history = of(FIRST, SECOND)
    history.ended()
    history.ended()
    assert history.steps == [FIRST, SECOND]


def test_the_first_step_after_a_restart_forgets_those_before_it() -> None:
    history = of(FIRST, SECOND)
    history.ended()
    history.add(THIRD)
    assert history.steps == [THIRD]
    history.add(SECOND)
    assert history.steps == [THIRD, SECOND]


def test_each_restart_counts() -> None:
    history = of(FIRST)
    for step in (SECOND, THIRD):
        history.ended()
        history.add(step)
        assert history.steps == [step]


def test_what_is_replayed_is_added_again_as_it_succeeds() -> None:
    history = of(FIRST, SECOND, THIRD)
    history.ended()
    steps = history.replayed()
    assert steps == [FIRST, SECOND, THIRD]
    assert history.steps == []
    for step in steps:
        history.add(step)
    assert history.steps == [FIRST, SECOND, THIRD]
    assert steps == [FIRST, SECOND, THIRD]


def test_a_replay_that_fails_leaves_what_succeeded() -> None:
    history = of(FIRST, SECOND, THIRD)
    history.ended()
    history.add(history.replayed()[0])
    assert history.steps == [FIRST]
    assert history.replayed() == [FIRST]


def test_a_replay_without_a_restart() -> None:
    history = of(FIRST)
    assert history.replayed() == [FIRST]
    assert history.replayed() == []
    history.add(SECOND)
    assert history.steps == [SECOND]


def test_a_restart_amid_a_replay() -> None:
    history = of(FIRST, SECOND)
    history.replayed()
    history.add(FIRST)
    history.ended()
    assert history.replayed() == [FIRST]


def test_histories_share_nothing() -> None:
    one, other = of(FIRST), of()
    other.add(SECOND)
    assert one.steps == [FIRST]
    assert other.steps == [SECOND]


@given(st.lists(st.sampled_from(["add", "restart", "replay"]), max_size=20))
def test_what_is_kept_is_what_came_after_the_last_restart_that_something_followed(
    events: list[str],
) -> None:
    history = History()
    expected: list[Step] = []
    forget = False
    for number, event in enumerate(events):
        if event == "add":
            step = Push({"n": number}, (0,))
            history.add(step)
            expected = [step] if forget else [*expected, step]
            forget = False
        elif event == "restart":
            history.ended()
            forget = True
        else:
            assert history.replayed() == expected
            expected, forget = [], False
        assert history.steps == expected


def test_only_the_cells_of_some_ranges_are_replayed() -> None:
    history = of(FIRST, SECOND, THIRD)
    assert history.unnamed([(2, 9)]) == ["1"]
    assert history.ahead([(2, 9)]) == "1 cell: In[2]"
    steps = history.replayed([(2, 9)])
    assert (FIRST in steps, SECOND in steps, THIRD in steps) == (False, True, True)
    assert str(Replay(("2",), failed=("3", "4"), unnamed=("1",))) == (
        "1 cell ran again: In[2]. In[3], In[4] failed. Left out, as not named: In[1]"
    )


def test_a_cell_whose_computation_did_not_end_is_excluded() -> None:
    history = of(FIRST, SECOND, THIRD)
    history.exclude({"2", "7"})
    assert history.steps == [FIRST, SECOND]
    assert history.endless == ["2"]
    history.ended()
    history.add(THIRD)
    assert history.endless == []


@pytest.mark.parametrize(
    ("source", "marked"),
    [
        ("# mcnb: no-replay", True),
        ("x = 1\n    #mcnb:no-replay", True),
        ("x = 1  # mcnb: no-replay", False),
        ("# mcnb: no-replays", False),
    ],
)
def test_a_cell_that_is_marked_is_not_replayed(source: str, marked: bool) -> None:
    history = History()
    history.add(Cell(source, (0,), "7"))
    assert ([cell.label for cell in history.steps if isinstance(cell, Cell)], history.marked) == (
        ([], ["7"]) if marked else (["7"], [])
    )
    history.ended()
    history.add(Cell("1", (0,), "8"))
    assert history.marked == []


def test_what_was_excluded_is_said() -> None:
    assert str(Replay(("1",), endless=("2",))) == (
        "1 cell ran again: In[1]. Left out, because its computation had to be ended: In[2]"
    )
    assert str(Replay((), endless=("2", "3"))) == (
        "0 cells ran again. Left out, because their computations had to be ended: In[2], In[3]"
    )


def test_a_cell_that_fails_after_a_restart_forgets_what_came_before() -> None:
    history = of(FIRST, SECOND)
    history.leave_out(FIRST)
    history.ended()
    history.leave_out(THIRD)
    assert (history.steps, history.left_out()) == ([], ["2"])


def test_a_replay_remembers_which_cells_had_failed() -> None:
    history = of(FIRST)
    history.leave_out(THIRD)
    history.ended()
    for step in history.replayed():
        history.add(step)
    assert (history.steps, history.left_out()) == ([FIRST], ["2"])


def test_a_cell_that_failed_is_replayed_if_it_is_named() -> None:
    history = of(FIRST, Cell("m = 1", (0,), "3"))
    history.leave_out(THIRD)
    assert history.ahead([(1, 3)]) == "3 cells: In[1], In[2], In[3]"
    assert history.left_out([(1, 3)]) == []
    assert history.left_out([(1, 1)]) == ["2"]
    assert history.replayed([(2, 2)]) == [THIRD]
    assert history.failed == []


def test_what_a_replay_did_not_run_can_be_replayed_again() -> None:
    history = of(FIRST, SECOND, THIRD)
    history.ended()
    first, *rest = history.replayed()
    history.add(first)
    history.keep(*rest)
    assert history.replayed() == [FIRST, SECOND, THIRD]


def test_cells_that_have_not_run_are_refused() -> None:
    history = of(FIRST, THIRD, Cell("# mcnb: no-replay", (0,), "12"))
    history.leave_out(Cell("1 / 0", (0,), "10"))
    history.refuse("True", ())
    history.refuse("In[2-9],In[10],In[12]", [(2, 9), (10, 10), (12, 12)])
    for ranges, named in (([(1, 1), (99, 99)], "In[99]"), ([(3, 9)], "In[3-9]")):
        with pytest.raises(OptionError) as raised:
            history.refuse("...", ranges)
        assert str(raised.value) == (
            f"--replay ...: {named} has not run on these processes. Cells that have: In[1], In[2], "
            "In[10], In[12]"
        )
    with pytest.raises(OptionError) as raised:
        History().refuse("In[1]", [(1, 1)])
    assert str(raised.value) == (
        "--replay In[1]: In[1] has not run on these processes. Cells that have: none"
    )


def test_how_to_run_cells_that_had_failed() -> None:
    assert str(Replay((), failed=("3",), left_out=("2",))) == (
        "0 cells ran again. In[3] failed. Left out, because it had failed before: In[2]. To run "
        "all, name them: %mcjax restart --keep-going --replay In[2-3]"
    )


def test_only_cells_are_announced_for_a_replay() -> None:
    assert of(FIRST, SECOND, THIRD).ahead() == "2 cells: In[1], In[2]"
    assert of(SECOND).ahead() == "0 cells"


def test_a_replay_that_stops_at_the_last_cell_names_no_cells_after_it() -> None:
    assert str(Replay(("1",), failed=("2",))) == "1 cell ran again: In[1]. In[2] failed"


def version(label: str, source: str, name: str = "a") -> Cell:
    return Cell(source, (0,), label, id=name)


def test_only_the_last_version_of_a_cell_is_replayed_in_its_place() -> None:
    other, unknown = version("2", "y = x", "b"), version("3", "z", "")
    history = of(version("1", "x = 1"), other, SECOND, unknown, version("4", "x = 2"))
    assert history.steps == [version("4", "x = 2"), other, SECOND, unknown]
    assert history.replaced == ["1"]
    history.add(version("5", "z = 1", ""))  # of cells without an id, nothing is known
    assert history.steps[-2:] == [unknown, version("5", "z = 1", "")]


def test_a_cell_that_runs_again_unchanged_is_replayed_as_often() -> None:
    first, again, other = version("1", "n += 1"), version("2", "n += 1"), version("3", "m", "b")
    assert of(first, again, other).steps == [first, again, other]
    changed = version("4", "n += 2")
    history = of(first, again, other, changed, changed)
    assert history.steps == [changed, other, changed]
    assert history.replaced == ["1", "2"]


def test_a_cell_that_is_marked_later_is_not_replayed() -> None:
    history = of(version("1", "x = 1"), FIRST, version("2", "x = 1  \n# mcnb: no-replay"))
    assert history.steps == [FIRST]
    assert (history.replaced, history.marked) == (["1"], ["2"])


def test_versions_that_were_left_out_are_listed() -> None:
    assert str(Replay(("4",), replaced=("1", "2"))) == (
        "1 cell ran again: In[4]. Left out, as a newer version ran: In[1], In[2]"
    )


def test_what_a_replay_left_out_can_still_be_named() -> None:
    history = of(FIRST, SECOND, THIRD)
    assert history.replayed([(2, 2)]) == [SECOND, THIRD]
    for step in (SECOND, THIRD):
        history.add(step)
    assert history.unnamed([]) == ["1"]
    history.refuse("In[1]", [(1, 1)])
    assert history.ahead() == "1 cell: In[2]"
    assert history.ahead([(1, 2)]) == "2 cells: In[1], In[2]"
    assert history.replayed([(1, 2)]) == [SECOND, FIRST, THIRD]  # what was pushed comes first
    assert history.unnamed([]) == []


def test_a_new_version_takes_the_place_of_one_that_a_replay_left_out() -> None:
    old, new = Cell("n = 3", (0,), "1", id="a"), Cell("n = 4", (0,), "5", id="a")
    history = of(old, THIRD)
    history.replayed([(2, 2)])
    history.add(new)
    assert (history.unnamed([]), history.replaced) == ([], ["1"])


def test_a_plain_restart_forgets_what_a_replay_left_out() -> None:
    history = of(FIRST, THIRD)
    history.replayed([(2, 2)])
    history.ended()
    history.add(FIRST)
    assert history.unnamed([]) == []
