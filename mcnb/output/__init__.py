"""Fold the outputs of n processes into one text, and list their launches in a table."""
