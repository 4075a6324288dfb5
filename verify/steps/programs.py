"""What steps claim of bounds, and those to a Program of registers and lanes.

Owns: these claims. Does not own: that leaves are counted (folds.py).

Claims about what a step makes of a node are run on nodes: every case up to some size, as their docstrings say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as choices
from typing import Any

from proofgrad.core.compile.nests.strides import at_start
from proofgrad.core.compile.nests.sums_of_products import Product, added
from proofgrad.core.compile.steps import accumulate, carry, lanes, pair, unroll
from proofgrad.core.compile.steps.bounds import is_inside
from proofgrad.core.compile.steps.narrow import terms_beyond
from proofgrad.core.compile.steps.narrow_lanes import ALIKE_IN_FEWER_BITS
from proofgrad.core.compile.steps.prefixes import prefix_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import evaluate, identity
from proofgrad.core.ir.ops import ELEMENTS, Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.verify.steps.bijections import row_major
from proofgrad.verify.steps.claims import World
from proofgrad.verify.steps.folds import element, product, taken_in

_OPERATIONS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)
MOST_PRODUCTS = 20
MOST_LANES = 5


# -- bounds ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Width:
    """The least and the largest value of a machine integer."""

    lo: Any
    hi: Any


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What the facts say of every term."""

    low: Any
    high: Any

    def lo(self, term: object) -> Any:
        return self.low

    def hi(self, term: object) -> Any:
        return self.high


@dataclass(frozen=True, slots=True)
class _Memory:
    """A parameter of so many elements."""

    length: Any
    op: Ops = Ops.PARAM

    @property
    def arg(self) -> tuple[int, Any]:
        return 0, self.length


def in_width(world: World) -> None:
    """A value that is not beyond a width is what the machine makes of it, which counts modulo."""
    least, most = world.number("least"), world.number("most")
    low, high = world.number("low"), world.number("high")
    world.suppose(least <= most)
    width: Any = _Width(least, most)
    bounds: Any = _Bounds(low, high)
    term: Any = "a term"
    if terms_beyond([term], width, bounds):
        world.claim("it is beyond", world.any_of([low < least, high > most]))
        return
    value = world.number("value")
    world.suppose(low <= value)
    world.suppose(value <= high)
    # the machine's value lies in the width, and is `turns` whole widths away
    turns, machine = world.number("turns"), world.number("machine", least)
    world.suppose(machine <= most)
    world.suppose(machine == value + turns * (most - least + 1))
    world.claim("no turn", turns == 0)
    world.claim("the value", machine == value)


def alike_in_fewer_bits(world: World) -> None:
    """Each operation of two values of 8 bits, whose result is one too, is that of 16 bits: values around 0 and at both ends."""
    around = (*range(-128, -120), *range(-9, 10), *range(120, 128))
    for op, one, other in choices(sorted(ALIKE_IN_FEWER_BITS), around, around):
        given = (one, other)[: ELEMENTS[op].arity]
        wide = evaluate(op, dtypes.int16, given)
        if -128 <= wide < 128:
            narrow = evaluate(op, dtypes.int8, given)
            world.claim(f"{op.name} of {given}", narrow == wide)


def in_memory(world: World) -> None:
    """An index that is shown to be inside of its memory is that of an element; one that is not has bounds beyond."""
    low, high = world.number("low"), world.number("high")
    length = world.number("length", 0)
    memory: Any = _Memory(length)
    bounds: Any = _Bounds(low, high)
    index: Any = "an index"
    if not is_inside(index, memory, bounds):
        world.claim("it is beyond", world.any_of([low < 0, high >= length]))
        return
    value = world.number("value")
    world.suppose(low <= value)
    world.suppose(value <= high)
    world.claim("not before the first", value >= 0)
    world.claim("not behind the last", value < length)


def nothing_of_what_is_not_known(world: World) -> None:
    """A term of which one bound is not known is not shown to be anywhere."""
    memory: Any = _Memory(1)
    width: Any = _Width(0, 0)
    index: Any = "an index"
    for low, high in ((None, 0), (0, None), (None, None)):
        bounds: Any = _Bounds(low, high)
        world.claim("of a memory", not is_inside(index, memory, bounds))
        world.claim("of a width", terms_beyond([index], width, bounds) == [index])


# -- registers ------------------------------------------------------------------------------------


