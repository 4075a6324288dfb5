"""All small kernels of twenty-two families: every loop size, index form, mask and reduction within a stated scope.

The scope. A kernel has one loop, or two of a copy or a plain reduction, of 0 to 4 iterations; two of 0 to 3 where they are masked,
gathered, kept or shared; three of 0 to 2. Loops are numbered with gaps. An index (of loops below 4) is

    c0 + c1 * a + c2 * b,   c1 in (0, 1, 2, 3, -1), c2 in (0, 1, 2, -1), c0 the least that stays inside, or 1,

or the quotient or remainder by 2 of one without a negative factor. A loop of no known size runs twice, or, if
it is of a second variable, thrice; and thrice at most. A mask is a < c, c < a, d < a & a < c for c, d below 4; a < b, b < a;
a < 2 & b < 2, 0 < a & b < 2; a + b < 3, 1 < a + b. Reductions are sums, products, maxima and minima of int32, sums of float32 whose values are
whole numbers, so that no order shows, maxima of uint8 (any of bools). Memory is as long as the kernel needs, and no two elements
of it are alike, but in what is a position: so a wrong position is another value, or outside.

A kernel is legal if every access is inside of its memory and every element of the result is written once. The
illegal ones are left out, by running them; of those that are the same graph one is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import inf, prod
from typing import Any

from kernel_interpreter import Meanings, Memory, free_loops, run_kernel

from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.sizes import variable
from proofgrad.core.ir.uop import AxisRole, UOp

N, M = variable("n", 0, 3), variable("m", 1, 3)  # sizes that no step knows
VALUES = {N: 2, M: 3}
SIZES, FEW, LEAST = range(5), range(4), range(3)
OUT, X, Y, POSITIONS, INSIDE = range(5)  # slots; INSIDE: positions that are inside of an axis
INT, FLOAT, BYTE, BOOL = dtypes.int32, dtypes.float32, dtypes.uint8, dtypes.bool
SMALL = dtypes.int8
REDUCTIONS = (
    *[(op, INT) for op in (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)],
    (Ops.ADD, FLOAT), (Ops.MAX, BYTE),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SmallKernel:
    """A legal kernel, what its memory holds before, and what it stores."""

    family: str
    graph: UOp
    buffers: Memory
    stored: list[Any]


# -- parts ----------------------------------------------------------------------------------------


def loops(*sizes: int, first: int = 2) -> list[UOp]:
    """Output loops, around each other."""
    return [UOp.range(size, first + 2 * k) for k, size in enumerate(sizes)]


def inner_loops(*sizes: int, first: int = 6) -> list[UOp]:
    """Loops of reductions."""
    return [UOp.range(size, first + 2 * k, AxisRole.REDUCE) for k, size in enumerate(sizes)]


def size(loop: UOp) -> int:
    number: int = loop.src[0].arg
    return number


def load(slot: int, index: UOp, mask: UOp | None = None, dtype: DType = INT) -> UOp:
    """An element of memory, whose length is found later."""
    memory = UOp(Ops.PARAM, dtype, (), (slot, 0))
    where = (memory, index) if mask is None else (memory, index, mask)
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, where),))


def store(index: UOp, value: UOp, *own: UOp, mask: UOp | None = None, op: Ops | None = None) -> UOp:
    memory = UOp(Ops.PARAM, value.dtype, (), (OUT, 0))
    where = (memory, index) if mask is None else (memory, index, mask)
    position = UOp(Ops.INDEX, value.dtype, where)
    return UOp(Ops.STORE, dtypes.void, (position, value, *own), op)


def reduce(op: Ops, value: UOp, *own: UOp) -> UOp:
    return UOp(Ops.REDUCE, value.dtype, (value, *own), op)


def keep(value: UOp, *own: UOp) -> UOp:
    return UOp(Ops.LOCAL_BUFFER, value.dtype, (value, *own))


def kept(memory: UOp, *position: UOp) -> UOp:
    """What is kept at an index, under a mask if there is one."""
    return UOp(Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, *position)),))


def neutral(op: Ops, dtype: DType = INT) -> UOp:
    return UOp.const(dtype, identity(op, dtype))


def position_of(slot: int, index: UOp) -> UOp:
    """An integer in memory as a position."""
    return load(slot, index).cast(dtypes.index)


def forms(*terms: UOp) -> Iterator[UOp]:
    """The index forms of one loop, or of two."""
    choices = ((1, 2, 0, -1), (0, 1, 2, 3, -1))[: len(terms)]
    for factors in product(*choices[::-1]):
        low = sum([min(0, c * (size(x) - 1)) for c, x in zip(factors, terms)])
        for start in {-low, 1} if low == 0 or len(terms) == 1 else {-low}:
            form: UOp = UOp.index(start)
            for factor, term in zip(factors, terms):
                if factor:
                    scaled = term if factor == 1 else term * factor
                    is_first = form.op is Ops.CONST and form.arg == 0
                    form = scaled if is_first else form + scaled
            yield form
            if start == 0 and any(factors):
                yield form // 2
                yield form % 2


def masks(*terms: UOp) -> Iterator[UOp]:
    """The masks of one loop, or of two."""
    for term in terms:
        lower, upper = [UOp.index(c) < term for c in (0, 1)], [term < c for c in (1, 2, 3)]
        yield from (*lower, *upper)
        yield from [low & high for low, high in product(lower, upper[1:])]
    if len(terms) == 2:
        a, b = terms
        yield from (a < b, b < a, (a < 2) & (b < 2), (UOp.index(0) < a) & (b < 2))
        yield from (a + b < 3, UOp.index(1) < a + b)


def row_major(*own: UOp) -> UOp:
    position: UOp = UOp.index(0)
    for k, loop in enumerate(own):
        position = loop if k == 0 else position * size(loop) + loop
    return position


# -- families -------------------------------------------------------------------------------------


def copies_of_a_row() -> Iterator[UOp]:
    """out[a] = x[form], in both directions, masked or chosen."""
    for n in SIZES:
        (a,) = loops(n)
        for form in forms(a):
            for position in (a, (n - 1) - a):
                yield store(position, load(X, form))
            yield store(a, load(X, form, dtype=FLOAT) * 2.0 + load(Y, a, dtype=FLOAT))
            for mask in masks(a):
                yield store(a, load(X, form, mask))
                yield store(a, mask.where(load(X, form), load(Y, a)))
        yield store(a, load(X, a + 126))
        yield store(a, (a * 2).cast(INT))
        yield store(a, ~load(X, a, dtype=BOOL))


def copies_of_a_matrix() -> Iterator[UOp]:
    """out[position(a, b)] = x[form(a, b)], with positions in all four orders of rows and columns."""
    for n, m in product(SIZES, SIZES):
        a, b = loops(n, m)
        for form in forms(a, b) if n < 4 and m < 4 else (row_major(a, b), row_major(b, a)):
            yield store(row_major(a, b), load(X, form))
        for position in (row_major(b, a), (n - 1 - a) * m + b, a * m + (m - 1 - b)):
            yield store(position, load(X, row_major(a, b)))
            yield store(position, load(X, a + b) * load(Y, b))


def masked_copies() -> Iterator[UOp]:
    """As above under each mask: of a load, of a choice, of a load that is inside only where the mask holds."""
    for n, m in product(FEW, FEW):
        a, b = loops(n, m)
        for mask in masks(a, b):
            yield store(row_major(a, b), load(X, a * m + b, mask))
            yield store(row_major(a, b), mask.where(load(X, a + b), load(Y, b)))
        for low, width in product((1, 2), FEW):
            inside = (UOp.index(low - 1) < a + b) & (a + b < low + width)
            yield store(row_major(a, b), load(X, a + b - low, inside))


def masked_stores() -> Iterator[UOp]:
    """As loops that were split have them: the last iterations store nothing; or one iteration that alone stores."""
    for n in range(1, 5):
        (a,) = loops(n)
        for only in reversed(range(n)):
            mask = (UOp.index(only - 1) < a) & (a < only + 1)
            yield store(UOp.index(0), load(Y, UOp.index(0)), mask=mask)
    for n, m in product(range(1, 5), range(1, 5)):
        a, b = loops(n, m)
        position = row_major(a, b)
        for end in range(n * m + 1):
            yield store(position, load(X, position, position < end), mask=position < end)
            yield store(position, load(X, a) * load(Y, b), mask=position < end)
        yield store(position, load(X, position), mask=(a < n) & (b < m))


def sums_of_rows() -> Iterator[UOp]:
    """out[a] = sum[r](x[form(a, r)]), and out = sum[r](x[form(r)])."""
    for k in SIZES:
        (r,) = inner_loops(k)
        for op, dtype in REDUCTIONS:
            yield store(UOp.index(0), reduce(op, load(X, r, dtype=dtype), r))
        for n in SIZES:
            (a,) = loops(n)
            for form in (
                forms(a, r) if n < 4 and k < 4 else (row_major(a, r), row_major(r, a), a + r)
            ):
                yield store(a, reduce(Ops.ADD, load(X, form), r))
            for op, dtype in REDUCTIONS:
                yield store(a, reduce(op, load(X, row_major(a, r), dtype=dtype), r))
                yield store(a, reduce(op, load(X, a + r, dtype=dtype), r))
            yield store(a, reduce(Ops.MUL, load(X, r), r) + load(Y, a))
            any_of = reduce(Ops.MAX, load(X, a + r, dtype=BOOL).cast(BYTE), r)
            yield store(a, any_of.cast(BOOL))


def masked_sums() -> Iterator[UOp]:
    """out[a] = sum[r](where(mask(a, r), x * y, neutral)), with masks of loads or without."""
    for n, k in product(FEW, FEW):
        (a,), (r,) = loops(n), inner_loops(k)
        for mask in masks(a, r):
            masked = mask.where(load(X, row_major(a, r), mask) * load(Y, r), neutral(Ops.ADD))
            yield store(a, reduce(Ops.ADD, masked, r))
            yield store(a, reduce(Ops.ADD, load(X, a + r, mask), r))
            both = load(X, row_major(a, r), mask) * load(Y, r, mask)
            yield store(a, reduce(Ops.ADD, mask.where(both, neutral(Ops.ADD)), r))
        for op, dtype in REDUCTIONS:
            value = load(X, row_major(a, r), dtype=dtype)
            for mask in (r < a, r < 2, (UOp.index(0) < a) & (r < 2)):
                yield store(a, reduce(op, mask.where(value, neutral(op, dtype)), r))


def running_sums() -> Iterator[UOp]:
    """out[b, a] = sum[r](where(mask(a, r), x[b, r], neutral)), with a inside of b or around it, of masks from both ends."""
    for n, k, offset in product((1, 3), (1, 3), (-1, 0, 1)):
        for first in (2, 6):
            (b,), (a,), (r,) = loops(2, first=4), loops(n, first=first), inner_loops(k, first=8)
            masks_of = (
                r < a + offset,
                a < r + offset,
                r + a < 2 + offset,
                UOp.index(1 + offset) < a + r,
            )
            for op, dtype in REDUCTIONS:
                value = load(X, row_major(b, r), dtype=dtype)
                for mask in (*masks_of, *[~m for m in masks_of]):
                    taken = reduce(op, mask.where(value, neutral(op, dtype)), r)
                    yield store(row_major(b, a), taken)
                    yield store(
                        row_major(b, a), reduce(op, (~mask).where(neutral(op, dtype), value), r)
                    )
                both = masks_of[0] & (UOp.index(0) < r)
                yield store(row_major(a, b), reduce(op, both.where(value, neutral(op, dtype)), r))
            yield store(
                row_major(b, a), reduce(Ops.ADD, load(X, row_major(b, r), masks_of[0]), r) * 2
            )


def running_sums_of_blocks() -> Iterator[tuple[str, UOp]]:
    """The same with more elements, in which there are blocks, of the first and of the last; some are none."""
    for n, k in ((4, 4), (5, 5), (7, 7), (3, 6), (6, 4)):
        (b,), (a,), (r,) = loops(2, first=4), loops(n, first=2), inner_loops(k, first=8)
        masks = (~(a < r), r < a, ~(r < a), ~(a < r - 1), r * 2 < a, r + a < k, ~(k - 1 - a < r))
        for mask, (op, dtype) in product(masks, REDUCTIONS):
            value = load(X, row_major(b, r), dtype=dtype)
            taken = reduce(op, mask.where(value, neutral(op, dtype)), r)
            yield "running sums of blocks", UOp.sink(store(row_major(b, a), taken))
        masked = reduce(Ops.ADD, load(X, row_major(b, r), ~(a < r)), r) * 2
        yield "running sums of blocks", UOp.sink(store(row_major(b, a), masked))
        inside = (r < a) & (UOp.index(0) < r)
        both = reduce(Ops.ADD, load(X, row_major(b, r) - 1, inside), r)
        yield "running sums of blocks", UOp.sink(store(row_major(b, a), both))


def convolutions() -> Iterator[UOp]:
    """Sums whose mask brings their positions inside: windows of a padded row, from both ends."""
    for n, k, width, pad in product(range(1, 4), FEW, range(1, 4), LEAST):
        (a,), (r,) = loops(n), inner_loops(k)
        for position in (a + r - pad, a - r + pad, a * 2 + r - pad):
            inside = (UOp.index(-1) < position) & (position < width)
            terms = load(X, position, inside) * load(Y, r)
            yield store(a, reduce(Ops.ADD, inside.where(terms, neutral(Ops.ADD)), r))
        inside = (UOp.index(-1) < a - r) & (a - r < width)
        value = inside.where(
            load(X, a - r, inside, FLOAT) * load(Y, r, dtype=FLOAT), neutral(Ops.ADD, FLOAT)
        )
        yield store(a, reduce(Ops.ADD, value, r))


def products_of_matrices() -> Iterator[UOp]:
    """out[a, b] = sum[r](x[a, r] * y[r, b]), with steps between columns, padded or not."""
    for n, m, k in product(LEAST, LEAST, LEAST):
        (a, b), (r,) = loops(n, m), inner_loops(k)
        for dtype in (INT, FLOAT):
            first, second = load(X, a * k + r, dtype=dtype), load(Y, r * m + b, dtype=dtype)
            yield store(row_major(a, b), reduce(Ops.ADD, first * second, r))
        for mask in (a < r, (a < 2) & (r < 2), UOp.index(0) < b):
            value = mask.where(load(X, a + r, mask) * load(Y, r + b * 2), neutral(Ops.ADD))
            yield store(row_major(b, a), reduce(Ops.ADD, value, r))


def sums_of_two_loops() -> Iterator[UOp]:
    """Reductions over two loops at once, and inside of one another with masks between."""
    for n, k, p in product(LEAST, LEAST, LEAST):
        (a,), (r, s) = loops(n), inner_loops(k, p)
        for op, dtype in REDUCTIONS[:5]:
            for form in (a + r * p + s, a * 2 + s, r + s):
                yield store(a, reduce(op, load(X, form, dtype=dtype), r, s))
        terms = load(X, a * p + s) * load(Y, r + s)
        yield store(a, reduce(Ops.ADD, reduce(Ops.ADD, terms, s), r))
        yield store(a, reduce(Ops.MAX, reduce(Ops.ADD, terms, s), r))
        for outer, inner in product((r < a, r < 2, s < 2), (s < r, UOp.index(0) < s, a < s)):
            masked = inner.where(load(X, a + s, inner) * load(Y, r + s), neutral(Ops.ADD))
            nested = reduce(Ops.ADD, masked, s)
            if s not in free_loops(outer):
                yield store(a, reduce(Ops.ADD, outer.where(nested, neutral(Ops.ADD)), r))
            yield store(a, reduce(Ops.MUL, nested, r) + load(Y, a))


def sums_of_several_products() -> Iterator[UOp]:
    """Reductions that add several products in an iteration, as loops that were written out leave them, masked or not."""
    for n, k in product(FEW, FEW):
        (a,), (r,) = loops(n), inner_loops(k)
        for dtype in (INT, FLOAT):
            first = load(X, a * k + r, dtype=dtype) * load(Y, r, dtype=dtype)
            both = UOp(
                Ops.MULACC, dtype, (load(X, r, dtype=dtype), load(Y, a + 1, dtype=dtype), first)
            )
            some = (r < a).where(both, first)
            for value in (both, some, (r < 2).where(both, neutral(Ops.ADD, dtype))):
                yield store(a, reduce(Ops.ADD, value, r))
            last = UOp(Ops.MULACC, dtype, (load(X, a, dtype=dtype), load(Y, r, dtype=dtype), some))
            yield store(a, reduce(Ops.ADD, last, r))
        yield store(a, reduce(Ops.ADD, load(X, a + r) * load(Y, r) + load(X, r) * load(Y, a), r))


def sums_of_small_products() -> Iterator[UOp]:
    """Sums in int32 of products of smaller integers, over loops of two and others."""
    for n, k, p in product((1, 2), (1, 2, 3), (2, 3)):
        (a,), (r, s) = loops(n), inner_loops(k, p)
        step = r * p + s
        positions = (a * k * p + step, step), (a + r + s, a + step), (a + step, s * k + r)
        types = product((SMALL, BYTE, dtypes.int16), (SMALL, BYTE))
        for (first, second), (one, other) in product(positions, [*types, (INT, SMALL)]):
            for mask in (None, step < 3):
                x, y = load(X, first, mask, one).cast(INT), load(Y, second, dtype=other).cast(INT)
                yield store(a, reduce(Ops.ADD, x * y, r, s))
        yield store(a, reduce(Ops.MAX, x * y, r, s))
        yield store(a, reduce(Ops.ADD, (s < 1).where(x * y, neutral(Ops.ADD)), r, s) + y)


def sums_that_share_loops() -> Iterator[UOp]:
    """One loop of two reductions, inside of one another or side by side, or of a reduction and the results."""
    for n, k in product(FEW, FEW):
        (a,), (r,) = loops(n), inner_loops(k)
        one, two = reduce(Ops.ADD, load(X, a + r), r), reduce(Ops.MAX, load(Y, r), r)
        yield store(a, one + two)
        yield store(a, one * reduce(Ops.ADD, load(X, r) + two, r))
        yield store(a, reduce(Ops.ADD, load(X, a), a) + load(Y, a))
        yield store(a, reduce(Ops.ADD, load(X, a) * reduce(Ops.ADD, load(X, a), a), a) + load(Y, a))
        yield store(a, reduce(Ops.ADD, load(X, a) * load(Y, r), a, r) - load(X, a))
        yield store(
            a,
            reduce(Ops.ADD, (a < 2).where(load(X, a) * load(Y, r), neutral(Ops.ADD)), r)
            + reduce(Ops.MAX, load(Y, a), a),
        )


def gathers() -> Iterator[UOp]:
    """Loads in an index, brought inside or inside as they are."""
    for n, m in product(FEW, FEW):
        a, b = loops(n, m)
        (r,) = inner_loops(m)
        yield store(row_major(a, b), load(X, position_of(INSIDE, a) * m + b))
        yield store(row_major(a, b), load(X, position_of(INSIDE, a + b)))
        yield store(a, reduce(Ops.ADD, load(X, position_of(INSIDE, a) + r), r))
        yield store(a, reduce(Ops.ADD, load(X, position_of(INSIDE, r) + a) * load(Y, a), r))
        position = position_of(POSITIONS, a * m + r)
        inside = (UOp.index(-1) < position) & (position < 3)
        yield store(a, reduce(Ops.MAX, load(X, position, inside), r))
        near = position.maximum(UOp.index(0)).minimum(UOp.index(2))
        yield store(
            a, reduce(Ops.ADD, inside.where(load(X, near) * load(Y, r), neutral(Ops.ADD)), r)
        )


def masks_that_position() -> Iterator[UOp]:
    """out[a] = sum[j](where(position[j] == a, v[j], neutral)), alone, beside other masks, with more results."""
    for n, k in product(FEW, FEW):
        (a,), (j,) = loops(n), inner_loops(k)
        hit = position_of(POSITIONS, j).eq(a)
        for op, dtype in REDUCTIONS:
            value = load(X, j, dtype=dtype)
            yield store(a, reduce(op, hit.where(value, neutral(op, dtype)), j))
            yield store((n - 1) - a, reduce(op, hit.where(value, neutral(op, dtype)), j))
        for inner in (j < 2, UOp.index(0) < j):
            nested = inner.where(load(X, j), neutral(Ops.ADD))
            yield store(a, reduce(Ops.ADD, hit.where(nested, neutral(Ops.ADD)), j))
            yield store(a, reduce(Ops.MUL, hit.where(nested, neutral(Ops.MUL)), j))
        yield store(a, reduce(Ops.ADD, hit.cast(INT), j))
        yield store(a, reduce(Ops.ADD, load(X, j, hit), j))
        yield store(a, reduce(Ops.ADD, load(X, j, hit), j) + load(Y, a))
        yield store(a, reduce(Ops.MAX, load(X, j + a, hit & (j < 2)), j))
        for other in (position_of(POSITIONS, j) + 1, position_of(POSITIONS, j) * -1 + 2):
            yield store(a, reduce(Ops.ADD, a.eq(other).where(load(X, j), neutral(Ops.ADD)), j))
        for mask in (j < 2, UOp.index(0) < a, a < j):
            value = (mask & hit).where(load(X, j * n + a), neutral(Ops.ADD))
            yield store(a, reduce(Ops.ADD, value, j))
    for n, m, k in product(LEAST, LEAST, LEAST):
        (a, b), (j,) = loops(n, m), inner_loops(k)
        for index, here in product((j, j * m + b), (row_major(a, b), row_major(b, a))):
            hit = position_of(POSITIONS, index).eq(a)
            value = hit.where(load(X, j * m + b), neutral(Ops.ADD))
            yield store(here, reduce(Ops.ADD, value, j))
            more = hit & position_of(POSITIONS, j).eq(b)
            yield store(here, reduce(Ops.MUL, more.where(load(X, j), neutral(Ops.MUL)), j))
        back = position_of(INSIDE, (m - 1) - b).eq(a) & position_of(POSITIONS, j).eq(b)
        value = back.where(load(X, j), neutral(Ops.MAX))
        yield store(row_major(a, b), reduce(Ops.MAX, value, j))


def kept_rows() -> Iterator[UOp]:
    """Rows that are computed ahead, for the results or for a reduction, anew for each outer iteration or once."""
    for n, k in product(FEW, FEW):
        (a,), (r, s) = loops(n), inner_loops(k, n)
        b = UOp.range(k, 4)
        yield store(a, kept(keep(load(X, s) * 2, s), a))
        yield store(a, kept(keep(load(X, s), s), a // 2))
        yield store(a, reduce(Ops.ADD, kept(keep(load(X, a + r), r), r), r))
        row = keep(load(X, row_major(a, r)), r)
        yield store(row_major(a, b), kept(row, b) + reduce(Ops.MAX, kept(row, r), r))
        matrix = keep(load(X, row_major(s, r)) * load(Y, r), s, r)
        yield store(row_major(a, b), kept(matrix, row_major(a, b)))
        yield store(row_major(b, a), kept(matrix, row_major(a, b)))
        sums = keep(reduce(Ops.ADD, load(X, row_major(s, r)), r), s)
        yield store(row_major(a, b), kept(sums, a) - load(Y, b))
        masked = keep(load(X, r, r < 2), r)
        yield store(row_major(a, b), kept(masked, b) * load(Y, a))
        doubled = keep(load(X, s) * 2, s)
        for inside in (r < n, (UOp.index(-1) < a - r) & (a - r < n)):
            position = r if inside.op is Ops.CMPLT else a - r
            terms = kept(doubled, position, inside) * load(Y, r)
            yield store(a, reduce(Ops.ADD, inside.where(terms, neutral(Ops.ADD)), r))


def stores_that_combine() -> Iterator[UOp]:
    """out[a] op= v(a, r) for r in order, at positions that loops or memory name, masked or not."""
    for n, k in product(FEW, FEW):
        (a,), (r,) = loops(n), inner_loops(k)
        for op in (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN):
            yield store(a, load(X, row_major(a, r)), r, op=op)
            position = position_of(POSITIONS, r)
            inside = (UOp.index(-1) < position) & (position < 4)
            yield store(position, load(X, r), r, mask=inside, op=op)
            yield store(position * n + a, load(X, row_major(a, r)), r, mask=inside, op=op)
        for mask in masks(a, r):
            yield store(a, load(X, a + r, mask), r, op=Ops.ADD)
        s = inner_loops(3, first=8)[0]
        yield store(a, reduce(Ops.ADD, load(X, row_major(a, r, s)), s), r, op=Ops.ADD)
        yield store(a, load(X, row_major(a, r, s)), r, s, op=Ops.ADD)


def several_stores() -> Iterator[UOp]:
    """Kernels as loops that were written out leave them: copies of a store, with loops in common."""
    for n, k in product(FEW, FEW):
        (a,), (r,) = loops(n), inner_loops(k)
        b = UOp.range(k, 4)
        yield UOp.sink(store(a * 2, load(X, a)), store(a * 2 + 1, load(Y, a + 1)))
        sums = [reduce(Ops.ADD, load(slot, a + r), r) for slot in (X, Y)]
        yield UOp.sink(*[store(a + n * c, value) for c, value in enumerate(sums)])
        yield UOp.sink(store(a, load(X, a)), store(b + n, load(Y, b)))
        yield UOp.sink(store(a, load(X, a)), store(a + n, load(X, a) * load(X, a)))


def values_alike() -> Iterator[UOp]:
    """Functions of several loops that are the same, or nearly, in a reduction and beside it."""
    for n, k in product(FEW, FEW):
        (a,), (r,) = loops(n), inner_loops(k)
        b = UOp.range(k, 4)

        def function(term: UOp) -> UOp:
            return load(X, term) * load(X, term) + load(Y, term)

        total = reduce(Ops.ADD, function(r), r)
        yield store(row_major(a, b), function(b) - total)
        other = load(Y, b) + load(X, b) * load(X, b)
        yield store(row_major(a, b), other * total + load(X, a))
        yield store(row_major(a, b), load(X, a + b) * 2 - reduce(Ops.MAX, load(X, a + r) * 2, r))

        def choice(less: int, more: int, term: UOp) -> UOp:
            return (load(less, term) < load(more, term)).where(load(X, term), load(Y, term))

        for less, more in ((X, Y), (Y, X)):  # no other order of these is the same
            total = reduce(Ops.ADD, choice(less, more, r), r)
            yield store(row_major(a, b), choice(X, Y, b) - total)


def masks_within_masks() -> Iterator[UOp]:
    """A mask of a load beside that of the sum, or of the store: the same, a part of it, or another one."""
    for n, k in product(FEW, FEW):
        (a,), (r,) = loops(n), inner_loops(k)
        owns = (r < 1, UOp.index(0) < a, a < r, (a + r < 2) & (r < 1))
        for outer in (a + r < 2, r < a, (UOp.index(0) < a) & (r < 2)):
            for own in (*owns, outer, UOp.index(0) < a + r):
                terms = load(X, a + r, own) * load(Y, r)
                yield store(a, reduce(Ops.ADD, outer.where(terms, neutral(Ops.ADD)), r))
            nested = reduce(Ops.ADD, load(X, a + r, outer) * load(Y, r), r)
            yield store(a, (a < 2).where(nested, neutral(Ops.ADD)), mask=a < 3)
        for own in (UOp.index(0) < a, a < 1, (a < 2) & (UOp.index(0) < a)):
            yield store(a, load(X, a, own) * 2, mask=a < 2)
            position = load(INSIDE, a, own).cast(dtypes.index)
            yield store(a, load(X, position + 1))
            yield store(a, reduce(Ops.ADD, load(X, position + r, r < 2), r))


def stores_side_by_side() -> Iterator[UOp]:
    """Stores with masks, loops, reductions and kept rows that others have not; two that combine."""
    for n, k in product(FEW, FEW):
        (a,), (r, s) = loops(n), inner_loops(k, n)
        b = UOp.range(k, 4)
        first, behind = (a < 1, UOp.index(0) < a)
        yield UOp.sink(store(a, load(X, a), mask=first), store(a, load(Y, a), mask=behind))
        total = reduce(Ops.ADD, load(X, a + r), r)
        yield UOp.sink(store(a, total), store(b + n, load(Y, b)))
        yield UOp.sink(store(a, total), store(a + n, load(Y, a), mask=a < 4))
        row = keep(load(X, s) * 2, s)
        yield UOp.sink(store(a, kept(row, a)), store(b + n, load(Y, b)))
        yield UOp.sink(store(a, kept(row, a)), store(a + n, kept(row, (n - 1) - a)))
        yield UOp.sink(
            store(a, load(X, a + r), r, op=Ops.ADD), store(a + n, load(Y, r), r, op=Ops.ADD)
        )
        matrix = [store(row_major(a, b) + n * k * c, load(X, row_major(a, b) + c)) for c in (0, 1)]
        yield UOp.sink(*matrix)


def variable_sizes() -> Iterator[UOp]:
    """Loops whose size is a variable, around others and inside of them, of results, of reductions, in order."""
    a, r = UOp.range(N, 2), UOp.range(N, 6, AxisRole.REDUCE)
    yield store(a, load(X, a + 1))
    yield store(a, load(X, a, a < 1) * load(Y, (a * 2)))
    yield store(UOp.index(0), reduce(Ops.ADD, load(X, r), r))
    for k in FEW:
        (b,), (s,) = loops(k, first=4), inner_loops(k, first=8)
        for position in (a * k + b, b * N + a):
            yield store(position, load(X, position))
            yield store(position, load(X, b) * load(Y, a))
        for op, dtype in REDUCTIONS:
            yield store(b, reduce(op, load(X, b * 3 + r, dtype=dtype), r))
            yield store(a, reduce(op, load(X, a + s, dtype=dtype), s))
        terms = load(X, b + r) * load(Y, r + s)
        yield store(b, reduce(Ops.ADD, terms, r, s))
        nested = reduce(Ops.ADD, terms, s)
        yield store(b, reduce(Ops.ADD, (r < 1).where(nested, neutral(Ops.ADD)), r))
        for loop, own in ((b, r), (a, s), (a, r)):
            hit = position_of(POSITIONS, own).eq(loop)
            yield store(loop, reduce(Ops.ADD, hit.where(load(X, own), neutral(Ops.ADD)), own))
        yield store(b, load(X, b + r), r, op=Ops.ADD)
        yield store(a, load(X, a + s), s, op=Ops.ADD)
        row = keep(load(X, s) * 2, s)
        yield store(a * k + b, kept(row, b) * load(Y, a))
    c, t = UOp.range(M, 4), UOp.range(M, 8, AxisRole.REDUCE)
    for position in (a * M + c, c * N + a):
        yield store(position, load(X, position))
        yield store(position, load(X, a) * load(Y, c + N))
    yield store(a, reduce(Ops.ADD, load(X, a * M + t), t))
    yield store(c, reduce(Ops.ADD, load(X, c + r) * load(Y, r * M + t), r, t))


def masks_by_variables() -> Iterator[UOp]:
    """Stores and reductions with masks that variables end: of one loop, of parts of one, of several, nested, turned round."""
    for n, k in product(FEW, FEW):
        (a, b), (r, s) = loops(n, k), inner_loops(n, k)
        for mask in (
            a * k + b < N,
            (a < N) & (b < M),
            (a + b < N) & (a * 2 < M),
            a - b < N,
            N < a,
            (a * k + b < N) & (a < 1),
        ):
            yield store(row_major(a, b), load(X, row_major(a, b)), mask=mask)
            yield store(row_major(a, b), load(X, row_major(a, b), mask), mask=mask)
        for op, dtype in REDUCTIONS:
            none, value = neutral(op, dtype), load(X, r * k + s, dtype=dtype)
            for mask in (r * k + s < N, (r < N) & (s < M), r - s < N):
                yield store(UOp.index(0), reduce(op, mask.where(value, none), r, s))
            yield store(
                a,
                reduce(
                    op, (r < 2).where((r + a < N).where(load(X, r + a, dtype=dtype), none), none), r
                ),
                mask=a < M,
            )
            other = UOp.const(dtype, 2)
            yield store(UOp.index(0), reduce(op, (r < N).where(value, other), r, s))
            yield store(b, reduce(op, (r + b < N).where(load(X, r + b, dtype=dtype), other), r))
        yield store(a, load(X, a + r), r, mask=(r < N) & (a < M), op=Ops.ADD)
        row = keep((s < N).where(load(X, s), neutral(Ops.ADD)), s)
        yield store(row_major(a, b), kept(row, b), mask=b < N)
        for masks in ((a < N, b < M), (b < N, a < N), (a < N, a + b < M), (a < N, None)):
            positions = [row_major(a, b) + n * k * c for c in (0, 1)]
            both = zip(positions, masks)
            yield UOp.sink(*[store(at, load(X, a + b), mask=mask) for at, mask in both])


def changes_in_place() -> Iterator[UOp]:
    """Stores of what is there but for some elements; windows of loops, of results and of reductions."""
    for n, k in product(SIZES, LEAST):
        (a, b), (r,) = loops(n, k), inner_loops(n)
        at = row_major(a, b)
        old, new = load(OUT, at), load(X, at)
        windows = [a.eq(1), (UOp.index(0) < a) & (a < 3), a < 2, UOp.index(0) < a, a * 2 < 3]
        windows += [~(a < N) & (a < N + 1), a.eq(N), (UOp.index(1) - a).eq(0), a.eq(b)]
        for mask in windows:
            yield store(at, mask.where(new, old))
            yield store(at, mask.where(old + 1, old))
            yield store(at, mask.where(old, new))
            yield store(at, (mask & (b < 1)).where(new, old))
            yield store(at, (mask & (b < 1)).where(new, mask.where(load(Y, at), old)))
            yield store(at, (b < 1).where(new, mask.where(load(Y, at), old)))
            yield store(at, mask.where(new, load(X, at + 1)))
            yield store(at, new, mask=mask)
        for mask in (r.eq(1), (UOp.index(0) < r) & (r < 3), r < 2, r.eq(N), (r < 3) & (a < r)):
            total = reduce(Ops.ADD, mask.where(load(X, r), neutral(Ops.ADD)), r)
            yield store(a, total)
            yield store(a, a.eq(1).where(total, load(OUT, a)))
        yield store(a, load(X, a + r), r, mask=a.eq(1), op=Ops.ADD)


def last_values_by_position() -> Iterator[UOp]:
    """out[a] = where(-1 < last[a], f(last[a]), g(a)), in place and apart, of rows, and beside masks."""
    for n, k in product(FEW, FEW):
        (a,), (j, r) = loops(n), inner_loops(k, k)
        for hit in (position_of(POSITIONS, j).eq(a), a.eq(position_of(POSITIONS, j)) & (j < 2)):
            last = reduce(Ops.MAX, hit.where(j.cast(INT), neutral(Ops.MAX)), j)
            chosen = r.eq(last.cast(dtypes.index)).where(load(X, r), neutral(Ops.ADD))
            for bound, value in product((-1, 0), (last, load(Y, a), reduce(Ops.ADD, chosen, r))):
                some = UOp.const(INT, bound) < last
                yield store(a, some.where(value, load(OUT, a)))
                yield store((n - 1) - a, some.where(value, load(Y, a) + 1))
            some = UOp.const(INT, -1) < last
            yield store(a, some.where(load(OUT, a) + 1, load(OUT, a)))
            (_, b) = loops(n, 2)
            yield store(row_major(a, b), some.where(last + load(X, b), load(Y, b)))
            yield store(row_major(b, a), some.where(last, load(OUT, row_major(b, a))))


def sums_of_products_of_bfloat16() -> Iterator[UOp]:
    """In float32, of one memory and of two."""
    for n, k, slot in product((1, 2, 3), (1, 2, 3), (X, Y)):
        (a,), (r,) = loops(n), inner_loops(k)
        for first, second in ((a * k + r, r), (r, a * k + r), (a + r, r * n + a)):
            for mask in (None, r < 2):
                x = load(X, first, mask, dtypes.bfloat16).cast(FLOAT)
                y = load(slot, second, dtype=dtypes.bfloat16).cast(FLOAT)
                total = reduce(Ops.ADD, x * y, r)
                yield store(a, total)
                yield store(a, total * 2.0 + x.substitute({r: UOp.index(0)}))


FAMILIES: tuple[Callable[[], Iterator[UOp]], ...] = (
    copies_of_a_row, copies_of_a_matrix, masked_copies, masked_stores, sums_of_rows, masked_sums, running_sums, convolutions,
    products_of_matrices, sums_of_two_loops, sums_of_several_products,
    sums_of_small_products, sums_of_products_of_bfloat16, sums_that_share_loops, gathers,
    masks_that_position, kept_rows, stores_that_combine, several_stores, values_alike, masks_within_masks, stores_side_by_side, variable_sizes, masks_by_variables, changes_in_place, last_values_by_position,
)  # fmt: skip


# -- legal kernels --------------------------------------------------------------------------------


def graphs() -> list[tuple[str, UOp]]:
    """Every graph of the scope, legal or not, each once, with its family; memory has no length yet."""
    found: dict[UOp, str] = {}
    for family in FAMILIES:
        for made in family():
            graph = made if made.op is Ops.SINK else UOp.sink(made)
            found.setdefault(graph, family.__name__)
    return [(family, graph) for graph, family in found.items()]


def matrices() -> Iterator[tuple[str, UOp]]:
    """Products of the size of a matrix unit, of one and of two warps, beside the scope: too long for every step.

    Of one a factor changes with rows and columns.
    """
    for warps, both in (((), False), ((2,), False), ((), True)):
        *around, row, column = loops(*warps, 16, 8)
        (step,) = inner_loops(8, first=10)
        left = row_major(*around, row, column, step) if both else row_major(*around, row, step)
        term = load(X, left) * load(Y, row_major(step, column))
        total = reduce(Ops.ADD, term, step)
        yield "matrices", UOp.sink(store(row_major(*around, row, column), total))
    yield from kept_matrices()


def kept_matrices() -> Iterator[tuple[str, UOp]]:
    """Such products that are kept, as they are or with tiles between rows and columns, and read in both orders."""
    for tiles in ((), (2,)):
        row, *tile, column = loops(16, *tiles, 8)
        (own_row, *own_tile, own_column), (step,) = (
            inner_loops(16, *tiles, 8, first=20),
            inner_loops(8, first=10),
        )
        left = load(X, row_major(own_row, step))
        right = load(Y, row_major(*own_tile, step, own_column))
        total = reduce(Ops.ADD, left * right, step)
        memory = keep(total + 1, own_row, *own_tile, own_column)
        there = kept(memory, row_major(row, *tile, column))
        yield "matrices", UOp.sink(store(row_major(row, *tile, column), there))
        yield "matrices", UOp.sink(store(row_major(column, *tile, row), there * 2))


def blocks() -> Iterator[tuple[str, UOp]]:
    """Sums in blocks of which a group keeps what the next factor reads, one or two memories; one that is the same for all blocks, and
    one of which the blocks run inside."""
    for count, both, has_inner, is_first in (
        (2, False, True, True),
        (3, False, False, True),
        (3, True, True, True),
        (2, False, True, False),
    ):
        row, item = UOp.range(2, 2, AxisRole.LOOP), UOp.range(2, 4, AxisRole.LANE)
        block, step = inner_loops(count, 2, first=6)
        own = [UOp.range(2, number, AxisRole.LANE) for number in (10, 12)]
        summed = (block, step) if is_first else (step, block)
        at = step if has_inner else UOp.index(0)
        memory = keep(load(X, row_major(block, own[0])), own[0])
        other = load(Y, row_major(row, block, step))
        if both:
            other = kept(keep(load(Y, row_major(row, block, own[1])), own[1]), at)
        total = reduce(Ops.ADD, kept(memory, at) * other, *(summed if has_inner else (block,)))
        if not has_inner:
            total = total.substitute({step: UOp.index(0)})
        yield "blocks", UOp.sink(store(row_major(row, item), total))


def shared_and_own() -> Iterator[tuple[str, UOp]]:
    """What items of a group share out and then read their own of, or another item's; their loop first, last or between others."""
    for shape, order in (((2, 3), (0, 1)), ((2, 3), (1, 0)), ((2, 3, 2), (1, 0, 2))):
        row, item = UOp.range(shape[0], 2), UOp.range(3, 4, AxisRole.LANE)
        last = inner_loops(*shape[2:], first=6)
        own = [
            UOp.range(size, 20 + 2 * k, AxisRole.LANE if k == 1 else AxisRole.REDUCE)
            for k, size in enumerate(shape)
        ]
        memory = keep(load(X, row_major(*own)) + load(Y, own[1]), *[own[k] for k in order])
        at = [row, item, *last]
        here = row_major(*[at[k] for k in order])
        others = [row, UOp.index(2) + item * -1, *last]
        there = row_major(*[others[k] for k in order])
        for value in (kept(memory, here), kept(memory, here) * 2 + kept(memory, there)):
            total = reduce(Ops.ADD, value, *last) if last else value
            yield "own", UOp.sink(store(row_major(row, item), total))


