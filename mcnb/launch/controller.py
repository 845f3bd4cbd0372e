"""ipyparallel's controller, whose own child processes end when it does.

It runs its task scheduler in a child, which would otherwise outlive a controller that is killed.
"""

import os

from ipyparallel.controller.app import main

from mcnb.launch.keeper import die_with_parent

if __name__ == "__main__":
    os.register_at_fork(after_in_child=die_with_parent)
    main()