def register_takes_once(world: World) -> None:
    """A register takes in what an iteration adds once: one value, or up to so many products, masked or not."""
    loop = UOp.range(MOST_PRODUCTS, 0)
    register = UOp(Ops.ACCUMULATOR, dtypes.float32, (UOp.const(dtypes.float32, 0), loop), 0)
    for op in _OPERATIONS:
        after = accumulate._combined(op, register, element(UOp.index(0)), accumulate._Positions())
        world.claim(f"{op.name}", taken_in(after, register) == ({0: 1}, 1))
        world.claim(f"{op.name} is what combines", after.op is op)
    for n in range(1, MOST_PRODUCTS):
        copies = [product(UOp.index(k)) for k in range(n)]
        total = unroll._one_by_one(copies)
        after = accumulate._combined(Ops.ADD, register, total, accumulate._Positions())
        each = {k: 1 for k in range(n)}
        world.claim(f"{n} products", taken_in(after, register) == (each, 1))
    mask = loop < 3
    masked = added(register, Product(product(UOp.index(0)).src, (mask,)))
    world.claim("mask on", taken_in(masked, register, is_on=True) == ({0: 1}, 1))
    world.claim("mask off", taken_in(masked, register, is_on=False) == ({}, 1))


def carried_takes_once(world: World) -> None:
    """What an output loop carries takes in as its reduction does, iteration by iteration: every operation, and every
    mask of two counters with constants from -2 to 2, in loops of up to 4 iterations.
    """
    for op, sizes in choices(_OPERATIONS, choices((1, 3, 4), repeat=2)):
        along, own = UOp.range(sizes[0], 0), UOp.range(sizes[1], 1, AxisRole.REDUCE)
        neutral = UOp.const(dtypes.float32, identity(op, dtypes.float32))
        for low, high in choices(range(-2, 3), repeat=2):
            masks = {
                ~(along + low < own + high): low - high,
                own + low < along + high: high - low - 1,
            }
            for mask, offset in masks.items():
                whole = UOp(
                    Ops.REDUCE, dtypes.float32, (mask.where(element(own), neutral), own), op
                )
                found = prefix_of(whole)
                world.claim("recognised", found is not None and found.counts_up)
                if found is not None:
                    _check_carried(world, carry.carried(found, 0, 2), along, sizes[1], offset)


def _check_carried(world: World, update: UOp, along: UOp, size: int, offset: int) -> None:
    """After iteration i all j < size with j <= i + offset have been taken in."""
    register, after = update.src
    start = register.src[0]
    world.claim("carried by the loop", register.src[1:] == (along,))
    held = Counter[int](range(start.src[1].src[0].arg) if start.op is Ops.REDUCE else ())
    for i in range(along.src[0].arg):
        held.update(_taken(after, register, {along: i}))
        wanted = [j for j in range(size) if j <= i + offset]
        world.claim(f"iteration {i}", held == Counter(wanted))


def _taken(after: UOp, register: UOp, values: dict[UOp, int]) -> dict[int, int]:
    """Which elements of memory 0 go into a register, and how often."""
    (value,) = [s for s in after.src if s is not register]
    if value.op is Ops.WHERE:
        below, within = value.src[0].src
        if at_start(below.src[0], dict(values)) or not at_start(within, dict(values)):
            return {}
        value = value.src[1]
    return {at_start(value.src[0].src[1], dict(values)): 1}


def kept_in_order(world: World) -> None:
    """What is kept lies at the row-major position of its loops: every size up to 3 of up to 3 loops."""
    for count in (1, 2, 3):
        for sizes in choices((1, 2, 3), repeat=count):
            loops = tuple([UOp.range(size, k) for k, size in enumerate(sizes)])
            kept = UOp(Ops.LOCAL_BUFFER, dtypes.float32, (element(loops[0]), *loops))
            position, memory = _position_and_memory(accumulate._fill(kept, 0))
            wanted = 1
            for size in sizes:
                wanted *= size
            world.claim("as many elements", memory.arg[1] == wanted)
            for at in choices(*map(range, sizes)):
                found = at_start(position, dict(zip(loops, at)))
                world.claim(f"the position of {at} in {sizes}", found == row_major(at, sizes))


def _position_and_memory(kept: UOp) -> tuple[UOp, UOp]:
    there = kept.src[0].src[0]
    return there.src[1], there.src[0]


# -- pairs ----------------------------------------------------------------------------------------


def dot_of_words(world: World) -> None:
    """The dot of two words is the sum of two products, for all numbers of 16 bits; the words fit 32."""
    half = pair.HALF // 2
    x0, x1, y0, y1 = [world.number(name, -half, half) for name in ("x0", "x1", "y0", "y1")]
    for lower, upper in ((x0, x1), (y0, y1)):
        word = pair.word_of(lower, upper)
        world.claim("a word is not below the least int32", word >= -half * pair.HALF)
        world.claim("nor above the largest", word < half * pair.HALF)
        world.claim("its lower half", _lower(word) == lower)
        world.claim("its upper half", _upper(word) == upper)
    total = pair.dot_of_words(x0, x1, y0, y1, _dot)
    world.claim("both products", total == x0 * y0 + x1 * y1)


