"""Sums of loops under what masks say of them, and the row-major indices of all elements of a result."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.verify.kernels.linear_sums import Linear, limits_of, limits_of_digits, linear_form
from proofgrad.verify.kernels.loops import digits, digits_of_positions, map_by_position, row_major
from proofgrad.verify.kernels.match import Matcher
from proofgrad.verify.kernels.orders import map_by_values
from proofgrad.verify.kernels.questions import Questions
from proofgrad.verify.kernels.terms import Terms, loop_name, loop_size

ROW, COLUMN, LANE = UOp.range(3, 0), UOp.range(2, 1), UOp.range(16, 2)


def values(term: UOp, loops: list[UOp]) -> list[int]:
    points = product(*[range(loop_size(x)) for x in loops])
    names = [loop_name(x) for x in loops]
    return [int(Terms().values(term, dict(zip(names, point)))) for point in points]


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 9)), max_size=4), st.integers(0, 60))
def test_digits_of_positions_count_every_element_once(
    parts: list[tuple[int, int]], size: int
) -> None:
    position = UOp.index(0)
    for number, (loop, stride) in enumerate(parts):
        position = position + UOp.range(loop, number) * stride
    loops = digits_of_positions([position], max(size, 1))
    assert prod(map(loop_size, loops)) == max(size, 1)
    assert values(row_major(loops).term(), loops) == list(range(max(size, 1)))


@pytest.mark.parametrize("bound", [20, 24, 31, 99])
def test_largest_value_of_a_sum_is_what_a_mask_lets_through(bound: int) -> None:
    column = COLUMN * 16 + LANE
    position, loops = ROW * 48 + column * 2, [ROW, COLUMN, LANE]
    let_through = [p for p, c in zip(values(position, loops), values(column, loops)) if c < bound]
    form = linear_form(position)
    assert form is not None
    assert form.largest(limits_of([column < bound])) == max(let_through)
    assert form.largest() == max(values(position, loops))


def test_digits_under_a_mask_need_no_division() -> None:
    column = COLUMN * 16 + LANE
    whole = ROW * 24 + column
    strides = [(24, 3), (1, 24)]
    found = [linear_form(d) for d in digits(whole, strides, limits_of([column < 24]))]
    assert found == [Linear({ROW: 1}, 0), linear_form(column)]
    assert linear_form(digits(whole, strides)[0]) != Linear({ROW: 1}, 0)  # it may carry


@pytest.mark.parametrize("turn", [LANE, LANE // 2, ROW * 2 + LANE + 3])
def test_what_is_turned_around_and_back_is_the_sum_that_it_was(turn: UOp) -> None:
    """As pieces of a row are that lie turned in memory of a group."""
    piece = ROW + COLUMN
    there = (piece + turn) % 4
    back = (there + (4 - turn % 4)) % 4
    form = linear_form(back)
    assert form == linear_form(piece)
    assert values(back, [ROW, COLUMN, LANE]) == values(piece, [ROW, COLUMN, LANE])


def test_what_is_turned_back_by_another_number_is_another_sum() -> None:
    back = ((COLUMN + LANE) % 4 + (4 - LANE // 2 % 4)) % 4
    form = linear_form(back)
    assert form is not None and form != linear_form(COLUMN)
    assert values(form.term(), [COLUMN, LANE]) == values(back, [COLUMN, LANE])


@pytest.mark.parametrize("sizes", [(64,), (16, 4), (3, 7, 3)])
@pytest.mark.parametrize("is_turned", [False, True])
def test_digits_that_are_counted_in_another_order_are_found_by_positions(
    sizes: tuple[int, ...], is_turned: bool
) -> None:
    """q, p, e where it was p, q, e; more of them than there were iterations, in blocks."""
    before = [UOp.range(n, 10 + k) for k, n in enumerate(sizes)]
    block, step = UOp.range(2, 20), UOp.range(32, 21)
    number = block * 32 + step // 2 % 4 * 8 + step // 8 * 2 + step % 2
    position = ((number // 8 + LANE) % 8 + (8 - LANE % 8)) % 8 * 8 + number % 8
    after = position if is_turned else number
    old = row_major(before).term()
    found = map_by_values(Terms(), (old * 5, after * 5), before, [block, step])
    assert found is not None
    assert found.partial == (prod(sizes) < 64)
    there = old.substitute(dict(found.terms))
    assert values(there, [block, step]) == values(number, [block, step])
    again = values(number.substitute(dict(found.inverse)), before)
    assert again == list(range(prod(sizes)))


def test_positions_that_are_no_digits_show_no_order() -> None:
    before, after = UOp.range(9, 10), UOp.range(9, 11)
    assert map_by_values(Terms(), (before, after * after), [before], [after]) is None
    assert map_by_values(Terms(), (before * 0, after), [before], [after]) is None


def test_remainder_of_a_quotient_is_a_part_of_a_sum() -> None:
    item = UOp.range(60, 3)
    parts = {item // 20: 200, (item // 4) % 5: 10, item % 4: 1}
    position = Linear(parts, 7).term()
    form = linear_form(position)
    assert form is not None and form.parts == parts
    assert form.largest() == max(values(position, [item]))


LOOPS = [UOp.range(n, 40 + k) for k, n in enumerate((2, 3, 5, 4))]


def random_term(random: Random, depth: int) -> UOp:
    """Made of loops, sums, multiples, quotients and remainders; none is negative."""
    if depth == 0 or random.random() < 0.15:
        return random.choice(LOOPS)
    one, number = random_term(random, depth - 1), random.choice([1, 2, 3, 4, 5, 6, 8, 10, 12])
    match random.choice("++*/%"):
        case "+":
            return one + random.choice([random_term(random, depth - 1), UOp.index(number)])
        case "*":
            return one * number
        case "/":
            return one // number
        case _:
            return one % number


@pytest.mark.parametrize("seed", range(60))
def test_a_sum_has_the_values_of_its_term_and_none_is_larger_than_said(seed: int) -> None:
    random = Random(seed)
    term, masks = random_term(random, 5), [random_term(random, 3) < random.randint(1, 9)]
    form = linear_form(term)
    if form is None:
        return
    found = values(term, LOOPS)
    assert values(form.term(), LOOPS) == found
    allowed = [x for x, is_in in zip(found, values(masks[0], LOOPS)) if is_in]
    strides = [random.choice([2, 3, 4, 6, 16])]
    for limits in (limits_of(masks), limits_of_digits(limits_of(masks), strides)):
        assert not allowed or form.largest(limits) >= max(allowed)
        for limit, bound in limits:
            among = [
                x for x, is_in in zip(values(limit.term(), LOOPS), values(masks[0], LOOPS)) if is_in
            ]
            assert max(among, default=-1) < bound


def test_most_terms_of_loops_are_sums() -> None:
    forms = [linear_form(random_term(Random(seed), 5)) for seed in range(60)]
    assert len([x for x in forms if x is not None]) > 50


def test_quotient_and_remainder_of_a_sum_are_parts() -> None:
    a, b = LOOPS[2], LOOPS[0]
    whole = a * 32 + b * 16 + LANE
    assert linear_form(whole // 80) == Linear({(a * 2 + b) // 5: 1}, 0)
    assert linear_form(whole % 80) == Linear({(a * 2 + b) % 5: 16, LANE: 1}, 0)
    assert linear_form(whole // 32) == Linear({a: 1}, 0)
    assert linear_form(whole // 80 * 80 + whole % 80) == linear_form(whole)


def test_a_loop_is_found_by_the_digits_that_a_position_has_of_it() -> None:
    """The last line of each image of 19 pixels is filled up to 32: what a mask lets through tells each of them."""
    loop, line, column = UOp.range(160, 8), UOp.range(5, 9), UOp.range(32, 10)
    before = loop // 32 * 19 + loop // 16 % 2 * 16 + loop % 16
    after = line * 19 + column
    found = map_by_position(before, after, [loop], [column < 19])
    assert found is not None
    assert values(found[loop], [line, column]) == values(line * 32 + column, [line, column])


def test_what_is_the_same_everywhere_is_not_compared_again_under_a_condition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the maximum of a row, which each choice among its elements takes."""
    loop = UOp.range(8, 0)
    memory = UOp(Ops.PARAM, dtypes.float32, (), (1, 16))
    one, other = [
        UOp(Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, at)),))
        for at in (loop * 2, loop + loop)
    ]
    matcher, condition = Matcher(Questions()), loop < 4
    compared: list[object] = []
    whole = Matcher._compare

    def told(self: Matcher, *pair: object) -> object:
        compared.append(pair)
        return whole(self, *pair)

    monkeypatch.setattr(Matcher, "_compare", told)
    for held in ((condition,), (), (condition, loop < 2), (loop < 3,)):
        assert matcher.value(one, other, held) is None
    assert compared == [(one, other, ())]


