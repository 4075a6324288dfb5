"""What it claims that loops are exchanged by a law, and what the laws that number digits claim beside it.

Owns: claims about iterations and positions. Does not own: claims about what reductions combine (folds.py), which step claims
what (laws.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proofgrad.core.compile.steps import keep_window
from proofgrad.core.compile.steps.bijection import Bijection
from proofgrad.core.compile.steps.collapse import collapse_law
from proofgrad.core.compile.steps.deinterleave import (
    element_at,
    length_of,
    phase_and_position,
    slot_of,
)
from proofgrad.core.compile.steps.extend import quotient_up
from proofgrad.core.compile.steps.hidden_blocks import (
    before_the_end,
    begin_of_mask,
    end_of_mask,
    inside_of_loop,
)
from proofgrad.core.compile.steps.merge import counted_by, is_one_number
from proofgrad.core.compile.steps.pad_rows import element_of, position_in_copy, rows_of
from proofgrad.core.compile.steps.split import nearest_inside, reach_of, split_law
from proofgrad.core.compile.steps.split_index_set import is_of_part, size_of_part
from proofgrad.core.compile.steps.stage import position_of
from proofgrad.core.compile.steps.turn_rows import turn_law, turn_of
from proofgrad.core.compile.steps.window import bounds_by
from proofgrad.verify.steps.claims import Claim, World


def claims_of(name: str, law: Bijection) -> dict[str, Claim]:
    """Two loop nests count the same iterations, each once."""
    return {
        f"{name}: each iteration after is one before": lambda world: _after(world, law),
        f"{name}: each iteration before is one after": lambda world: _before(world, law),
    }


def _after(world: World, law: Bijection) -> None:
    """A new iteration that is inside: its old counters are in range, and name it; numbers stay."""
    parameters = _parameters(world, law)
    before, after = law.before(*parameters), law.after(*parameters)
    new = _counters(world, "new", after)
    if law.inside is not None:
        world.suppose(law.inside(*new, *parameters))
    old = law.old(*new, *parameters)
    _in_range(world, old, before)
    _same(world, law.new(*old, *parameters), new)
    if law.in_order:
        world.claim("the same number", row_major(old, before) == row_major(new, after))


def _before(world: World, law: Bijection) -> None:
    """An old iteration: its new counters are in range, inside, and name it."""
    parameters = _parameters(world, law)
    before, after = law.before(*parameters), law.after(*parameters)
    old = _counters(world, "old", before)
    new = law.new(*old, *parameters)
    _in_range(world, new, after)
    if law.inside is not None:
        world.claim("inside", law.inside(*new, *parameters))
    _same(world, law.old(*new, *parameters), old)


def _parameters(world: World, law: Bijection) -> list[Any]:
    parameters = [world.number(name, law.least) for name in law.parameters]
    if law.given is not None:
        world.suppose(law.given(*parameters))
    return parameters


def _counters(world: World, name: str, sizes: Sequence[Any]) -> list[Any]:
    return [world.number(f"{name}{k + 1}", 0, size) for k, size in enumerate(sizes)]


def _in_range(world: World, counters: Sequence[Any], sizes: Sequence[Any]) -> None:
    for k, (counter, size) in enumerate(zip(counters, sizes, strict=True)):
        world.claim(f"counter {k + 1} is not below 0", counter >= 0)
        world.claim(f"counter {k + 1} is below its size", counter < size)


def _same(world: World, ones: Sequence[Any], others: Sequence[Any]) -> None:
    for k, (one, other) in enumerate(zip(ones, others, strict=True)):
        world.claim(f"counter {k + 1} comes back", one == other)


def row_major(counters: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The number of an iteration, the last loop counting fastest."""
    number = counters[0]
    for counter, size in zip(counters[1:], sizes[1:], strict=True):
        number = number * size + counter
    return number


# -- split ----------------------------------------------------------------------------------------


def whole_split(parts: int) -> Claim:
    """No mask is needed where the parts divide the loop."""

    def claim(world: World) -> None:
        law = split_law(parts)
        parameters = _parameters(world, law)
        n, sizes = parameters[0], parameters[1:]
        world.suppose(n % _product(sizes) == 0)
        new = _counters(world, "new", law.after(*parameters))
        assert law.inside is not None
        world.claim("inside", law.inside(*new, *parameters))

    return claim


