"""A cluster seen from the notebook kernel: its lifecycle, its cells and their results."""
