"""Manage a cluster from the notebook kernel: its lifecycle, its cells and their results."""
