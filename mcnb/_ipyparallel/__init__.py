"""Adapt ipyparallel's client, engine and controller; no other package uses their private names.

The modules fit ipyparallel 9. Each says on which internals it depends.
"""
