"""Lockstep: processes that part are told apart before anything hangs."""
