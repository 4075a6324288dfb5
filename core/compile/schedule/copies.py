"""Of which loop of a kernel without a tile iterations run side by side, and how many.

Owns: the choice, a heuristic, which can make a kernel slow and never wrong. Does not own: the loops that run as vectors
(vectors.py), the steps that apply both (tactics/axes.py).

Copies of an iteration share what does not change from one to the next: loads, masks, and the loop itself. They take registers, and each
may read memory of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import NO_COPIES, Copies, Schedule
from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, output_loops, size_of
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.threads import part_of_thread
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Accumulators held at once by an unrolled reduction; more would spill.
MOST_COPIES = 8
# What a step of a reduction takes but for what it computes, in operations: it counts, finds its positions, branches (measured).
WORK_OF_A_STEP = 8
# Values that a loop chooses among, when all are written out.
MOST_CHOSEN = 64


@dataclass(frozen=True, slots=True)
class Nest:
    """What the choices ask of a kernel: the loops that each node changes with, the reductions that are not written out.

    `shared`: the loop of which each thread takes a part beforehand.
    """

    kernel: UOp
    free: Mapping[UOp, frozenset[UOp]]
    looped: Sequence[UOp]
    shared: UOp | None
    target: Target

    def size(self, loop: UOp) -> int:
        """How long a loop is, for a thread."""
        return part_of_thread(loop, self.target) if loop is self.shared else size_of(loop)

    def is_of_results(self, loop: UOp) -> bool:
        """Whether nothing is reduced or kept along a loop."""
        return not any([n.op in BINDERS and loop in n.src[1:] for n in self.free])

    @property
    def leaves_results_out(self) -> bool:
        """Whether it has one plain store, which copies beyond the end of a loop leave out."""
        stores = self.kernel.src
        is_plain = len(stores) == 1 and len(stores[0].src) == 2
        return is_plain and not any([n.op is Ops.LOCAL_BUFFER for n in self.free])


def choose_copies(nest: Nest, vectors: Sequence[UOp], at_once: int, override: Schedule) -> Copies:
    """An output loop whose iterations share a load inside a reduction: of several the one whose iterations do least each for itself.

    `at_once`: vectors of results that an iteration takes at once of what is reduced. Copies that read other rows fill the registers that these
    leave, and there are none where they alone wait for nothing: vectors read on where copies begin other rows (measured: softmax over the
    rows of a matrix takes three quarters of the time).
    """
    free, target, wanted, found = nest.free, nest.target, override.copies, []
    sharing = [_loops_that_share(n, free) for n in free if n.op is Ops.REDUCE]
    candidates = frozenset().union(*sharing) - loops_around_kept(free)
    of_rows, beside = _loops_of_rows(nest, vectors), target.vector_registers // 2 // at_once
    if at_once >= target.core.sums_at_once:
        beside = 1
    along_sums = all([loop.arg[1] is AxisRole.REDUCE for loop in vectors])
    for loop in reversed(output_loops(nest.kernel)):
        if loop.arg[1] is not AxisRole.LOOP or loop in vectors or loop not in candidates:
            continue
        if wanted is not None and wanted.loop is not None and loop.arg[0] != wanted.loop:
            continue
        size, most = nest.size(loop), beside if loop in of_rows else MOST_COPIES
        has_rest = loop is not nest.shared and nest.leaves_results_out
        has_rest = has_rest and (along_sums or not target.work_items)
        if wanted is not None:
            count = wanted.count
        else:
            count = side_by_side(size, most) if has_rest else largest_divisor(size, most)
        if count > 1 and (size % count == 0 or (has_rest and count < size)):
            found.append((_work_of_copies(nest, loop, count), Copies(loop.arg[0], count)))
    if found:
        return min(found, key=lambda one: one[0])[1]
    if wanted is None and (chooser := _loop_that_chooses(free, vectors)) is not None:
        return Copies(chooser.arg[0], size_of(chooser))
    return NO_COPIES


def side_by_side(size: int, most: int) -> int:
    """Of so many vectors, or rows of them, how many at once: the fewest are loaded, those beyond the end too, and one that all share."""
    if size <= 1:
        return 1
    return min(range(most, 0, -1), key=lambda n: (-(-size // n) * (n + 1), size % n != 0))


def loops_around_kept(free: Mapping[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """The loops that change what is kept: one run of them at a time has the memory for it."""
    return frozenset().union(*[loops for n, loops in free.items() if n.op is Ops.LOCAL_BUFFER])


def _loops_that_share(reduction: UOp, free: Mapping[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """The loops that change a reduction, but not everything that it loads."""
    loads = [free[n] for n in toposort((reduction.src[0],)) if n.op is Ops.LOAD]
    return free[reduction] - free[reduction].intersection(*loads)


def _loops_of_rows(nest: Nest, vectors: Sequence[UOp]) -> frozenset[UOp]:
    """The loops of which each iteration reads other vectors of those that run along results, in a loop of a reduction."""
    results = [loop for loop in vectors if nest.is_of_results(loop)]
    loads = [n for sum_ in nest.looped for n in toposort((sum_.src[0],)) if n.op is Ops.LOAD]
    read = [nest.free[n] for n in loads]
    return frozenset().union(*[loops for loops in read if not loops.isdisjoint(results)])


def _work_of_copies(nest: Nest, loop: UOp, count: int) -> float:
    """Loads, masks and operations for each result in a step of what is reduced: its own, and its part of what all copies share."""
    nodes = {n for sum_ in nest.looped for n in toposort((sum_.src[0],))}
    work = [
        n
        for n in nodes
        if n.op is Ops.LOAD or (n.op in ELEMENTWISE and n.dtype is not dtypes.index)
    ]
    own, size = sum([loop in nest.free[n] for n in work]), nest.size(loop)
    a_copy = own + (len(work) - own + WORK_OF_A_STEP) / count
    return a_copy * count * -(-size // count) / size


def _loop_that_chooses(free: Mapping[UOp, frozenset[UOp]], vectors: Sequence[UOp]) -> UOp | None:
    """A short output loop that alone decides which of several computed values an element is, as behind `stack`.

    Written out, each of its iterations computes its own value, and what they have in common is computed once. Where what is loaded decides, as
    whether a row that is gathered is there, nothing is known of an iteration when it is written out.
    """
    conditions = [n.src[0] for n in free if n.op is Ops.WHERE and n.src[0].op in COMPARE]
    of_loops = [c for c in conditions if not any([n.op is Ops.LOAD for n in toposort((c,))])]
    loops = [next(iter(free[c])) for c in of_loops if len(free[c]) == 1]
    chosen = [x for x in loops if x.arg[1] is AxisRole.LOOP and x not in vectors]
    fitting = [x for x in chosen if is_fixed(x) and 1 < size_of(x) <= MOST_CHOSEN]
    return max(fitting, key=size_of, default=None)
