"""What the names of one rule stand for while it is compiled: slots of the environment of a match.

Owns: slots, the types of a rule at the type of the root it is compiled for, constants of a type and
shape. Does not own: matching (match.py), values and terms (terms.py).

An environment is a list. Slot 0 holds the Facts, slot 1 the root of the match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofgrad.core.ir.dtypes import DType, dtype_named
from proofgrad.core.ir.op_names import BROADCAST, CONST
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.functions import DOMAIN_TYPES, TYPE_CLASSES
from proofgrad.core.rewrite.rule import Rule

Env = list[Any]
FACTS, ROOT = 0, 1
RANGES = "ranges"  # the type of the variable that stands for all ranges of a reduction
RANGE = "range"  # of the one that stands for a single range, where a rule names it
SPREAD = frozenset({Ops.BROADCAST, Ops.RESHAPE, Ops.EXPAND})  # the same value everywhere
CONSTANT_OPS = SPREAD | {Ops.CONST}


class Scope:
    """Names, slots and types of a rule, for roots of the type `root`."""

    def __init__(self, rule: Rule, root: DType) -> None:
        self.lanes = root.lanes
        self.classes = {name: types_of_class(rule, kind) for name, kind in rule.types}
        self.types: dict[str, DType] = {}
        self.type_slots: dict[str, int] = {}
        self.nodes: dict[str, int] = {}
        self.values: dict[str, int] = {}
        self.size = 2
        self.choice: int | None = None  # the slot that says which source of the root is the range

    def new_slot(self) -> int:
        """Reserve one more entry of the environment; its number."""
        self.size += 1
        return self.size - 1

    def known_type(self, name: str) -> DType | None:
        """The type called `name`, if it is the same at every match."""
        if name in self.types:
            return self.types[name]
        return None if name in self.classes else dtype_named(name).vec(self.lanes)

    def type_getter(self, name: str) -> Callable[[Env], DType]:
        """A function from the environment of a match to the type called `name` there."""
        known = self.known_type(name)
        if known is not None:
            return lambda env: known
        slot = self.type_slots[name]
        return lambda env: env[slot]

    def type_test(self, name: str) -> Callable[[DType, Env], bool]:
        """Test a type against `name`; the first test of a type variable binds it."""
        known = self.known_type(name)
        if known is not None:
            return lambda dtype, env: dtype is known
        if name in self.type_slots:
            bound = self.type_slots[name]
            return lambda dtype, env: dtype is env[bound]
        slot = self.type_slots[name] = self.new_slot()
        allowed = frozenset([dtype.vec(self.lanes) for dtype in self.classes[name]])

        def bind(dtype: DType, env: Env) -> bool:
            env[slot] = dtype
            return dtype in allowed

        return bind


def types_of_class(rule: Rule, kind: str) -> tuple[DType, ...]:
    """The types that a type variable of the class `kind` may take in `rule`."""
    if kind != "domain":
        return TYPE_CLASSES[kind]
    every = TYPE_CLASSES["any"] + TYPE_CLASSES["index"]
    lists = [DOMAIN_TYPES.get(domain, every) for domain in rule.domains]
    return tuple(dict.fromkeys([dtype for types in lists for dtype in types]))


def takes(rule: Rule, dtype: DType) -> bool:
    """Whether the left side of `rule` may be of the type `dtype`."""
    kind = dict(rule.types).get(rule.left.type)
    if kind is None:
        return rule.left.type == dtype.name
    return dtype in types_of_class(rule, kind)


def scalar_of(node: UOp) -> UOp | None:
    """The scalar CONST that `node` repeats in every lane and at every position; None if it is none."""
    while node.op in SPREAD:
        node = node.src[0]
    if node.op is not CONST:
        return None
    if type(node.arg) is tuple:
        lanes = [UOp(CONST, node.dtype.scalar, (), lane) for lane in node.arg]
        return lanes[0] if all([lane is lanes[0] for lane in lanes]) else None
    return node


def constant(dtype: DType, value: Any, shape: Shape) -> UOp:
    """`value` in every lane of `dtype`, at every position of `shape`. Raises: OverflowError."""
    node = UOp.const(dtype.scalar, value)
    if dtype.lanes > 1:
        node = UOp(BROADCAST, dtype, (node,))
    if not shape:
        return node
    ones = (1,) * len(shape)
    node = UOp(Ops.RESHAPE, dtype, (node,), ones)
    return node if shape == ones else UOp(Ops.EXPAND, dtype, (node,), shape)
