"""The timeline of a cell: who did what when, who waited for whom, and who never came."""

from __future__ import annotations

import itertools
import re
import time as clock
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mcnb
from mcnb.cluster.outcome import Outcome
from mcnb.lockstep.model import Launch, LaunchRecord
from mcnb.lockstep.trace import Sample, Span, Trace
from mcnb.messages import ProcessError, Reply
from mcnb.pictures.scenes.time import time_scene
from mcnb.pictures.text import text_of
from mcnb.pictures.timeline import Kind, Stretch, timeline
from tests.conftest import once
from tests.support.results import F, G, made, result
from tests.support.timing import known_work_s
from tests.support.verdicts import WAS_KILLED

SVG = "{http://www.w3.org/2000/svg}"


def parts(lane: tuple[Stretch, ...]) -> list[tuple[Kind, float, float, int | None]]:
    return [(s.kind, round(s.begin, 6), round(s.end, 6), s.line) for s in lane]


STRAGGLER = result(
    {
        0: Trace(
            10.0, 12.0, (Span(10.1, 10.3, 2),), (Sample(11.5, False, 2), Sample(11.9, True, 3))
        ),
        1: Trace(10.0, 12.0, (), (Sample(12.0, False, 2),)),
        2: Trace(10.1, 12.0, (), (Sample(11.5, False, 1),)),
    },
    made(0, F, 2, 10.5, 11.5),
    made(1, F, 2, 10.4, 11.5),
    made(2, F, 2, 11.5, 11.5),
)


DRAWN = """\
The cell took 2.00 s on 3 processes
P0 ────▒▒▒▒▒▒▒───────····································●█████████████────
P1 ──────────────········································●─────────────────
P2     ──────────────────────────────────────────────────●─────────────────
                                                         ↑ line 2
   0                 500 ms            1.00 s            1.50 s      2.00 s
─ Python █ computing ▒ compiling · waiting ● met
process  Python  computing  compiling  waiting
P0       400 ms     400 ms     200 ms   1.00 s
P1       900 ms       0 ms       0 ms   1.10 s
P2       1.90 s       0 ms       0 ms     0 ms
line  launch         times  longest wait  last to come
2     jit(f) f32[8]      1  P1, 1.10 s    P2
At line 2, others waited up to 1.10 s for P2, which was in Python at line 1.
Computing: Python waits for a result. Computations are not shown while Python goes on."""


# A step and its evaluation, of a model with a thousand leaves.
LEAVES = ("f32[16,16]", "f32[16]") * 500
STEP = Launch("jit(step)", "1", (0, 1, 2, 3), (*LEAVES, "f32[32,16]"))
THOUSAND = """\
The cell took 20 s on 4 processes
P0 ·●──·●─··●─·●─··●─·●──·●─··●─·●─··●─·●──·●─··●─·●─··●─·●──·●─··●─·●─··●─
P1 ·●──·●──·●─·●──·●─·●──·●──·●─·●──·●─·●──·●──·●─·●──·●─·●──·●──·●─·●──·●─
P2 ▒●──·●──·●──●──·●──●──·●──·●──●──·●──●──·●──·●──●──·●──●──·●──·●──●──·●─
P3 ▒●───●──·●──●──·●──●───●──·●──●──·●──●───●──·●──●──·●──●───●──·●──●──·●─
    ↑ line 4                         ↑ line 6   ↑ line 4          line 6 ↑
   0                 5.00 s            10 s              15 s          20 s
─ Python ▒ compiling · waiting ● met
process  Python  computing  compiling  waiting
P0         10 s       0 ms       0 ms     10 s
P1       11.9 s       0 ms     100 ms   8.00 s
P2       13.8 s       0 ms     200 ms   6.00 s
P3       15.7 s       0 ms     300 ms   4.00 s
line  launch                                            times  longest wait  last to come
4     jit(step) f32[16,16] f32[16] f32[16,16] +998         18  P0, 500 ms    P3
6     jit(evaluate) f32[16,16] f32[16] f32[16,16] +998      2  P0, 500 ms    P3"""


def test_launches_of_a_model_with_a_thousand_leaves() -> None:
    evaluate = replace(STEP, name="jit(evaluate)", program="2")
    records = [
        made(k, STEP if i % 10 < 9 else evaluate, 4 if i % 10 < 9 else 6, i + 0.1 * k, i + 0.5)
        for i in range(20)
        for k in range(4)
    ]
    trace = Trace(0.0, 20.0, (Span(0.0, 0.4, 4),))
    drawn = result(dict.fromkeys(range(4), trace), *records, count=4).timeline()
    assert drawn.text() == THOUSAND
    assert len(drawn.svg()) < 60_000


