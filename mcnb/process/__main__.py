"""`python -P -m mcnb.process`: one process of a cluster."""

import sys

from mcnb.launch.settings import take_settings

if __name__ == "__main__":
    sys.argv[1:] = take_settings(
        sys.argv[1:]
    )  # before JAX is imported, which reads the environment then
    from mcnb.process.engine import main

    main()
