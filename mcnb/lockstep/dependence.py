"""Find out from source whether an expression depends on which process evaluates it.

A name depends on the process if a value that is assigned to it does, and the result of a function
if what it returns, or a condition for returning, does. Names are looked up as Python does: in the
function, in the functions around it, in the module, and through the objects that a module's names
stand for. Arguments are followed to the caller's line, if the caller is known. What processes agree
on, such as a value that was broadcast, is the same on all of them, whatever it was made of.

The search is for hints, and errs on the side of finding nothing. It can also look for what differs
from process to process though nothing asks for the process: the time, and unseeded random numbers.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import FrameType, FunctionType, ModuleType
from typing import Any

from mcnb.lockstep.changes import changes_of, conditions_of_changes
from mcnb.lockstep.index import index_of, nodes_of
from mcnb.lockstep.ranks import rank_variables
from mcnb.lockstep.syntax import (
    DEFINITIONS,
    Function,
    assigned_in,
    assignments,
    branches,
    deciding,
    declares_global,
    first_line,
    is_name,
    last_line,
    last_name,
    looped_over,
    of_this_scope,
    parameters_of,
    parsed,
    reaching,
    set_attributes,
    used_in,
)

# What tells a process its index, or its host; as a function, an attribute or a method.
_PROCESS_INDEX = frozenset(
    [
        "process_index",
        "process_id",
        "host_id",
        "is_primary",
        "is_primary_host",
        "Get_rank",
        "gethostname",
        "getpid",
    ]
)
_VARIABLES = frozenset((*rank_variables(), "JAX_PROCESS_ID", "RANK", "LOCAL_RANK", "SLURM_NODEID"))
# Functions whose result is the same on all processes, whatever their arguments are.
_AGREED = frozenset(
    [
        "broadcast_one_to_all",
        "process_allgather",
        "bcast",
        "allreduce",
        "allgather",
        "process_count",
    ]
)
# Functions that make one array of what each process passes: what is computed from it is the same on
# all of them.
_GLOBAL_ARRAYS = frozenset(
    [
        "make_array_from_process_local_data",
        "make_array_from_single_device_arrays",
        "host_local_array_to_global_array",
    ]
)
# Libraries in which the search ends: JAX's own functions ask for the process index to agree on
# something, and NumPy's never do.
_LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "mcnb", "optax")
# Functions whose results differ from process to process, by their modules; of some, all functions.
_VARYING: Mapping[str, frozenset[str] | None] = {
    "time": frozenset(
        f"{name}{ns}" for name in ("time", "monotonic", "perf_counter") for ns in ("", "_ns")
    ),
    "posix": frozenset(("urandom", "getrandom")),
    "uuid": frozenset(("uuid1", "uuid4")),
    "secrets": None,
    "random": None,
    "numpy.random.mtrand": None,
    "numpy.random": frozenset(("default_rng",)),
    "numpy.random._generator": frozenset(("default_rng",)),
}
# Of these, the ones that are the same on all processes once the program has set a seed.
_SEEDED = ("random", "numpy.random.mtrand")
_NOW = frozenset(("now", "today", "utcnow"))
# The function of JAX that calls another one for the elements of an array.
_FROM_CALLBACK = "make_array_from_callback"
# Functions whose result is made of what another one returns: the position and the name of that.
_CALLING: Mapping[str, tuple[int | None, str]] = {
    _FROM_CALLBACK: (2, "data_callback"),
    **dict.fromkeys(("sorted", "sort", "min", "max"), (None, "key")),
    "groupby": (1, "key"),
    **dict.fromkeys(("map", "filter", "tree_map"), (0, "f")),
}
# How many functions and modules deep, and how many expressions, the search goes.
_DEEPEST, _MOST = 6, 1000
# How many functions a search in a function goes through.
_MOST_FUNCTIONS = 30
_ANY_LINE = (0, sys.maxsize)
# Modules of the types of functions, and of what wraps them.
_FUNCTIONS = ("builtins", "functools", "jax", "types")


@dataclass(frozen=True, slots=True)
class Asked:
    """Where a value begins to depend on the process.

    Attributes:
        filename: The file.
        line: The line.
        far: Whether that is in a function, a class or a module that the expression only refers to.
        is_index: Whether the expression is a name of the process index, and no more.
        of_elements: Whether only the elements of an array depend on it, and not its shape.
    """

    filename: str
    line: int
    far: bool = False
    is_index: bool = False
    of_elements: bool = False


@dataclass(frozen=True)
class Scope:
    """Where names are looked up.

    Attributes:
        filename: The file, by its name in code objects.
        functions: The functions around the expression, from the outermost.
        values: The values of names, as far as known.
        caller: The scope of the line that called the innermost function, and its line; None if
            that is not known.
        elements: The names of what is one of several, whose attributes tell nothing about the
            process: each process sees all of them.
    """

    filename: str
    functions: tuple[Function, ...] = ()
    values: Mapping[str, Any] | None = None
    caller: tuple[Scope, int] | None = None
    elements: frozenset[str] = frozenset()

    def known(self) -> Mapping[str, Any]:
        """Return the values of names that are known here."""
        return _module_values(self.filename) if self.values is None else self.values


def scope_of(filename: str, line: int, frame: FrameType | None = None) -> Scope:
    """Return the scope of a line, with the values that names have in its frame."""
    functions: list[Function] = []
    node: ast.AST | None = parsed(filename)
    while node is not None:
        if isinstance(node, DEFINITIONS):
            functions.append(node)
        inside = ast.iter_child_nodes(node)
        node = next((one for one in inside if first_line(one) <= line <= last_line(one)), None)
    values = None if frame is None else {**frame.f_globals, **frame.f_locals}
    return Scope(filename, tuple(functions), values)


class Search:
    """Searches for where expressions begin to depend on the process.

    Args:
        varying: Whether to search for the time and for unseeded random numbers, too; for changes
            of a value in place, and assignments that only some processes make; and for where the
            process index is used, rather than where a name of it is assigned.
        arrays: Whether to search in what the processes pass for an array of them all, too.

    Example:
        >>> test = ast.parse("process_index() == 0", mode="eval").body
        >>> Search().expression(test, Scope("train.py"))
        Asked(filename='train.py', line=1, far=False, is_index=False, of_elements=False)
        >>> Search().expression(ast.parse("broadcast_one_to_all(process_index())").body[0].value,
        ...     Scope("train.py"))
    """

    def __init__(self, *, varying: bool = False, arrays: bool = False) -> None:
        self._varying = varying
        self._agreed = _AGREED if arrays else _AGREED | _GLOBAL_ARRAYS
        self._seen: set[tuple[int, str, int]] = set()
        self._left = _MOST

    def expression(self, node: ast.AST, scope: Scope, depth: int = 0) -> Asked | None:
        """Return where an expression begins to depend on the process; None if it does not."""
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            return None
        here = Asked(scope.filename, getattr(node, "lineno", 0))
        match node:
            case ast.Name(id=name):
                if name in _PROCESS_INDEX:
                    return here
                return self._used(here, self._name(name, scope, depth, here.line))
            case ast.Attribute(attr=name):
                if name in _PROCESS_INDEX and not _is_of_element(node.value, scope):
                    return here
                found = self._used(here, self._attribute(node, scope, depth))
                return found or self.expression(node.value, scope, depth)
            case ast.Call(func=function):
                if last_name(function) in self._agreed:
                    return None
                if self._varying and _varies(node, scope):
                    return here
                called = self._called(function, scope, depth)
                # A function's name stands for its result, so it is not looked up as a value.
                parts = [*node.args, *(one.value for one in node.keywords)]
                if isinstance(function, ast.Attribute):
                    named = function.attr in _PROCESS_INDEX
                    parts = [function if named else function.value, *parts]
                elif called is None and not self._is_function(function, scope):
                    parts = [function, *parts]
                found = called or self._first(parts, scope, depth)
                return found or self._by_callee(node, scope, depth)
            case ast.Constant(value=str() as text):
                return here if text in _VARIABLES else None
            case ast.Lambda():
                return None
        return self._first(ast.iter_child_nodes(node), scope, depth)

    def _by_callee(self, call: ast.Call, scope: Scope, depth: int) -> Asked | None:
        """Return where what a function depends on that the called one calls, and makes use of."""
        name = last_name(call.func)
        if not self._varying or name not in _CALLING:
            return None
        position, keyword = _CALLING[name]
        given = next((one.value for one in call.keywords if one.arg == keyword), None)
        if given is None and position is not None and position < len(call.args):
            given = call.args[position]
        if isinstance(given, ast.Lambda):
            function: Function = given
            inside = replace(scope, functions=(*scope.functions, given), caller=None)
        elif given is None or (named := _function_of(given, scope)) is None:
            return None
        else:
            function, inside = named
        of_elements = name == _FROM_CALLBACK
        if not of_elements:
            each = frozenset(parameters_of(function))
            if keyword == "key" and not _uses(function, each):
                return None  # equal keys keep the order
            inside = replace(inside, elements=each)
        found = self._result(function, inside, depth + 1)
        found = found if function is given else _far(found)
        return found and replace(found, of_elements=of_elements or found.of_elements)

    def _first(self, nodes: Iterable[ast.AST], scope: Scope, depth: int) -> Asked | None:
        found = (self.expression(node, scope, depth) for node in nodes)
        first = next((one for one in found if one is not None), None)
        return first and replace(first, is_index=False)  # what has a part is more than that part

    def _used(self, here: Asked, assigned: Asked | None) -> Asked | None:
        """Return where a name is used, if it is one of the process index, or else the origin."""
        if self._varying and assigned is not None and assigned.is_index:
            return replace(here, is_index=True)
        return assigned

    def _assigned(self, values: Iterable[ast.expr], scope: Scope, depth: int) -> Asked | None:
        """Return where one of the values that are assigned to a name depends on the process."""
        for value in values:
            found = self.expression(value, scope, depth)
            if found is not None:
                alias = isinstance(value, (ast.Name, ast.Attribute)) and found.is_index
                return replace(found, is_index=alias or _is_index(value))
        return None

    def _name(self, name: str, scope: Scope, depth: int, line: int = 0) -> Asked | None:
        """Return where a name depends on the process; at a line of the scope, if it is given."""
        key = (id(scope.functions[-1]) if scope.functions else hash(scope.filename), name, line)
        if key in self._seen:
            return None
        self._seen.add(key)
        try:
            return self._looked_up(name, scope, depth + 1, line)
        finally:
            self._seen.discard(key)

    def _looked_up(self, name: str, scope: Scope, depth: int, line: int) -> Asked | None:
        for i in range(len(scope.functions), 0, -1):
            function = scope.functions[i - 1]
            outer = replace(scope, functions=scope.functions[:i])
            if declares_global(function, name):
                break
            values = [value for at, value in assigned_in(function) if is_name(at, name)]
            if values:
                # An inner function may use any of them, whenever it is called.
                is_here = line and i == len(scope.functions)
                lines = reaching(function, name, line) if is_here else _ANY_LINE
                found = self._assigned(_between(lines, values) or values, outer, depth)
                return found or self._changed(name, function, outer, depth, lines)
            if name in parameters_of(function):
                is_innermost = i == len(scope.functions)
                return self._argument(function, name, scope, depth) if is_innermost else None
        module = replace(scope, functions=())
        index = index_of(scope.filename)
        if name in index.assigned:
            filename, values = index.assigned[name]
            there = module if filename == scope.filename else Scope(filename)
            is_here = line and filename == scope.filename and not scope.functions
            lines = _ANY_LINE
            if is_here and name not in index.declared:
                lines = reaching(parsed(filename), name, line)
                if lines[0] == 0 and filename.startswith("<In["):  # which may run again
                    lines = _ANY_LINE
            found = self._assigned(_between(lines, values) or values, there, depth)
            found = found or self._changed(name, parsed(filename), there, depth, lines)
            return found or self._changed_by_functions(name, filename, depth)
        if name in index.imports:
            node, original = index.imports[name]
            return self._of_module(node, original, module, depth)
        stars = (self._of_module(node, name, module, depth) for node in index.stars)
        return next((one for one in stars if one is not None), None)

    def _changed(
        self, name: str, node: ast.AST, scope: Scope, depth: int, lines: tuple[int, int]
    ) -> Asked | None:
        """Return where a value is changed in place, or only on some processes."""
        if not self._varying:
            return None
        found = self._first(_between(lines, changes_of(node, name)), scope, depth)
        return found and replace(found, is_index=False)

    def _changed_by_functions(self, name: str, filename: str, depth: int) -> Asked | None:
        """Return where it is decided whether a function changes a name of its module."""
        if not self._varying:
            return None
        for test in conditions_of_changes(filename).get(name, ()):
            if found := self.expression(test, scope_of(filename, test.lineno), depth):
                return replace(found, is_index=False)
        return None

    def _of_module(self, node: ast.ImportFrom, name: str, scope: Scope, depth: int) -> Asked | None:
        """Return where a name that is imported from another module depends on the process."""
        package = str(scope.known().get("__package__") or "")
        parts = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join(parts) + "." if node.level else ""
        module = sys.modules.get(f"{base}{node.module}")
        if module is None or not _may_search(module.__name__):
            return None
        return _far(self._name(name, Scope(_file_of(module)), depth))

    def _attribute(self, node: ast.Attribute, scope: Scope, depth: int) -> Asked | None:
        """Return where an attribute of a module or an object depends on the process."""
        key = (id(node), node.attr, 0)
        if key in self._seen or depth > _DEEPEST:
            return None
        self._seen.add(key)
        try:
            owner = _value(node.value, scope)
            if isinstance(owner, ModuleType):
                if not _may_search(owner.__name__):
                    return None
                return _far(self._name(node.attr, Scope(_file_of(owner)), depth))
            if owner is None:
                values = set_attributes(scope.filename, node.attr)
                return _far(self._assigned(values, scope, depth + 1))
            kind = owner if isinstance(owner, type) else type(owner)
            for one in kind.__mro__:
                if not _may_search(one.__module__):
                    continue
                attribute = vars(one).get(node.attr)
                function = attribute.fget if isinstance(attribute, property) else None
                if isinstance(attribute, functools.cached_property):
                    function = attribute.func
                if isinstance(function, FunctionType):
                    return self._function(function, depth, owner)
                module = sys.modules.get(one.__module__)
                filename = scope.filename if module is None else _file_of(module)
                filename = _file_of_class(one) or filename
                if found := self._of_class(one.__name__, node.attr, filename, depth):
                    return found
            return None
        finally:
            self._seen.discard(key)

    def _of_class(self, name: str, attribute: str, filename: str, depth: int) -> Asked | None:
        for node in nodes_of(parsed(filename)).classes.get(name, ()):
            for method in ast.walk(node):
                for at, value in assignments(method):
                    if isinstance(at, ast.Attribute) and at.attr == attribute:
                        scope = scope_of(filename, value.lineno)
                        if found := self._assigned([value], scope, depth + 1):
                            return _far(found)
        return None

    def _called(self, function: ast.expr, scope: Scope, depth: int) -> Asked | None:
        """Return where the result of calling a function depends on the process."""
        value = _callable(function, scope)
        if {last_name(function), getattr(value, "__name__", "")} & _PROCESS_INDEX:
            return Asked(scope.filename, function.lineno)
        found = _function_of(function, scope)
        return found and _far(self._result(*found, depth + 1))

    def _is_function(self, node: ast.expr, scope: Scope) -> bool:
        value = _value(node, scope)
        if isinstance(node, ast.Name) and value is None:
            return _definition(node.id, scope) is not None
        return isinstance(value, FunctionType)

    def _function(self, function: FunctionType, depth: int, bound: Any = None) -> Asked | None:
        """Return where the result of a function, or of a method of an object, depends on it."""
        if (found := _defined(function, bound)) is None:
            return None
        node, scope = found
        return _far(self._result(node, scope, depth + 1))

    def inside(self, function: FunctionType, bound: Any = None) -> Asked | None:
        """Return where what a function computes depends on the process.

        That is the result of the function or of one that it passes on, or else a branch in them.

        Args:
            function: The function.
            bound: The object whose method it is, if it is one.
        """
        found = self._reached(function, bound)
        results = (self._result(node, scope, 1) for node, scope in found)
        result = next((one for one in results if one is not None), None)
        tests = ((test, scope) for node, scope in found for test in branches(node))
        asked = (self.expression(test, scope) for test, scope in tests)
        return result or next((one for one in asked if one is not None), None)

    def _reached(self, function: FunctionType, bound: Any) -> list[tuple[Function, Scope]]:
        """Return a function, those in it, and those that it names, with their scopes."""
        ahead: list[tuple[FunctionType, Any]] = [(function, bound)]
        entered: set[FunctionType] = set()
        found: list[tuple[Function, Scope]] = []
        while ahead and len(found) < _MOST_FUNCTIONS:
            one, owner = ahead.pop(0)
            defined = None if one in entered else _defined(one, owner)
            entered.add(one)
            inner = [] if defined is None else [defined]
            while inner:
                node, scope = inner.pop(0)
                found.append((node, scope))
                for used in used_in(node):
                    if isinstance(used, DEFINITIONS):
                        inside = replace(scope, functions=(*scope.functions, used))
                        inner.append((used, inside))
                    elif isinstance(value := _value(used, scope), FunctionType):
                        holder = used.value if isinstance(used, ast.Attribute) else None
                        of = None if holder is None else _value(holder, scope)
                        ahead.append((value, None if isinstance(of, ModuleType) else of))
        return found

    def _result(self, function: Function, scope: Scope, depth: int) -> Asked | None:
        """Return where what a function returns, or whether it does so, depends on the process."""
        if isinstance(function, ast.Lambda):
            return self.expression(function.body, scope, depth)
        return self._first(deciding(function.body), scope, depth)

    def _argument(self, function: Function, name: str, scope: Scope, depth: int) -> Asked | None:
        """Return where the argument that the caller passes depends on the process."""
        if scope.caller is None or isinstance(function, ast.Lambda):
            return None
        caller, line = scope.caller
        arguments = function.args
        names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
        for node in nodes_of(parsed(caller.filename)).calls:
            if not node.lineno <= line <= (node.end_lineno or node.lineno):
                continue
            called = last_name(node.func)
            if called != function.name and not (function.name == "__init__" and called):
                continue
            for keyword in node.keywords:
                if keyword.arg == name:
                    return self.expression(keyword.value, caller, depth)
            skip = bool(names[:1] == ["self"] or names[:1] == ["cls"])
            at = names.index(name) - skip if name in names else -1
            plain = not any(isinstance(one, ast.Starred) for one in node.args)
            if plain and 0 <= at < len(node.args):
                return self.expression(node.args[at], caller, depth)
        return None


def _callable(node: ast.expr, scope: Scope) -> Any:
    """Return the object that a call calls; None if it is unknown, or an object of the program's."""
    value = _value(node, scope)
    # Attributes of the program's objects may be computed.
    return value if type(value).__module__.startswith(_FUNCTIONS) else None


