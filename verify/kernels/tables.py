"""Values that a kernel keeps, and kernels that were cut in several with tables between: both read through.

Owns: replacing each load of such memory by the term that fills that position of it; what is combined in a
table, value by value, as a reduction. Does not own: that every position of a table is written once and that
accesses stay inside, which is asked of every kernel (kernels/proof.py), nor comparing the result with the
kernel before the cut (kernels/match.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import prod
from typing import TypeAlias

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.verify.kernels.linear_sums import shortest
from proofgrad.verify.kernels.loops import map_by_position, row_major, values_at
from proofgrad.verify.kernels.match import Difference
from proofgrad.verify.kernels.questions import Questions, Verdict, all_of
from proofgrad.verify.kernels.readback import free_loops, free_loops_below
from proofgrad.verify.kernels.terms import Interval, is_integer, loop_size

# The numbers of loops that no kernel has: those that got another, of what is combined, and of the positions where it goes.
OTHERS, COMBINED, POSITIONS = 1 << 27, 1 << 28, 1 << 29

# Of LOCAL_BUFFERs memory that has what each keeps, and the loops around that.
Memories: TypeAlias = dict[UOp, tuple[UOp, tuple[UOp, ...]]]


def read_through(parts: Sequence[UOp], questions: Questions) -> UOp | Difference:
    """The last kernel with what the others wrote in place of its loads of their tables, and what they wrote to its memory.

    Each kernel but the last has one store. A load at index g stands for the value stored at the
    iteration that writes g; that iteration is guessed from g, and shown to be one that does. The last kernel
    may combine with memory that none of them fills, as the kernel before the cut did: it is compared as it is.

    Where several write parts of one memory, each may read it where it writes it: that is what was there, if each element is
    written once, which is asked of all of them together (kernels/proof.py).
    """
    filled: dict[UOp, UOp] = {}
    written: dict[UOp, list[UOp]] = {}
    stores: list[UOp] = []
    in_place = _written_in_parts(parts)
    for number, kernel in enumerate(parts):
        stores = []
        for store in kernel.src:
            found = _with_tables(store, filled, questions, in_place)
            if not isinstance(found, Difference) and found.arg is not None:
                fill = filled.get(found.src[0].src[0])
                if fill is not None or kernel is not parts[-1]:
                    found = _as_reduction(fill, found, number, questions)
                    written.pop(store.src[0].src[0], None)  # each of its elements combines
            if isinstance(found, Difference):
                return found
            stores.append(found)
        for store in stores:
            memory = store.src[0].src[0]
            filled[memory] = store
            written.setdefault(memory, []).append(store)
    return UOp.sink(*written[stores[-1].src[0].src[0]])


def _written_in_parts(parts: Sequence[UOp]) -> UOp | None:
    """The memory of the results, if nothing combines with what is there."""
    memory = parts[-1].src[-1].src[0].src[0]
    stores = [store for kernel in parts for store in kernel.src if store.src[0].src[0] is memory]
    return None if any([store.arg is not None for store in stores]) else memory


def _with_tables(
    store: UOp, filled: dict[UOp, UOp], questions: Questions, in_place: UOp | None
) -> UOp | Difference:
    changes: dict[UOp, UOp] = {}
    for load in [n for n in toposort((store,)) if n.op is Ops.LOAD and n.src[0].src[0] in filled]:
        memory, *read = load.src[0].src
        if memory is in_place and load.src[0] is store.src[0]:
            continue
        index, *mask = [n.substitute(changes) for n in read]  # which may read tables, too
        found = _value_at(filled[memory], index, mask, questions)
        if isinstance(found, Difference):
            return found
        changes[load] = _masked(found, mask)
    return store.substitute(changes)


def _masked(value: UOp, mask: Sequence[UOp]) -> UOp:
    """What a load gives: 0 where its mask does not hold."""
    for condition in mask:
        value = condition.where(value, UOp.const(value.dtype, 0))
    return value


def without_kept(
    term: UOp, memories: Memories | None = None, done: dict[UOp, UOp] | None = None
) -> UOp:
    """`term` with every load of LOCAL_BUFFER replaced by the value that is kept there, where its mask holds.

    `memories`: of those that are read from memory instead, as they are, that memory and the loops around what is kept.
    `done`: what became of terms before, with the same memories.
    The position lies inside of what is kept: that is asked of every access (kernels/proof.py).
    """
    done = {} if done is None else done
    for node in toposort((term,), lambda n: n not in done):
        if node in done:
            continue
        new = _short(node.with_src(tuple([done[s] for s in node.src])))
        if node.op is Ops.LOAD and node.src[0].src[0].op is Ops.LOCAL_BUFFER:
            kept, index, *mask = new.src[0].src
            known = memories and memories.get(node.src[0].src[0])
            if known:
                new = new.with_src((_in_memory(known, kept, index, mask),))
            else:
                new = _masked(_instance(kept.src[0], values_at(index, kept.src[1:])), mask)
        done[node] = new
    return done[term]


def _in_memory(
    memory: tuple[UOp, tuple[UOp, ...]], kept: UOp, index: UOp, mask: Sequence[UOp]
) -> UOp:
    """A position of what is kept, as one of memory that has as many elements for each value of the loops around."""
    (buffer, around), size = memory, prod(map(loop_size, kept.src[1:]))
    position = row_major(around).term() * size + index if around else index
    return UOp(Ops.INDEX, buffer.dtype, (buffer, shortest(position), *mask))


def _instance(value: UOp, terms: dict[UOp, UOp]) -> UOp:
    """`value` with terms for loops that it depends on; loops of its own reductions are others, and get other numbers where a term
    depends on one of theirs.
    """
    used = frozenset().union(*[free_loops(term) for term in terms.values()])
    value = _apart(value, used)
    free = free_loops_below(value)
    done: dict[UOp, UOp] = dict(terms)
    for node in toposort((value,)):
        if node in done or free[node].isdisjoint(terms):
            done.setdefault(node, node)
            continue
        done[node] = _short(node.with_src(tuple([done[s] for s in node.src])))
    return done[value]


def _apart(value: UOp, used: frozenset[UOp]) -> UOp:
    """The same value, whose reductions run over none of these loops."""
    nodes = toposort((value,))
    if not any([n.op is Ops.REDUCE and not used.isdisjoint(n.src[1:]) for n in nodes]):
        return value
    taken = {n.arg[0] for n in (*nodes, *used) if n.op is Ops.RANGE}
    done: dict[UOp, UOp] = {}
    for node in nodes:
        new = node.with_src(tuple([done[s] for s in node.src]))
        for loop in used.intersection(node.src[1:]) if node.op is Ops.REDUCE else ():
            number = next(n for n in count(OTHERS) if n not in taken)
            taken.add(number)
            new = new.substitute({loop: loop.replace(arg=(number, loop.arg[1]))})
        done[node] = new
    return done[value]


def _short(node: UOp) -> UOp:
    """A position, or what a mask compares, after terms were put into each other."""
    if node.op is Ops.INDEX:
        return node.with_src((node.src[0], shortest(node.src[1]), *node.src[2:]))
    if node.op is Ops.CMPLT and is_integer(node.src[0].dtype):
        return node.with_src(tuple([shortest(s) for s in node.src]))
    return node


def _value_at(
    store: UOp, index: UOp, mask: Sequence[UOp], questions: Questions
) -> UOp | Difference:
    position, value = store.src
    _, place, *filled = position.src  # `filled`: where the store writes
    loops = [n for n in toposort((place,)) if n.op is Ops.RANGE]
    terms = map_by_position(place, index, loops, mask)
    if terms is None:
        return Difference("the position in a table", place, index)
    inside = [c for x, t in terms.items() for c in (~(t < 0), t < loop_size(x))]
    claims = [place.substitute(terms).eq(index), *inside, *[c.substitute(terms) for c in filled]]
    claim = all_of(claims)
    decision = questions.holds(claim, mask)
    if decision.verdict is Verdict.REFUTED:
        return Difference("the position in a table", place, index, decision.point)
    return value.substitute(terms)


def _as_reduction(
    fill: UOp | None, combine: UOp, number: int, questions: Questions
) -> UOp | Difference:
    """What a table holds in the end: each element with the values that go to it, as one store.

    An index of the table is taken apart into what is loaded, or computed of the loops in order, and the loops beside it. This is shown
    to be a bijection; so the iterations that go to an element are those where the loops are its own, and what is loaded or computed is its own.
    """
    position, value, *own = combine.src
    memory, index, *masks = position.src
    mask = all_of(masks)
    wrong = Difference("what is combined in memory", combine if fill is None else fill, combine)
    if fill is None or fill.src[0].src[1].op is not Ops.RANGE or len(fill.src[0].src) > 2:
        return wrong
    if fill.src[1] is not UOp.const(memory.dtype, identity(combine.arg, memory.dtype)):
        return wrong
    element = fill.src[0].src[1]
    loaded = {  # each part as a number from 0, and its least value
        node: (UOp.range(high - low + 1, POSITIONS + k), low)
        for k, (node, (low, high)) in enumerate(_decided(index, own, questions).items())
    }
    apart = index.substitute({node: x + low for node, (x, low) in loaded.items()})
    loops = [n for n in toposort((apart,)) if n.op is Ops.RANGE]
    digits = map_by_position(apart, element, loops)
    if digits is None or not set(loops).isdisjoint(own):
        return wrong
    inside = [c for x, t in digits.items() for c in (~(t < 0), t < loop_size(x))]
    claims: list[tuple[UOp, tuple[UOp, ...]]]
    claims = [(all_of([apart.substitute(digits).eq(element), *inside]), ())]
    claims += [(t.substitute({element: apart}).eq(x), ()) for x, t in digits.items()]
    claims += [(~(n < low) & (n < low + loop_size(x)), (mask,)) for n, (x, low) in loaded.items()]
    for claim, given in claims:
        decision = questions.holds(claim, given)
        if decision.verdict is Verdict.REFUTED:
            return Difference(wrong.what, fill, combine, decision.point or {"(no loops)": 0})
    fresh = {
        loop: UOp.range(loop_size(loop), COMBINED + (number << 8) + k, AxisRole.REDUCE)
        for k, loop in enumerate(own)
    }
    others = {x: t for x, t in digits.items() if x.arg[0] < POSITIONS}
    goes_here = all_of([mask, *[n.eq(digits[x] + low) for n, (x, low) in loaded.items()]])
    goes_here = goes_here.substitute({**others, **fresh})
    inner: tuple[UOp, ...] = ()
    if (
        value.op is Ops.REDUCE and value.arg is combine.arg
    ):  # the order of a reduction is not specified
        value, inner = value.src[0], value.src[1:]
    term = value.substitute({**others, **fresh})
    if goes_here.op is not Ops.CONST:
        term = goes_here.where(term, fill.src[1])
    whole = UOp(Ops.REDUCE, memory.dtype, (term, *fresh.values(), *inner), combine.arg)
    return UOp(Ops.STORE, dtypes.void, (fill.src[0], whole))


def _decided(index: UOp, own: Sequence[UOp], questions: Questions) -> dict[UOp, Interval]:
    """The parts of a sum that memory decides, or an iteration of these loops, and between which values each lies."""
    found: dict[UOp, Interval] = {}
    stack = [index]
    while stack:
        node = stack.pop()
        if questions.terms.is_plain(node) and free_loops(node).isdisjoint(own):
            continue
        if node.op in (Ops.ADD, Ops.MUL):
            stack += node.src
        else:
            found[node] = questions.terms.interval(node) or (0, 0)
    return found