def reading_inside(parts: int, in_vectors: bool) -> Claim:
    """What is read beyond the end of a loop is read at an iteration of it, and lanes are neighbours."""

    def claim(world: World) -> None:
        law = split_law(parts)
        parameters = _parameters(world, law)
        n, sizes = parameters[0], parameters[1:]
        lanes = sizes[-1] if in_vectors else 1
        if in_vectors:
            world.suppose(1 < lanes)
            world.suppose(n % lanes == 0)
        new = _counters(world, "new", law.after(*parameters))
        nearest = nearest_inside(new, sizes, n, lanes)
        (number,) = law.old(*new, *parameters)
        world.claim("not below 0", 0 <= nearest)
        world.claim("below the end", nearest < n)
        world.claim("below what the parts count", number < reach_of(n, sizes))
        if in_vectors:
            world.suppose(new[-1] + 1 < lanes)
            beside = nearest_inside([*new[:-1], new[-1] + 1], sizes, n, lanes)
            world.claim("the next lane reads the next element", beside == nearest + 1)
        assert law.inside is not None
        world.suppose(law.inside(*new, *parameters))
        world.claim("itself where it is inside", nearest == number)

    return claim


def _product(sizes: Sequence[Any]) -> Any:
    total = sizes[0]
    for size in sizes[1:]:
        total = total * size
    return total


# -- extend ---------------------------------------------------------------------------------------


def ended_by_mask(world: World) -> None:
    """Beyond the end that a mask gives a loop the mask is off."""
    n, times = world.number("n"), world.number("times", 1)
    i, rest = world.number("i", 0), world.number("rest", 0)
    world.suppose(i * times + rest < n)
    world.claim("before the end", i < quotient_up(n, times))


def ended_by_hiding(world: World) -> None:
    """Beyond the end that a comparison of what changes with a loop gives it, the comparison is off; the end is one of the loop."""
    times, size = world.number("times", 1), world.number("size", 1)
    i, rest = world.number("i", 0), world.number("rest")
    most, least = world.number("most"), world.number("least")
    takes_end = bool(world.number("takes the end", 0, 2) == 1)
    world.suppose(least <= rest)
    world.suppose(i < size)
    holds = i * times + rest <= most if takes_end else i * times + rest < most
    end = inside_of_loop(quotient_up(end_of_mask(most, least, takes_end), times), size)
    world.claim("there is a first iteration", end >= 1)
    world.claim("not behind the last", end <= size)
    world.suppose(holds)
    world.claim("before the end", i < end)


def begun_by_hiding(world: World) -> None:
    """Before the first iteration that a comparison gives a loop, it is off; that one is of the loop, and so are those behind it."""
    times, size = world.number("times", 1), world.number("size", 1)
    i, rest = world.number("i", 0), world.number("rest")
    kept, least = world.number("kept"), world.number("least")
    takes_end = bool(world.number("takes the end", 0, 2) == 1)
    world.suppose(least <= rest)
    world.suppose(i < size)
    holds = kept + rest <= i * times if takes_end else kept + rest < i * times
    first = before_the_end(quotient_up(begin_of_mask(kept, least, takes_end), times), size)
    world.claim("not before the first", first >= 0)
    world.claim("an iteration is left", first < size)
    world.suppose(holds)
    world.claim("not before it", first <= i)


# -- window ---------------------------------------------------------------------------------------


def left_by_comparison(world: World) -> None:
    """Where a comparison with the counter of a loop holds, it is not before the first iteration, and not behind the last."""
    is_equation, counts_up = world.number("equation", 0, 2) == 1, world.number("up", 0, 2) == 1
    i, one, other = world.number("i", 0), world.number("one"), world.number("other")
    side = one + i if counts_up else one - i
    world.suppose(side == other if is_equation else side < other)
    first, end = bounds_by(bool(is_equation), bool(counts_up), one, other)
    world.claim("it says something", first is not None or end is not None)
    if first is not None:
        world.claim("not before the first", first <= i)
    if end is not None:
        world.claim("before the end", i < end)


# -- split_index_set ------------------------------------------------------------------------------


def of_one_part(world: World) -> None:
    """What lies from `first` on and before `end` is of one of the two parts that a border makes of it; a part has as many as its size says."""
    i, first = world.number("i", 0), world.number("first", 0)
    border, end = world.number("border"), world.number("end")
    world.suppose(first < border)
    world.suppose(border < end)
    parts = [is_of_part(i, first, border), is_of_part(i, border, end)]
    counted = world.one_if(parts[0]) + world.one_if(parts[1])
    world.claim("of one of both", counted == world.one_if(is_of_part(i, first, end)))
    j = world.number("j", 0)
    world.suppose(j < size_of_part(first, end))
    world.claim("an iteration of the part", is_of_part(first + j, first, end))


