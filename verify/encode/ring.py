"""Wrapping integers as a ring: sums and products proven over all integers hold at every width.

Reading an integer modulo 2**bits respects +, * and negation. So if both sides are equal over the
integers, with every other operation an unknown function, they are equal at each machine width. No
condition is used. Equality of values is a fact about their difference, whatever its sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.ops import Ops
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.integers import check_integral
from proofgrad.verify.encode.semantics import ON_INTEGERS

Term = Any
_RING = (Ops.ADD, Ops.MUL, Ops.NEG, Ops.MULACC)


class Ring:
    """The arithmetic: an Int stands for its residue modulo 2**bits."""

    def __init__(self) -> None:
        self.known: list[Term] = []

    def variable(self, name: str, dtype: DType) -> Term:
        """An arbitrary Int, or Bool if the type is bool."""
        return z3.Const(name, _sort(dtype))

    def constant(self, dtype: DType, value: Any) -> Term:
        """`value` as an Int, or a Bool if the type is bool. Raises: NoMeaning unless the type's values are integers."""
        if dtype.kind is Kind.BOOL:
            return z3.BoolVal(value)
        check_integral(dtype)
        return z3.IntVal(int(value))

    def loaded(self, value: Term, dtype: DType) -> Term:
        """The value itself: nothing is known of its range."""
        return value

    def meaning(
        self, op: Ops, dtype: DType, args: Sequence[Term], src_dtypes: Sequence[DType]
    ) -> Term:
        """Sums, products and choices as they are; every other operation as an unknown function of its operands."""
        operand = src_dtypes[0]
        if op is Ops.WHERE:
            return z3.If(*args)
        if operand.kind is Kind.BOOL and op is not Ops.CAST:
            return semantics.meaning(op, dtype, args, src_dtypes)
        if op in _RING:
            return ON_INTEGERS[op](*args)
        if op is Ops.CMPEQ:
            is_zero = z3.Function(f"zero_{operand.name}", z3.IntSort(), z3.BoolSort())
            difference = args[0] - args[1]
            return z3.Or(is_zero(difference), is_zero(-difference))
        name = f"{op.name}_{operand.name}_{dtype.name}"
        return z3.Function(name, *[a.sort() for a in args], _sort(dtype))(*args)


def _sort(dtype: DType) -> Any:
    if dtype.kind is Kind.BOOL:
        return z3.BoolSort()
    check_integral(dtype)
    return z3.IntSort()