def exchanged() -> Iterator[tuple[str, UOp]]:
    """Sums and extremes of what items keep: side by side from a multiple of their number on, from elsewhere on, apart, under a mask."""
    for rows, count in ((1, 2), (3, 2), (2, 4), (1, 8), (2, 3)):
        row = UOp.range(rows, 2) if rows > 1 else UOp.index(0)
        (t,), own = inner_loops(count), UOp.range(rows * count, 10, AxisRole.LANE)
        memory = keep(load(X, own), own)
        here = row * count + t if rows > 1 else t
        for op, value in (
            (Ops.ADD, kept(memory, here)),
            (Ops.MAX, kept(memory, here)),
            (Ops.ADD, kept(memory, here, t < count - 1)),
            (Ops.ADD, kept(memory, t * rows + row)),
            (Ops.ADD, kept(memory, (row * count + t).minimum(rows * count - 2) + 1)),
        ):
            yield "exchanged", UOp.sink(store(row, reduce(op, value, t)))


def matrices_in_item() -> Iterator[tuple[str, UOp]]:
    """The same of a unit of one item: results, what is kept of them, sums of a part, and factors the other way round."""
    for both, other in ((False, False), (True, False), (False, True)):
        row, column = loops(2, 2)
        (outer, step), own = inner_loops(2, 4, first=10), inner_loops(2, 2, first=14)

        def total(r: UOp, c: UOp, *around: UOp, is_wide: bool = both, turned: bool = other) -> UOp:
            left = row_major(r, c, *around, step) if is_wide else row_major(r, *around, step)
            factors = load(X, left), load(Y, row_major(*around, step, c))
            return reduce(Ops.ADD, factors[turned] * factors[not turned], step)

        here = row_major(row, column)
        yield "matrices", UOp.sink(store(here, total(row, column) + load(X, row)))
        yield "matrices", UOp.sink(store(here, reduce(Ops.ADD, total(row, column, outer), outer)))
        memory = keep(reduce(Ops.ADD, total(*own, outer), outer), *own)
        yield "matrices", UOp.sink(store(here, kept(memory, here)))
        yield "matrices", UOp.sink(store(here, kept(memory, row_major(column, row))))