# -- turn_rows ------------------------------------------------------------------------------------


def turned_by_less(world: World) -> None:
    """A row is turned by a number that the law takes."""
    row, count = world.number("row", 0), world.number("count", 1)
    by = turn_of(row, world.number("times", 1), world.number("each", 1), count)
    world.claim("not below what the law takes", by >= turn_law().least)
    world.claim("below the pieces", by < count)


# -- merge ----------------------------------------------------------------------------------------


def one_reading(world: World) -> None:
    """A term u + a * outer + b * inner that does not tell the loops apart is u + b * c of the one loop c."""
    u, a, b = world.number("u"), world.number("a"), world.number("b")
    m, n = world.number("m", 1), world.number("n", 1)
    outer, inner = world.number("outer", 0, m), world.number("inner", 0, n)
    world.suppose(is_one_number(a, b, n))
    (both,) = collapse_law(2).new(outer, inner, m, n)
    first, second = counted_by(0, both)
    world.claim("the same term", u + outer * a + inner * b == u + first * a + second * b)


# -- positions ---------------------------------------------------------------------------------------


def one_position_each(digits: int) -> Claim:
    """Where digits differ, so do their positions, all of them below the product of the sizes."""

    def claim(world: World) -> None:
        sizes = [world.number(f"n{k + 1}", 1) for k in range(digits)]
        ones, others = [_counters(world, name, sizes) for name in ("a", "b")]
        position, other = position_of(ones, sizes, 0), position_of(others, sizes, 0)
        world.claim("not below 0", 0 <= position)
        world.claim("below the product of the sizes", position < _product(sizes))
        world.suppose(position == other)
        for k in reversed(range(digits)):
            world.claim(f"digit {k + 1} is the same", ones[k] == others[k])

    return claim


def digits_of_a_loop(parts: int) -> Claim:
    """Digits name the loop's counter, also where they reach beyond its end."""

    def claim(world: World) -> None:
        law = split_law(parts)
        sizes = [world.number(f"k{p + 1}", 1) for p in range(parts)]
        first = world.number("first size", 1)
        n = world.number("n", 1)
        whole = _product([first, *sizes])
        world.suppose(n <= whole)
        counter = world.number("x", 0, n)
        digits = law.new(counter, None, *sizes)
        _in_range(world, digits, [first, *sizes])
        _same(world, law.old(*digits, None, *sizes), [counter])
        here = _counters(world, "a", [first, *sizes])
        (old,) = law.old(*here, None, *sizes)
        world.claim("a position is no counter below 0", 0 <= old)
        world.suppose(n == whole)
        world.claim("where the digits end with the loop, all positions are its", old < n)

    return claim


def copied_element(world: World) -> None:
    """What is read from the copy is the element that was read from the memory."""
    step, elements = world.number("step", 1), world.number("elements", 1)
    rest, count = world.number("rest"), world.number("count", 0)
    index = rest + count * step
    world.suppose(0 <= index)
    world.suppose(index < elements)
    phase, position = phase_and_position(rest, count, step)
    length = length_of(elements, step)
    _in_range(world, (phase, position), (step, length))
    world.claim("the element", element_at(phase, position, step) == index)


def copied_whole(world: World) -> None:
    """Where the steps divide the memory, every position of the copy has an element."""
    step, elements = world.number("step", 1), world.number("elements", 1)
    world.suppose(elements % step == 0)
    length = length_of(elements, step)
    phase, position = world.number("phase", 0, step), world.number("position", 0, length)
    element = element_at(phase, position, step)
    world.claim("not below 0", 0 <= element)
    world.claim("an element of the memory", element < elements)


def copied_of_a_row(world: World) -> None:
    """What is read from a copy of rows is the element of the row that was read from the memory, and the row is one that is copied."""
    step, elements = world.number("step", 1), world.number("elements", 1)
    row_length = world.number("row length", 1)
    rest, count, row = world.number("rest"), world.number("count", 0), world.number("row")
    column = rest + count * step
    world.suppose(0 <= column)
    world.suppose(column < row_length)
    index = element_at(column, row, row_length)
    world.suppose(0 <= index)
    world.suppose(index < elements)
    _in_range(world, (row,), (length_of(elements, row_length),))
    phase, position = phase_and_position(rest, count, step)
    _in_range(world, (phase, position), (step, length_of(row_length, step)))
    there = element_at(phase, position, step)
    world.claim("the element", element_at(there, row, row_length) == index)


