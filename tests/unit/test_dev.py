"""The tests that `tools/dev.py` chooses for what has changed."""

from __future__ import annotations

import pytest

from tools.dev import affected_tests, command_line


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ([], []),
        (["README.md", "mcnb/gone.py"], []),
        (["tests/integration/test_cli.py"], ["tests/integration/test_cli.py"]),
        (["tests/support/verdicts.py"], []),
        (
            ["mcnb/launchers/slurm.py"],
            ["mcnb/launchers/slurm.py", "tests/unit/launchers/test_slurm.py"],
        ),
        # No unit test of that name: those of the package.
        (["mcnb/launchers/local.py"], ["mcnb/launchers/local.py", "tests/unit/launchers"]),
        (["mcnb/_system.py"], ["mcnb/_system.py", "tests/unit/test_system.py"]),
    ],
)
def test_what_a_change_touches(changed: list[str], chosen: list[str]) -> None:
    assert affected_tests(changed) == chosen


def test_commands() -> None:
    assert command_line(["lesson", "05"])[-1].endswith("notebooks/05_lockstep.md")
    assert command_line(["lesson", "99"]) == []
    assert command_line(["bench", "start"])[-2:] == ["-m", "tools.bench_start"]
    assert command_line(["coverage"])[-2:] == ["--cov", "--cov-report=term"]
    assert command_line(["coverage", "--all"])[-1] == "--all"
    assert command_line(["gallery"])[-1].endswith("tools/gallery.py")
