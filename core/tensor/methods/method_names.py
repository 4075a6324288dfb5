"""Methods under the name by which users call them.

A method is written in the class of its subject, and Python's own errors name that class: "Factories.full() missing 1 required
positional argument". Users know of `Tensor.full`.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType


def name_methods_of(kind: type) -> None:
    """Give each method that a class inherits the name that it has there."""
    for base in kind.__mro__:
        for name, member in vars(base).items():
            for function in _functions_of(member):
                if function.__name__ == name:
                    function.__qualname__ = f"{kind.__name__}.{name}"
                    function.__module__ = kind.__module__  # pickles find a function by both


def _functions_of(member: object) -> Iterator[FunctionType]:
    """The function of a method, and those that its decorators wrap."""
    function = getattr(member, "__func__", member)
    while isinstance(function, FunctionType):
        yield function
        function = getattr(function, "__wrapped__", None)
