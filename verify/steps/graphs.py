"""What steps on whole programs claim: of the elements of reductions in parts, and of values that memory holds.

Owns: these claims. Does not own: why they are enough (theory.py), that a loop takes in each iteration once (folds.py).

Axes that a step leaves as they are stand beside the one that it is about as one axis before it and one behind it: row-major
order counts several axes as it counts one of as many elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proofgrad.core.compile.steps.exchange import exchanged
from proofgrad.core.compile.steps.read_parts import begin_of, first_of, last_of
from proofgrad.core.compile.steps.read_through import (
    counted_from,
    is_apart,
    is_before,
    is_behind,
    is_inside,
    of_repeated,
    of_slice,
    summed,
)
from proofgrad.core.compile.steps.reduce_in_parts import ends_of, in_blocks, with_blocks_first
from proofgrad.core.compile.steps.split import split_law
from proofgrad.core.compile.steps.store import number_of, over_memory
from proofgrad.core.ir.ops import COMMUTATIVE, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.verify.steps.bijections import row_major
from proofgrad.verify.steps.claims import Claim, World
from proofgrad.verify.steps.folds import written

AXIS = 1  # of three: before, the axis, behind
MOST_SOURCES = 3  # of an operation


def element_of_block(world: World) -> None:
    """Element j of block s is element s * k + j of the axis: both have one number in row-major order."""
    k, blocks = world.number("k", 1), world.number("blocks", 0)
    shape = world.number("before", 1), blocks * k, world.number("behind", 1)
    after = in_blocks(shape, AXIS, k)
    world.claim("so many blocks", after[AXIS] == blocks)
    at = _positions(world, after)
    (counter,) = split_law(1).old(at[AXIS], at[AXIS + 1], shape[AXIS], k)
    number = row_major((at[0], counter, at[-1]), shape)
    world.claim("the same element", row_major(at, after) == number)


def results_in_order(world: World) -> None:
    """The reduction of the blocks has the results of the whole, in one order, wherever the blocks lie."""
    before, blocks, behind = [world.number(name, 1) for name in ("before", "blocks", "behind")]
    a, b = world.number("a", 0, before), world.number("b", 0, behind)
    s = world.number("s", 0, blocks)
    wanted = row_major((a, 0, b), (before, 1, behind))
    sizes, at = (before, blocks, 1, behind), (a, s, 0, b)
    reduced = [_reduced(values, AXIS, start) for values, start in ((sizes, 1), (at, 0))]
    world.claim("where the axis is", row_major(reduced[1], reduced[0]) == wanted)
    order = with_blocks_first(AXIS, len(sizes))
    moved_sizes, moved = [[values[axis] for axis in order] for values in (sizes, at)]
    world.claim("the blocks come first", moved[0] == s)
    reduced = [_reduced(values, 0, start) for values, start in ((moved_sizes, 1), (moved, 0))]
    world.claim("block by block", row_major(reduced[1], reduced[0]) == wanted)


def _reduced(values: Sequence[Any], axis: int, start: int) -> list[Any]:
    """Sizes, or positions, after an axis was reduced."""
    return [start if k == axis else value for k, value in enumerate(values)]


def nested_axes(world: World) -> None:
    """The reduction over c < n of those over a < m takes in each pair once: as the reduction over both axes."""
    m, n = world.number("m", 0), world.number("n", 0)
    a, c = world.number("a"), world.number("c")  # the pair that is counted
    at, row = world.number("at", 0), world.number("row", 0)
    is_row = row == c
    world.claim("a row, from nothing", world.one_if((0 <= a) & (a < 0) & is_row) == 0)
    before = world.one_if((0 <= a) & (a < at) & is_row)
    more = world.one_if((at == a) & is_row)
    world.claim("a row, one more", before + more == world.one_if((0 <= a) & (a < at + 1) & is_row))
    inside = (0 <= a) & (a < m)
    world.claim("from nothing", world.one_if(inside & (0 <= c) & (c < 0)) == 0)
    rows = world.one_if(inside & (0 <= c) & (c < n))
    this = world.one_if(inside & (n == c))
    world.claim("one more", rows + this == world.one_if(inside & (0 <= c) & (c < n + 1)))


def both_ends(world: World) -> None:
    """Each element of an axis is in the first part or in the other, once; element i of a part is begin + i of the axis."""
    whole, length = world.number("whole", 1), world.number("length", 1)
    world.suppose(length < whole)
    x = world.number("x")
    counts = []
    for begin, end in ends_of(whole, length):
        i = x - begin
        counts.append(world.one_if((0 <= i) & (i < end - begin)))
        world.claim("a part is inside", begin >= 0)
        world.claim("and ends there", whole - end >= 0)
    head, rest = counts
    world.claim("each once", head + rest == world.one_if((0 <= x) & (x < whole)))


def _positions(world: World, sizes: Sequence[Any]) -> list[Any]:
    return [world.number(f"at{k}", 0, size) for k, size in enumerate(sizes)]


# -- parts of memory --------------------------------------------------------------------------------


def element_of_part(world: World) -> None:
    """Element (j, t) of a slice of axes (before, s, behind) is element (j, t) of what begins where the slice does."""
    before, size, behind = (
        world.number("axes before", 1),
        world.number("s", 1),
        world.number("k", 1),
    )
    at, first = world.number("at", 0, before), world.number("first", 0, size)
    count = world.number("n", 1)
    world.suppose(first + count <= size)
    j, t = world.number("j", 0, count), world.number("t", 0, behind)
    begin = begin_of(at, size, first, behind)
    element = row_major((at, first + j, t), (before, size, behind))
    inside = row_major((j, t), (count, behind))
    world.claim("the same element", begin + inside == element)
    world.claim("from the first on", inside >= 0)
    world.claim("of so many", inside < count * behind)


def element_of_part_with_gaps(world: World) -> None:
    """On one axis more, element i of a slice is still that of what begins where a block around it does, and there.

    Before the first axis there is one element: the first one, the last one, and all that there is.
    """
    first = world.number("first of the axes before", 0)
    inside = world.number("element of the axes before", 0)
    last = first + inside + world.number("from there to the last", 0)
    count = last + 1 + world.number("behind the last", 0)
    size = world.number("s", 1)
    begin, end = world.number("begin", 0, size), world.number("end", 1)
    world.suppose(end <= size)
    i = world.number("i", 0)
    world.suppose(begin + i < end)
    element = row_major((first + inside, begin + i), (count, size))
    of_part = row_major((inside, i), (count, size))
    new_first, new_last = first_of(first, size, begin), last_of(last, size, end)
    world.claim("the same element", new_first + of_part == element)
    world.claim("from the first on", of_part >= 0)
    world.claim("up to the last", new_first + of_part <= new_last)
    world.claim("the last one is there", new_last < count * size)


# -- past writes ------------------------------------------------------------------------------------


def apart_from_place(world: World) -> None:
    """Element i of a slice that is apart from a place on an axis is not in it, wherever it is on the others."""
    begin, end, first, count, i = _slice_and_place(world)
    if is_apart(begin, end, first, count):
        at = begin + i
        world.claim("not in it", world.one_if((first <= at) & (at < first + count)) == 0)


def inside_of_place(world: World) -> None:
    """Element i of a slice inside of a place is in it, and is element i of the slice of what was put there."""
    begin, end, first, count, i = _slice_and_place(world)
    if is_inside(begin, end, first, count):
        at, (own_begin, own_end) = begin + i, counted_from(begin, end, first)
        world.claim("from its first on", first <= at)
        world.claim("to its last", at < first + count)
        world.claim("the same element", own_begin + i == at - first)
        world.claim("a slice of as many", own_end - own_begin == end - begin)
        world.claim("from what is there", own_begin >= 0)
        world.claim("to what is there", own_end <= count)


def sides_of_border(world: World) -> None:
    """Element i of a slice that is on one side of a border is on that side."""
    begin, end, border, _, i = _slice_and_place(world)
    if is_before(end, border):
        world.claim("before it", begin + i < border)
    if is_behind(begin, border):
        world.claim("behind it", world.one_if(begin + i < border) == 0)


def slice_of_repeated(world: World) -> None:
    """Element i of a slice of a repeated axis is that of the slice, repeated; axes of other sizes are left as they are."""
    begin, end, size, _, i = _slice_and_place(world)
    world.suppose(size >= 1)
    if size == 1:
        wanted, other = 0, 1  # of a number of copies the first
    else:
        world.suppose(end <= size)
        wanted, other = begin + i, end - begin
    own_begin, own_end = of_repeated(begin, end, size)
    at = 0 if own_end - own_begin == 1 else i
    world.claim("the same element", own_begin + at == wanted)
    world.claim("one, or as many", own_end - own_begin == other)
    world.claim("inside", own_end <= size)


def slice_of_slice(world: World) -> None:
    """Element i of [b : e] of [f : g] is element i of what both are."""
    begin, end, first, count, i = _slice_and_place(world)
    world.suppose(end <= count)
    own_begin, own_end = of_slice(first, begin, end)
    world.claim("the same element", own_begin + i == first + (begin + i))
    world.claim("a slice of as many", own_end - own_begin == end - begin)
    world.claim("inside", own_end <= first + count)


def _slice_and_place(world: World) -> tuple[Any, Any, Any, Any, Any]:
    """A slice of an axis, a place on it, and a number below those of the slice's elements."""
    begin, size = world.number("begin", 0), world.number("size", 1)
    first, count = world.number("first", 0), world.number("count", 0)
    return begin, begin + size, first, count, world.number("i", 0, size)


