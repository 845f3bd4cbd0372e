"""Plausible wrong answers to the lessons' exercises: by exercise, the code and the hint it gets."""

from __future__ import annotations

import importlib
import pkgutil

WRONG: dict[str, dict[str, str]] = {}
for module in pkgutil.iter_modules(__path__):
    WRONG.update(importlib.import_module(f"{__name__}.{module.name}").WRONG)
