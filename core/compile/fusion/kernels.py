"""Tactic: which nodes of a program get a buffer, and so what its kernels are.

Owns: the choice (a heuristic: it changes speed and memory, never values). Does not own: where the epilogue of a reduction ends
(epilogues.py), sums that select one term (selections.py), limits on what one kernel computes (limits.py), reductions inside of a kernel (rows.py), the cut itself (steps/store.py), what a kernel
looks like inside (lower.py).
"""

from __future__ import annotations

from typing import NamedTuple

from proofgrad.core.compile.fusion.divided_rows import is_cut_within_rows, is_divided_out
from proofgrad.core.compile.fusion.epilogues import end_of_epilogue
from proofgrad.core.compile.fusion.limits import beyond_limits
from proofgrad.core.compile.fusion.meeting_points import meeting_points
from proofgrad.core.compile.fusion.narrow_values import before_widening, is_rounded_for_unit
from proofgrad.core.compile.fusion.padded_values import as_it_is_multiplied, is_read_often
from proofgrad.core.compile.fusion.row_products import products_by_row
from proofgrad.core.compile.fusion.row_values import read_by_several_loops
from proofgrad.core.compile.fusion.rows import reductions_by_row
from proofgrad.core.compile.fusion.selections import (
    combines_by_position,
    comparisons_with_counters,
    last_writers,
    masks_of_selections,
    selects,
    with_what_is_compared,
)
from proofgrad.core.compile.fusion.sums_of_parts import sums_by_readers
from proofgrad.core.compile.fusion.work import apart_from_rows, cycles_of_work, pays_a_buffer
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.running_reductions import is_running
from proofgrad.core.compile.nests.sums_of_products import is_contraction
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.copies import MOST_CHOSEN
from proofgrad.core.compile.schedule.operation_cycles import COSTLY
from proofgrad.core.compile.steps.store import below_reshape, store
from proofgrad.core.compile.steps.tensor_program import TensorProgram
from proofgrad.core.ir.op_names import (
    BUFFER,
    CONTIGUOUS,
    COPY,
    EXPAND,
    PAD,
    REDUCE_AXIS,
    RESHAPE,
    SKEW,
)
from proofgrad.core.ir.ops import CONVERSIONS, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp, known_below, toposort

# Sums of products that are stored for the epilogue of another one; of more it gets a kernel of its own.
MOST_BESIDE = 8
_TRANSPARENT = MOVEMENT | {Ops.DETACH}
_CUTS = frozenset({Ops.SHRINK, Ops.PAD})
_CAST = frozenset({Ops.CAST})


def cut_into_kernels(program: TensorProgram, context: Context) -> TensorProgram:
    """Decide what gets a buffer; one CALL a kernel, in running order."""
    return store(program, nodes_that_need_a_buffer(program.graph, context.target))


def nodes_that_need_a_buffer(root: UOp, target: Target) -> set[UOp]:
    """Roots, explicit requests, copies, reductions that others wait for, costly expanded values."""
    nodes = toposort((root,))
    consumers = _consumers(nodes)
    results = _results(root, consumers)
    stored = {result for result in results if result.op is not Ops.BUFFER}
    same = _stored_as_roots(root, results, consumers)
    for node in nodes:
        if node.op is COPY or (node.op is CONTIGUOUS and node not in same):
            stored.add(node)
            if node.op is Ops.COPY and node.src[0].op is not Ops.BUFFER:
                stored.add(node.src[0])
    leads_to_reduction = _leads_to_reduction(nodes, stored)
    meets = meeting_points(nodes, consumers)
    ends: dict[UOp, list[UOp]] = {}
    masks = comparisons_with_counters(nodes)
    selecting = with_what_is_compared(nodes, masks)
    for node in nodes:
        if node.op is REDUCE_AXIS:
            is_choice = selects(node, selecting)
            end = end_of_epilogue(node, consumers, meets.nearest, stored, target, is_choice)
            stored.add(end)
            ends.setdefault(end, []).append(node)
    choosing = masks_of_selections([r for rs in ends.values() for r in rs], masks, selecting)
    position = {node: k for k, node in enumerate(nodes)}
    beside = [_beside_a_contraction(rs, consumers, position) for rs in ends.values()]
    stored.update(*beside)
    leads_to_reduction -= selecting
    regrouped = _leads_to_other_rows(nodes, stored)
    work = _Work(stored, consumers, CONVERSIONS if target.lockstep > 1 else _CAST)
    for node in nodes:
        if node.op is EXPAND and (
            _worth_storing(node, work, leads_to_reduction)
            or (node not in selecting and _is_computed_again(node, work, target))
            or is_rounded_for_unit(_below_movement(node.src[0], stored), consumers, target)
        ):
            work.store(_below_movement(node.src[0], stored))
        if node.op is PAD and node in leads_to_reduction and is_read_often(node, consumers, target):
            work.store(_as_far_as_shown(as_it_is_multiplied(node, consumers, target), consumers))
        if (
            node.op is RESHAPE
            and not target.work_items
            and node not in selecting
            and is_divided_out(node, stored, target)
        ):
            work.store(node.src[0])
        if (
            node.op in _CUTS
            and (node in leads_to_reduction or node in regrouped)
            and not target.work_items
            and is_cut_within_rows(node, stored, target)
        ):
            work.store(node)
    kept = set(results) | {n.src[0] for n in nodes if n.op is COPY}
    kept.update(*beside)
    for end, reductions in ends.items():
        if any(map(is_running, reductions)):
            kept.add(end)
            stored.update(reductions if len(reductions) > 1 else ())
        elif len(reductions) > 1:
            stored.update([r for r in reductions if combines_by_position(r, selecting, target)])
    stored = {x if x in kept else before_widening(x, consumers, target) for x in stored}
    by_row = set[UOp]()
    if all(is_plain(node.shape) for node in nodes):
        by_row = reductions_by_row(nodes, consumers, stored, kept, target)
        stored = stored - by_row
        if not target.work_items:
            stored -= last_writers(root) - kept
        stored -= products_by_row(nodes, consumers, stored, kept, target)
        stored -= sums_by_readers(nodes, consumers, stored, kept, target)
        stored |= read_by_several_loops(nodes, consumers, stored, target)
        loops = {e: rs for e, rs in ends.items() if not any([selects(r, selecting) for r in rs])}
        stored |= apart_from_rows(loops, nodes, stored, target)
    stored = stored | beyond_limits(nodes, consumers, meets, stored, choosing, target)
    if left := _left_by_their_rows(by_row, nodes, _Work(set(stored), consumers)):
        stored |= left  # what read none of them before may read more buffers now
        stored |= beyond_limits(nodes, consumers, meets, stored, choosing, target)
    return stored