def rows_kept() -> Iterator[tuple[str, UOp]]:
    """What is kept along rows and pieces, and perhaps elements of these: read at each position, and at others."""
    for sizes in ((2, 3), (3, 4), (2, 2, 2), (3, 3, 2)):
        (whole,) = loops(prod(sizes))
        own = inner_loops(*sizes, first=10)
        outer = row_major(*own[:2])
        memory = keep(load(X, row_major(*own[::-1])) + load(Y, outer), *own)
        yield "rows", UOp.sink(store(whole, kept(memory, whole)))
        yield "rows", UOp.sink(store(whole, kept(memory, whole, whole < prod(sizes) - 1)))
        some = loops(*sizes)
        yield "rows", UOp.sink(store(row_major(*some), kept(memory, row_major(*some))))


def weighted_rows() -> Iterator[tuple[str, UOp]]:
    """Rows weighted by powers of the distance from their maximum, divided by the sum of these, in blocks; masked, or of another sum."""
    for blocks, elements, rest in ((2, 2, 0), (3, 1, 0), (2, 2, 1)):
        (row,), own = loops(2), [inner_loops(blocks, elements, first=k) for k in (8, 12, 16)]
        length = blocks * elements - rest

        def score(o: UOp, t: UOp) -> UOp:
            inside = o * elements + t < length
            return load(X, row * length + o * elements + t, inside if rest else None, FLOAT)

        def inside(o: UOp, t: UOp, value: UOp, op: Ops) -> UOp:
            is_one = o * elements + t < length
            return is_one.where(value, neutral(op, FLOAT)) if rest else value

        first, second, third = own
        most = reduce(Ops.MAX, inside(*first, score(*first), Ops.MAX), *first)
        for factor, other in ((1.0, False), (2.0, False), (1.0, True)):

            def power(o: UOp, t: UOp) -> UOp:
                distance = (score(o, t) - most) * (factor if not other else 1.0)
                return UOp(Ops.EXP2, FLOAT, (distance,))

            weights = power(*second) * 2 if other else power(*second)
            below = reduce(Ops.ADD, inside(*second, weights, Ops.ADD), *second)
            value = load(
                Y, third[0] * elements + third[1], third[0] * elements + third[1] < length, FLOAT
            )
            for weight in (power(*third) / below, power(*third) * (UOp.const(FLOAT, 1.0) / below)):
                total = reduce(Ops.ADD, inside(*third, weight * value, Ops.ADD), *third)
                yield "weighted rows", UOp.sink(store(row, total))


