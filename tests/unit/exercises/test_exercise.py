"""What exercises share: hints for values of another kind."""

from __future__ import annotations

import pytest

from mcnb.exercises.exercise import of_function


@pytest.mark.parametrize(
    ("seen", "hint"),
    [
        ("no function", "define a function, with def."),
        ("a list is no function", "define a function, with def."),
        ("an error", "3 of an error"),
        ((1, 2), "3 of (1, 2)"),
        (7, "3 of 7"),
    ],
)
def test_a_hint_asks_for_a_function_only_if_there_is_none(seen: object, hint: str) -> None:
    def own(seen: object, expected: object) -> str:
        return f"{expected} of {seen}"

    assert of_function(own)(seen, 3) == hint
    assert of_function(own).__name__ == "own"
