"""`python -P -m mcnb.launch.controller`: ipyparallel's controller."""

from mcnb.ipyparallel_inside import run_controller

if __name__ == "__main__":
    run_controller()
