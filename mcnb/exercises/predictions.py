"""Define the questions that a learner answers before a cell runs, and what its output answers."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcnb.errors import OptionError

# How a lesson marks a question.
MARK = "**Predict"
_NOT_READ = re.compile(r"[`*]")


@dataclass(frozen=True)
class Prediction:
    r"""A question of a lesson, and how the output of the cell below answers it.

    Attributes:
        question: The question in the lesson's own words, by which it is found there.
        choices: The possible answers; for each, a regular expression that is found in the output if
            it is right, or None for an answer that no output can show. In the expressions, `.` is
            also the end of a line, and `^` and `$` are the ends of lines.
        number: For a question without choices: a regular expression whose group is the number.

    Example:
        >>> asked = Prediction("How many?", {"one": r"\[all \d+\]", "four": r"\[0\]"})
        >>> asked.answer_in("[all 4] hello\n")
        'one'
        >>> Prediction("How many bytes?", number=r"(\d+) B stay").answer_in("32 B stay")
        '32'
    """

    question: str
    choices: Mapping[str, str | None] = field(default_factory=dict)
    number: str = ""

    @property
    def asks(self) -> str:
        """The question as plain text.

        Example:
            >>> Prediction("which is `P0.1`?").asks
            'Which is P0.1?'
        """
        plain = _NOT_READ.sub("", self.question)
        return plain[:1].upper() + plain[1:]

    def accept(self, given: object) -> str:
        """Return a learner's answer as text.

        Args:
            given: One of the choices, or its number, from 1; where there are none, a whole number.

        Raises:
            OptionError: It is none of these.

        Example:
            >>> asked = Prediction("How many?", {"one": None, "four": None})
            >>> asked.accept(2), asked.accept("one"), Prediction("?", number="(.)").accept("32")
            ('four', 'one', '32')
        """
        words = str(given).strip()
        if words in self.choices:
            return words
        whole = re.fullmatch(r"-?\d+", words) is not None
        if not self.choices and whole:
            return str(int(words))
        if self.choices and whole and 1 <= int(words) <= len(self.choices):
            return list(self.choices)[int(words) - 1]
        expected = f"a number from 1 to {len(self.choices)}" if self.choices else "a whole number"
        raise OptionError(f"An answer to this question is {expected}, not {given!r}")

    def answer_in(self, output: str) -> str | None:
        """Return the answer that an output shows; None if it shows none.

        Args:
            output: The text of a cell's result.
        """
        if self.number:
            found = _found(self.number, output)
            return None if found is None else str(int(found[1]))
        for choice, pattern in self.choices.items():
            if pattern is not None and _found(pattern, output):
                return choice
        return None


def _found(pattern: str, output: str) -> re.Match[str] | None:
    return re.search(pattern, output, re.DOTALL | re.MULTILINE)


def predictions() -> dict[str, Prediction]:
    """Return all questions, keyed by name.

    Example:
        >>> list(predictions())[:2]
        ['01.a', '01.b']
    """
    found: dict[str, Prediction] = {}
    for path in sorted(Path(__file__).parent.glob("lesson[0-9][0-9].py")):
        found |= importlib.import_module(f"mcnb.exercises.{path.stem}").PREDICTIONS
    return found


def with_forms(cells: Sequence[Mapping[str, Any]], lesson: str) -> list[dict[str, Any]]:
    """Return the cells of a lesson, with one that asks below each question.

    Args:
        cells: Cells, as nbformat has them.
        lesson: The lesson's number, of two digits.
    """
    left = {
        name: asked for name, asked in predictions().items() if name.partition(".")[0] == lesson
    }
    found: list[dict[str, Any]] = []
    importing = "import mcnb\n\n"
    for cell in cells:
        found.append(dict(cell))
        if cell["cell_type"] != "markdown":
            continue
        text = "".join(cell["source"])
        for name in [name for name, asked in left.items() if asked.question in text]:
            del left[name]
            asking: dict[str, Any] = {
                "cell_type": "code",
                "execution_count": None,
                "id": f"predict-{name.replace('.', '-')}",
                "metadata": {},
                "outputs": [],
                "source": f'{importing}mcnb.predict("{name}")',
            }
            found.append(asking)
            importing = ""
    return found
