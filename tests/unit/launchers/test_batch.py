"""Options for the commands of launchers."""

from __future__ import annotations

import pytest

from mcnb.errors import OptionError
from mcnb.launchers.batch import split_words


def test_words_as_in_a_shell() -> None:
    assert split_words("--time=5 -p 'a b'") == ["--time=5", "-p", "a b"]
    with pytest.raises(OptionError) as unclosed:
        split_words("-p 'a")
    assert str(unclosed.value) == "--options -p 'a: No closing quotation"