def sums_beside_maxima() -> Iterator[tuple[str, UOp]]:
    """Sums of powers of the distance from the maximum of their own loop, alone, together and of what is not the same."""
    for count in (2, 4):
        (row,), (own, beside) = loops(2), inner_loops(count, count, first=8)
        least = UOp.const(FLOAT, -float.fromhex("0x1.fffffep127"))
        here = load(X, row * count + own, dtype=FLOAT)
        other = load(X, row * count + beside, dtype=FLOAT)

        def power(value: UOp, most: UOp) -> UOp:
            return UOp(Ops.EXP2, FLOAT, (value - most.maximum(least),))

        most = reduce(Ops.MAX, here, own)
        elsewhere = reduce(Ops.MAX, other, beside)
        part = load(Y, own, dtype=FLOAT)
        total = reduce(Ops.ADD, power(here, most) * part, own)
        both = total + reduce(Ops.ADD, power(here, most) * (part + 1), own)
        for value in (
            total,
            both,
            total + most,
            reduce(Ops.ADD, power(here, elsewhere) * part, own),
        ):
            yield "beside maxima", UOp.sink(store(row, value))


def masked_blocks() -> Iterator[tuple[str, UOp]]:
    """The same of blocks of keys, of which a mask hides some from a block of rows, or from some of them, or of which it hides no score."""
    least = UOp.const(FLOAT, -float.fromhex("0x1.fffffep127"))
    for shift, counts_down in ((0, False), (1, False), (-3, False), (0, True)):
        (block, row), (own, key) = loops(2, 2), inner_loops(3, 2, first=8)
        at, other = block * 2 + row, own * 2 + key
        other = 5 - other if counts_down else other
        score = load(X, other, dtype=FLOAT)
        for hidden in (-inf, 0.0):
            for shown in (~(at + shift < other), other < at + shift):
                masked = shown.where(score, UOp.const(FLOAT, hidden))
                here = reduce(Ops.MAX, masked, key)
                most = reduce(Ops.MAX, here, own)
                power = UOp(Ops.EXP2, FLOAT, (here - most.maximum(least),))
                total = reduce(Ops.ADD, power * load(Y, own, dtype=FLOAT), own)
                yield "masked blocks", UOp.sink(store(at, total))


