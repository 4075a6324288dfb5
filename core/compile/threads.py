"""Whether threads share a kernel.

Owns: the choice, a heuristic. Does not own: which loop they share (axes.py), the threads (backends).
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.kernel_schedule import AUTOMATIC, Schedule
from proofgrad.core.compile.linear_terms import loops_below
from proofgrad.core.compile.loops import BINDERS, size_of
from proofgrad.core.compile.target import Target
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Below this many operations a kernel runs on one thread: waking another costs some 40 us.
THREAD_WORTH_OPERATIONS = 1 << 16


def shares_work(operations: int, target: Target, asked: Schedule = AUTOMATIC) -> bool:
    """Whether threads share a kernel of so many operations."""
    if target.threads < 2 or asked.threads is not None:
        return target.threads > 1 and bool(asked.threads)
    return operations >= THREAD_WORTH_OPERATIONS


def operations(kernel: UOp) -> int:
    """An estimate of the arithmetic of one run, for choosing threads."""
    free = loops_below(kernel)
    total = 0
    for node in toposort((kernel,)):
        if node.op in (Ops.REDUCE, Ops.KEEP, Ops.LOAD, Ops.STORE):
            below = (
                free[node.src[0]]
                if node.op not in BINDERS
                else free[node.src[0]] | set(node.src[1:])
            )
            total += prod(size_of(loop) for loop in below)
    return total