def _function_of(node: ast.expr, scope: Scope) -> tuple[Function, Scope] | None:
    """Return the definition of the function that an expression names, and its scope."""
    value = _callable(node, scope)
    if value is None and isinstance(node, ast.Name):
        found = _definition(node.id, scope)
        if found is not None:
            return found
    bound = _value(node.value, scope) if isinstance(node, ast.Attribute) else None
    if isinstance(value, staticmethod) or isinstance(bound, ModuleType):
        bound = None
    value = getattr(value, "__func__", value)
    value = inspect.unwrap(getattr(value, "func", value)) if callable(value) else None
    return _defined(value, bound) if isinstance(value, FunctionType) else None


def _uses(function: Function, names: frozenset[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(function))


def _is_of_element(node: ast.expr, scope: Scope) -> bool:
    """Return whether an expression is one of several, such as each device in a loop over devices.

    So is an object of the libraries', such as `jax.devices()[0]`, if it is known.
    """
    if isinstance(node, ast.Name):
        around = scope.functions[-1] if scope.functions else parsed(scope.filename)
        if node.id in scope.elements or node.id in looped_over(around):
            return True
    owner = _value(node, scope)
    kind = None if owner is None or isinstance(owner, ModuleType) else type(owner)
    return kind is not None and kind.__module__.partition(".")[0] == "jaxlib"


def _defined(function: FunctionType, bound: Any = None) -> tuple[Function, Scope] | None:
    """Return the definition of a function, and its scope; None if it is not to be searched.

    Args:
        function: The function.
        bound: The object whose method it is, if it is one.
    """
    if not _may_search(function.__module__ or "__main__"):  # a namespace may have no name
        return None
    code = function.__code__
    node = nodes_of(parsed(code.co_filename)).functions.get((code.co_firstlineno, code.co_name))
    if node is None:
        return None
    around = scope_of(code.co_filename, node.lineno).functions
    outer = around[: around.index(node)] if node in around else ()
    free = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    values = {**function.__globals__, **free}
    if bound is not None and code.co_argcount:
        values[code.co_varnames[0]] = bound
    return node, Scope(code.co_filename, (*outer, node), values)


def _between(lines: tuple[int, int], values: Iterable[ast.expr]) -> list[ast.expr]:
    return [value for value in values if lines[0] <= value.lineno <= lines[1]]


def _is_index(value: ast.expr) -> bool:
    """Return whether an expression is the process index, and not made of it."""
    match value:
        case ast.Call(func=ast.Name(id="int"), args=[inner]):
            return _is_index(inner)
        case ast.Call(func=function):
            named = last_name(function) in _PROCESS_INDEX
            return named or any(_is_variable(one) for one in value.args)
        case ast.Subscript(slice=key):
            return _is_variable(key)
    return last_name(value) in _PROCESS_INDEX


def _is_variable(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in _VARIABLES


def _varies(call: ast.Call, scope: Scope) -> bool:
    """Return whether a call returns the time, or random numbers that no seed determines."""
    function = _value(call.func, scope)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, ModuleType):  # as that of most functions that are written in C
        owner = None
    module = getattr(function, "__module__", None) if owner is None else type(owner).__module__
    name = str(getattr(function, "__name__", ""))
    if isinstance(call.func, ast.Attribute) and last_name(call.func.value) in ("datetime", "date"):
        return call.func.attr in _NOW
    names = _VARYING.get(str(module), frozenset())
    if names is not None and name not in names:
        return False
    if name == "default_rng" or isinstance(function, type):
        return not call.args and not call.keywords
    if str(module) not in _SEEDED:
        return True
    calls = nodes_of(parsed(scope.filename)).calls
    return name != "seed" and not any(last_name(one.func) == "seed" for one in calls)


def _far(found: Asked | None) -> Asked | None:
    return found and replace(found, far=True)


def _definition(name: str, scope: Scope) -> tuple[Function, Scope] | None:
    """Return the function of a name that the program's source defines, with its scope."""
    for i in range(len(scope.functions), 0, -1):
        outer = scope.functions[:i]
        for node in of_this_scope(outer[-1]):
            if isinstance(node, DEFINITIONS[:2]) and node.name == name:
                return node, replace(scope, functions=(*outer, node), caller=None)
    found = index_of(scope.filename).functions.get(name)
    if found is None:
        return None
    filename, function = found
    return function, replace(scope, filename=filename, functions=(function,), caller=None)


def _value(node: ast.expr, scope: Scope) -> Any:
    """Return the object of a name, or of a module's or an object's attribute; None if unknown."""
    if isinstance(node, ast.Name):
        return scope.known().get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, scope)
        # Without running the program's own code, as a property would.
        return None if owner is None else inspect.getattr_static(owner, node.attr, None)
    return None


def _may_search(module: object) -> bool:
    top = str(module).partition(".")[0]
    return bool(top) and top not in _LIBRARIES and top not in sys.stdlib_module_names


def _file_of(module: ModuleType) -> str:
    return str(getattr(module, "__file__", None) or "")


def _file_of_class(kind: type) -> str:
    functions = [one for one in vars(kind).values() if isinstance(one, FunctionType)]
    return functions[0].__code__.co_filename if functions else ""


def _module_values(filename: str) -> Mapping[str, Any]:
    """Return the values of the names of a module that has been imported, or is the program."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == filename:
            return vars(module)
    return {}
