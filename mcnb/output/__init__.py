"""Fold the outputs of n processes into one."""
