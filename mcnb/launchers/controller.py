"""Run ipyparallel's controller: `python -P -m mcnb.launchers.controller`."""

from __future__ import annotations

from mcnb._ipyparallel.controller import run_controller

if __name__ == "__main__":
    run_controller()
