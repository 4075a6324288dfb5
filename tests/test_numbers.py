"""Functions of conditions mean the same to the encoder and to the engine: on all small numbers, in every form of a number.

The encoder has a number as a wide bit-vector, a mathematical integer or a float (verify/encode/numbers.py); the engine
computes it (core/rewrite/functions.py, terms.py). They share no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import z3

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.rewrite.functions import MOST_SHIFT, NUMBER_FUNCTIONS
from proofgrad.core.rewrite.rule import Apply, Expr, Name, Num
from proofgrad.core.rewrite.scope import Scope
from proofgrad.core.rewrite.sorts import ARITHMETIC, SIGNATURES
from proofgrad.core.rewrite.terms import compile_expr
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode import numbers as numbers
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.numbers import Wide

TRUTHS = ("and", "or", "not")
ON_NUMBERS = sorted(NUMBER_FUNCTIONS.keys() - {*TRUTHS})
WITHOUT_MEANING = {"gcd"}  # on wide numbers: the encoder refuses it, or knows only that it divides
ON_FLOATS = ("min", "max", "neg", "abs", "<", "<=", ">", ">=", "==", "!=")
FLOATS = (0.0, -0.0, 1.0, -1.5, 2.0, 3.0, -65504.0, float("inf"), -float("inf"))
RANGES = ((-8, 7), (0, 15), (-3, 4), (0, 1))


def count_of(function: str) -> int:
    """How many arguments a function has."""
    return len(SIGNATURES[function][0]) if function in SIGNATURES else ARITHMETIC.get(function, 2)


def wide(value: int, low: int, high: int) -> Wide:
    width = max(high.bit_length(), (-low - 1).bit_length()) + 1
    return Wide(z3.BitVecVal(value, width), low, high)


def value_of(number: Any) -> Any:
    """The Python value of a number of the encoder, which is within what is said of it."""
    if isinstance(number, Wide):
        found = z3.simplify(number.bits).as_signed_long()
        assert number.lo <= found <= number.hi
        return found
    found = z3.simplify(number)
    return z3.is_true(found) if z3.is_bool(found) else found.as_long()


@pytest.mark.parametrize("function", sorted(set(ON_NUMBERS) - WITHOUT_MEANING))
def test_wide_numbers_mean_what_the_engine_computes(function: str) -> None:
    for (low, high), (least, most) in product(RANGES, repeat=2):
        others = range(least, most + 1) if count_of(function) == 2 else [None]
        for a, b in product(range(low, high + 1), others):
            values = (a,) if b is None else (a, b)
            expected = NUMBER_FUNCTIONS[function](*values)
            args = [wide(a, low, high)] + ([] if b is None else [wide(b, least, most)])
            found = numbers.apply(function, args)
            if isinstance(found, Wide) and found.known is not None:
                assert z3.is_true(z3.simplify(found.known)) == (expected is not None), values
            if expected is not None:  # else the rule does not fire there
                assert value_of(found) == expected, values


@pytest.mark.parametrize("function", sorted(set(ON_NUMBERS) - WITHOUT_MEANING))
def test_of_a_shift_that_is_no_number_no_constant_is_computed(function: str) -> None:
    for amount in (-1, 0, 3, 5):
        shifted = numbers.apply("<<", [wide(1, -8, 7), wide(amount, -8, 7)])
        others = [wide(2, 0, 7)] if count_of(function) == 2 else []
        for args in ([shifted, *others], [*others, shifted]):
            found = numbers.apply(function, args)
            if isinstance(found, Wide):  # a truth may be known of what is no number: see below
                _, fits = numbers.to_value(found, dtypes.int64)
                assert z3.is_true(z3.simplify(fits)) == (amount >= 0), amount


def test_a_number_in_the_range_of_a_type_is_none_where_it_was_none() -> None:
    for amount, expected in ((-1, False), (2, True)):
        shifted = numbers.apply("<<", [wide(1, -8, 7), wide(amount, -8, 7)])
        _, fits = numbers.to_value(numbers.wrapped(shifted, dtypes.int8), dtypes.int8)
        assert z3.is_true(z3.simplify(fits)) == expected


def test_a_shift_that_no_type_has_is_not_known() -> None:
    assert NUMBER_FUNCTIONS["<<"](1, MOST_SHIFT + 1) is None
    assert NUMBER_FUNCTIONS["<<"](1, -1) is None and NUMBER_FUNCTIONS[">>"](1, -1) is None


@pytest.mark.parametrize("function", ON_NUMBERS)
def test_integers_mean_what_the_engine_computes(function: str) -> None:
    if function not in numbers._ON_INTS:
        with pytest.raises(semantics.NoMeaning):
            numbers.apply(function, [z3.IntVal(1)] * count_of(function))
        return
    for values in product(range(-9, 10), repeat=count_of(function)):
        found = z3.simplify(numbers.apply(function, [z3.IntVal(v) for v in values]))
        if z3.is_int_value(found) or z3.is_true(found) or z3.is_false(found):
            assert value_of(found) == NUMBER_FUNCTIONS[function](*values), values
        else:  # nothing is known but that it is a function
            assert function in ("is_power_of_two", "log2_exact")


@pytest.mark.parametrize("function", ON_FLOATS)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64], ids=lambda d: d.name)
def test_floats_mean_what_the_engine_computes(function: str, dtype: DType) -> None:
    for values in product(FLOATS, repeat=count_of(function)):
        args = [semantics.constant(dtype, v) for v in values]
        found = z3.simplify(numbers.apply(function, args))
        expected = NUMBER_FUNCTIONS[function](*values)
        if z3.is_bool(found):
            assert z3.is_true(found) == expected, values
        else:  # a number has one zero
            wanted = z3.FPVal(expected, found.sort())
            assert z3.is_true(z3.simplify(z3.fpEQ(found, wanted))), values


@pytest.mark.parametrize("function", TRUTHS)
def test_truths_mean_what_the_engine_computes(function: str) -> None:
    for values in product((False, True), repeat=count_of(function)):
        found = z3.simplify(numbers.apply(function, [z3.BoolVal(v) for v in values]))
        assert z3.is_true(found) == NUMBER_FUNCTIONS[function](*values)


@pytest.mark.parametrize("dtype", (*dtypes.ints, dtypes.bool, *dtypes.floats), ids=lambda d: d.name)
def test_a_number_is_a_value_of_a_type_exactly_where_it_is_one(dtype: DType) -> None:
    edges = (
        0,
        1,
        2,
        127,
        128,
        255,
        256,
        2047,
        2048,
        2049,
        65504,
        65505,
        2**31,
        2**53 + 1,
        2**63 - 1,
    )
    for value in [s * edge + d for edge in edges for s in (1, -1) for d in (-1, 0, 1)]:
        result, fits = numbers.to_value(wide(value, -(2**64), 2**64), dtype)
        assert z3.is_true(z3.simplify(fits)) == is_value(value, dtype), value
        if is_value(value, dtype):
            known = value != 0 if dtype.is_bool else float(value) if dtype.is_float else value
            wanted = semantics.constant(dtype, known)
            assert z3.is_true(z3.simplify(result == wanted)), value


@pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)
def test_a_bound_may_be_each_number_of_its_type_and_no_other(dtype: DType) -> None:
    assert dtype.lo is not None and dtype.hi is not None
    bound, known = numbers.fresh_between("bound", dtype)
    assert isinstance(bound, Wide) and (bound.lo, bound.hi) == (dtype.lo, dtype.hi)
    width = bound.bits.size()
    for value in (dtype.lo, dtype.lo + 1, dtype.hi - 1, dtype.hi):
        put = (bound.bits, z3.BitVecVal(value, width))
        assert z3.is_true(z3.simplify(z3.substitute(z3.And(*known), put))), value
    if dtype.lo == 0:
        put = (bound.bits, z3.BitVecVal(-1, width))
        assert z3.is_false(z3.simplify(z3.substitute(z3.And(*known), put)))


def is_value(value: int, dtype: DType) -> bool:
    if dtype.is_bool:
        return value in (0, 1)
    if dtype.is_float:
        rounded = z3.simplify(z3.fpToReal(z3.FPVal(value, semantics.sort_of(dtype))))
        finite = not z3.is_true(z3.simplify(z3.fpIsInf(z3.FPVal(value, semantics.sort_of(dtype)))))
        return finite and rounded.as_fraction() == value
    assert dtype.lo is not None and dtype.hi is not None
    return dtype.lo <= value <= dtype.hi


# -- the engine's expressions -------------------------------------------------------------------------


def compiled(expr: Expr, values: Sequence[Any]) -> Any:
    """The value of an expression over names a, b, ... of these values."""
    (rule,) = parse_rules("ruleset t over index\nrule t: x + y => y", check_order=False).rules
    scope = Scope(rule, dtypes.index)
    for name in "abc"[: len(values)]:
        scope.values[name] = scope.new_slot()
    return compile_expr(expr, scope)([None, None, *values])


@pytest.mark.parametrize("function", ON_NUMBERS)
def test_an_expression_has_its_arguments_in_their_order(function: str) -> None:
    for values in product((1, 2, 5, 8), repeat=count_of(function)):
        expected = NUMBER_FUNCTIONS[function](*values)
        written = [Num(value) for value in values]
        named = [Name(name) for name in "abc"[: len(values)]]
        forms = [named, written, [*named[:-1], written[-1]], [written[0], *named[1:]]]
        for form in forms:
            assert compiled(Apply(function, tuple(form)), values) == expected, (form, values)


@pytest.mark.parametrize("function", [*ON_NUMBERS, *TRUTHS])
def test_of_what_is_not_known_nothing_is_known(function: str) -> None:
    count = count_of(function)
    for position in range(count):
        values = [5] * count if function not in TRUTHS else [function == "and"] * count
        values[position] = None
        names = [Name(name) for name in "abc"[:count]]
        forms = [names]
        if function not in TRUTHS:
            forms.append([n if k == position else Num(5) for k, n in enumerate(names)])
        for form in forms:
            assert compiled(Apply(function, tuple(form)), values) is None


def test_a_truth_may_be_known_where_a_part_of_it_is_not() -> None:
    either, both = Apply("or", (Name("a"), Name("b"))), Apply("and", (Name("a"), Name("b")))
    assert compiled(either, [None, True]) is True and compiled(either, [True, None]) is True
    assert compiled(both, [None, False]) is False and compiled(both, [False, None]) is False
    assert compiled(either, [False, False]) is False and compiled(both, [True, True]) is True
