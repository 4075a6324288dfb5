"""Terms of z3 that do not depend on what was made before them.

Owns: contexts of z3, and declarations that are good in each. Does not own: what is declared.

z3 numbers terms as they are made, and orders the parts of sums and the text of goals by these
numbers. In a context of its own a goal has the same text in every process, on every machine.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import z3

Term = Any


@contextmanager
def fresh_terms() -> Iterator[None]:
    """What is made inside is made in a context of its own, and may not meet terms from outside."""
    before, collects = z3.z3._main_ctx, gc.isenabled()
    gc.disable()  # z3 gives the number of a term that Python drops to the next one
    z3.z3._main_ctx = None  # z3 makes it with the first term, which takes it milliseconds
    try:
        yield
    finally:
        z3.z3._main_ctx = before
        if collects:
            gc.enable()


class Function:
    """An unknown function that is declared anew in each context. `sorts`: functions that make them."""

    def __init__(self, name: str, *sorts: Callable[[], Any]) -> None:
        self._name = name
        self._sorts = sorts

    def __call__(self, *args: Term) -> Term:
        """Its value."""
        return self._declared()(*args)

    def heads(self, term: Term) -> bool:
        """Whether `term` is an application of this function."""
        return bool(z3.is_app(term) and term.decl().eq(self._declared()))

    def _declared(self) -> Any:
        return z3.Function(self._name, *[sort() for sort in self._sorts])