def test_a_lane_tells_what_lies_uppermost() -> None:
    traces = {k: reply.trace for k, reply in STRAGGLER.replies.items()}
    time = timeline(traces, STRAGGLER.launches)
    assert time.length == 2.0
    assert parts(time.lanes[0]) == [
        ("python", 0.0, 0.1, 2),
        ("compiles", 0.1, 0.3, 2),
        ("python", 0.3, 0.5, 2),
        ("waits", 0.5, 1.5, 2),
        ("computes", 1.5, 1.9, 3),
        ("python", 1.9, 2.0, None),
    ]
    assert parts(time.lanes[2]) == [("python", 0.1, 1.5, 1), ("python", 1.5, 2.0, None)]
    [meeting] = time.meetings
    assert (meeting.at, meeting.missing, meeting.present) == (1.5, (), (0, 1, 2))


def test_a_straggler_is_named_with_what_it_did() -> None:
    assert STRAGGLER.timeline().text() == DRAWN


def test_who_never_came_is_a_hole() -> None:
    waits = result(
        {k: Trace(0.0, 1.0) for k in (0, 1)} | {2: Trace(0.0, 0.2)},
        made(0, F, 4, 0.5, None),
        made(1, F, 4, 0.6, None),
    )
    text = waits.timeline().text()
    rows = {line[:2]: line for line in text.splitlines() if line.startswith("P") and "─" in line}
    assert len(rows["P2"].replace(" ", "")) < 20
    assert text.endswith("P0-1 waited at line 4 in vain for P2.")
    # The marks stand where each came, the hole where the first gave up.
    assert [rows[f"P{k}"].index(mark) - 3 for k, mark in enumerate("◇◇○")] == [36, 43, 71]
    assert "─ Python · waiting ◇ in vain ○ missing" in text.splitlines()


def test_who_stands_at_another_launch_is_no_hole() -> None:
    parted = result(
        {k: Trace(0.0, 1.0) for k in range(3)},
        made(0, F, 4, 0.5, None),
        made(1, F, 4, 0.6, None),
        made(2, G, 6, 0.7, None),
    )
    for picture in (parted.timeline(), parted.timeline(order=True)):
        assert picture.text().count("◇") == 4  # one of them in the legend
        assert "○" not in picture.text()
        assert "line 4 ≠ line 6" in picture.text()


def test_the_same_program_at_two_lines_is_one_meeting() -> None:
    records = [made(k, F, 3 + k, 0.1 * k, 0.2) for k in range(3)]
    time = timeline({k: Trace(0.0, 1.0) for k in range(3)}, records)
    [meeting] = time.meetings
    assert meeting.lines == {0: 3, 1: 4, 2: 5}
    assert not meeting.missing


def test_who_gave_no_answer_is_not_said_to_be_missing() -> None:
    records = [made(1, F, 2, 0.1 * i, 0.1 * i + 0.05) for i in range(3)]
    stalled = result({0: None, 1: Trace(0.0, 1.0), 2: None}, *records)
    for text in (stalled.timeline().text(), stalled.timeline(order=True).text()):
        assert "P0 gave no answer" in text
        assert "○" not in text
        assert "never" not in text
        assert "in vain" not in text


def test_who_goes_ahead_alone_has_not_met_anybody() -> None:
    both = [made(k, F, 1, 0.1, 0.2) for k in range(3)]
    alone = result({k: Trace(0.0, 1.0) for k in range(3)}, *both, made(0, F, 2, 0.5, 0.5))
    text = alone.timeline().text()
    assert "P0 went ahead at line 2 without P1-2." in text
    assert text.count("●") == 4  # one of them in the legend
    assert text.count("◇") == 2
    assert re.search(r"jit\(f\) f32\[8\] +1 +P1-2 never", text)


def test_how_a_long_cell_ended_is_always_drawn() -> None:
    """Steps that repeat each other are told once, also several in turn."""
    programs = [Launch(f"jit(f{i})", str(i), (0, 1)) for i in range(40)]
    records = [made(k, p, i, float(i), i + 0.5) for i, p in enumerate(programs) for k in (0, 1)]
    records.append(made(0, F, 99, 50.0, None))
    many = result({k: Trace(0.0, 60.0) for k in (0, 1)}, *records, count=2)
    text = many.timeline(order=True).text()
    assert "24 of 41 steps are drawn, the first and the last." in text
    assert re.search(r"99 +jit\(f\) f32\[8\] +1 +P0 +P1-2", text)
    assert "◇" in text

    turns = [
        made(k, launch, line, 2.0 * i + at, 2.0 * i + at + 0.5)
        for i in range(50)
        for launch, line, at in ((F, 3, 0.0), (G, 4, 1.0))
        for k in range(3)
    ]
    folded = result({k: Trace(0.0, 100.0) for k in range(3)}, *turns)
    text = folded.timeline(order=True).text()
    assert "line 3 x 50" in text
    assert "line 4 x 50" in text
    assert text.count("jit(") == 2


def test_a_cell_without_launches_says_so() -> None:
    quiet = result({0: Trace(0.0, 1.0)}, count=1)
    for order in (False, True):
        said = quiet.timeline(order=order).text().splitlines()[-1]
        assert said == "Nothing was launched that spans processes."


