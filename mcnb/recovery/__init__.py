"""Heal processes in place after an abort, with their arrays."""
