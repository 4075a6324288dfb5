"""What a product of small matrices is, as a sum of products of scalars, said a second time and apart from the step that makes it.

Owns: which item holds which element, as terms of a kernel that is read back. Does not own: vectors and registers (readback.py).

Item 4 * g + q of the 32 items of a warp has 2 results in each of `halves` rows, g, g + 8, ..., in columns 2 * q and 2 * q + 1. At step
s the row's factor is with the item of the same g and q = s // steps, as its element s % steps; the column's with that whose
g is the column.
"""

from __future__ import annotations

from collections import Counter

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import CONST, LOCAL_BUFFER, MUL, REDUCE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.verify.kernels.linear_sums import linear_form
from proofgrad.verify.kernels.terms import DIGITS, is_integer, is_known

_MADE = ELEMENTWISE | {Ops.INDEX, Ops.LOAD}
STEPS = (
    DIGITS + (1 << 20)
)  # the number of the loop over the steps of a product, and of those with products inside the next ones


def sum_of_products(
    item: UOp, register: UOp, held: UOp, column: UOp, rows: tuple[UOp, ...], dtype: DType
) -> UOp:
    """The sum that an item has in a register.

    `column`, `rows`: what an item holds in the iteration `held` of its own loop.
    """
    (size,) = held.src
    steps: int = size.arg
    below = toposort((column, *rows))
    number = max([STEPS, *[1 + n.arg[0] for n in below if n.op is Ops.RANGE and n.arg[0] >= STEPS]])
    step = UOp(
        Ops.RANGE, item.dtype, (UOp.const(item.dtype, 4 * steps),), (number, AxisRole.REDUCE)
    )
    part, element = step // steps, step % steps
    group, first = item // 4 % 8, item // 32 * 32
    beside = {item: first + group * 4 + part, held: element}
    row = _at(rows[-1], beside)
    for half in range(len(rows) - 1)[::-1]:
        row = chosen(
            (register // 2).eq(half),
            _at(rows[half], beside),
            row,
            register // 2 if len(rows) == 2 else None,
        )
    of_column = item % 4 * 2 + register % 2
    other = _at(column, {item: first + of_column * 4 + part, held: element})
    factors = [one if one.dtype is dtype else one.cast(dtype) for one in (row, other)]
    return UOp(REDUCE, dtype, (UOp(MUL, dtype, tuple(factors)), step), Ops.ADD)


def sum_in_item(
    sizes: tuple[int, int, int], register: UOp, held: UOp, column: UOp, row: UOp, dtype: DType
) -> UOp:
    """The same of an MMA (s, p, g) whose elements one item holds: s rows of p * g, and p groups of s columns of g."""
    side, groups, group = sizes
    kind = held.dtype
    steps = groups * group
    step = UOp(Ops.RANGE, kind, (UOp.const(kind, steps),), (STEPS, AxisRole.REDUCE))
    of_row = _at(row, {held: register // side * steps + step})
    number = (step // group * side + register % side) * group + step % group
    factors = [
        x if x.dtype is dtype else x.cast(dtype) for x in (of_row, _at(column, {held: number}))
    ]
    return UOp(REDUCE, dtype, (UOp(MUL, dtype, tuple(factors)), step), Ops.ADD)


def chosen(condition: UOp, one: UOp, other: UOp, which: UOp | None = None) -> UOp:
    """`one` where the condition holds, else `other`: as far as they are made alike, of what each is made of there.

    `which`: 0 where the condition holds, else 1.

    Without it positions are chosen whole: of two sums of multiples a sum is left in each case, and no product of choices.
    """
    done: dict[tuple[UOp, UOp], UOp] = {}
    stack = [(one, other)]
    while stack:
        first, second = pair = stack[-1]
        alike = first.op is second.op and first.op in _MADE and len(first.src) == len(second.src)
        alike = alike and (which is not None or not is_known(first))
        if first is second:
            done[pair] = first
        elif which is not None and (apart := _apart(first, second)) is not None:
            done[pair] = first + which * apart
        elif which is not None and (both := _in_both(first, second)):
            rest = _less(first, both), _less(second, both)
            if rest not in done:
                stack.append(rest)
                continue
            done[pair] = sum(both.elements(), done[rest])
        elif not alike or (first.dtype, first.arg) != (second.dtype, second.arg):
            done[pair] = condition.where(first, second)
        elif missing := [p for p in zip(first.src, second.src) if p not in done]:
            stack += missing
            continue
        else:
            done[pair] = first.with_src(tuple([done[p] for p in zip(first.src, second.src)]))
        stack.pop()
    return done[one, other]


def _in_both(first: UOp, second: UOp) -> Counter[UOp]:
    """What both of two index terms add."""
    are_sums = first.op is second.op is Ops.ADD and is_integer(first.dtype)
    return _addends(first) & _addends(second) if are_sums else Counter()


def _addends(term: UOp) -> Counter[UOp]:
    """What a sum adds, each as often as it does."""
    stack, found = [term], Counter[UOp]()
    while stack:
        node = stack.pop()
        if node.op is Ops.ADD:
            stack += node.src[::-1]
        else:
            found[node] += 1
    return found


def _less(term: UOp, addends: Counter[UOp]) -> UOp:
    """A sum without some of what it adds."""
    left = list((_addends(term) - addends).elements())
    return sum(left[1:], left[0]) if left else term.const_like(0)


def _apart(first: UOp, second: UOp) -> int | None:
    """By how much two index terms differ, if that is a number."""
    if first.dtype is not second.dtype or not is_integer(first.dtype):
        return None
    one, other = linear_form(first), linear_form(second)
    if one is None or other is None or one.parts != other.parts:
        return None
    return other.constant - one.constant


def _at(term: UOp, values: dict[UOp, UOp]) -> UOp:
    """A term at these values of loops; what has one of them for its own keeps that."""
    changes = dict(values)
    for node in toposort((term,)):
        own = set(node.src[1:]) if node.op in (REDUCE, LOCAL_BUFFER) else set()
        if not own.isdisjoint(values):
            rest = {loop: value for loop, value in values.items() if loop not in own}
            changes[node] = node.with_src((_at(node.src[0], rest), *node.src[1:]))
    return term.substitute(changes)


def is_nothing(before: UOp) -> bool:
    """Whether a product starts from 0."""
    return before.op is CONST and before.arg == 0
