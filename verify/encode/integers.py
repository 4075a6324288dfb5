"""Machine integers as mathematical integers with a range: the second encoding of the same meaning.

Bit-vectors are slow on products and quotients of 64 bits; here a machine integer is an Int within
the range of its type, and an operation is the mathematical one wrapped into that range. Bitwise
operations and floats have no meaning here. Quotients are either z3's own or fresh numbers with the
property that defines them; each decides goals that the other does not.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import product
from typing import Any, assert_never

import z3

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.ops import Ops
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.fresh_terms import Function
from proofgrad.verify.encode.semantics import NoMeaning

Term = Any


QUOTIENT = Function("quotient", z3.IntSort, z3.IntSort, z3.IntSort)


class Quotients(enum.Enum):
    """How a quotient is written."""

    SOLVER = "the solver's own div and mod"
    FRESH = "a fresh number with the property that defines it"
    NAMED = "an unknown function, for the lemmas of encode/lemmas.py"


class Integers:
    """The arithmetic; `known` collects what holds of the numbers it makes.

    With NAMED quotients a goal is only right if none of `divisors` is zero, and every one of
    `positive_divisors` is above zero.
    """

    def __init__(self, quotients: Quotients) -> None:
        self.quotients = quotients
        self.known: list[Term] = []
        self.divisors: list[Term] = []
        self.positive_divisors: list[Term] = []
        self._multiples = 0
        self._quotients: dict[tuple[int, int], tuple[Term, Term]] = {}
        self._common: dict[tuple[int, int], Term] = {}
        self._fresh_by: dict[int, tuple[Term, list[Term]]] = {}  # fresh quotients by their divisor
        self._keep: list[Term] = []  # ids of z3 terms are reused unless the terms live

    def variable(self, name: str, dtype: DType) -> Term:
        """A value of the type: a bool, or an Int in its range."""
        if dtype.kind is Kind.BOOL:
            return z3.Bool(name)
        check_integral(dtype)
        value = z3.Int(name)
        self.known += in_range(value, dtype)
        return value

    def constant(self, dtype: DType, value: Any) -> Term:
        """`value` as an Int, or a Bool if the type is bool. Raises: NoMeaning unless the type's values are integers."""
        if dtype.kind is Kind.BOOL:
            return z3.BoolVal(bool(value))
        check_integral(dtype)
        return z3.IntVal(int(value))

    def loaded(self, value: Term, dtype: DType) -> Term:
        """What is read from memory, which holds values of the type."""
        if dtype.kind is not Kind.BOOL:
            self.known += in_range(value, dtype)
        return value

    def meaning(
        self, op: Ops, dtype: DType, args: Sequence[Term], src_dtypes: Sequence[DType]
    ) -> Term:
        """The value of `op`, in the range of `dtype`."""
        operand = src_dtypes[0]
        if op is Ops.WHERE:
            return z3.If(*args)
        if op in (Ops.CAST, Ops.BITCAST):
            return self._cast(op, args[0], operand, dtype)
        if operand.kind is Kind.BOOL:
            return semantics.meaning(op, dtype, args, src_dtypes)
        check_integral(operand)
        return self._on_integers(op, dtype, args)

    def _on_integers(self, op: Ops, dtype: DType, args: Sequence[Term]) -> Term:
        match op:
            case Ops.ADD | Ops.NEG:
                return wrap_once(semantics.ON_INTEGERS[op](*args), dtype)
            case Ops.MUL | Ops.MULACC:
                return wrap(semantics.ON_INTEGERS[op](*args), dtype)
            case Ops.NOT if dtype.kind is Kind.SIGNED:
                return -args[0] - 1
            case Ops.NOT if dtype.kind is Kind.UNSIGNED:
                return dtype.hi - args[0]
            case Ops.FLOORDIV if self.quotients is Quotients.NAMED:
                if dtype.kind is not Kind.INDEX:  # then it lies between x and 0 or -1: no wrapping
                    self.positive_divisors.append(args[1])
                return self.floor(*args)[0]
            case Ops.FLOORDIV:
                return wrap_once(self.floor(*args)[0], dtype)
            case Ops.MOD:
                return self.floor(*args)[1]
            case Ops.TRUNCDIV:
                return wrap_once(self._truncated(*args)[0], dtype)
            case Ops.TRUNCMOD:
                return self._truncated(*args)[1]
            case Ops.MAX | Ops.MIN | Ops.CMPLT | Ops.CMPEQ:
                return semantics.ON_INTEGERS[op](*args)
            case _:
                raise NoMeaning(f"{op.name} has no meaning on mathematical integers")

    def _cast(self, op: Ops, x: Term, source: DType, target: DType) -> Term:
        for dtype in (source, target):
            if dtype.kind is not Kind.BOOL:
                check_integral(dtype)
        if op is Ops.BITCAST and (
            source.bits != target.bits or Kind.BOOL in (source.kind, target.kind)
        ):
            raise NoMeaning(f"no bitcast from {source.name} to {target.name}")
        if target.kind is Kind.BOOL:
            return x if source.kind is Kind.BOOL else x != 0
        value = z3.If(x, z3.IntVal(1), z3.IntVal(0)) if source.kind is Kind.BOOL else x
        return wrap(value, target)

    def floor(self, x: Term, y: Term) -> tuple[Term, Term]:
        """Quotient and remainder of the floor division; both 0 if y is 0."""
        match self.quotients:
            case Quotients.SOLVER:
                return semantics.floor_quotient(x, y), semantics.floor_remainder(x, y)
            case Quotients.FRESH:
                return self._fresh(x, y)
            case Quotients.NAMED:
                self.divisors.append(y)
                return QUOTIENT(x, y), x - y * QUOTIENT(x, y)
            case _:
                assert_never(self.quotients)

    def multiple_of(self, a: Term) -> Term:
        """A number that `a` divides: the same as saying that it does (0 divides only 0)."""
        self._multiples += 1
        return a * z3.Int(f"multiple#{self._multiples}")

    def common_divisor(self, a: Term, b: Term) -> Term:
        """The greatest common divisor, of which it is known only that it is one from 0 on."""
        key = (a.get_id(), b.get_id())
        if key not in self._common:
            divisor = z3.Int(f"common#{len(self._common)}")
            self._keep += [a, b]
            self.known += [divisor >= 0, *[side == self.multiple_of(divisor) for side in (a, b)]]
            self._common[key] = divisor
        return self._common[key]

    def _truncated(self, x: Term, y: Term) -> tuple[Term, Term]:
        if self.quotients is Quotients.SOLVER:
            return semantics.truncated_quotient(x, y), semantics.truncated_remainder(x, y)
        if self.quotients is Quotients.NAMED:
            raise NoMeaning("the lemmas are about floor division")
        return self._truncated_by_sizes(x, y)

    def _truncated_by_sizes(self, x: Term, y: Term) -> tuple[Term, Term]:
        size_x, size_y = z3.If(x >= 0, x, -x), z3.If(y >= 0, y, -y)
        q, r = self.floor(size_x, size_y)
        return z3.If((x >= 0) == (y >= 0), q, -q), z3.If(x >= 0, r, -r)

    def _fresh(self, x: Term, y: Term) -> tuple[Term, Term]:
        """q and r with x = q * y + r and r between 0 and y; both 0 if y is 0. There is one such."""
        key = (x.get_id(), y.get_id())
        if key not in self._quotients:
            number = len(self._quotients)
            q, r = z3.Int(f"quotient#{number}"), z3.Int(f"remainder#{number}")
            self._keep += [x, y]
            self.known += [
                z3.Implies(y == 0, z3.And(q == 0, r == 0)),
                z3.Implies(y != 0, x == q * y + r),
                z3.Implies(y > 0, z3.And(0 <= r, r < y)),
                z3.Implies(y < 0, z3.And(y < r, r <= 0)),
            ]
            self._quotients[key] = (q, r)
            self._fresh_by.setdefault(y.get_id(), (y, []))[1].append(q)
        return self._quotients[key]

    def spaced_multiples(self) -> list[Term]:
        """That different multiples of a positive number differ by it or more.

        With it the remainders of numbers whose difference is known are compared: solvers do not find
        the multiple by themselves. It is said of sums and differences of the fresh quotients by one
        number: for k = q - p, say, that k * y >= y if k >= 1, and k * y <= -y if k <= -1, where y > 0.
        """
        found: list[Term] = []
        for y, quotients in self._fresh_by.values():
            for signs in _signs(len(quotients)):
                signed = [(sign, q) for sign, q in zip(signs, quotients) if sign]
                k = z3.Sum([sign * q for sign, q in signed])
                multiple = z3.Sum([sign * (q * y) for sign, q in signed])
                found.append(z3.Implies(z3.And(y > 0, k >= 1), multiple >= y))
                found.append(z3.Implies(z3.And(y > 0, k <= -1), multiple <= -y))
        return found


