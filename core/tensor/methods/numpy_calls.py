"""What numpy's functions do with a Tensor: `np.sum(x)`, `np.exp(x)`, `np.ones(3) * x`.

Owns: which of them give a Tensor, and arguments as arrays. Does not own: operators (elementwise), values in numpy (interop.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# An operator of an array beside a Tensor asks for one of numpy's functions; this is the Tensor's method for it.
# The name of the second is that of the method where the Tensor stands to the right.
_OPERATORS: dict[str, tuple[str, str]] = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "true_divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
}


def operator_method(name: str, is_left: bool) -> str | None:
    """The method of a Tensor that the operator behind a function of numpy asks for, or None if there is no such operator."""
    methods = _OPERATORS.get(name)
    return None if methods is None else methods[0 if is_left else 1]


def called_with_values(
    function: Callable[..., Any], args: tuple[Any, ...], settings: dict[str, Any], kind: type
) -> Any:
    """A function of numpy, of the values of the Tensors (instances of `kind`) among its arguments."""
    return function(
        *[_in_numpy(each, kind) for each in args],
        **{name: _in_numpy(each, kind) for name, each in settings.items()},
    )


def _in_numpy(argument: Any, kind: type) -> Any:
    """An argument with arrays for Tensors. They may not be written: a Tensor would not see it."""
    if isinstance(argument, kind):
        array = argument.numpy()  # type: ignore[attr-defined]
        array.flags.writeable = False
        return array
    if type(argument) in (list, tuple):
        return type(argument)([_in_numpy(each, kind) for each in argument])
    return argument
