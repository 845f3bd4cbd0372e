"""The lessons' exercises and predictions, and what checks them.

A learner solves an exercise in a `%%mcjax` cell, by setting a variable on every process, and then
asks for `mcnb.check("01.1")`. A prediction is the answer to a question that comes before a cell:
`mcnb.predict("01.a")` asks it. Those of each lesson are in a module of their own.
"""

from __future__ import annotations

from mcnb.exercises.checker import Grade, check, exercises, grade
from mcnb.exercises.exercise import Exercise

__all__ = ["Exercise", "Grade", "check", "exercises", "grade"]