def copied_apart(world: World) -> None:
    """No two elements are copied to one position, and each position is in the copy."""
    step, length = world.number("step", 1), world.number("length", 1)
    phase, other = [world.number(name, 0, step) for name in ("phase", "phase'")]
    position, beside = [world.number(name, 0, length) for name in ("position", "position'")]
    slot = slot_of(phase, position, length)
    world.claim("not below 0", 0 <= slot)
    world.claim("in the copy", slot < step * length)
    world.suppose(slot == slot_of(other, beside, length))
    world.claim("the phase is the same", phase == other)
    world.claim("the position is the same", position == beside)


def kept_of_window(axes: int) -> Claim:
    """What is read at the places of a window is the element that was read from the memory, which is filled there."""

    def claim(world: World) -> None:
        first, elements = world.number("first"), world.number("elements", 1)
        sizes = [world.number(f"n{k + 1}", 1) for k in range(axes)]
        strides = [world.number(f"stride {k + 1}") for k in range(axes)]
        places = _counters(world, "place", sizes)
        index = world.number("index", 0, elements)
        world.suppose(index == keep_window.position_of(first, places, strides))
        (position,) = collapse_law(axes).new(*places, *sizes)
        filled = collapse_law(axes).old(position, *sizes)
        for k, (place, at) in enumerate(zip(places, filled)):
            world.claim(f"the place along axis {k + 1}", place == at)
        there = keep_window.position_of(first, filled, strides)
        world.claim("the element", there == index)
        world.claim("it is filled", keep_window.is_element(there, elements))

    return claim


def filled_from_memory(world: World) -> None:
    """What a window is filled from is an element of the memory."""
    position, elements = world.number("position"), world.number("elements", 0)
    world.suppose(keep_window.is_element(position, elements))
    world.claim("not before the first", 0 <= position)
    world.claim("not behind the last", position < elements)


def left_by_quotient(world: World) -> None:
    """A number without its quotient times the divisor is its remainder."""
    number, by = world.number("number"), world.number("by", 1)
    left = keep_window.remainder(number, number // by, by)
    world.claim("the remainder", left == number % by)


def quotient_of_quotient(world: World) -> None:
    """A number divided by one and then by another is divided by their product."""
    number, first, then = world.number("number"), world.number("first", 1), world.number("then", 1)
    at_once = keep_window.quotient_at_once(number, first, then)
    world.claim("the quotient", number // first // then == at_once)


def padded_element(world: World) -> None:
    """What is read from the copy whose rows lie further apart is the element that was read from the memory."""
    length, elements = world.number("length", 1), world.number("elements", 1)
    rest, count, padding = (
        world.number("rest"),
        world.number("count", 0),
        world.number("padding", 1),
    )
    index = rest + count * length
    world.suppose(0 <= index)
    world.suppose(index < elements)
    row, column = rest // length + count, rest % length
    _in_range(world, (row, column), (rows_of(elements, length), length))
    world.claim("the element", element_of(row, column, length) == index)
    there = position_in_copy(rest, count, length, padding)
    world.claim("its position", there == element_of(row, column, length + padding))


def padded_apart(world: World) -> None:
    """No two elements, nor what lies between rows, are copied to one position, and each position is in the copy."""
    length, padding, rows = (
        world.number("length", 1),
        world.number("padding", 1),
        world.number("rows", 1),
    )
    row, other = [world.number(name, 0, rows) for name in ("row", "row'")]
    column, beside = [world.number(name, 0, length + padding) for name in ("column", "column'")]
    distance = length + padding
    position = element_of(row, column, distance)
    world.claim("not below 0", 0 <= position)
    world.claim("in the copy", position < rows * distance)
    world.suppose(position == element_of(other, beside, distance))
    world.claim("the row is the same", row == other)
    world.claim("the column is the same", column == beside)


def padded_whole(world: World) -> None:
    """Where the rows end with the memory, what is copied to each of their positions is an element of it."""
    length, elements = world.number("length", 1), world.number("elements", 1)
    world.suppose(elements % length == 0)
    row, column = (
        world.number("row", 0, rows_of(elements, length)),
        world.number("column", 0, length),
    )
    element = element_of(row, column, length)
    world.claim("not below 0", 0 <= element)
    world.claim("an element of the memory", element < elements)