@st.composite
def cells(draw: st.DrawFn) -> tuple[dict[int, Trace], list[LaunchRecord]]:
    traces, records = {}, []
    instants = st.integers(0, 60)
    for k in range(draw(st.integers(1, 3))):
        begin, end = sorted((draw(instants), draw(instants)))
        cuts = sorted(draw(st.lists(instants, max_size=6)))
        pairs = zip(cuts[::2], cuts[1::2], strict=False)
        compiled = tuple(Span(first, last, 1) for first, last in pairs)
        seen = sorted(draw(st.lists(instants, max_size=5)))
        samples = tuple(Sample(at, draw(st.booleans()), 2) for at in seen)
        traces[k] = Trace(begin, end, compiled, samples)
        for came in sorted(draw(st.lists(instants, max_size=4))):
            began = draw(st.none() | st.integers(came, 70))
            records.append(made(k, draw(st.sampled_from([F, G])), 3, came, began))
    return traces, records


def brute(trace: Trace, records: list[LaunchRecord], at: float) -> set[Kind]:
    """Return what a process may be told to have done at an instant, of records that began."""
    found: set[Kind] = set()
    if any(r.began is not None and r.announced < at < r.began for r in records):
        found.add("waits")
    if any(r.began is None and r.announced < at for r in records):
        found.add("waits")  # until it gave up, which other things tell
    elif found:
        return found
    if any(s.begin < at < s.end for s in trace.compiled):
        return found | {"compiles"}
    later = [s for s in trace.samples if s.at > at]
    return found | {"computes" if later and later[0].computes else "python"}


@given(cells())
def test_lanes_cover_the_cell_and_tell_the_truth(
    cell: tuple[dict[int, Trace], list[LaunchRecord]],
) -> None:
    traces, records = cell
    time = timeline(traces, records)
    starts = [t.begin for t in traces.values()] + [r.announced for r in records]
    start = min(starts)
    for k, lane in time.lanes.items():
        trace, own = traces[k], [r for r in records if r.process == k]
        assert sum(s.end - s.begin for s in lane) == pytest.approx(trace.end - trace.begin)
        assert all(a.end == b.begin for a, b in itertools.pairwise(lane))
        for s in lane:
            for at in range(int(s.begin + start), int(s.end + start)):
                assert s.kind in brute(trace, own, at + 0.5)
    text = text_of(time_scene(time, {}))
    assert text.startswith("The cell took ")
    participants = [m for m in time.meetings for k in (*m.present, *m.missing)]
    assert len(participants) == 3 * len(time.meetings)


@pytest.mark.thorough("draws 96,000 launches")
@once
def test_a_cell_with_very_many_launches_is_drawn_quickly_and_small() -> None:
    count, times = 32, 3000
    f = Launch("jit(f)", "1", tuple(range(count)))
    records = [made(k, f, 2, i + 0.01 * k, i + 0.5) for i in range(times) for k in range(count)]
    traces = {
        k: Trace(0.0, times, tuple(Span(i, i + 0.001) for i in range(times))) for k in range(count)
    }
    cell = result(traces, *records, count=count)
    began = clock.process_time()
    svg, text = cell.timeline().svg(), cell.timeline().text()
    cell.timeline(order=True).svg()
    assert clock.process_time() - began < 750 * known_work_s()
    assert len(svg) < 1_000_000
    assert len(text.splitlines()) < 90
    assert f"{times}  P0, 500 ms" in text


def test_pictures_are_the_same_every_time_and_well_formed() -> None:
    first, second = STRAGGLER.timeline(), STRAGGLER.timeline()
    assert first.svg() == second.svg()
    root = ElementTree.fromstring(first.svg())
    hints = [e.text for e in root.iter(f"{SVG}title")]
    assert "P0: waiting, line 2" in hints
    assert "P2: Python, line 1" in hints
    assert len(list(root.iter(f"{SVG}circle"))) == 4  # three meet, and the legend
    axes = first.plot()
    assert {"P0", "P1", "P2"} <= {text.get_text() for text in axes.texts}


def test_processes_that_have_no_lane() -> None:
    some = result({0: Trace(0.0, 1.0), 2: None}, count=3)
    lines = some.timeline().text().splitlines()
    assert lines[2:4] == ["P1 not given this cell", "P2 gave no answer"]
    died = mcnb.Result(
        {k: Reply(trace=Trace(0.0, 1.0) if k else None) for k in range(2)},
        2,
        Outcome(exits={0: WAS_KILLED}),
    )
    assert "P0 was killed" in died.timeline().text().splitlines()


def test_nothing_to_draw() -> None:
    with pytest.raises(mcnb.PictureError) as not_run:
        result({0: None}, count=1).timeline()
    assert str(not_run.value) == "There is nothing to draw: the cell did not run"
    dead = mcnb.Result({0: Reply()}, 1, Outcome(exits={0: WAS_KILLED}))
    with pytest.raises(mcnb.PictureError) as died:
        dead.timeline()
    assert str(died.value) == (
        "There is nothing to draw: no process could say what it did in the cell"
    )
    syntax = mcnb.Result({0: Reply(error=ProcessError("SyntaxError", "", 1, ""))}, 1)
    with pytest.raises(mcnb.PictureError, match="the cell did not run"):
        mcnb.show(syntax)