def slice_of_sum(world: World) -> None:
    """An element of a sum is the sum of the elements, and 0 added twice is 0 added once."""
    add, zero = world.function("add"), world.number("zero")
    values = [world.number(name) for name in "abc"]
    for start in values:
        of_start = add(start, zero)  # as addition is of every type, where 0 is 0
        world.suppose(add(of_start, zero) == of_start)
    a, b, c = values
    for terms in ((a,), (a, zero), (a, zero, zero), (a, b, zero, zero, c), (a, zero, b, zero)):
        whole = terms[0]
        for value in terms[1:]:
            world.suppose(add(add(whole, zero), zero) == add(whole, zero))
            whole = add(whole, value)
        world.claim(f"of {len(terms)}", summed(add, terms, zero) == whole)


def operands_exchanged(world: World) -> None:
    """What commutes gives the same in either order; of what does not, the order stays."""
    a, b = world.number("a"), world.number("b")
    is_wanted = world.number("wanted", 0, 2) == 1
    for op in sorted(ELEMENTWISE):
        meaning = world.function(op.name)
        if op in COMMUTATIVE:  # as the table of operations says, which its semantics prove
            world.suppose(meaning(a, b) == meaning(b, a))
        world.claim(op.name, meaning(*exchanged(op, (a, b), is_wanted)) == meaning(a, b))


