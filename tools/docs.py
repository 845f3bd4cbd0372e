"""Build the site of the documentation: `python tools/dev.py docs`.

Every warning is an error. `docs/conf.py` says what the pages are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A browser, and GitHub Pages, begin with index.html.
INDEX = '<meta http-equiv="refresh" content="0; url=README.html">\n'


def main(words: Sequence[str]) -> int:
    """Build the site, and return Sphinx's exit code."""
    parser = argparse.ArgumentParser(prog="python tools/docs.py", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="its folder")
    out = parser.parse_args(words).out.resolve()
    command = [sys.executable, "-m", "sphinx", "--builder", "html"]
    command += ["--fail-on-warning", "--keep-going", "--quiet"]
    command += ["--conf-dir", str(ROOT / "docs"), "--doctree-dir", f"{out}.doctrees"]
    done = subprocess.run([*command, str(ROOT), str(out)], cwd=ROOT, check=False)
    if done.returncode == 0:
        (out / "index.html").write_text(INDEX)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
