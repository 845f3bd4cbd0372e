"""Completion and tooltips in `%%mcjax` cells: who is asked, for what, and what IPython gets."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.completer import CompletionContext

from mcnb.cluster import cluster as clusters
from mcnb.messages import ProcessError
from mcnb.notebook.assistance import PATIENCE_S, Assistance, body_of
from mcnb.notebook.parsing import first_process
from mcnb.worker.introspection import Match, complete, describe


class FakeCluster:
    """A cluster whose processes give one answer, and which notes what they are asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answer: Any = None

    def ask_idle(
        self, function: Any, *args: Any, processes: list[int], within_s: float
    ) -> dict[int, Any]:
        assert within_s == PATIENCE_S
        (process,) = processes
        self.asked.append((function, *args, process))
        return {} if self.answer is None else {process: self.answer}


class Kernel:
    """A notebook kernel, which knows nothing."""

    def do_inspect(self, *args: Any) -> Any:
        return "the kernel's own", args


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    cluster = FakeCluster()
    monkeypatch.setattr(clusters, "current", cluster)
    return cluster


@pytest.fixture
def shell() -> Any:
    completer = SimpleNamespace(custom_matchers=[])
    return SimpleNamespace(
        Completer=completer, kernel=Kernel(), enable_html_pager=True, user_ns={"path": 1}
    )


@pytest.fixture
def assistance(shell: Any) -> Iterator[Assistance]:
    assistance = Assistance(shell, first_process, lambda cell: cell.startswith("# implied"))
    assistance.install()
    yield assistance
    assistance.remove()
    assert shell.Completer.custom_matchers == []
    assert "do_inspect" not in vars(shell.kernel)


def context(before: str, after: str = "") -> CompletionContext:
    """Return what IPython tells a matcher, with the cursor between two texts."""
    lines = before.split("\n")
    token = lines[-1].rpartition(" ")[2]
    return CompletionContext(token, before + after, len(lines[-1]), len(lines) - 1, None)


@pytest.mark.parametrize(
    ("cell", "options", "source"),
    [
        ("%%mcjax\nx", "", "x"),
        ("%%mcjax\n", "", ""),
        ("\n\n  %%mcjax -p 1  \nx\ny", "-p 1", "x\ny"),
        ("# Train.\n\n  # All of it.\n%%mcjax\nx", "", "x"),
        ("# Train.\ny = 1\n%%mcjax\nx", None, ""),
        ("%%mcjax-p 1\nx", None, ""),
        ("%%mcjax", None, ""),
        ("%%mcjaxes\nx", None, ""),
        ("%mcjax start\nx", None, ""),
        ("x\n%%mcjax\ny", None, ""),
        ("", None, ""),
    ],
)
def test_what_runs_on_the_processes(cell: str, options: str | None, source: str) -> None:
    body = body_of(cell)
    assert (body and body.options) == options
    assert body is None or (body.source, cell[body.start :]) == (source, source)


def test_completions_come_from_the_first_process_of_the_cell(
    assistance: Assistance, cluster: FakeCluster
) -> None:
    cluster.answer = (Match(8, "params", "variable"), Match(8, "parts", "function"))
    found = assistance.names(context("%%mcjax -p 2-3\na = 1\nb=pa", "\nc"))
    assert cluster.asked == [(complete, "a = 1\nb=pa\nc", 10, 2)]
    assert [(one.text, one.type) for one in found.pop("completions")] == [
        ("params", "variable"),
        ("parts", "function"),
    ]
    assert found == {"matched_fragment": "pa", "suppress": True, "ordered": True}


def test_a_cell_without_the_magic_may_run_on_the_processes(
    shell: Any, assistance: Assistance, cluster: FakeCluster
) -> None:
    cluster.answer = (Match(10, "params", "variable"),)
    found = assistance.names(context("# implied\npa"))
    assert cluster.asked == [(complete, "# implied\npa", 12, 0)]
    assert (found["completions"][0].text, found["matched_fragment"]) == ("params", "pa")
    cluster.answer = {"text/plain": "Type: int"}
    assert shell.kernel.do_inspect("# implied\nx", 11)["data"] == {"text/plain": "Type: int"}


@pytest.mark.parametrize(("before", "after"), [("pa", ""), ("%%mcjax\n", "")])
def test_elsewhere_ipython_completes(
    before: str, after: str, assistance: Assistance, cluster: FakeCluster
) -> None:
    cluster.answer = ()
    assert assistance.names(context(before, after)) == {"completions": []}
    assert len(cluster.asked) == (before == "%%mcjax\n")


def test_where_a_process_raises_an_error_ipython_helps(
    assistance: Assistance, shell: Any, cluster: FakeCluster
) -> None:
    cluster.answer = ProcessError("ValueError", "mine", None, "traceback")
    assert assistance.names(context("%%mcjax\npa")) == {"completions": []}
    assert shell.kernel.do_inspect("%%mcjax\nx", 9) == (
        "the kernel's own",
        ("%%mcjax\nx", 9, 0, ()),
    )
    assert len(cluster.asked) == 2


def test_without_a_cluster_ipython_helps(
    assistance: Assistance, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "current", None)
    assert assistance.names(context("%%mcjax\nx")) == {"completions": []}
    arguments = ("%%mcjax\nx", 9, 0, ())
    assert shell.kernel.do_inspect(*arguments) == ("the kernel's own", arguments)


def test_a_tooltip_is_the_processes(
    shell: Any, assistance: Assistance, cluster: FakeCluster
) -> None:
    cluster.answer = {"text/plain": "Type: int", "text/html": "<b>int</b>"}
    reply = shell.kernel.do_inspect("%%mcjax -p 1\ny = f(x.shape", 25, 1)
    assert cluster.asked == [(describe, "x.shape", 1, 1)]
    assert reply == {"status": "ok", "data": cluster.answer, "metadata": {}, "found": True}
    shell.enable_html_pager = False
    reply = shell.kernel.do_inspect("%%mcjax\nx", 9)
    assert reply["data"] == {"text/plain": "Type: int"}


def test_a_name_that_the_process_does_not_know(
    shell: Any, assistance: Assistance, cluster: FakeCluster
) -> None:
    cluster.answer = {}
    assert shell.kernel.do_inspect("%%mcjax\nnothing", 12) == {
        "status": "ok",
        "data": {},
        "metadata": {},
        "found": False,
    }


@pytest.mark.parametrize(
    ("cell", "position"),
    [("x", 1), ("%%mcjax -p 1\nx", 4), ("%%mcjax\n1 + ", 12), ("%%mcjax\nx", 9)],
)
def test_elsewhere_the_kernel_describes(
    cell: str, position: int, shell: Any, assistance: Assistance, cluster: FakeCluster
) -> None:
    assert shell.kernel.do_inspect(cell, position, 1, ("a",)) == (
        "the kernel's own",
        (cell, position, 1, ("a",)),
    )
    assert len(cluster.asked) == (cell == "%%mcjax\nx")  # a process that does not answer


def test_a_terminal_has_no_tooltips(shell: Any) -> None:
    del shell.kernel
    assistance = Assistance(shell, first_process, lambda cell: False)
    assistance.install()
    assert len(shell.Completer.custom_matchers) == 1
    assistance.remove()


def test_an_ipython_that_tells_matchers_nothing_completes_itself(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcnb.notebook.assistance.HAS_CONTEXTS", False)
    assistance = Assistance(shell, first_process, bool)
    assistance.install()
    assert shell.Completer.custom_matchers == []
    assert "do_inspect" not in vars(shell.kernel)
    assistance.remove()