MOST_COMPARED = 4  # quotients by one number


def _signs(count: int) -> list[tuple[int, ...]]:
    """Each choice of coefficients -1, 0 and 1, but not both of one and its negation."""
    if count > MOST_COMPARED:
        raise NoMeaning(f"{count} quotients by one number are too many to compare")
    return [
        signs for signs in product((0, 1, -1), repeat=count) if next(filter(None, signs), 0) > 0
    ]


INTEGRAL = (Kind.SIGNED, Kind.UNSIGNED, Kind.INDEX)


def check_integral(dtype: DType) -> None:
    """Raises: NoMeaning, unless the values of `dtype` are integers."""
    if dtype.kind not in INTEGRAL:
        raise NoMeaning(f"values of {dtype.name} are no integers")


def in_range(value: Term, dtype: DType) -> list[Term]:
    """What says that an Int is a value of the type; nothing for index."""
    return [] if dtype.lo is None else [value >= dtype.lo, value <= dtype.hi]


def wrap_once(value: Term, dtype: DType) -> Term:
    """`value` wrapped into the range, which it misses by less than 2**bits."""
    if dtype.lo is None or dtype.hi is None:
        return value
    period = 1 << dtype.bits
    low, high = value < dtype.lo, value > dtype.hi
    return z3.If(high, value - period, z3.If(low, value + period, value))


def wrap(value: Term, dtype: DType) -> Term:
    """`value` modulo 2**bits, in the range of the type."""
    if dtype.lo is None or dtype.hi is None:
        return value
    inside = z3.And(value >= dtype.lo, value <= dtype.hi)
    return z3.If(inside, value, (value - dtype.lo) % (1 << dtype.bits) + dtype.lo)