# -- in memory ------------------------------------------------------------------------------------


def same_over_memory(sources: int) -> Claim:
    """A node of a kernel, whose sources have their values, has the value of the node that it is made of."""

    def claim(world: World) -> None:
        values = tuple([world.number(f"source{k + 1}") for k in range(sources)])
        for op in sorted(ELEMENTWISE | MOVEMENT | {Ops.REDUCE_AXIS, Ops.COPY}):
            meaning = world.function(op.name)
            made = over_memory(op, values, lambda those: meaning(*those))
            world.claim(op.name, made == meaning(*values))
        for op in (Ops.CONTIGUOUS, Ops.DETACH) if sources == 1 else ():
            made = over_memory(op, values, lambda those: world.function("another")(*those))
            world.claim(op.name, made == values[0])

    return claim


def leaves_what_is_there(world: World) -> None:
    """The kernel of a value fills memory of its own, and leaves what was there before all kernels."""
    _fills_its_own(world, world.number("made", 0), world.number("there", 0))


def leaves_what_is_filled(world: World) -> None:
    """And what the kernels before it have filled."""
    made = world.number("made", 1)
    _fills_its_own(world, made, number_of(world.number("earlier", 0, made)))


def _fills_its_own(world: World, made: Any, other: Any) -> None:
    new, value, memory = number_of(made), world.number("value"), world.function("memory")
    world.claim("other memory", new != other)
    world.claim("which stays", written(memory(other), other, new, value) == memory(other))
    world.claim("the value is there", written(memory(new), new, new, value) == value)


def in_running_order(world: World) -> None:
    """Of values that are stored in order each is computed over those before it: by induction all hold what they are."""
    k = world.number("k", 1)
    memory, value, body = [world.function(name) for name in ("memory", "value", "body")]
    read = world.number("read", 0, k)
    world.suppose(memory(number_of(read)) == value(read))  # the kernels before have filled it
    world.suppose(value(k) == body(value(read)))  # what is computed over the value itself
    stored = body(memory(number_of(read)))
    world.claim("what is stored", stored == value(k))
