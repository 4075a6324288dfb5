"""Instances of the left sides of rules: graphs that a rule was written for.

Owns: random choice of types, constants, args and leaves for a rule. Does not own: whether the rule
fires on an instance (the engine says).
"""

from __future__ import annotations

from math import prod
from random import Random
from typing import Any

from proofgrad.core.ir.dtypes import DType, dtype_named, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.rewrite.extractor_check import NARROWING
from proofgrad.core.rewrite.rule import Apply, Const, Lit, Name, Node, Rule, Term, Text, Var
from proofgrad.core.rewrite.scope import types_of_class

_FLOATS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0)
_INTS = (0, 1, 2, 3, 4, 6, 8, 12, -1, -2, -6)


class Instance:
    """One attempt at a graph for the left side of `rule`."""

    def __init__(self, rule: Rule, random: Random) -> None:
        self.random = random
        self.on_tensors = "tensor" in rule.domains or "derivative" in rule.domains
        self.types = {
            name: random.choice([*types_of_class(rule, kind)]) for name, kind in rule.types
        }
        self.nodes: dict[str, UOp] = {}
        self.args: dict[str, Any] = {}
        self.solved = {extractor.function for extractor in rule.extractors} & {
            "solve",
            "solve_less",
        }
        self.is_narrowed = any([extractor.function in NARROWING for extractor in rule.extractors])
        self.loops = [UOp.range(random.choice([2, 3, 5]), k, AxisRole.REDUCE) for k in (7, 8)]

    def dtype(self, name: str) -> DType:
        return self.types[name] if name in self.types else dtype_named(name)

    def build(self, term: Term) -> UOp:
        """Raises: OverflowError, ShapeError if the choices do not go together."""
        match term:
            case Var(name, type_name) | Const(name, type_name):
                if name not in self.nodes:
                    make = self._constant if isinstance(term, Const) else self._leaf
                    self.nodes[name] = make(self.dtype(type_name), len(self.nodes))
                return self.nodes[name]
            case Lit(value, type_name):
                return UOp.const(self.dtype(type_name), value)
            case Node():
                return self._node(term)
            case _:
                raise TypeError(f"{term!r} on a left side")

    def _constant(self, dtype: DType, _: int) -> UOp:
        if dtype.is_bool:
            return UOp.const(dtype, self.random.random() < 0.5)
        ends = () if dtype.lo is None else (dtype.lo, dtype.hi)
        return UOp.const(dtype, self.random.choice(_FLOATS if dtype.is_float else _INTS + ends))

    def _leaf(self, dtype: DType, number: int) -> UOp:
        if self.on_tensors:
            return self._tensor(dtype, number)
        if dtype is dtypes.index:
            return self._index(number)
        if dtype.is_bool and self.solved:
            return self._mask()
        if dtype.is_bool and self.is_narrowed:
            return self._clause()
        if dtype.is_float and self.random.random() < 0.6:
            return self._number(dtype, number)
        memory = UOp(Ops.PARAM, dtype, (), (number, 9))
        loaded = UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(number))),))
        if dtype.is_int and self.random.random() < 0.6:
            return loaded % self.random.choice([1, 2, 3, 5])
        if dtype.is_int and self.random.random() < 0.6:
            return (loaded & self.random.choice([1, 4, 12, 96])) | self.random.choice([0, 2, 8])
        return loaded

    def _number(self, dtype: DType, number: int) -> UOp:
        """A float that is finite, and may have a sign that is known."""
        small = self._leaf(dtypes.int8, number) % self.random.choice([1, 2, 3, 5])
        forms = [small, small + 1, -small, -(small + 1), small + 7, small + -9]
        return self.random.choice(forms).cast(dtype)

    def _index(self, number: int) -> UOp:
        loop = UOp.range(self.random.choice([1, 2, 3, 4, 8]), number)
        other = UOp.range(self.random.choice([2, 3]), number + 20)
        shared = UOp.range(8, 30)
        forms = [
            loop,
            loop,
            other + shared % 3,
            other + shared // 3 * 3,
            loop - self.random.choice([1, 9]),
            loop + self.random.choice([0, 5, 9]),
            loop * self.random.choice([2, 4, 6, 12]) + other,
        ]
        if self.nodes and self.random.random() < 0.3:
            forms = [node * 2 + node for node in self.nodes.values() if node.dtype is dtypes.index]
        return self.random.choice(forms or [loop])

    def _tensor(self, dtype: DType, number: int) -> UOp:
        shape = self.random.choice([(), (6,), (2, 3), (1, 3), (2, 1, 3)])
        parts = (UOp(Ops.UNIQUE, arg=number), UOp(Ops.DEVICE, arg="CPU"))
        return UOp(Ops.RESHAPE, dtype, (UOp(Ops.BUFFER, dtype, parts, prod(shape)),), shape)

    def _node(self, term: Node) -> UOp:
        op, dtype = Ops[term.op], self.dtype(term.type)
        if any([isinstance(s, Var) and s.type == "range" for s in term.src]):
            return self._over_a_named_range(term)
        if isinstance(term.src[-1], Var) and term.src[-1].type == "ranges":
            loops = self.loops[: self.random.choice([1, 2])]
            self.nodes.setdefault(term.src[-1].name, loops)  # type: ignore[arg-type]
            src = (self.build(term.src[0]), *self.nodes[term.src[-1].name])  # type: ignore[misc]
        elif op is Ops.INDEX:
            position = self._position(dtype)
            self.nodes |= dict(zip([t.name for t in term.src[:2]], position))  # type: ignore[union-attr]
            src = tuple([self.build(source) for source in term.src])
        else:
            src = tuple([self.build(source) for source in term.src])
        if op is Ops.REDUCE_AXIS and dtype.is_bool:
            raise ShapeError("bools are not reduced")
        if op is Ops.BITCAST and dtype.itemsize != src[0].dtype.itemsize:
            raise ShapeError("a BITCAST is between types of one width")
        return UOp(op, dtype, src, self._arg(term.arg, op, src))

    def _over_a_named_range(self, term: Node) -> UOp:
        """A reduction over one or two loops; the first of them has the name."""
        loops = self.loops[: self.random.choice([1, 2])]
        self.nodes[term.src[1].name] = loops[0]  # type: ignore[union-attr]
        body = self.build(term.src[0])
        return UOp(
            Ops.REDUCE, self.dtype(term.type), (body, *loops), self._arg(term.arg, Ops.REDUCE, ())
        )

    def _mask(self) -> UOp:
        """A truth about the first loop, that a search can solve for its counter."""
        position = self.loops[0] + self.random.choice([0, 2])
        about = self._index(45) + self.random.choice([0, 1])
        ends = self.random.choice([(position, about), (about, position)])
        mask = ends[0].eq(ends[1]) if "solve" in self.solved else ends[0] < ends[1]
        return self.random.choice([mask, mask & (self._index(46) < 3)])

    def _clause(self) -> UOp:
        """A truth that bounds the loop of `_within`, or is about a remainder of it."""
        loop = UOp.range(8, 47)
        return self.random.choice([loop < 4, loop % 4 < 3, (3 < loop) & (loop < 6)])

    def _within(self) -> UOp:
        """A remainder that is none within some clauses."""
        return UOp.range(8, 47) % 4

    def _position(self, dtype: DType) -> tuple[UOp, UOp]:
        """A buffer and an index into it, which may lie outside."""
        position = self._within() if self.is_narrowed else self._index(41)
        return UOp(Ops.PARAM, dtype, (), (40, 9)), position

    def _arg(self, expr: Any, op: Ops, src: tuple[UOp, ...]) -> Any:
        match expr:
            case None:
                return None
            case Text(name):
                return Ops[name]
            case Name(name):
                if name not in self.args:
                    self.args[name] = self._legal_arg(op, src[0].shape)
                return self.args[name]
            case Apply("pair", (Text(name), Name(axes))):
                shape = src[0].shape
                chosen = [k for k in range(len(shape)) if self.random.random() < 0.5]
                self.args[axes] = tuple(chosen)
                return (Ops[name], tuple(chosen))
            case _:
                raise ShapeError(f"no legal arg is known for {expr!r}")

    def _legal_arg(self, op: Ops, shape: tuple[int, ...]) -> Any:
        choose, rank = self.random.choice, len(shape)
        match op:
            case Ops.RESHAPE:
                return choose([shape, (prod(shape),), (1, *shape), tuple(reversed(shape))])
            case Ops.PERMUTE:
                return tuple(self.random.sample(range(rank), rank))
            case Ops.EXPAND:
                return tuple([choose([1, 4]) if size == 1 else size for size in shape])
            case Ops.PAD:
                return tuple([(choose([0, 0, 1]), choose([0, 0, 2])) for _ in shape])
            case Ops.SHRINK:
                return tuple([choose([(0, size), (size // 2, size), (0, 1)]) for size in shape])
            case Ops.FLIP:
                return tuple([choose([False, True]) for _ in shape])
            case Ops.SKEW:
                return (0, 1, choose([-1, 1]), choose([2, 4]))
            case _:
                raise ShapeError(f"no legal arg is known for {op.name}")
