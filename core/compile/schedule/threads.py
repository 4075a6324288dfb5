"""Whether threads share a kernel.

Owns: the choice, a heuristic. Does not own: the step that shares a loop out (axes.py), the threads (backends).
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule
from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import LOAD, LOCAL_BUFFER, REDUCE, STORE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Pieces of a loop that a thread takes one after the other, so that all end together; each begins with what is before the loop.
PIECES = 32


def shares_work(operations: int, target: Target, override: Schedule = AUTOMATIC) -> bool:
    """Whether threads share a kernel of so many operations."""
    if target.threads < 2 or override.threads is not None:
        return target.threads > 1 and bool(override.threads)
    return operations >= operations_worth_sharing(target)


def operations_worth_sharing(target: Target) -> int:
    """So many loads and stores, a vector in a cycle, that half of them take as long as handing out work.

    Where threads spin, that is; only when a kernel runs it is known whether they do.
    """
    return 2 * target.core.share_cycles * target.lanes(dtypes.float32)


def instructions_worth_sharing(target: Target) -> int:
    """The same of the instructions of a run, where threads may have to be woken."""
    return 2 * target.core.wake_cycles


def leaves_first_cache(kernel: UOp, target: Target) -> bool:
    """Whether what a kernel writes is more than the first cache holds: launches in a row may run part by part then."""
    loops = output_loops(kernel)
    if target.work_items or runs_in_order(kernel) or not all(map(is_fixed, loops)):
        return False
    itemsize = max([store.src[1].dtype.itemsize for store in kernel.src])
    return prod(map(size_of, loops)) * itemsize > target.near_bytes


def runs_in_order(kernel: UOp) -> bool:
    """Whether a store of the kernel has loops of its own: it combines with what was stored before."""
    return any(len(store.src) > 2 for store in kernel.src)


def loop_shared_in_order(kernel: UOp, target: Target) -> UOp | None:
    """The loop inside of loops in order of which each thread takes a part, where an outer one cannot be shared.

    One along which what is read most lies, so that each thread reads its own part of it: of a product of 4 rows and a matrix its columns.
    """
    if not runs_in_order(kernel):
        return None
    first = min([loop.arg[0] for loop in kernel.src[0].src[2:]])
    outputs = output_loops(kernel)
    if any(x.arg[0] < first and size_of(x) >= target.threads for x in outputs):
        return None
    inner = [x for x in outputs if x.arg[0] > first]
    equal = [x for x in inner if size_of(x) % target.threads == 0]
    long = [x for x in inner if size_of(x) > (target.threads - 1) * part_of_thread(x, target)]
    longest = loops_of_longest_load(kernel)
    return min((*equal, *long), key=lambda x: x not in longest, default=None)


def loops_of_longest_load(kernel: UOp) -> frozenset[UOp]:
    """The loops of what a kernel reads most of."""
    free = loops_below(kernel)
    loads = [free[n] for n in toposort((kernel,)) if n.op is Ops.LOAD]
    return max(loads, key=lambda loops: prod(map(size_of, loops)), default=frozenset())


def part_of_thread(loop: UOp, target: Target) -> int:
    """So much of such a loop has each thread: as much as the others, or whole vectors, and the last one what is left."""
    size, lanes = size_of(loop), target.lanes(dtypes.float32)
    equal = size // target.threads
    return equal if size % target.threads == 0 else -(-size // (target.threads * lanes)) * lanes


def operations_shared(kernel: UOp, target: Target) -> int:
    """The operations of one run that threads can share, less what each piece of the shared loop would do again: reductions that do not change with it."""
    long = [loop for loop in output_loops(kernel) if size_of(loop) >= target.threads]
    if not long or runs_in_order(kernel):
        return operations(kernel)
    inside, every = operations(kernel, long[0]), operations(kernel)
    return inside - 2 * PIECES * (every - inside)


def operations(kernel: UOp, changing_with: UOp | None = None) -> int:
    """An estimate of the arithmetic of one run, for choosing threads; of all, or of what changes with a loop."""
    free = loops_below(kernel)
    total = 0
    for node in toposort((kernel,)):
        if node.op in (REDUCE, LOCAL_BUFFER, LOAD, STORE):
            below = (
                free[node.src[0]]
                if node.op not in BINDERS
                else free[node.src[0]] | set(node.src[1:])
            )
            if changing_with is None or changing_with in below:
                total += prod(size_of(loop) for loop in below)
    return total