def test_what_is_the_same_under_a_condition_is_compared_under_it() -> None:
    """It looks different without: where less is given it has to be shown, and is not so."""
    loop = UOp.range(8, 0)
    memory = UOp(Ops.PARAM, dtypes.float32, (), (1, 16))
    condition = loop < 4
    one, other = [
        UOp(Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, at)),))
        for at in (loop * 2, condition.where(loop + loop, loop))
    ]
    matcher = Matcher(Questions())
    assert matcher.value(one, other, (condition,)) is None
    assert matcher.value(one, other) is not None
    assert matcher.value(one, other, (loop < 5,)) is not None


def test_what_never_happens_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice among others that exclude it: all that is below its branch would be compared in vain."""
    loop = UOp.range(8, 0)

    def element(dtype: DType, number: int, at: UOp) -> UOp:
        memory = UOp(Ops.PARAM, dtype, (), (number, 16))
        return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, at)),))

    first, second = [element(dtypes.int32, 1, loop + k) for k in range(2)]
    value, other = [element(dtypes.float32, 2, loop + k) for k in range(2)]
    compared: list[object] = []
    whole = Matcher._compare

    def told(self: Matcher, before: UOp, after: UOp, given: tuple[UOp, ...]) -> object:
        compared.extend((before, after))
        return whole(self, before, after, given)

    monkeypatch.setattr(Matcher, "_compare", told)
    chosen = (second < first).where(other * other, value)
    assert Matcher(Questions()).value(chosen, value, (first < second,)) is None
    assert other * other not in compared


def test_a_term_that_may_leave_its_type_is_no_sum_of_loops() -> None:
    """Where it wraps it is another number; so is the quotient of one that does."""
    loop = UOp(Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, 1 << 16),), (0, AxisRole.LOOP))
    inside, outside = [loop * UOp.const(dtypes.int32, n) for n in (1 << 14, 1 << 16)]
    assert linear_form(inside) is not None
    assert linear_form(outside) is None
    assert linear_form(UOp(Ops.FLOORDIV, dtypes.int32, (outside, loop.const_like(1 << 16)))) is None
    assert linear_form(inside.cast(dtypes.int8)) is None