def _dot(x: Any, y: Any) -> Any:
    """What DOT means, of words of 32 bits, in numbers."""
    return _lower(x) * _lower(y) + _upper(x) * _upper(y)


def _lower(word: Any) -> Any:
    return (word + pair.HALF // 2) % pair.HALF - pair.HALF // 2


def _upper(word: Any) -> Any:
    return word // pair.HALF


# -- lanes ----------------------------------------------------------------------------------------


def lane_reads_its_element(world: World) -> None:
    """Lane k reads the element of iteration k: every coefficient from -3 to 3 of up to so many lanes."""
    other = UOp.range(7, 1)
    for count in range(2, MOST_LANES + 1):
        loop = UOp.range(count, 0, AxisRole.VECTOR)
        for factor, beside in choices(range(-3, 4), (UOp.index(5), other, other * 2 + 1)):
            term = loop * factor + beside
            read = _elements_of(term, loop, count)
            at = {other: 3}
            wanted = [at_start(term, {**at, loop: k}) for k in range(count)]
            world.claim(f"{factor} * loop in {count} lanes", read(at) == wanted)


def left_lane_reads_its_element(world: World) -> None:
    """A mask leaves the lane that is read beside those left out: all bounds around up to so many lanes, at both ends of a width."""
    other = UOp.range(7, 1) < 3
    memory = UOp(Ops.PARAM, dtypes.float32, (), (0, 1 << 7))
    for count in range(2, MOST_LANES + 1):
        loop = UOp.range(count, 0, AxisRole.VECTOR)
        bits = UOp(Ops.CAST, dtypes.int8, (loop,))
        wide = UOp(Ops.BROADCAST, dtypes.bool.vec(count), (other,))
        for low, high in choices(range(-2, count + 2), repeat=2):
            below = UOp(Ops.CMPLT, dtypes.bool, (bits, UOp(Ops.CONST, dtypes.int8, (), high)))
            above = UOp.index(low) < loop
            masks = (below & above, above & other & below, below, above)
            for number, start in choices(range(4), (*range(-128, -121), 0, 127)):
                left = [
                    k
                    for k in range(count)
                    if (number == 3 or k < high) and (number == 2 or low < k)
                ]
                element = UOp(Ops.CONST, dtypes.int8, (), start)
                position = UOp(Ops.INDEX, dtypes.float32, (memory, element, masks[number]))
                bounds: Any = _Bounds(start, start)
                made = lanes._index(position, (memory, element, wide), loop, {}, bounds).src[1]
                is_one = made.op is Ops.BROADCAST
                first, step = _byte(made.src[0] if is_one else made), 0 if is_one else 1
                read = [first + step * k for k in left]
                world.claim(f"{low} < lane < {high} of {count}", read == [start] * len(left))


def _byte(term: UOp) -> int:
    """The value of constants of int8, added as a machine adds them."""
    values = [_byte(part) for part in term.src]
    return int(term.arg) if not values else int(evaluate(term.op, dtypes.int8, values))


def _elements_of(term: UOp, loop: UOp, count: int) -> Any:
    """The element of each lane, of what becomes of a position."""
    memory = UOp(Ops.PARAM, dtypes.float32, (), (0, 1 << 10))
    position = UOp(Ops.INDEX, dtypes.float32, (memory, term))
    first = {loop: UOp.index(0)}
    bounds: Any = _Bounds(0, 0)
    made = lanes._index(position, (memory, term), loop, first, bounds).src[1]

    def read(values: dict[UOp, int]) -> list[int]:
        if made.op is Ops.ADD and made.src[0].op is Ops.BROADCAST:
            start, apart = at_start(made.src[0].src[0], dict(values)), made.src[1].arg
            return [start + apart[k] for k in range(count)]
        is_moving = loop in term.toposort() and at_start(term, {loop: 1}) != at_start(term)
        step = 1 if is_moving else 0  # neighbours, or one element for all lanes
        return [at_start(made, dict(values)) + step * k for k in range(count)]

    return read


def partial_results(world: World) -> None:
    """Lanes of a register are combined by what its update does: for every operation, masked or not, and products."""
    loop = UOp.range(4, 0)
    register = UOp(Ops.ACCUMULATOR, dtypes.float32, (UOp.const(dtypes.float32, 0), loop), 0)
    masks: Sequence[tuple[UOp, ...]] = ((), (loop < 3,))
    for op in _OPERATIONS:
        value = UOp(op, dtypes.float32, (register, element(loop)))
        update = UOp(Ops.UPDATE, dtypes.float32, (register, value))
        world.claim(f"{op.name}", lanes._combiner(update) is op)
    for mask in masks:
        value = added(register, Product(product(loop).src, mask))
        update = UOp(Ops.UPDATE, dtypes.float32, (register, value))
        world.claim(f"products under {len(mask)} masks", lanes._combiner(update) is Ops.ADD)
