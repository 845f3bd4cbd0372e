"""Draw the view of a running cell as a panel: strips of time, and buttons that work meanwhile.

The panel is a widget of the package anywidget; without it, or in a front end that draws no widgets,
the view is text. Whether a front end draws them is known by the answer of a first, empty widget. It
is shown beside the text, as a rule while the processes start. A front end that sends the messages
of widgets to a subshell, as JupyterLab does from version 4.4 on with ipykernel 7, is answered while
a cell runs: there, the panel has buttons. See
https://github.com/jupyter/enhancement-proposals/pull/91.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from IPython.display import display

from mcnb._text import label, name_processes
from mcnb.notebook._ipykernel import answer_where_sent
from mcnb.notebook.places import InNotebook, View
from mcnb.notebook.saving import MARK, TEXT, VIEW
from mcnb.notebook.strips import LONGEST, WORDS

# How many widgets are made to find out whether a front end draws them. One that does not answer is
# never closed: its message may wait until the cell has ended.
MOST_QUESTIONS = 5
# The most strips that are drawn; equal ones share one.
MOST_STRIPS = 64
HERE, STOP, LATE, STACKS = "here", "stop", "late", "stacks"
BUTTONS: Mapping[str, str] = {STOP: "Stop", LATE: "Who is late?", STACKS: "Stacks"}
# The texts of panels, for front ends that draw no widgets, and for notebooks that are opened again.
INSTEAD = "The cell was running. To see the outputs of the last cell that has ended: %mcjax last"
STANDING = "Run this cell again to see the strips of running cells, where widgets are drawn"
# What is said below a panel of which nothing was heard for seconds.
GONE = "No news for 5 s or more: the notebook kernel was restarted, has ended, or can't be reached"
NOBODY_LATE = "No process has waited for another one so far"
NONE_RUNS = "No cell runs on the processes"
# What stays of a panel on a page that was opened while the cell ran: it is not sent the cell's end.
ENDED = View((), ("The cell has ended. To see its outputs here: %mcjax last",))


class _FrontEnd:
    """What is known of the front ends of this notebook kernel.

    Attributes:
        draws: Whether one draws widgets.
        answers: Whether its messages are answered while a cell runs.
        standing: The panel that stands by itself, or None.
    """

    def __init__(self) -> None:
        self.draws = self.answers = False
        self.standing: _Standing | None = None
        self._asked = 0
        self._ended: Any = None  # the widget of the last panel that ended

    def may_be_asked(self) -> bool:
        """Return whether to ask once more if widgets are drawn, and count it."""
        self._asked += not self.draws
        return not self.draws and self._asked <= MOST_QUESTIONS

    def heard(self) -> None:
        """Note that a widget was drawn; to be called where its message is handled."""
        self.draws = True
        # Its first messages may come before the front end has a subshell for them.
        self.answers |= threading.current_thread() is not threading.main_thread()

    def keep(self, widget: Any) -> None:
        """Keep the widget of a panel that ended, for pages that still show it, until the next."""
        if self.standing is not None and widget is self.standing.widget:
            self.standing.rest()
            return
        if self._ended is not None:
            self._ended.close()
        with widget.hold_sync():  # one message
            widget.view, widget.buttons, widget.answer = _as_data(ENDED, 0, running=False), {}, ""
        self._ended = widget


_front_end = _FrontEnd()
# Numbers the views that are sent: traitlets sends nothing if a view equals the one before, and a
# page that hears nothing for seconds says that the kernel is gone.
_draws = itertools.count(1)


@functools.cache
def is_available() -> bool:
    """Return whether panels can be drawn from here: anywidget is installed, and imports.

    It does not if it was installed for another version of Python or of one of its dependencies.
    """
    try:
        import anywidget  # noqa: F401
    except Exception:
        return False
    return True


@functools.cache
def _widget_type() -> Any:
    import anywidget
    import traitlets

    here = Path(__file__).parent

    class McnbPanel(anywidget.AnyWidget):
        _esm = (here / "panel.js").read_text()
        _css = (here / "panel.css").read_text()
        view = traitlets.Dict().tag(sync=True)
        words = traitlets.Dict(dict(WORDS)).tag(sync=True)
        buttons = traitlets.Dict().tag(sync=True)
        answer = traitlets.Unicode().tag(sync=True)
        gone = traitlets.Unicode(GONE).tag(sync=True)
        asks = traitlets.Bool().tag(sync=True)

    return McnbPanel


def _new_widget(view: View, count: int, hear: Callable[[Any, str], None]) -> Any:
    """Return a widget that shows a view; what is done in it comes as a message of a kind."""
    # The first one says that it was drawn, if it was.
    asks = not _front_end.draws
    widget = _widget_type()(view=_as_data(view, count), buttons=_buttons(), asks=asks)
    answer_where_sent(widget.comm)
    widget.on_msg(lambda widget, content, _: hear(widget, str(content.get("kind"))))
    return widget


def _buttons() -> dict[str, str]:
    return dict(BUTTONS) if _front_end.answers else {}


class _Standing:
    """A panel in the output of a cell that has ended: it shows each cell that runs.

    Attributes:
        widget: Its widget. The panel below a running cell is another view of it, so each message
            reaches both.
        hear: What hears of its buttons.
    """

    def __init__(self) -> None:
        self.hear: Callable[[Any, str], None] = _drawn
        self.widget = _new_widget(View((), ()), 0, self._heard)
        self.rest()

    def _heard(self, widget: Any, kind: str) -> None:
        (_drawn if kind == HERE else self.hear)(widget, kind)

    def show(self, view: View, count: int, hear: Callable[[Any, str], None]) -> Any:
        """Show a cell that has begun; return the widget."""
        self.hear = hear
        with self.widget.hold_sync():
            # What was asked in the last cell may have been answered after its end.
            self.widget.answer = ""
            self.widget.view, self.widget.buttons = _as_data(view, count), _buttons()
        return self.widget

    def rest(self) -> None:
        """Show that no cell runs, with the strips of the last one."""
        rows, period_s = self.widget.view["rows"], self.widget.view["period_s"]
        self.hear = _drawn
        resting = _as_data(View((), (NONE_RUNS,)), 0, running=False)
        with self.widget.hold_sync():
            self.widget.buttons, self.widget.answer = {}, ""
            self.widget.view = {**resting, "rows": rows, "period_s": period_s}


def stand() -> None:
    """Show a panel that stays when its cell has ended, in place of the last one that does."""
    before, _front_end.standing = _front_end.standing, None
    if before is not None:
        before.widget.close()
    _front_end.standing = _Standing()
    display(data_of(_front_end.standing.widget, STANDING), raw=True, metadata=dict(MARK))


def data_of(widget: Any, instead: str = "") -> dict[str, Any]:
    """Return the data by which a widget is displayed, with `MARK` as the metadata.

    The text is for front ends that draw no widgets, and for a notebook that is opened again.
    """
    model = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {TEXT: instead, VIEW: model}


class InPanel(InNotebook):
    """A panel in the output of a notebook's cell.

    Args:
        count: The number of processes in the cluster.
        stop: Interrupts the cell, from another thread.
        stacks: Returns where the processes are, from another thread.
        below: Whether the cell may have other output above the panel.
    """

    def __init__(
        self,
        count: int,
        stop: Callable[[], object],
        stacks: Callable[[], str],
        *,
        below: bool = False,
    ) -> None:
        super().__init__(below=below)
        self._count = count
        self._stop = stop
        self._stacks = stacks
        self._view = View((), ())
        self._widget: Any = None
        self._question: Any = None  # the display of a widget that asks whether widgets are drawn

    def simpler(self) -> InNotebook:
        """Return a place for text, in place of this panel."""
        return self._moved_to(InNotebook())

    def draw(self, view: View) -> None:
        """Show a view in place of what was shown last."""
        self._view = view
        if not _front_end.draws:
            self.show(view.text)
        elif self._widget is None:
            self._end_question()
            standing = _front_end.standing
            new = _new_widget if standing is None else standing.show
            self._widget = new(view, self._count, self._hear)
            self._put(data_of(self._widget, INSTEAD), MARK)
        else:
            self._widget.view = _as_data(view, self._count)

    def show(self, text: str) -> None:
        """Show a text in place of what was shown last."""
        super().show(text)
        self._end()
        if self._question is None and _front_end.may_be_asked():
            data = data_of(_new_widget(View((), ()), 0, _drawn))
            self._question = display(data, raw=True, metadata=dict(MARK), display_id=True)

    def leave(self, text: str) -> None:
        """Leave a text in place of what was shown last; the next one comes below."""
        super().leave(text)
        self._end()
        self._end_question()

    def remove(self) -> None:
        """Remove what is shown."""
        if self._keeps:
            self._end_question()
        super().remove()
        self._end()

    def _end_question(self) -> None:
        if self._question is not None:
            self._question.update({"text/plain": ""}, raw=True)
            self._question = None

    def _end(self) -> None:
        if self._widget is not None:
            _front_end.keep(self._widget)
            self._widget = None

    def _hear(self, widget: Any, kind: str) -> None:
        if kind == STOP:
            self._stop()
        elif kind == LATE:
            widget.answer = late_text(self._view.late_s, self._view.native, self._count)
        elif kind == STACKS:
            found = self._stacks()
            if widget is self._widget:  # the cell has not ended meanwhile
                widget.answer = found


def _drawn(widget: Any, kind: str) -> None:
    if kind == HERE:
        _front_end.heard()
        widget.asks = False


def _as_data(view: View, count: int, *, running: bool = True) -> dict[str, Any]:
    """Return a view as the widget takes it; of one that is running, news are expected."""
    groups: dict[str, list[int]] = {}
    many = len(view.rows) > MOST_STRIPS
    for k, row in view.rows.items():
        groups.setdefault(row if many else f"{k} {row}", []).append(k)
    rows = [(label(ks, count), view.rows[ks[0]]) for ks in groups.values()]
    return {
        "lines": list(view.lines),
        "progress": list(view.progress),
        "rows": rows[:MOST_STRIPS],
        "period_s": view.period_s,
        "longest": LONGEST,
        "running": running,
        "number": next(_draws),
    }


def late_text(
    late_s: Mapping[int, float], native: tuple[int, ...] = (), count: int | None = None
) -> str:
    """Return for which processes others have waited in a cell, and for how long.

    Args:
        late_s: For how many seconds others have waited for a process, by process.
        native: The processes that wait in native code, if none waits for others before a launch.
        count: The number of processes in the cluster.

    Example:
        >>> print(late_text({2: 12.41, 3: 0.5, 1: 0.0}))
        Others have waited for process 2 for 12.4 s
        Others have waited for process 3 for 0.5 s
        >>> print(late_text({}, (0, 3)))
        Processes 0,3 are waiting in native code; mcnb can't tell for which process, if for any
    """
    waits = sorted(late_s.items(), key=lambda one: (-one[1], one[0]))
    lines = [f"Others have waited for process {k} for {s:.1f} s" for k, s in waits if s >= 0.05]
    lines = lines[:MOST_STRIPS]
    if native:
        name = name_processes(native, count)
        verb = "is" if len(native) == 1 else "are"
        lines.append(
            f"{name[0].upper()}{name[1:]} {verb} waiting in native code; mcnb can't tell for which "
            "process, if for any"
        )
    return "\n".join(lines) or NOBODY_LATE
