"""docs/tensor.md: every method of Tensor, from its docstring.

Owns: the page's order and form. Does not own: what a method does, which its docstring says.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from proofgrad.core.tensor.tensor import Tensor

HEAD = """# Tensor

Every method of `proofgrad.Tensor`, with the words of its docstring. This page is printed by `python -m proofgrad docs tensor`; a
test keeps it so. Names, arguments and meanings are those of tinygrad; what is more is `device=`, `dtype=` and `requires_grad=` where a
Tensor is made, and `log1p`, `expm1`, `from_dlpack`. Tensors are lazy: a method says how to compute, `realize()` and all that reads
values out computes. Shapes and types are checked when a method is called; mistakes are `ShapeError`, `DtypeError`, `DeviceError`
(each also a `ValueError`) or Python's `IndexError`, `OverflowError`.

Operators are the methods of that meaning: `+` add, `-` sub, `*` mul, `/` div, `//` floordiv, `%` mod, `**` pow, `@` matmul, `&` `|`
`^` `~` on bits and bools, `<<` `>>` shifts, `<` `<=` `>` `>=` `==` `!=` comparisons of elements. A Python number takes the type of
the Tensor beside it where it can (an int beside a float is a float, a float beside an int makes the default float); Tensors of two types
meet in the least type that can stand for both, as in JAX. `float(t)`, `int(t)`, `bool(t)`, `len(t)`, `for row in t`,
`numpy.asarray(t)`, `pickle`, `copy` work; `memoryview(t)` needs Python 3.12, before that it is `t.data()`.

```python
from proofgrad import Ops, Tensor, dtypes
```
"""
_OPERATORS = ("__getitem__", "__setitem__", "__dlpack__", "__dlpack_device__")
_WORDS = {
    "Self": "Tensor", "Flag": "bool", "Whole": "int", "Real": "float", "Scalar": "number",
    "Operand": "Tensor | number", "DType | str": "dtype", "'": "", "Any": "",
}  # fmt: skip


def tensor_reference() -> str:
    """The page."""
    parts = [HEAD]
    for owner in reversed(Tensor.__mro__[:-1]):
        members = list(_members(owner))
        if members:
            parts.append(f"\n## {_first_line(owner).rstrip('.')}\n")
            parts += [_entry(name, member) for name, member in members]
    return "".join(parts)


def _members(owner: type) -> Iterator[tuple[str, object]]:
    """The documented names that a class adds, as they are written."""
    for name, member in vars(owner).items():
        if name in _OPERATORS or not name.startswith("_"):
            plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            described = plain.fget if isinstance(plain, property) else plain
            if inspect.isfunction(described) and described.__doc__:
                yield name, plain


def _entry(name: str, member: object) -> str:
    heading = name if isinstance(member, property) else f"{name}{_arguments(member)}"
    function = member.fget if isinstance(member, property) else member
    text, _, example = inspect.cleandoc(function.__doc__ or "").partition("\nExample:\n")
    lines = [f"\n### `{heading}`\n\n{text.strip()}\n"]
    if example:
        lines.append(f"\n```python\n{inspect.cleandoc(example)}\n```\n")
    return "".join(lines)


def _arguments(function: object) -> str:
    """The signature without the receiver and the result, types in the words of users."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    given = [p for name, p in signature.parameters.items() if name not in ("self", "cls")]
    shown = []
    for parameter in given:
        note = str(parameter.annotation) if parameter.annotation is not parameter.empty else ""
        for word, meaning in _WORDS.items():
            note = (
                re.sub(rf"\b{word}\b", meaning, note)
                if word.isalpha()
                else note.replace(word, meaning)
            )
        bare = parameter.replace(annotation=parameter.empty, default=parameter.empty)
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"{bare}{': ' if note else ''}{note}{default}")
    return f"({', '.join(shown)})"


def _first_line(owner: type) -> str:
    return inspect.cleandoc(owner.__doc__ or owner.__name__).splitlines()[0]
