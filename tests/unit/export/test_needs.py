"""The global names of a piece of code: those that it needs, now or later, and those it defines."""

from __future__ import annotations

import pytest

from mcnb.export.needs import names_of

# Code, then the names that it needs, that its functions need later, and that it defines.
CODE = {
    "a type alone defines nothing": ("x: T", "T", "", ""),
    "a type with a value": ("x: T = v", "T v", "", "x"),
    "an attribute with a type": ("a.b: T = v", "T a v", "", ""),
    "a loop with its else": (
        "for i in xs:\n    i(a)\nelse:\n    i(b)",
        "a b xs",
        "",
        "i",
    ),
    "what is set on the right is not yet set": ("x = x + 1", "x", "", "x"),
    "a walrus leaves its comprehension": ("[last := v for v in vs]\nlast", "vs", "", "last"),
    "the names of a comprehension stay in it": ("[v for v in vs]\nv", "v vs", "", ""),
    "keys and values": ("{k: w for v in vs}", "k vs w", "", ""),
    "comprehensions within comprehensions": ("[[a + b for b in c] for a in x]", "c x", "", ""),
    "a generator runs at once": ("f(x * y for x in xs)", "f xs y", "", ""),
    "decorators of a function": ("@jit(static=n)\ndef f(a): return a", "jit n", "", "f"),
    "decorators and keywords of a class": ("@kept\nclass C(metaclass=M): pass", "M kept", "", "C"),
    "the names of a class stay in it": ("class C:\n    y = 1\ny", "y", "", "C"),
    "what a method reads": ("class C:\n    def m(self): return w", "", "w", "C"),
    "what inner functions and classes read": (
        "def f():\n    local = 1\n    def g(): return v, local\n    class C: size = w\n"
        "    return [u for _ in g()]",
        "",
        "u v w",
        "f",
    ),
    "what a function sets is its own": ("def f():\n    y = 1\n    return y", "", "", "f"),
    "an error has its name in the handler": (
        "try:\n    a\nexcept E as e:\n    f(e)",
        "E a f",
        "",
        "e",
    ),
    "what a pattern compares": ("match n:\n    case K.one | [*r]: r", "K n", "", "r"),
    "after a star all names are known": ("a\nfrom m import *\nb", "a", "", ""),
}


@pytest.mark.parametrize(("code", "needs", "later", "defines"), CODE.values(), ids=CODE)
def test_the_names_of(code: str, needs: str, later: str, defines: str) -> None:
    names = names_of(code)
    found = [" ".join(sorted(part)) for part in (names.needs, names.later, names.defines)]
    assert found == [needs, later, defines]
    assert names.star == ("import *" in code)
