"""The listener's own bell: words that wake it and the one that ends it, however they come."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from mcnb.lockstep.listener import Listener


@pytest.mark.parametrize("words", ["x", ".x", "..x", "x.", "." * 200 + "x"])
def test_it_ends_when_told_whatever_woke_it_before(tmp_path: Path, words: str) -> None:
    listener = Listener(1, tmp_path, "", lambda *_: None, lambda *_: None)
    with contextlib.closing(listener):
        for word in words:
            listener.end() if word == "x" else listener.wake()
        polls = [listener.poll(0)]
        while polls[-1] and len(polls) < 10:
            polls.append(listener.poll(0))
        assert polls[-1] is False


def test_it_goes_on_when_woken(tmp_path: Path) -> None:
    with contextlib.closing(
        Listener(1, tmp_path, "", lambda *_: None, lambda *_: None)
    ) as listener:
        listener.wake()
        listener.wake()
        assert listener.poll(None)
        assert listener.poll(0)
