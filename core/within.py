"""Blocks (`with`) that decorate functions as well, generators among them, and that can be entered again.

Owns: `block`, `Block`. Does not own: what holds within one.

What contextlib makes of a generator function is over before the first line of the generator runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
_Make = Callable[[], AbstractContextManager[None]]


class Block(AbstractContextManager[None]):
    """What holds within a `with`, within each call of a function that it decorates, and within each step of a generator."""

    __slots__ = ("_entered", "_make")

    def __init__(self, make: _Make) -> None:
        self._make = make
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        entered = self._make()
        entered.__enter__()
        self._entered.append(entered)

    def __exit__(self, *error: Any) -> bool | None:
        return self._entered.pop().__exit__(*error)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        steps: Any = partial(_Steps, self._make) if isgeneratorfunction(function) else None

        @wraps(function)
        def within(*args: P.args, **named: P.kwargs) -> R:
            with self._make():
                made = function(*args, **named)
            return made if steps is None else steps(made)

        return within


class _Steps(Generator[Any, Any, Any]):
    """A generator of which each step runs within a block, and what is between them outside."""

    __slots__ = ("_generator", "_make")

    def __init__(self, make: _Make, generator: Generator[Any, Any, Any]) -> None:
        self._make, self._generator = make, generator

    def send(self, value: Any) -> Any:
        with self._make():
            return self._generator.send(value)

    def throw(self, *error: Any) -> Any:
        with self._make():
            return self._generator.throw(*error)


def block(function: Callable[P, Iterator[None]]) -> Callable[P, Block]:
    """A function that yields once, as `contextlib.contextmanager` takes it, as one that gives a Block."""
    make = contextmanager(function)

    @wraps(function)
    def made(*args: P.args, **named: P.kwargs) -> Block:
        return Block(partial(make, *args, **named))

    return made
