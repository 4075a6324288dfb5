"""Terms of z3 that do not depend on what was made before them.

Owns: contexts of z3, and declarations that are good in each. Does not own: what is declared.

z3 numbers terms as they are made, and orders the parts of sums and the text of goals by these
numbers. In a context of its own a goal has the same text, and takes the same steps, in every process, on
every machine.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import z3

from proofgrad.verify.encode.strict_sorts import strict_sorts

Term = Any

# A context is one table of 8 MB and little else. What glibc gives back to the system it gets again page
# by page, which takes longer than to fill the table: so it keeps more than it does by itself.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
KEPT_BYTES, MAPPED_BYTES = 1 << 28, 1 << 25


@contextmanager
def fresh_terms() -> Iterator[None]:
    """What is made inside is made in a context of its own, and may not meet terms from outside.

    Sorts are strict there.
    """
    _keep_memory()
    before, collects = z3.z3._main_ctx, gc.isenabled()
    gc.disable()  # z3 gives the number of a term that Python drops to the next one
    z3.z3._main_ctx = None  # z3 makes it with the first term, which takes it milliseconds
    try:
        with strict_sorts():
            yield
    finally:
        z3.z3._main_ctx = before
        if collects:
            gc.enable()


@cache
def _keep_memory() -> None:
    """Have malloc keep what is freed, where it is that of glibc."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


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
        if not z3.is_app(term) or not term.num_args() or term.decl().name() != self._name:
            return False  # without a declaration to compare with
        return bool(term.decl().eq(self._declared()))

    def _declared(self) -> Any:
        return z3.Function(self._name, *[sort() for sort in self._sorts])