def _results(root: UOp, consumers: dict[UOp, list[UOp]]) -> list[UOp]:
    """The value that is stored for each root. Where others read, too, what it detaches, as a parameter reads new state, it is that value."""
    found = []
    for node in map(below_reshape, root.src):
        while node.op is Ops.DETACH and len(consumers[node.src[0]]) > 1:
            below = below_reshape(node.src[0])
            if below.op is Ops.BUFFER:
                break
            node = below
        found.append(node)
    return found


def _stored_as_roots(root: UOp, results: list[UOp], consumers: dict[UOp, list[UOp]]) -> set[UOp]:
    """What a root alone reads, and shows as it is: one buffer has the elements of both."""
    found, roots = set[UOp](), set(root.src)
    for node in results:
        while node.op is Ops.DETACH or node.op is Ops.CONTIGUOUS or node.op is Ops.RESHAPE:
            node = node.src[0]
            if len(consumers[node]) > 1 or node in roots:
                break
            found.add(node)
    return found


def _consumers(nodes: list[UOp]) -> dict[UOp, list[UOp]]:
    consumers: dict[UOp, list[UOp]] = {n: [] for n in nodes}
    for node in nodes:
        for source in dict.fromkeys(node.src):
            consumers[source].append(node)
    return consumers


def _beside_a_contraction(
    reductions: list[UOp], consumers: dict[UOp, list[UOp]], position: dict[UOp, int]
) -> set[UOp]:
    """Of the reductions of one kernel those that would keep the largest sum of products from its tiles.

    Where they are many, as where each step of a recurrent network adds to one gradient, that sum too: what reads so many buffers is long
    enough once, and would be written out for each element of a tile.
    `position`: of each node of the program in an order of sources first, by which what lies behind all of them is not looked at.
    """
    contractions = [r for r in reductions if is_contraction(r)]
    if len(reductions) == 1 or not contractions:
        return set()
    main = max(contractions, key=lambda r: elements(r.src[0].shape))
    last = max([position[r] for r in reductions])
    between = _made_of(reductions, consumers, position, last)
    below = set(toposort((main,), lambda node: node in between))
    above = _made_of([main], consumers, position, last)
    beside = {r for r in reductions if r not in below and r not in above}
    return beside | {main} if len(beside) > MOST_BESIDE else beside


def _made_of(
    sources: list[UOp], consumers: dict[UOp, list[UOp]], position: dict[UOp, int], last: int
) -> set[UOp]:
    """The sources, and what is made of any of them up to a position."""
    found, stack = set(sources), list(sources)
    while stack:
        more = [c for c in consumers[stack.pop()] if position[c] <= last and c not in found]
        found.update(more)
        stack += more
    return found


def _leads_to_reduction(nodes: list[UOp], stored: set[UOp]) -> set[UOp]:
    """Nodes whose elements are read, unstored, by the loop of a reduction."""
    leads: set[UOp] = set()
    for node in reversed(nodes):
        if node.op is REDUCE_AXIS or (node in leads and node not in stored):
            leads.update(node.src)
    return leads


def _leads_to_other_rows(nodes: list[UOp], stored: set[UOp]) -> set[UOp]:
    """Nodes whose elements are read, unstored, as rows of another length."""
    leads = set[UOp]()
    for node in reversed(nodes):
        if (node in leads and node not in stored) or (
            node.op is RESHAPE
            and [n for n in node.shape if n != 1] != [n for n in node.src[0].shape if n != 1]
        ):
            leads.update(node.src)
    return leads