def alike_stores() -> Iterator[tuple[str, UOp]]:
    """Several stores whose sums have the same loops, one alone, and one whose loop is another's of results."""
    (row,), (first, second) = loops(3), inner_loops(2, 2, first=8)
    sums = [
        reduce(Ops.ADD, load(X, row * 4 + first * 2 + second) + k, first, second) for k in range(3)
    ]
    yield "alike", UOp.sink(*[store(row * 3 + k, total) for k, total in enumerate(sums)])
    yield "alike", UOp.sink(store(row, sums[0]))


def reduced_twice() -> Iterator[tuple[str, UOp]]:
    """A reduction, and another one in loops of other numbers: of the same elements, of them turned around, in another way, of the loop's square,
    or up to a variable.
    """
    (row,), (i, j, k, m) = loops(2), inner_loops(2, 2, 2, 2, first=8)
    first = reduce(Ops.ADD, load(X, row * 4 + i * 2 + j) * i.cast(INT), i, j)
    terms = [load(X, row * 4 + k * 2 + m) * k.cast(INT), load(X, row * 4 + k * 2 + m) * m.cast(INT)]
    for op, term in ((Ops.ADD, terms[0]), (Ops.ADD, terms[1]), (Ops.MAX, terms[0])):
        yield "reduced twice", UOp.sink(store(row, first * 2 + reduce(op, term, k, m)))
    inner = reduce(Ops.ADD, load(X, i * 2 + k), k)
    outer = reduce(Ops.ADD, inner * reduce(Ops.ADD, load(X, i * 2 + i), i), i)
    yield "reduced twice", UOp.sink(store(row, outer + row.cast(INT)))
    ends = enumerate([N, N.const_like(N.vmax)], 8)
    own, other = [UOp(Ops.RANGE, dtypes.index, (end,), (k, AxisRole.REDUCE)) for k, end in ends]
    first, second = [reduce(Ops.ADD, load(X, row + loop), loop) for loop in (own, other)]
    yield "reduced twice", UOp.sink(store(row, first + second * 2))


