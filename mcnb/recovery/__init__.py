"""Abort a hang, and heal its processes in place with their arrays."""
