"""The lessons' exercises, and their checker.

A learner solves an exercise in a `%%mcjax` cell, by setting a variable on every process, and then
asks for `mcnb.check("01.1")`. Each lesson's exercises stand in a module of their own.
"""

from __future__ import annotations

from mcnb.exercises.checker import Grade, check, exercises, grade
from mcnb.exercises.exercise import Exercise

__all__ = ["Exercise", "Grade", "check", "exercises", "grade"]
