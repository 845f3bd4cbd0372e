"""What happens at the end of a process: in which order, and whatever fails."""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mcnb.worker import leaving


class LeftError(BaseException):
    """Raised where the process would end."""


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the process did at its end; its only module of the user's own has a variable, too."""
    done: list[Any] = []
    module = ModuleType("mine")
    vars(module)["last"] = Last(done)

    def leave(code: int) -> None:
        done.append(code)
        raise LeftError

    def fail() -> None:
        done.append("handlers")
        raise ValueError

    monkeypatch.setattr(leaving, "own_modules", lambda: iter([module]))
    monkeypatch.setattr(threading, "_shutdown", lambda: done.append("threads"))
    monkeypatch.setattr(atexit, "_run_exitfuncs", fail)
    monkeypatch.setattr(leaving, "flush_files", lambda: done.append("files"))
    monkeypatch.setattr(os, "_exit", leave)
    before = signal.getsignal(signal.SIGHUP)
    yield done
    signal.signal(signal.SIGHUP, before)


class Last:
    """A variable that notes when it goes away."""

    def __init__(self, done: list[Any]) -> None:
        self.done = done

    def __del__(self) -> None:
        self.done.append("variables")


def test_all_steps_are_taken_whatever_fails(done: list[Any]) -> None:
    with pytest.raises(LeftError):
        leaving.leave({"last": Last(done)})
    assert done == ["threads", "handlers", "variables", "variables", "files", 0]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_who_exits_at_the_end_ends_the_process(
    done: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exits() -> None:
        raise SystemExit(3)

    monkeypatch.setattr(atexit, "_run_exitfuncs", exits)
    with pytest.raises(LeftError):
        leaving.leave({})
    assert done == ["threads", 0]


def test_variables_in_rings_go_away(done: list[Any]) -> None:
    ring: list[Any] = [Last(done)]
    ring.append(ring)
    variables: dict[str, Any] = {"ring": ring, "__builtins__": 1}
    del ring
    leaving.finalize(variables)
    assert done == ["variables", "variables"]
    assert variables == {"ring": None, "__builtins__": 1}


def test_modules_of_the_users_own_are_no_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    def module(name: str, file: object) -> ModuleType:
        made = ModuleType(name)
        if file is not None:
            made.__file__ = file  # type: ignore[assignment]
        monkeypatch.setitem(sys.modules, name, made)
        return made

    monkeypatch.setattr(leaving, "_AT_FIRST", frozenset(sys.modules))
    mine = module("mine", "/home/ada/mine.py")
    module("theirs", "/venv/lib/python3.13/site-packages/theirs.py")
    module("built_in", None)
    module("odd", 3)
    monkeypatch.setitem(sys.modules, "gone", None)  # type: ignore[arg-type]
    module("mcnb.more", "/home/ada/mcnb/more.py")
    assert list(leaving.own_modules()) == [mine]


def test_files_are_written_whatever_is_closed(tmp_path: Path) -> None:
    file = (tmp_path / "a").open("w")
    file.write("text")
    closed = (tmp_path / "b").open("w")
    closed.close()
    wrapped = io.TextIOWrapper((tmp_path / "c").open("wb"))
    wrapped.write("wrapped")
    leaving.flush_files()
    assert [(tmp_path / name).read_text() for name in "abc"] == ["text", "", "wrapped"]
    file.close()
    wrapped.close()
