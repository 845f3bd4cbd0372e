"""Programs in files, checked without a notebook: `mcnb run`, and `python -m mcnb.lockstep`."""