def bounded_by_variables() -> Iterator[tuple[str, UOp]]:
    """A loop that a variable bounds, and loops of known sizes that masks end by it."""
    (own, a, b) = (UOp.range(N, 8), *loops(3, 2))
    yield "bounded by variables", UOp.sink(store(own, load(X, own)))
    position = row_major(a, b)
    for mask in (position < N, (a < N) & (b < M), a - b < N):
        yield "bounded by variables", UOp.sink(store(position, load(X, position), mask=mask))


# Kernels beside the scope, too long for every step or rare in it, by the step that they are for.
BESIDE = {
    "mma": matrices,
    "mma_in_item": matrices_in_item,
    "fill_ahead": blocks,
    "turn_rows": rows_kept,
    "keep_in_item": shared_and_own,
    "rescale_blocks": weighted_rows,
    "divide_once": weighted_rows,
    "carry_maximum": sums_beside_maxima,
    "end_before_hidden": masked_blocks,
    "begin_after_hidden": masked_blocks,
    "own_loops": alike_stores,
    "one_reduction": reduced_twice,
    "all_reduce": exchanged,
    "prefix_in_blocks": running_sums_of_blocks,
    "extend": bounded_by_variables,
    "shorten": bounded_by_variables,
}


def small_kernels(chosen: Iterable[tuple[str, UOp]]) -> Iterator[SmallKernel]:
    """The legal ones."""
    for family, graph in chosen:
        kernel = legal(family, graph)
        if kernel is not None:
            yield kernel


