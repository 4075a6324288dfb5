"""The kernels of a large graph, made by this process and by copies of it on other cores.

Owns: how many copies are worth it, what goes between the processes. Does not own: forking (plan/copies.py), how a kernel is made
(compiler.py).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from proofgrad.core.compile.machine.target import Backend, Binary
from proofgrad.core.compile.plan.copies import Copies
from proofgrad.core.compile.plan.plan import Kernel
from proofgrad.core.compile.plan.written_kernel import read_kernel, written_kernel
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.journal import Journal

# A copy takes as long to make as a kernel or two, and from some on they wait for what one process does.
LEAST_KERNELS_OF_A_COPY = 12
MOST_COPIES = 7

# A body and its device.
Task = tuple[UOp, str]
# Kernels as plain values, each with the entry and the bytes of its binary; what was rewritten for them, and without evidence.
_Made = tuple[list[tuple[dict[str, Any], str, bytes]], Counter[str], int]


def copies_worth_it(tasks: int, cores: int) -> int:
    """How many copies of a process, beside it, shall make so many kernels."""
    return max(0, min(MOST_COPIES, cores - 1, tasks // LEAST_KERNELS_OF_A_COPY))


def make_in_copies(
    tasks: Sequence[Task],
    count: int,
    kernels_of: Callable[[UOp, str], tuple[Kernel, ...]],
    backend: Callable[[str], Backend],
    journal: Journal,
    done: Callable[[int], None],
) -> dict[Task, tuple[Kernel, ...]]:
    """The kernels of each task that a copy has done; all others are made here.

    `kernels_of` makes those of one, and counts rewrites in `journal`; `done` is told how many are made here.
    """

    def make(number: int) -> _Made:
        journal.applied.clear()  # of a copy, which tells what it adds
        journal.unproven = 0
        kernels = kernels_of(*tasks[number])
        parts = [(written_kernel(k), k.binary.entry, k.binary.data) for k in kernels]
        return parts, journal.applied, journal.unproven

    found: dict[Task, tuple[Kernel, ...]] = {}
    with Copies(len(tasks), count, make) as copies:
        for so_many, number in enumerate(copies.left()):
            done(so_many)
            kernels_of(*tasks[number])
        for number, made in copies.made.items():
            found[tasks[number]] = _read(made, backend(tasks[number][1]), journal)
    return found


def _read(made: _Made, backend: Backend, journal: Journal) -> tuple[Kernel, ...]:
    kernels, applied, unproven = made
    journal.applied.update(applied)
    journal.unproven += unproven
    return tuple(
        [
            read_kernel(parts, backend, functools.partial(Binary, entry, data))
            for parts, entry, data in kernels
        ]
    )
