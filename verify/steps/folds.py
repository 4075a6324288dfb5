"""What steps claim of what reductions combine: how often an arbitrary iteration is a leaf, by induction.

Owns: these claims. Does not own: why counting leaves is enough (theory.py), exchanging loops (bijections.py).

`x` is always the iteration that is counted. A reduction over c < n whose body is f(c) has it as often as the sum
of `one_if(c == x)` over c < n; a claim "from nothing" is the start of an induction over n, "one more" its step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from proofgrad.core.compile.steps import carry, offset_factor, prefix_blocks, unroll, where_normal
from proofgrad.core.compile.steps.clamp import brought
from proofgrad.core.compile.steps.overwrite import is_some
from proofgrad.core.compile.steps.scatter import nearest_between
from proofgrad.core.compile.steps.split import split_law
from proofgrad.core.compile.steps.unmask import unmasked
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.steps.claims import Claim, World

BYTES, LEAST_BYTES = 256, {dtypes.int8: -128, dtypes.uint8: 0}  # numbers of 8 bits
MOST_COPIES = 130  # of a body that is written out, in the claim that runs it


def taken_once(world: World) -> None:
    """A loop takes in each of its iterations once, and no other: the sum over c < n of [c = x] is [x < n]."""
    x = world.number("x", 0)
    n = world.number("n", 0)
    world.claim("from nothing", world.one_if(x < 0) == 0)
    world.claim("one more", world.one_if(x < n) + world.one_if(n == x) == world.one_if(x < n + 1))


def taken_once_inside(world: World) -> None:
    """Where a mask is off a leaf is an identity: the sum over c < n of [mask(c)][c = x] is [x < n][mask(x)]."""
    x, n = world.number("x", 0), world.number("n", 0)
    at_n, at_x = world.number("mask(n)", 0, 2), world.number("mask(x)", 0, 2)
    if n == x:
        world.suppose(at_n == at_x)
    before = world.one_if((x < n) & (at_x == 1))
    more = world.one_if((n == x) & (at_n == 1))
    world.claim("from nothing", world.one_if((x < 0) & (at_x == 1)) == 0)
    world.claim("one more", before + more == world.one_if((x < n + 1) & (at_x == 1)))


def neighbours(world: World) -> None:
    """Two iterations that follow each other may be exchanged: so every order, and none, gives the same.

    Of output loops: each writes its position, which no other writes, and reads none. Of a reduction: each is a leaf.
    """
    position, other, asked = [
        world.number(name) for name in ("position", "other position", "asked")
    ]
    value, beside, old = [world.number(name) for name in ("value", "other value", "old")]
    world.suppose(position != other)
    one = written(written(old, asked, position, value), asked, other, beside)
    two = written(written(old, asked, other, beside), asked, position, value)
    world.claim("each position has the same", one == two)
    taken, first, second = [world.number(name, 0) for name in ("taken", "first", "second")]
    world.claim("each leaf as often", taken + first + second == taken + second + first)


def written(old: Any, asked: Any, position: Any, value: Any) -> Any:
    """What is at the position that is asked for after a value was written."""
    return value if asked == position else old


# -- written out ----------------------------------------------------------------------------------


def written_out(combine: Callable[[Sequence[UOp]], UOp], body: Callable[[UOp], UOp]) -> Claim:
    """Each iteration is copied once, and each copy is combined once: seen for every number of copies up to some."""

    def claim(world: World) -> None:
        for n in range(1, MOST_COPIES):
            loop = UOp.range(n, 0)
            whole = combine(unroll._copies(body(loop), loop))
            each = {k: 1 for k in range(n)}
            world.claim(f"{n} copies", taken_in(whole, loop) == (each, 0))

    return claim


def element(loop: UOp) -> UOp:
    """The most general body: what memory has for an iteration."""
    return _element(0, loop)


def product(loop: UOp) -> UOp:
    """The most general product."""
    return _element(0, loop) * _element(1, loop)


def product_of_matrices(loop: UOp) -> UOp:
    """The most general product of small matrices, which starts from 0."""
    item, register, held = [UOp.range(size, k) for k, size in ((1, 32), (2, 2), (3, 2))]
    nothing = UOp.const(dtypes.float32, 0.0)
    src = (item, nothing, _element(0, loop), _element(1, loop), register, held)
    return UOp(Ops.MMA, dtypes.float32, src, (1, 2))


def _element(memory: int, position: UOp) -> UOp:
    parameter = UOp(Ops.PARAM, dtypes.float32, (), (memory, 1 << 20))
    return UOp(Ops.LOAD, dtypes.float32, (UOp(Ops.INDEX, dtypes.float32, (parameter, position)),))


def tree(values: Sequence[UOp]) -> UOp:
    """How the step `unroll` combines copies of a body: in pairs; MAX stands for every operation."""
    return unroll._combined(list(values), Ops.MAX)


def chain(values: Sequence[UOp]) -> UOp:
    """How the step `unroll` adds copies of a product: one to the total after the other."""
    return unroll._one_by_one(list(values))


def onto_each_other(values: Sequence[UOp]) -> UOp:
    """How the step `unroll` adds copies of a product of small matrices: each starts from the one before."""
    return unroll._onto_each_other(list(values))


def taken_in(whole: UOp, start: UOp, is_on: bool = True) -> tuple[dict[int, int], int]:
    """How often a value takes in each element of memory 0, and how often `start`, where its masks are on or off."""
    ways: Counter[UOp] = Counter({whole: 1})
    read: Counter[int] = Counter()
    for node in reversed(toposort((whole,), lambda node: node is not start)):
        if node.op is Ops.LOAD:
            memory, position = node.src[0].src
            if memory.arg[0] == 0:
                read[position.arg] += ways[node]
        elif node is not start:
            for source in (node.src[1 if is_on else 2],) if node.op is Ops.WHERE else node.src:
                ways[source] += ways[node]
    return {k: count for k, count in read.items() if count}, ways[start]


# -- in memory ------------------------------------------------------------------------------------


def blocks(world: World) -> None:
    """A reduction in memory, m iterations at a time: after s blocks it has taken in each x < s * m once."""
    n, m = world.number("n", 1), world.number("m", 1)
    world.suppose(n % m == 0)
    s = world.number("s", 0, n // m)
    x = world.number("x", 0)
    j = world.number("j", 0, m)
    law = split_law(1)
    (start,) = law.old(s, 0, n, m)
    (now,) = law.old(s, j, n, m)
    (end,) = law.old(s + 1, 0, n, m)
    nothing = world.one_if((start < x + 1) & (x < start))
    world.claim("a block, from nothing", nothing == 0)
    before = world.one_if((start < x + 1) & (x < now))
    after = world.one_if((start < x + 1) & (x < now + 1))
    world.claim("a block, one more", before + world.one_if(now == x) == after)
    block = world.one_if((start < x + 1) & (x < start + m))
    world.claim("memory, from nothing", world.one_if(x < 0) == 0)
    whole = world.one_if(x < start) + block
    world.claim("memory, one more block", whole == world.one_if(x < end))
    (last,) = law.old(n // m, 0, n, m)
    world.claim("memory, all blocks", world.one_if(x < last) == world.one_if(x < n))


def first_iterations(world: World) -> None:
    """After iteration i of its loop a register has taken in each x that its reduction takes in there: where x <= i + c."""
    m, n, c = world.number("m", 1), world.number("n", 1), world.number("c")
    i, x = world.number("i", 0, m), world.number("x", 0, n)
    start = carry.taken_before(n, c)
    world.claim("not before the first", 0 <= start)
    world.claim("nor behind the last", start <= n)
    world.claim("before iteration 0", world.one_if(x < start) == world.one_if(x < c))
    there = carry.nearest(i + c, n)
    world.claim("it is one, from the first", 0 <= there)
    world.claim("it is one, to the last", there < n)
    before = world.one_if(x < i + c)
    taken = world.one_if(carry.is_one(i + c, n) & (there == x))
    world.claim("one more", before + taken == world.one_if(x <= i + c))
    world.claim("and before the next", world.one_if(x <= i + c) == world.one_if(x < i + 1 + c))


def plain_iterations(world: World) -> None:
    """Where no iteration lies outside, none is brought inside."""
    m, n, c = world.number("m", 1), world.number("n", 1), world.number("c", 0)
    i = world.number("i", 0, m)
    world.suppose(m - 1 + c < n)
    world.claim("it is one", carry.is_one(i + c, n))
    world.claim("itself", carry.nearest(i + c, n) == i + c)


def read_inside(world: World) -> None:
    """What a register reads, its reduction takes in for some iteration of the loop: a mask that is gone hid nothing of it."""
    m, n, c = world.number("m"), world.number("n"), world.number("c")
    world.suppose(carry.takes_in(m, n, c))
    there = carry.nearest(world.number("i", 0, m) + c, n)
    world.claim("the nearest one is one", (0 <= there) & (there < n))
    world.claim("and is taken in, at last", there <= m - 1 + c)
    x = world.number("x", 0, carry.taken_before(n, c))  # where there are some
    world.claim("those before the loop are, at first", x <= c)


def blocks_of_first(takes_end: int) -> Claim:
    """Whole blocks and the first of one block more have each x < t once, or x <= t, with `takes_end`, and no other x < n."""

    def claim(world: World) -> None:
        k = world.number("k", 2)
        block, element = world.number("block of x", 0), world.number("element of x", 0, k)
        block_of_end, element_of_end = world.number("block of t", 0), world.number("of t", 0, k)
        x, end = block * k + element, block_of_end * k + element_of_end
        world.claim("the block of t", end // k == block_of_end)
        world.claim("its element", end % k == element_of_end)
        taken = world.one_if(x < end + takes_end)
        whole = world.one_if(prefix_blocks.is_before(block, end, k))
        is_last = prefix_blocks.is_of_last(element, end, k, takes_end)
        last = world.one_if((block == block_of_end) & is_last)
        world.claim("each once", taken == whole + last)

    return claim


def element_of_block(takes_end: int) -> Claim:
    """What a block reads is an iteration; where it is taken in it is its own, and lies in one of the blocks."""

    def claim(world: World) -> None:
        n, k = world.number("n", 1), world.number("k", 2)
        end = world.number("t", 0, n)
        block, element = world.number("block", 0), world.number("element", 0, k)
        world.suppose(block < prefix_blocks.whole_blocks(n, k))
        at = prefix_blocks.element_of(block, element, k, n)
        world.claim("it is one, from the first", 0 <= at)
        world.claim("it is one, to the last", at < n)
        own = block * k + element
        if prefix_blocks.is_before(block, end, k):
            world.claim("an element of a whole block", own < n)
            world.claim("itself", at == own)
        last = prefix_blocks.element_of(end // k, element, k, n)
        world.claim("of the last block, from the first", 0 <= last)
        world.claim("of the last block, to the last", last < n)
        world.claim("the last block is one", end // k < prefix_blocks.whole_blocks(n, k))
        if prefix_blocks.is_of_last(element, end, k, takes_end):
            world.claim("itself in the last block", last == end // k * k + element)

    return claim


def nested_mask(world: World) -> None:
    """A mask around a sum is a mask around each of its leaves: where(p, sum[b < n](v), 0) = sum[b < n](where(p, v, 0))."""
    mask = world.number("p", 0, 2)
    taken, more = world.number("taken before", 0), world.number("taken in", 0)
    world.claim("from nothing", _where(mask, 0) == 0)
    left = _where(mask, taken + more)
    world.claim("one more", left == _where(mask, taken) + _where(mask, more))


def mask_of_zeros(world: World) -> None:
    """The product of factors that are 0 where a mask does not hold is the masked product, and so is every sum of such."""
    mask = world.number("g", 0, 2)
    one, other = world.number("a"), world.number("b")
    if mask == 0:
        world.suppose(one == 0)
        world.suppose(other == 0)
    found = unmasked(mask, one, other, 0)
    world.claim("the same term", found == (one * other if mask == 1 else 0))


def mask_of_one_factor(world: World) -> None:
    """The product of a factor that is masked, and one that is 0 where the mask does not hold, is the masked product."""
    mask = world.number("g", 0, 2)
    one, other = world.number("a"), world.number("b")
    if mask == 0:
        world.suppose(other == 0)
    found = unmasked(mask, _where(mask, one), other, 0)
    world.claim("the same term", found == _where(mask, one * other))


def other_byte(world: World) -> None:
    """What the machine makes of a byte, in the type with a sign or without, is the number at the distance."""
    for own, (kind, distance) in offset_factor.OTHER.items():
        low, first = LEAST_BYTES[own], LEAST_BYTES[kind]
        byte = world.number("a", low, low + BYTES)
        found = _wrapped(offset_factor.moved(_wrapped(byte, first), distance), first)
        world.claim(f"of {kind.name}", found == byte + distance)


def _wrapped(number: Any, low: int) -> Any:
    """The byte of a type from `low` on that a machine has for a number."""
    return (number - low) % BYTES + low


def offset_taken_off(world: World) -> None:
    """The sum with a factor at a distance, without that many times the other factor, takes in the product itself."""
    total, beside = world.number("sum of (a + d) * b"), world.number("sum of b")
    one, other = world.number("a"), world.number("b")
    for _, distance in offset_factor.OTHER.values():
        before = offset_factor.restored(total, beside, distance)
        more = offset_factor.restored(total + (one + distance) * other, beside + other, distance)
        nothing = offset_factor.restored(0, 0, distance)
        world.claim(f"from nothing, by {distance}", nothing == 0)
        world.claim(f"one more, by {distance}", more == before + one * other)


def smallest_exponent(world: World) -> None:
    """The largest gap of some numbers is that of one whose stored exponent is the smallest, of those that are not 0."""
    exponent = world.number("exponent", 0, where_normal.NUMBERS // 2 // where_normal.FRACTIONS)
    fraction = world.number("fraction", 0, where_normal.FRACTIONS)
    magnitude = exponent * where_normal.FRACTIONS + fraction
    gap = where_normal.gap_of(magnitude) % where_normal.NUMBERS
    largest = world.number("largest gap", 0, where_normal.NUMBERS)
    world.suppose(gap <= largest)
    if magnitude == 0:
        world.claim("0 has no gap", gap == 0)
    else:
        world.claim("its own exponent", where_normal.exponent_of(gap) == exponent)
        world.claim("none is smaller", where_normal.exponent_of(largest) <= exponent)


def not_denormal(world: World) -> None:
    """Products of numbers with such exponents are multiples of the smallest normal number, and so are sums of them, rounded or not."""
    least, beside = world.number("p"), world.number("q")
    one, other = world.number("exponent"), world.number("other exponent")
    world.suppose(least <= one)
    world.suppose(beside <= other)
    digit = where_normal.BIAS + where_normal.DIGITS
    if where_normal.is_normal(least, beside):
        world.claim("a factor is not denormal", one >= 1)
        world.claim("the other is not", other >= 1)
        last = (one - digit) + (other - digit)
        world.claim("no digit of the product is below", last >= where_normal.LEAST)
    step, before, more = world.number("step", 1), world.number("sum"), world.number("product")
    world.claim("a sum of multiples is one", step * before + step * more == step * (before + more))
    if before != 0 and before > 0:
        world.claim("and not below the step", step * before >= step)
    if before < 0:
        world.claim("nor above its opposite", step * before <= -step)


def one_of_two_ways(world: World) -> None:
    """Each result is stored by one of two nests, the other of which stores nothing, with what it is."""
    truth, value, old = world.number("c", 0, 2), world.number("value"), world.number("before")
    first = value if truth == 1 else old
    second = value if truth == 0 else first
    world.claim("what it is", second == value)


def left_as_it_was(world: World) -> None:
    """Memory after a store under a mask is memory after the store everywhere, if that writes what is there where the mask is off."""
    memory, values = world.function("m"), world.function("f")
    masks = world.function("g")
    i, x = world.number("i"), world.number("x")
    if masks(i) == 0:
        world.suppose(values(i) == memory(i))
    everywhere = values(i) if x == i else memory(x)
    inside = values(i) if x == i and masks(i) != 0 else memory(x)
    world.claim("the same memory", inside == everywhere)


def chosen_inside(world: World) -> None:
    """where(c, a, b) is what is there where g is off: if c says g, or a is what is there too, and b is."""
    mask, condition = world.number("g", 0, 2), world.number("c", 0, 2)
    there, chosen, other = world.number("m"), world.number("a"), world.number("b")
    if mask == 0:
        world.suppose(other == there)
        if condition == 1:  # then c does not say g
            world.suppose(chosen == there)
        world.claim("what is there", (chosen if condition == 1 else other) == there)


def _where(mask: Any, value: Any) -> Any:
    return value if mask == 1 else 0


# -- in groups ------------------------------------------------------------------------------------


def between_waits(world: World) -> None:
    """What an item reads in iteration c of a loop is what all items put there in iteration c, not before and not later.

    In each iteration an item fills, waits for all, reads, and waits for all. Two items are at work at once only
    where they have passed as many waits.
    """
    c, d = world.number("c", 0), world.number("d", 0)
    at_fill, at_read = _waits_passed(d, False), _waits_passed(c, True)
    world.claim("nobody fills while others read", at_fill != at_read)
    is_before = at_fill < at_read
    world.claim("what was filled before", world.one_if(is_before) == world.one_if(d < c + 1))
    next_fill = _waits_passed(c + 1, False)
    world.claim("the next fill comes after", at_read < next_fill)


def _waits_passed(iteration: Any, is_behind_fill: bool) -> Any:
    return 2 * iteration + (1 if is_behind_fill else 0)


# -- by position -------------------------------------------------------------------------------------


def one_position_takes(world: World) -> None:
    """The position r of what is scattered takes in, in order, each j whose position is r, as the masked reduction of r does."""
    n = world.number("results", 1)
    r = world.number("r", 0, n)
    j, x = world.number("j", 0), world.number("x", 0)
    position, mask = world.number("p(j)"), world.number("mask(j)", 0, 2)
    offset = world.number("offset")
    term = position - offset
    first, last = -offset, n - 1 - offset
    there = nearest_between(term, first, last) + offset
    world.claim("it is a result, from the first", 0 <= there)
    world.claim("it is a result, to the last", there < n)
    before = world.number("taken before", 0)
    reduction = before + _leaf((position == r) & (mask == 1) & (j == x), world)
    is_asked = (mask == 1) & (first <= term) & (term <= last)
    memory = before + _leaf(is_asked & (there == r) & (j == x), world)
    world.claim("one more", reduction == memory)


def last_one_stays(world: World) -> None:
    """What is at a position after values were written in order is what the last one that names it is, or what was there before all."""
    values, rest = world.function("f"), world.number("g")
    least, bound = world.number("least"), world.number("bound")
    world.suppose(is_some(least, bound))
    world.claim("before all of them", _chosen(values, rest, bound, least) == rest)
    j, last, names = world.number("j", 0), world.number("L"), world.number("names", 0, 2)
    if last != least:  # it is one of those before j
        world.suppose(0 <= last)
        world.suppose(last < j)
    there = _chosen(values, rest, bound, last)
    if names == 1:
        world.claim(
            "it is written over", values(j) == _chosen(values, rest, bound, last.maximum(j))
        )
        world.claim("the last one so far", last.maximum(j) == j)
    else:
        same = last.maximum(least)
        world.claim("it stays", there == _chosen(values, rest, bound, same))
        world.claim("the same last one", same == last)


def _chosen(values: Callable[..., Any], rest: Any, bound: Any, last: Any) -> Any:
    return values(last) if bound < last else rest


def _leaf(truth: Any, world: World) -> Any:
    return world.one_if(truth)


def brought_inside(has_low: bool, has_high: bool) -> Claim:
    """A loop is brought to where its mask holds, and stays as it is where it does."""

    def claim(world: World) -> None:
        loop, rest = world.number("loop", 0), world.number("rest")
        low = world.number("low") if has_low else None
        high = world.number("high") if has_high else None
        if low is not None and high is not None:
            world.suppose(low <= high)
        term = loop + rest
        found = brought(loop, term, low, high)
        if has_low:
            world.claim("the term is not below", low <= found + rest)
        if has_high:
            world.claim("the term is not above", found + rest <= high)
        if has_low:
            world.suppose(low <= term)
        if has_high:
            world.suppose(term <= high)
        world.claim("itself where the mask holds", found == loop)

    return claim