def legal(family: str, graph: UOp) -> SmallKernel | None:
    """The kernel with memory as long as it needs; None if it is not legal."""
    buffers, lengths = _memory(graph)
    if buffers is None:
        return None
    params = [n for n in graph.toposort() if n.op is Ops.PARAM]
    sized = {p: p.replace(arg=(p.arg[0], lengths[p.arg[0]])) for p in params}
    kernel = graph.substitute(sized)
    check_form(Form.KERNEL, kernel)
    try:
        stored = run_kernel(kernel, dict(buffers))[OUT]
    except AssertionError:
        return None
    return None if None in stored else SmallKernel(family, kernel, buffers, stored)


def _memory(graph: UOp) -> tuple[Memory | None, dict[int, int]]:
    """What each buffer holds, as long as its greatest position needs; None if a position is below 0."""
    nodes, meanings = graph.toposort(), Meanings()
    buffers: Memory = {size.arg[0]: [value] for size, value in VALUES.items() if size in nodes}
    lengths: dict[int, int] = {}
    pending = [n for n in nodes if n.op is Ops.INDEX and n.src[0].op is Ops.PARAM]
    inner_first = sorted(pending, key=lambda n: sum([m.op is Ops.LOAD for m in n.toposort()]))
    for node in inner_first:
        (memory, index, *mask), slot = node.src, node.src[0].arg[0]
        around = sorted(free_loops(node), key=lambda loop: loop.arg[0])
        for counters in meanings.iterations(around, buffers):
            env = dict(zip(around, counters))
            if mask and not meanings.of(mask[0])(env, buffers):
                continue
            position = meanings.of(index)(env, buffers)
            if position < 0:
                return None, {}
            lengths[slot] = max(lengths.get(slot, 0), position + 1)
            buffers[slot] = contents(slot, memory.dtype, lengths[slot])
        buffers.setdefault(slot, [])
        lengths.setdefault(slot, 0)
    return buffers, lengths


def contents(slot: int, dtype: DType, length: int) -> list[Any]:
    """Values that tell positions apart; in POSITIONS some that are outside of any axis, some several times."""
    if slot == POSITIONS:
        return [(k * 3 + 2) % 7 - 1 for k in range(length)]
    if slot == INSIDE:
        return [(k * 3 + 1) % 4 for k in range(length)]
    if dtype.is_bool:
        return [(k * 5 + slot) % 3 == 0 for k in range(length)]
    start = 0 if dtype is BYTE else -50
    whole = [(k * 37 + 11 * slot) % 101 + start for k in range(length)]
    return [float(number) for number in whole] if dtype.is_float else whole
