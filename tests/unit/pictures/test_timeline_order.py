"""The order of a cell's launches: it follows from what each process did, and from no clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import mcnb
from mcnb.lockstep.model import Launch
from mcnb.lockstep.trace import Trace
from tests.support.results import made, result

COUNT = 4


def test_the_order_does_not_depend_on_time() -> None:
    """Two groups that meet on their own stand above each other, whoever is faster."""
    a, b = Launch("jit(a)", "a", (0, 1)), Launch("jit(b)", "b", (2, 3))
    both = Launch("jit(both)", "c", (0, 1, 2, 3))
    drawn = set()
    for early in (0.1, 0.5):
        records = [made(k, a, 1, early, early) for k in (0, 1)]
        records += [made(k, b, 2, 0.3, 0.3) for k in (2, 3)]
        records += [made(k, both, 3, 0.7 + early * k, 1.9) for k in range(4)]
        records += [made(k, both, 3, 2.0 + early * k, 4.0 + k) for k in range(4)]
        cell = result({k: Trace(0.0, 9.0 + early) for k in range(4)}, *records, count=4)
        drawn.add(cell.timeline(order=True).text())
        drawn.add(cell.timeline(order=True).text())
    assert len(drawn) == 1
    lines = drawn.pop().splitlines()
    assert lines[0] == "The cell's launches on 4 processes, in order"
    columns = [[i for i, c in enumerate(lines[1 + k]) if c == "●"] for k in range(4)]
    assert columns[0] == columns[1] == columns[2] == columns[3]
    assert len(columns[0]) == 2
    assert "line 1, line 2" in lines[5]
    assert "line 3 x 2" in lines[5]


@st.composite
def told_twice(draw: st.DrawFn) -> tuple[mcnb.Result, mcnb.Result]:
    """The same launches of each process in the same order, once at these times and once at those.

    Some are never made: as where a process waited in vain, or all of them waited in a circle.
    """
    launches = [
        Launch(f"jit(f{i})", str(i), tuple(sorted(who)))
        for i, who in enumerate(
            draw(st.lists(st.sets(st.integers(0, COUNT - 1), min_size=2), min_size=1, max_size=4))
        )
    ]
    own = {
        k: draw(
            st.lists(
                st.tuples(
                    st.sampled_from([x for x in launches if k in x.participants]), st.booleans()
                ),
                max_size=6,
            )
        )
        for k in range(COUNT)
        if any(k in x.participants for x in launches)
    }

    def at_some_times() -> mcnb.Result:
        records = []
        for k, made_by_it in own.items():
            times = st.lists(
                st.floats(0, 100), min_size=len(made_by_it), max_size=len(made_by_it), unique=True
            )
            for (launch, began), came in zip(made_by_it, sorted(draw(times)), strict=True):
                late = came + draw(st.floats(0, 5))
                records.append(made(k, launch, 3, came, late if began else None))
        return result({k: Trace(0.0, 110.0) for k in range(COUNT)}, *records, count=COUNT)

    return at_some_times(), at_some_times()


@given(told_twice())
def test_no_clock_decides(told: tuple[mcnb.Result, mcnb.Result]) -> None:
    once, again = (one.timeline(order=True).text() for one in told)
    assert once == again


def test_who_gave_up_early_by_its_own_clock_still_comes_last() -> None:
    """A launch that was waited for in vain is drawn after the one before it, which all made."""
    f, g = (Launch(f"jit({name})", name, (0, 1)) for name in "fg")
    records = [made(0, f, 1, 1.0, 1.0), made(1, f, 1, 1.0, 7.0), made(0, g, 2, 2.0, None)]
    cell = result({0: Trace(0.0, 3.0), 1: Trace(0.0, 9.0)}, *records, count=2)
    lines = cell.timeline(order=True).text().splitlines()
    assert [line[0] for line in lines if "jit(" in line] == ["1", "2"]