def _worth_storing(expand: UOp, work: _Work, leads_to_reduction: set[UOp]) -> bool:
    """Whether computing the source of `expand` once for each copy costs more than a buffer."""
    source = _below_movement(expand.src[0], work.stored)
    if source in work.stored or elements(expand.shape) <= elements(expand.src[0].shape):
        return False
    found = work.of(source)
    if not (found.reads and found.computes):
        return False
    return expand in leads_to_reduction or found.is_costly


def _is_computed_again(expand: UOp, work: _Work, target: Target) -> bool:
    """Whether loops over copies run those over what is copied so often that a buffer takes fewer cycles, costly or not.

    Loops inside, as over the columns of what each row has one of, compute nothing again; short ones may be written out, each copy with a value of its own.
    """
    source = _below_movement(expand.src[0], work.stored)
    if target.work_items or source in work.stored or not is_plain(expand.shape):
        return False
    before, times = expand.src[0].shape, 1
    for axis, size in enumerate(expand.shape):
        if before[axis] != size and any([n != 1 for n in before[axis + 1 :]]):
            times *= size
    found = work.of(source)
    is_table = found.has_functions and not found.reads  # of counters, as sines of positions are
    if times <= (1 if is_table else MOST_CHOSEN) or not (found.reads or is_table):
        return False
    vectors = times * elements(source.shape) / target.lanes(source.dtype)
    return pays_a_buffer(source, vectors * cycles_of_work(source, work.stored), times, target)


def _left_by_their_rows(by_row: set[UOp], nodes: list[UOp], work: _Work) -> set[UOp]:
    """Costly values that would run in the loop over a row, behind a reduction of it that limits have cut away: in no such loop now, but for each
    element that reads them."""
    found = set[UOp]()
    for node in nodes if by_row else ():
        source = _below_movement(node.src[0], work.stored) if node.op is EXPAND else node
        if node.op is EXPAND and source in by_row and _worth_storing(node, work, set()):
            if not work.of(source).reduces:
                found.add(source)
                work.store(source)
    return found


class _Found(NamedTuple):
    """Of what computing a node would run: does it read a buffer, are there elementwise nodes, costly ones, functions of floats among them,
    reductions of several elements?"""

    reads: bool
    computes: bool
    is_costly: bool
    has_functions: bool
    reduces: bool


class _Work:
    """What computing nodes without a buffer would run; found once for each, until one below it gets a buffer."""

    def __init__(
        self, stored: set[UOp], consumers: dict[UOp, list[UOp]], free: frozenset[Ops] = _CAST
    ) -> None:
        """`free`: operations that count for nothing."""
        self.stored, self._consumers, self._free = stored, consumers, free
        self._known: dict[UOp, _Found] = {}

    def store(self, node: UOp) -> None:
        """Give the node a buffer."""
        self.stored.add(node)
        stack = [node]
        while stack:  # what is known of a node is known of all below it that have no buffer
            if self._known.pop(stack[-1], None) is None:
                stack.pop()
            else:
                stack += self._consumers[stack.pop()]

    def of(self, source: UOp) -> _Found:
        """Of a node that has no buffer."""
        stored = self.stored
        return known_below(
            source,
            self._known,
            self._find,
            lambda node: [s for s in node.src if s not in stored and s.op is not BUFFER],
        )

    def _find(self, node: UOp) -> _Found:
        computes = node.op in ELEMENTWISE and node.op not in self._free
        reads, is_costly = False, computes and node.op in COSTLY
        has_functions = is_costly and node.dtype.is_float
        reduces = node.op is REDUCE_AXIS and node.shape != node.src[0].shape
        for source in node.src:
            if source in self.stored or source.op is BUFFER:
                reads = True
            else:
                found = self._known[source]
                reads, computes = reads or found.reads, computes or found.computes
                is_costly, reduces = is_costly or found.is_costly, reduces or found.reduces
                has_functions = has_functions or found.has_functions
        return _Found(reads, computes, is_costly, has_functions, reduces)


def _below_movement(node: UOp, stored: set[UOp]) -> UOp:
    """What `node` shows through movement operations, or a view of it that has a buffer already, or as much of it as a variable says."""
    while node.op in _TRANSPARENT and node.op not in (PAD, SKEW) and node not in stored:
        if _is_cut_by_variable(node):
            break
        node = node.src[0]
    return node


def _as_far_as_shown(node: UOp, consumers: dict[UOp, list[UOp]]) -> UOp:
    """A value, or what a variable leaves of it for the one that reads it."""
    (only, *others) = consumers[node]
    return only if not others and _is_cut_by_variable(only) else node


def _is_cut_by_variable(node: UOp) -> bool:
    """Whether a variable says how much of a value is shown: all of it would be computed for its largest value."""
    return node.op is Ops.SHRINK and not is_plain(node.shape) and is_plain(node.src[0].shape)
