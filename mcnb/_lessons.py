"""Find the course's notebooks, which come with the package."""

from __future__ import annotations

from pathlib import Path

from mcnb.errors import McnbError

INSTALL_LAB = 'python -m pip install "mcnb[lab]"'
REINSTALL = "python -m pip install --force-reinstall --no-deps mcnb"


def find_lessons(package: Path | None = None) -> tuple[Path, bool]:
    """Find the folder of the lessons: beside the package in a checkout, else inside it.

    Args:
        package: The folder of the package `mcnb`; this one by default.

    Returns:
        The folder, and whether it is a checkout's own, which is opened itself.

    Raises:
        McnbError: There are no lessons.

    Example:
        >>> find_lessons()[0].name
        'notebooks'
    """
    package = Path(__file__).parent if package is None else package
    beside, inside = package.parent / "notebooks", package / "notebooks"
    if (package.parent / "pyproject.toml").is_file() and any(beside.glob("*.ipynb")):
        return beside, True
    if any(inside.glob("*.ipynb")):
        return inside, False
    what = f"mcnb's lessons are not in {inside}"
    raise McnbError.remedied(what, REINSTALL, "Reinstall mcnb")
