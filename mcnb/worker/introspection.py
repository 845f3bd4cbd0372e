"""Complete and describe names of a process, without running the learner's code.

Nothing here launches a computation or reads an array's elements: one process alone does it, and the
others would not take part. Therefore a property is read only where its type is known to compute
nothing; IPython's own completer reads none.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import math
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from IPython.core.completer import provisionalcompleter, rectify_completions
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.dir2 import dir2

from mcnb._text import array_type

# More matches are of no use to a person.
MOST_MATCHES = 500
# What is before the last dot, such as `params["w"].sharding`, and what is typed of an attribute.
_CHAIN = re.compile(
    r"""(?<![\w.\])}'"]) ([^\W\d]\w* (?: \.[^\W\d]\w* | \[(?:'[^'\\]*'|"[^"\\]*"|-?\d+)\] )*)
    \. ([^\W\d]\w*)? $""",
    re.VERBOSE,
)
# Properties of arrays that neither compute nor copy.
_OF_ARRAYS = {
    *("addressable_shards", "aval", "committed", "dtype", "format", "global_shards"),
    *("is_fully_addressable", "is_fully_replicated", "itemsize", "nbytes", "ndim", "shape"),
    *("sharding", "size", "weak_type"),
}
# The most elements of containers that are looked at for what they hold, and the most arrays of a
# PyTree that are named.
MOST_ELEMENTS, MOST_NAMED = 1000, 5
_MISSING = object()
# Stands for an attribute in an object's own dictionary, which is only read.
_OWN = object()


class Match(NamedTuple):
    """A completion.

    Attributes:
        start: The position in the source from which the text replaces it.
        text: The text.
        kind: What the text is, in IPython's words, such as `"attribute"`.
    """

    start: int
    text: str
    kind: str


def complete(shell: InteractiveShell, source: str, cursor: int) -> tuple[Match, ...]:
    """Return the completions at a position of a cell's source, which all begin at one place.

    Args:
        shell: The process's shell.
        source: The cell's code, without the magic's line.
        cursor: The position in it.
    """
    completer = shell.Completer
    completer.use_jedi = False  # it takes long, and reads source instead of values
    with provisionalcompleter():
        found = rectify_completions(source, completer.completions(source, cursor))
        matches = tuple(Match(one.start, one.text, one.type) for one in found)
    return (matches or _attributes(shell.user_ns, source[:cursor]))[:MOST_MATCHES]


def _attributes(names: Mapping[str, Any], before: str) -> tuple[Match, ...]:
    """Return completions of an attribute of a property that IPython does not read."""
    chain = _CHAIN.search(before)
    value = _MISSING if chain is None else resolve(names, chain[1])
    if chain is None or value is _MISSING:
        return ()
    begun = chain[2] or ""
    return tuple(
        Match(len(before) - len(begun), name, "attribute")
        for name in dir2(value)
        if name.startswith(begun) and (begun or not name.startswith("_"))
    )


def describe(shell: InteractiveShell, name: str, detail: int) -> dict[str, str]:
    """Return a description of a name or an attribute by MIME type; empty if there is none.

    Args:
        shell: The process's shell.
        name: The name, such as `"x.sharding"`.
        detail: 0, or 1 for the source, too.
    """
    value, found = resolve(shell.user_ns, name), _stored(shell.user_ns, name)
    if value is _MISSING and not (name.startswith("%") or isinstance(found, property)):
        return {}
    if text := card(value):
        return {"text/plain": text}
    with _without_text(shell.inspector, value):
        if value is not _MISSING and found is not _MISSING and not _is_plain(found):
            return {"text/plain": _text_of_fields(_fields_of(shell, value, name))}
        try:
            bundle: dict[str, str] = shell.object_inspect_mime(name, detail_level=detail)
        except KeyError:
            return {}
    return bundle


def defines(shell: InteractiveShell, name: str) -> bool:
    """Return whether the process has a variable of that name."""
    return name in shell.user_ns


def spans_processes(shell: InteractiveShell, name: str) -> bool | None:
    """Return whether one of a variable's arrays has shards in other processes.

    None if there is no such variable, or if it has no arrays.
    """
    import jax

    leaves = jax.tree.leaves(shell.user_ns.get(name))
    arrays = [leaf for leaf in leaves if isinstance(leaf, (jax.Array, np.ndarray))]
    if not arrays:
        return None
    return any(isinstance(one, jax.Array) and not one.is_fully_addressable for one in arrays)


@contextlib.contextmanager
def _without_text(inspector: Any, value: Any) -> Iterator[None]:
    """Let IPython describe a value without its text, if making that may compute or copy."""
    before = inspector.str_detail_level
    if not has_plain_text(value):
        inspector.str_detail_level = 3  # above all levels of detail
    try:
        yield
    finally:
        inspector.str_detail_level = before


def has_plain_text(value: Any, budget: int = MOST_ELEMENTS) -> bool:
    """Return whether the text of a value is made without code of the learner's, and copies nothing.

    Args:
        value: The value.
        budget: How many elements of containers may be looked at.
    """
    import jax

    plain = (
        *(int, float, complex, str, bytes, bool, type(None), type, slice, range, np.generic),
        *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
        *(np.dtype, jax.sharding.Sharding, jax.sharding.Mesh, jax.sharding.AbstractMesh),
        *(jax.sharding.PartitionSpec, jax.Device, property),
    )
    if isinstance(value, plain) or value is _MISSING:
        return True
    if type(value) is np.ndarray:
        return not value.dtype.hasobject
    if type(value) not in (list, tuple, dict, set, frozenset) or len(value) > budget:
        return False
    inside = [*value, *value.values()] if isinstance(value, dict) else [*value]
    return all(has_plain_text(one, budget - len(value) - 1) for one in inside)


def card(value: Any) -> str:
    r"""Return a description of an array, or of a PyTree with arrays; "" for other values.

    Example:
        >>> import jax.numpy as jnp
        >>> x = jnp.ones((2, 3))
        >>> print(card(x))
        Type:     jax.Array
        Shape:    (2, 3)
        Dtype:    float32
        Sharding: all of it on one device of this process
        Bytes:    24
        >>> print(card({"w": x, "b": x[0], "steps": 3}))
        Type:   dict
        Arrays: 2, of 36 bytes in all: ['b'] float32[3], ['w'] float32[2,3]
        Others: 1
    """
    import jax

    if isinstance(value, jax.core.Tracer):
        return ""
    if isinstance(value, jax.Array):
        return _card_of_array(value)
    if value is None or isinstance(value, (str, bytes, int, float)):
        return ""
    leaves = jax.tree_util.tree_leaves_with_path(value)
    arrays = [(path, leaf) for path, leaf in leaves if isinstance(leaf, jax.Array)]
    if not arrays:
        return ""
    size = sum(math.prod(leaf.shape) * int(leaf.dtype.itemsize) for _, leaf in arrays)
    named = [
        f"{jax.tree_util.keystr(path)} {array_type(leaf.dtype, leaf.shape)}"
        for path, leaf in arrays[:MOST_NAMED]
    ]
    if len(arrays) > MOST_NAMED:
        named.append(f"+{len(arrays) - MOST_NAMED} more")
    fields = {
        "Type": type(value).__qualname__,
        "Arrays": f"{len(arrays)}, of {size} bytes in all: {', '.join(named)}",
    }
    if len(leaves) > len(arrays):
        fields["Others"] = str(len(leaves) - len(arrays))
    return _text_of_fields(fields)


def _card_of_array(array: Any) -> str:
    fields = {"Type": "jax.Array", "Shape": str(tuple(array.shape)), "Dtype": str(array.dtype)}
    if array.is_deleted():
        fields["Deleted"] = "its elements were donated to a computation, or deleted"
    else:
        fields |= _placement(array)
    return _text_of_fields(fields)


def with_layout(value: Any, text: str) -> str:
    """Return a value's text; where JAX's leaves out an array's elements, with where they are.

    JAX does so for arrays of which other processes hold parts, and newer versions for large ones.

    Example:
        >>> import jax.numpy as jnp
        >>> print(with_layout(jnp.ones((2, 3)), "Array(shape=(2, 3), dtype=float32)"))
        Array(shape=(2, 3), dtype=float32)
        Sharding: all of it on one device of this process
        Bytes:    24
        >>> with_layout(jnp.ones(1), "Array([1.], dtype=float32)")
        'Array([1.], dtype=float32)'
    """
    if not text.startswith("Array(shape="):
        return text
    import jax

    if not isinstance(value, jax.Array) or value.is_deleted():
        return text
    return f"{text}\n{_text_of_fields(_placement(value))}"


def _placement(array: Any) -> dict[str, str]:
    """Return where the parts of an array are, and how large it is, by title."""
    devices = array.sharding.device_set
    fields = {"Sharding": layout(array)}
    if len(devices) > 1:
        fields["Devices"] = f"{len(devices)}, of {_owners(devices)}"
    return fields | {"Bytes": _bytes(array)}


def layout(array: Any) -> str:
    """Return how the parts of an array are placed, in words."""
    sharding, devices = array.sharding, array.sharding.device_set
    memory = getattr(sharding, "memory_kind", None)
    kept = f", in {memory} memory" if memory not in (None, "device", "unpinned_host") else ""
    if len(devices) == 1:
        return f"all of it on one device of {_owners(devices)}{kept}"
    spec = getattr(sharding, "spec", None)
    if spec is None:
        return f"{type(sharding).__name__}{kept}"
    mesh = ", ".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
    return f"{str(spec).replace('PartitionSpec', 'P')} on the mesh {mesh}{kept}"


def _owners(devices: Any) -> str:
    owners = sorted({device.process_index for device in devices})
    if owners == [next(iter(devices)).client.process_index()]:
        return "this process"
    return f"process {owners[0]}" if len(owners) == 1 else f"{len(owners)} processes"


def _bytes(array: Any) -> str:
    item = int(array.dtype.itemsize)
    whole = math.prod(array.shape) * item
    part = math.prod(array.sharding.shard_shape(array.shape)) * item
    return f"{whole:,}" if part == whole else f"{whole:,}, of which {part:,} on each device"


def _fields_of(shell: InteractiveShell, value: Any, name: str) -> dict[str, str]:
    """Return what IPython says of a value, by title."""
    found = shell.inspector.info(value, oname=name)
    told = {
        "Type": found["type_name"],
        "String form": found["string_form"],
        "Length": found["length"],
        "Docstring": found["docstring"] or found["class_docstring"],
    }
    return {title: str(text) for title, text in told.items() if text}


def _text_of_fields(fields: Mapping[str, str]) -> str:
    width = max(map(len, fields)) + 1
    return "\n".join(f"{f'{title}:':<{width}} {text}" for title, text in fields.items())


def resolve(names: Mapping[str, Any], name: str) -> Any:
    """Return the value of a name, or of attributes and elements of it, as `x.shape[0]`.

    If that may run code of the learner's, or if there is no such name, it returns `_MISSING`.

    Example:
        >>> resolve({"x": [3 + 4j]}, "x[0].real"), resolve({}, "x") is _MISSING
        (3.0, True)
    """
    try:
        return _value(ast.parse(name, mode="eval").body, names)
    except (SyntaxError, ValueError):
        return _MISSING


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return names.get(name, getattr(builtins, name, _MISSING))
        case ast.Attribute(value=inner, attr=name):
            value = _value(inner, names)
            return value if value is _MISSING else _attribute(value, name)
        case ast.Subscript(value=inner, slice=key):
            value = _value(inner, names)
            if type(value) in (dict, list, tuple):
                with contextlib.suppress(ValueError, LookupError, TypeError):
                    return value[ast.literal_eval(key)]
    return _MISSING


def _attribute(value: Any, name: str) -> Any:
    found = _find(value, name)
    if found is _MISSING or not (_is_plain(found) or _is_known(value, name)):
        return _MISSING
    try:
        return getattr(value, name)
    except Exception:
        return _MISSING


def _find(value: Any, name: str) -> Any:
    """Return what is stored under an attribute's name; `_OWN` if it is the value's own."""
    found = inspect.getattr_static(value, name, _MISSING)
    try:
        own = object.__getattribute__(value, "__dict__")
    except Exception:  # it has none
        return found
    is_own = not isinstance(value, type) and found is not _MISSING and own.get(name) is found
    return _OWN if is_own else found


def _is_plain(found: Any) -> bool:
    """Return whether reading an attribute that is stored as this calls nothing, or only binds."""
    plain = (
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.MemberDescriptorType,  # a slot
        classmethod,
        staticmethod,
    )
    return isinstance(found, plain) or not hasattr(type(found), "__get__")


def _is_known(value: Any, name: str) -> bool:
    """Return whether a property of a value is known to compute nothing."""
    import jax

    if isinstance(value, jax.Array):
        return name in _OF_ARRAYS
    known = (
        *(jax.sharding.Sharding, jax.sharding.Mesh, jax.sharding.AbstractMesh, jax.Device),
        *(np.ndarray, np.generic, np.dtype, int, float, complex, str),
    )
    return isinstance(value, known)


def _stored(names: Mapping[str, Any], name: str) -> Any:
    """Return what is stored as the last attribute of a name, such as a property."""
    owner, _, last = name.rpartition(".")
    value = resolve(names, owner)
    return value if value is _MISSING else _find(value, last)
