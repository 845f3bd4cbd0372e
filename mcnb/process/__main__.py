"""`python -P -m mcnb.process`: one process of a cluster."""

from mcnb.process.engine import main

if __name__ == "__main__":
    main()
