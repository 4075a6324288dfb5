"""Random terms and their values, for tests that a rewrite keeps the meaning.

Owns: generation from a seed, evaluation of scalar terms over loads and loops. Does not own: what
the operations mean (core/ir/evaluate.py), what is compared.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from linear_kernels import ops_of

from proofgrad.core.ir.dtypes import DType, as_constant, dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import CASTS, COMPARE, TERNARY, UNARY, Ops
from proofgrad.core.ir.uop import UOp

Values = dict[UOp, Any]

_INDEX_OPS = (
    Ops.ADD,
    Ops.ADD,
    Ops.MUL,
    Ops.FLOORDIV,
    Ops.MOD,
    Ops.MAX,
    Ops.MIN,
    Ops.NEG,
    Ops.WHERE,
)
_INT_OPS = (
    *_INDEX_OPS, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.NOT,
    Ops.MULACC, Ops.CAST,
)  # fmt: skip
_FLOAT_OPS = (*[op for op in ops_of(dtypes.float32) if op not in COMPARE], Ops.CAST)
_BOOL_OPS = (Ops.AND, Ops.OR, Ops.XOR, Ops.NOT, Ops.WHERE, Ops.CMPLT, Ops.CMPLT, Ops.CMPEQ)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, math.inf, -math.inf, math.nan)
_DIVISORS = (1, 2, 3, 4, 5, 6, 8, 12, 0, -3)


class TermMaker:
    """Random terms over a few leaves, the same for the same seed."""

    def __init__(self, seed: int, dtypes_of_leaves: tuple[DType, ...]) -> None:
        self.random = Random(seed)
        self.leaves = [self._leaf(number, dtype) for number, dtype in enumerate(dtypes_of_leaves)]
        self._machine_types = [d for d in dtypes_of_leaves if d is not dtypes.index]

    def _leaf(self, number: int, dtype: DType) -> UOp:
        if dtype is dtypes.index:
            return UOp.range(self.random.choice([1, 2, 3, 4, 5, 8, 12]), number)
        memory = UOp(Ops.PARAM, dtype, (), (number, 1))
        return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))

    def term(self, dtype: DType, depth: int) -> UOp:
        """A term of at most `depth` operations above each other."""
        if depth <= 0 or self.random.random() < 0.1:
            return self._atom(dtype)
        op = self.random.choice(_ops_of(dtype))
        if op in COMPARE:
            return UOp(op, dtype, self._terms([self.random.choice(self.leaves).dtype] * 2, depth))
        if op in CASTS:
            source = self.random.choice(self._machine_types)
            return UOp(op, dtype, self._terms([source], depth))
        if op is Ops.WHERE:
            return UOp(op, dtype, self._terms([dtypes.bool, dtype, dtype], depth))
        if op in (Ops.FLOORDIV, Ops.MOD) and self.random.random() < 0.8:
            divisors = [d for d in _DIVISORS if d >= 0 or not dtype.is_unsigned]
            divisor = UOp.const(dtype, self.random.choice(divisors))
            return UOp(op, dtype, (self.term(dtype, depth - 1), divisor))
        count = 1 if op in UNARY else 3 if op in TERNARY else 2
        return UOp(op, dtype, self._terms([dtype] * count, depth))

    def _terms(self, types: list[DType], depth: int) -> tuple[UOp, ...]:
        return tuple([self.term(dtype, depth - 1) for dtype in types])

    def _atom(self, dtype: DType) -> UOp:
        mine = [leaf for leaf in self.leaves if leaf.dtype is dtype]
        if mine and self.random.random() < 0.65:
            return self.random.choice(mine)
        return UOp.const(dtype, self.number(dtype, near_zero=True))

    def number(self, dtype: DType, near_zero: bool = False) -> Any:
        """A value of `dtype`, often one at which mistakes show."""
        if dtype.is_bool:
            return self.random.random() < 0.5
        if dtype.is_float:
            wide = self.random.uniform(-1, 1) * 10.0 ** self.random.randint(-8, 4)
            return as_constant(self.random.choice([*_FLOATS, wide, 5e-324]), dtype)
        if dtype.lo is None or dtype.hi is None:
            return self.random.choice([0, 1, 2, 3, 4, 5, 6, 8, 12, -1, -2])
        choices = [dtype.lo, dtype.hi, 0, 1, 2, 3, max(dtype.lo, -1)]
        return self.random.choice(
            choices if near_zero else [*choices, self.random.randint(dtype.lo, dtype.hi)]
        )

    def leaf_values(self) -> Values:
        """A value for every leaf."""
        return {
            leaf: self.random.randrange(leaf.src[0].arg)
            if leaf.op is Ops.RANGE
            else self.number(leaf.dtype)
            for leaf in self.leaves
        }


def _ops_of(dtype: DType) -> tuple[Ops, ...]:
    if dtype is dtypes.index:
        return _INDEX_OPS
    if dtype.is_bool:
        return _BOOL_OPS
    return _FLOAT_OPS if dtype.is_float else _INT_OPS


def value_of(root: UOp, leaves: Values) -> Any:
    """The value of `root`; a load with a mask that is false is 0."""
    values: Values = dict(leaves)
    for node in root.toposort(lambda n: n not in leaves):
        if node in values or node.op in (Ops.PARAM, Ops.INDEX):
            continue
        if node.op is Ops.LOAD:
            values[node] = _masked(node, values)
        else:
            sources = [values[source] for source in node.src]
            types = [source.dtype for source in node.src]
            values[node] = evaluate(node.op, node.dtype, sources, types, node.arg)
    return values[root]


def _masked(load: UOp, values: Values) -> Any:
    position = load.src[0]
    plain = UOp(Ops.LOAD, load.dtype, (position.with_src(position.src[:2]),))
    is_open = len(position.src) < 3 or values[position.src[2]]
    return values[plain] if is_open else as_constant(0, load.dtype)


def same(a: Any, b: Any) -> bool:
    """The same bits; any NaN is any NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a.hex() == b.hex()
    return type(a) is type(b) and bool(a == b)
