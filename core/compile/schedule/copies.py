"""Of which loop of a kernel without a tile iterations run side by side, and how many.

Owns: the choice, a heuristic, which can make a kernel slow and never wrong. Does not own: the loops that run as vectors
(vectors.py), the steps that apply both (tactics/axes.py).

Copies of an iteration share what does not change from one to the next: loads, masks, and the loop itself. They take registers, and each
may read memory of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import NO_COPIES, Copies, Schedule
from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.groups import GROUPS_A_UNIT
from proofgrad.core.compile.schedule.shared_windows import (
    MOST_TERMS,
    elements_of_copies,
    loads_of,
    overlaps,
    written_beside,
)
from proofgrad.core.compile.schedule.threads import part_of_thread
from proofgrad.core.compile.steps.window import ends_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import LOAD, LOCAL_BUFFER, REDUCE, STORE, WHERE
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Accumulators held at once by an unrolled reduction; more would spill.
MOST_COPIES = 8
# What a step of a reduction takes but for what it computes, in operations: it counts, finds its positions, branches (measured).
WORK_OF_A_STEP = 8
# One truth for all lanes of a vector is asked beside what vectors compute, which have fewer units.
WORK_OF_A_TRUTH = 0.25
# Values that a loop chooses among, when all are written out.
MOST_CHOSEN = 64
# A value is written out for so many of its elements, else a loop over all asks which one it is.
WIDEST_PART = 2


@dataclass(frozen=True)  # without slots: what is found once is asked for each loop
class Nest:
    """What the choices ask of a kernel: the loops that each node changes with, the reductions that are not written out.

    `shared`: the loop of which each thread takes a part beforehand. `unroll`: reductions of at most so many values are written out.
    """

    kernel: UOp
    free: Mapping[UOp, frozenset[UOp]]
    looped: Sequence[UOp]
    shared: UOp | None
    target: Target
    unroll: int

    def size(self, loop: UOp) -> int:
        """How long a loop is, for a thread."""
        return part_of_thread(loop, self.target) if loop is self.shared else size_of(loop)

    def is_of_results(self, loop: UOp) -> bool:
        """Whether nothing is reduced or kept along a loop."""
        return loop not in self._bound

    @cached_property
    def _bound(self) -> frozenset[UOp]:
        """The loops along which something is reduced or kept."""
        return frozenset([x for n in self.free if n.op in BINDERS for x in n.src[1:]])

    @cached_property
    def loads(self) -> list[UOp]:
        """What is read, sources first."""
        return [n for n in self.free if n.op is LOAD]

    @cached_property
    def stores(self) -> list[UOp]:
        """What is written, sources first."""
        return [n for n in self.free if n.op is STORE]

    @cached_property
    def reductions(self) -> list[UOp]:
        """Whether written out or not, sources first."""
        return [n for n in self.free if n.op is REDUCE]

    @cached_property
    def keeps(self) -> bool:
        """Whether something is kept along a loop."""
        return any([n.op is LOCAL_BUFFER for n in self.free])

    def written_beside(self, reduction: UOp, loop: UOp) -> tuple[UOp, ...]:
        """The loops of a reduction that are written out where copies of `loop` run side by side."""
        is_short = reduction not in self.looped
        if not is_short and (self.target.work_items or loop not in self.free[reduction]):
            return ()
        return written_beside(reduction, loop, self.unroll, is_short)

    def has_windows(self, loop: UOp) -> bool:
        """Whether iterations of a loop reduce windows that overlap, and are written out where they run side by side."""
        sums = [n for n in self.reductions if loop in self.free[n]]
        return any([overlaps(n, self.written_beside(n, loop), loop) for n in sums])

    @property
    def leaves_results_out(self) -> bool:
        """Whether it has one plain store, which copies beyond the end of a loop leave out."""
        stores = self.kernel.src
        is_plain = len(stores) == 1 and len(stores[0].src) == 2
        return is_plain and not self.keeps


@dataclass(frozen=True, slots=True)
class Chooser:
    """A loop that decides which of several values an element is: another one in so many known parts of it."""

    loop: UOp
    parts: int


def choose_copies(
    nest: Nest, vectors: Sequence[UOp], at_once: int, of_row: int, override: Schedule
) -> Copies:
    """An output loop whose iterations share a load inside a reduction: of several the one whose iterations do least each for itself.

    `of_row`: so many vectors of a row are written out. `at_once`: vectors of results that an iteration takes at once of what is reduced. Copies that read other rows fill the registers that these
    leave, and there are none where they alone wait for nothing: vectors read on where copies begin other rows (measured: softmax over the
    rows of a matrix takes three quarters of the time).
    """
    along = frozenset(vectors)
    free, target, wanted, found = nest.free, nest.target, override.copies, []
    sharing = [_loops_that_share(n, nest) for n in nest.reductions]
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
        in_windows = nest.has_windows(loop)
        if of_row > 1 and wanted is None and not in_windows:
            continue  # copies of other rows would ask at each vector where rows end
        if nest.target.units and nest.target.lockstep != 1:
            most = min(most, _iterations_of_an_item(nest, vectors))
        has_rest = loop is not nest.shared and nest.leaves_results_out
        has_rest = has_rest and (along_sums or not target.work_items)
        if wanted is not None:
            count = wanted.count
        elif in_windows:
            count = _copies_of_windows(nest, loop, has_rest, along, of_row)
        else:
            count = side_by_side(size, most) if has_rest else largest_divisor(size, most)
        if count > 1 and (size % count == 0 or (has_rest and count < size)):
            found.append((_work_of_copies(nest, loop, count, along), Copies(loop.arg[0], count)))
    if found:
        return min(found, key=lambda one: one[0])[1]
    return copies_of_choices(nest, vectors) if wanted is None else NO_COPIES


def copies_of_choices(nest: Nest, vectors: Sequence[UOp]) -> Copies:
    """All iterations of the loop that decides which of several values an element is, if it does not run as vectors; or of one that is stored between vectors."""
    between = _loop_between(nest, vectors)
    if between is not None:
        return Copies(between.arg[0], size_of(between))
    chooser = loop_that_chooses(nest)
    if chooser is None or chooser.loop in vectors or not (vectors or chooser.parts > 1):
        return NO_COPIES
    return Copies(chooser.loop.arg[0], size_of(chooser.loop))


def _loop_between(nest: Nest, vectors: Sequence[UOp]) -> UOp | None:
    """A short output loop whose results lie side by side, between the lanes of vectors: written out, its vectors are interleaved and stored whole."""
    stores = [n.src[0].src[1] for n in nest.stores]
    if nest.target.work_items or len(vectors) != 1 or len(stores) != 1:
        return None
    step = coefficient(stores[0], vectors[0])
    is_plain = nest.leaves_results_out and not nest.reductions
    if step is None or not 1 < step <= MOST_COPIES or not is_plain:
        return None
    loops = [x for x in output_loops(nest.kernel) if is_fixed(x) and size_of(x) == step]
    return next((x for x in loops if coefficient(stores[0], x) == 1), None)


def side_by_side(size: int, most: int) -> int:
    """Of so many vectors, or rows of them, how many at once: the fewest are loaded, those beyond the end too, and one that all share."""
    if size <= 1:
        return 1
    return min(range(most, 0, -1), key=lambda n: (-(-size // n) * (n + 1), size % n != 0))


def loops_around_kept(free: Mapping[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """The loops that change what is kept: one run of them at a time has the memory for it."""
    return frozenset().union(*[loops for n, loops in free.items() if n.op is LOCAL_BUFFER])


def _iterations_of_an_item(nest: Nest, vectors: Sequence[UOp]) -> int:
    """How many copies leave items for all units of a machine whose items run in step: there these, and not copies, read side by side."""
    target = nest.target
    results = prod([nest.size(loop) for loop in output_loops(nest.kernel)])
    is_in_vectors = any([nest.is_of_results(loop) for loop in vectors])
    lanes = target.lanes(nest.kernel.src[0].src[1].dtype.scalar) if is_in_vectors else 1
    return max(1, results // lanes // (GROUPS_A_UNIT * target.units * target.group_items))


def _loops_that_share(reduction: UOp, nest: Nest) -> frozenset[UOp]:
    """The loops that change a reduction, but not everything that it loads; or whose iterations load some of the same."""
    free = nest.free
    loads = [free[n] for n in loads_of(reduction)]
    same = free[reduction] - free[reduction].intersection(*loads)
    return same | {x for x in free[reduction] - same if nest.has_windows(x)}


def _copies_of_windows(
    nest: Nest, loop: UOp, has_rest: bool, along: frozenset[UOp], of_row: int
) -> int:
    """How many rows of windows side by side load and compute least for each result, of so many vectors of a row each."""
    size = nest.size(loop)
    written = [nest.written_beside(n, loop) for n in nest.reductions]
    terms = max([prod([size_of(x) for x in loops]) for loops in written])
    # A product that is no part of its sum takes a register for itself.
    registers = nest.target.vector_registers // (2 if nest.target.has_fma else 4)
    most = min(MOST_COPIES, registers, MOST_TERMS // (terms * of_row), size)
    counts = [n for n in range(2, most + 1) if size % n == 0 or (has_rest and n < size)]
    return min(counts, key=lambda n: _work_of_copies(nest, loop, n, along), default=1)


def _loops_of_rows(nest: Nest, vectors: Sequence[UOp]) -> frozenset[UOp]:
    """The loops of which each iteration reads other vectors of those that run along results, in a loop of a reduction."""
    results = [loop for loop in vectors if nest.is_of_results(loop)]
    loads = [n for sum_ in nest.looped for n in toposort((sum_.src[0],)) if n.op is Ops.LOAD]
    read = [nest.free[n] for n in loads]
    return frozenset().union(*[loops for loops in read if not loops.isdisjoint(results)])


def _work_of_copies(nest: Nest, loop: UOp, count: int, along: frozenset[UOp]) -> float:
    """Loads, masks and operations for each result in a step of what is reduced: its own, and its part of what all copies share.

    Windows that overlap have masks in common as they have elements. Of a reduction that is written out only the loads count: the operations are the same
    in copies of any loop. `along`: the loops that run as vectors.
    """
    work, size = 0.0, nest.size(loop)  # of all copies, then of each result
    for reduction in nest.reductions:
        written = nest.written_beside(reduction, loop)
        steps = prod([size_of(x) for x in written])
        loads = [elements_of_copies(n, written, loop, count) for n in loads_of(reduction)]
        if reduction not in nest.looped:
            work += sum(loads) + WORK_OF_A_STEP
            continue
        own = max(loads, default=count * steps) / steps
        work += (sum(loads) + WORK_OF_A_STEP) / steps
        for node in toposort((reduction.src[0],)):
            if node.op in ELEMENTWISE and node.dtype is not dtypes.index:
                is_truth = node.dtype.is_bool
                of_copies = own if is_truth else count
                each = 1 if not is_truth or along & nest.free[node] else WORK_OF_A_TRUTH
                work += each * (of_copies if loop in nest.free[node] else 1)
    return work * -(-size // count) / size


def loop_that_chooses(nest: Nest) -> Chooser | None:
    """A short output loop that alone decides which of several computed values an element is, as behind `stack`.

    Written out, each of its iterations computes its own value, and what they have in common is computed once. Where what is loaded decides, as
    whether a row that is gathered is there, nothing is known of an iteration when it is written out.
    """
    conditions = [n.src[0] for n in nest.free if n.op is WHERE]
    if not conditions:
        return None
    truths = toposort(conditions, lambda n: n.dtype.is_bool and n.op not in COMPARE)
    borders: dict[UOp, set[int]] = {}
    asking: set[UOp] = set()  # at each iteration, as digits of the loop do
    for truth in [n for n in truths if n.op in COMPARE and len(nest.free[n]) == 1]:
        if any([n.op is Ops.LOAD for n in toposort((truth,))]):
            continue
        (loop,) = nest.free[truth]
        if loop.arg[1] is AxisRole.LOOP and is_fixed(loop):
            ends = [end for end in ends_of(truth, loop) if end is not None]
            asking.update([] if ends or truth not in conditions else [loop])
            known = {end.vmin for end in ends if end.vmin == end.vmax}
            borders.setdefault(loop, set()).update(k for k in known if 0 < k < size_of(loop))
    found = [Chooser(loop, len(ends) + 1) for loop, ends in borders.items()]
    sizes = {x.loop: size_of(x.loop) if x.loop in asking else x.parts for x in found}
    pay = [x for x in found if is_short(size_of(x.loop), sizes[x.loop])]
    return max(pay, key=lambda one: (one.parts, size_of(one.loop)), default=None)


def is_short(size: int, parts: int) -> bool:
    """Whether a loop, in so many parts of which an element is another value, is written out."""
    return 1 < size <= min(MOST_CHOSEN, max(MOST_COPIES, WIDEST_PART * parts))
