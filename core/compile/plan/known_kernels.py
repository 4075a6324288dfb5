"""The kernels that a process has compiled, by the body that each is of, and by its terms.

Owns: both tables, which always agree. Does not own: keys, compiling (compiler.py), kernels on the disk (store.py).
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.compile.plan.plan import Kernel

Kernels = Newest[tuple[Any, ...], tuple[Kernel, ...]]


class KnownKernels:
    """Bodies that differ in what is masked away are the same terms after the first rules, and share their kernels.

    So do those whose loops are the same once neighbours are merged: 4 rows of 256 and 1024 elements.
    """

    def __init__(self, most: int) -> None:
        self.by_body: Kernels = Newest(most)
        self.by_terms: Kernels = Newest(most)
        self.made = 0  # kernels that were put in, also those that are gone

    def put(self, key: tuple[Any, ...], kernels: tuple[Kernel, ...]) -> None:
        """Keep the kernels of a body that was not known, or is no more."""
        self.by_body[key] = kernels
        self.made += len(kernels)

    def clear(self) -> None:
        """Drop them all."""
        self.by_body.clear()
        self.by_terms.clear()

    def drop_uncompiled(self) -> None:
        """Drop those whose compilation has not ended: it was interrupted, or failed."""
        for table in (self.by_body, self.by_terms):
            for key, kernels in list(table.items()):
                if not all([kernel.is_compiled for kernel in kernels]):
                    del table[key]
