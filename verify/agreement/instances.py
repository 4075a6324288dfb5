"""Instances of the left side of a rule at one choice of types: graphs that the rule may match.

Owns: the graph of a left side over leaves, legal args of movement operations. Does not own: leaves
(leaves.py), whether the engine's rule fires on it (agree.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.ops import ELEMENTS, ELEMENTWISE, Elementwise, Ops
from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.extractor_check import NARROWING
from proofgrad.core.rewrite.rule import (
    Apply,
    Const,
    Expr,
    Fact,
    Lit,
    Name,
    Node,
    Num,
    Rule,
    RuleKind,
    Term,
    Text,
    Var,
)
from proofgrad.core.rewrite.rule import Instance as InstanceOf
from proofgrad.verify.agreement.leaves import Leaves
from proofgrad.verify.agreement.points import near_numbers
from proofgrad.verify.encode.types import Case


def _family(row: Elementwise) -> tuple[int, frozenset[Kind], bool]:
    return row.arity, row.kinds, row.gives_bool


# Operations of the same sources and types: with another of its family a left side is no instance.
_FAMILIES = {
    op: [o for o, other in ELEMENTS.items() if _family(other) == _family(row)]
    for op, row in ELEMENTS.items()
}
_OTHERS = {op: [o for o in ops if o is not op] for op, ops in _FAMILIES.items() if len(ops) > 1}
_REDUCTIONS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN)
FACT_NAMES = frozenset({"lo", "hi", "ones", "may", "divisor", "finite", "not_nan"})
SOLVED = frozenset({"solve", "solve_less"})
SHAPES = (
    (),
    (0,),
    (1,),
    (2,),
    (3,),
    (2, 3),
    (1, 3),
    (3, 1),
    (2, 1),
    (0, 2),
    (1, 1),
    (2, 1, 3),
    (3, 0),
)


class About:
    """What all instances of a rule have in common."""

    def __init__(self, rule: Rule) -> None:
        parts = [part for root in _roots(rule) for part in _parts(root)]
        self.rule = rule
        self.on_tensors = "tensor" in rule.domains or rule.kind is RuleKind.COTANGENT
        numbers = [part.value for part in parts if isinstance(part, Lit | Num)]
        self.numbers = tuple([n for n in numbers if type(n) in (int, float)])
        functions = {part.function for part in parts if isinstance(part, Apply)}
        self.has_facts = bool(functions & FACT_NAMES) or bool(rule.extractors)
        extractors = {extractor.function for extractor in rule.extractors}
        self.solved = extractors & SOLVED
        self.is_narrowed = bool(extractors & NARROWING)
        ranges = {p.name for p in parts if isinstance(p, Var) and p.type == "range"}
        self.assumed: dict[str, list[str]] = {}  # by variable, the truths that are assumed for it
        self.moved: set[str] = (
            set()
        )  # variables that the right side takes at another turn of a loop
        for part in parts:
            if isinstance(part, InstanceOf):
                if part.counter in ranges:
                    self.moved.add(part.name)
                else:
                    self.assumed.setdefault(part.name, []).append(part.counter)
        self.truths = frozenset([p for truths in self.assumed.values() for p in truths])
        operations = {part.op for part in _parts(rule.left) if isinstance(part, Node)}
        self.has_loops = "REDUCE" in operations
        self.has_choices = (
            bool(rule.where or rule.when or rule.extractors)
            or self.on_tensors
            or self.has_loops
            or "INDEX" in operations
            or any([isinstance(part, Const) for part in parts])
        )


def _roots(rule: Rule) -> list[Any]:
    extractors = [part for extractor in rule.extractors for part in extractor.inputs]
    return [
        rule.left,
        *[r for r in rule.right if r is not None],
        *rule.where,
        *rule.when,
        *extractors,
    ]


def _parts(part: Any) -> list[Any]:
    """All terms and expressions of a term or expression."""
    match part:
        case Node(_, src, _, arg):
            inner: Sequence[Any] = (*src, *(() if arg is None else (arg,)))
        case Apply(_, args):
            inner = args
        case Fact(term):
            inner = (term,)
        case InstanceOf():
            inner = (part.value,)
        case _:
            inner = (part.value,) if hasattr(part, "mode") else ()
    return [part, *[p for one in inner for p in _parts(one)]]


class Instance:
    """One attempt at a graph for the left side of a rule.

    `missed`: the number of a part that is to be another one than the rule has, among those that
    could be: operations, literals, args, and what a name that came before stands for.
    """

    def __init__(self, case: Case, about: About, random: Random, missed: int | None = None) -> None:
        self.random = random
        self.positions = 0  # parts so far that could be others
        self._missed = missed
        self._case = case
        self._about = about
        self._leaves = Leaves(random, about.numbers, about.has_facts)
        self._nodes: dict[str, UOp] = {}
        self._loops: dict[str, tuple[UOp, ...]] = {}
        self._args: dict[str, Any] = {}
        self._counters: dict[UOp, UOp] = {}  # by the truths that compare them

    def build(self, term: Term) -> UOp:
        """Raises: OverflowError, ShapeError if the choices do not go together."""
        match term:
            case Var(name, kind) | Const(name, kind):
                if name not in self._nodes:
                    dtype = self._case.dtype(kind)
                    is_constant = isinstance(term, Const)
                    self._nodes[name] = (
                        self._constant(dtype) if is_constant else self._leaf(name, dtype)
                    )
                elif self._misses():
                    return self._other_than(self._nodes[name])
                return self._nodes[name]
            case Lit(value, kind):
                literal = UOp.const(self._case.dtype(kind), value)
                return self._other_than(literal) if self._misses() else literal
            case Node():
                return self._node(term)
            case _:
                raise TypeError(f"{term!r} on a left side")

    def _misses(self) -> bool:
        """Whether the part that comes next is to be another one than the rule has."""
        self.positions += 1
        return self.positions - 1 == self._missed

    def _other_than(self, node: UOp) -> UOp:
        """Another constant or leaf of the same type and shape; what comes after stays the same."""
        state, dtype = self.random.getstate(), node.dtype
        for _ in range(4):
            if node.op is Ops.CONST:
                other = UOp.const(dtype, self._leaves.number(dtype))
            elif self._about.on_tensors:
                other = self._in_memory(dtype, node.shape)
            else:
                other = self._leaves.of(dtype)
            if other is not node:
                break
        self.random.setstate(state)
        return other

    def _constant(self, dtype: DType) -> UOp:
        same = [n for n in self._nodes.values() if n.op is Ops.CONST and n.dtype is dtype]
        if same and dtype.is_int and self.random.random() < 0.3:
            value = self.random.choice(same).arg
            near = near_numbers(dtype, self._about.numbers)
            if near and value and self.random.random() < 0.3:
                return UOp.const(dtype, self.random.choice(near) // value)
            value = value * self.random.choice([1, 1, 2, 3, -1])
            return UOp.const(dtype, value + self.random.choice([0, 0, 0, 1, 2, -1]))
        return UOp.const(dtype, self._leaves.number(dtype))

    # -- leaves -----------------------------------------------------------------------------------

    def _leaf(self, name: str, dtype: DType) -> UOp:
        about, random = self._about, self.random
        if about.on_tensors:
            return self._tensor(dtype)
        if name in about.truths and random.random() < 0.5:
            counter = UOp(Ops.VARIABLE, dtypes.index, (), (f"v{self._leaves.fresh()}", 0, 2))
            self._counters[counter < 1] = counter
            return counter < 1
        if name in about.assumed:
            return self._with_truths(
                dtype, [self.build(Var(p, "bool")) for p in about.assumed[name]]
            )
        if name in about.moved:
            return self._varying(dtype)
        if dtype.is_bool and about.solved:
            return self._mask()
        if dtype.is_bool and about.is_narrowed:
            return self._clause()
        if dtype is dtypes.index and about.is_narrowed and random.random() < 0.5:
            return self._within()
        same = [n for n in self._nodes.values() if n.dtype is dtype and n.op is not Ops.PARAM]
        if same and random.random() < 0.12:
            return random.choice(same)
        return self._leaves.of(dtype)

    def _with_truths(self, dtype: DType, truths: list[UOp]) -> UOp:
        """A term that has another value for each choice of the truths."""
        if not truths:
            return self._leaves.of(dtype)
        truth, *others = truths
        if dtype.is_int and dtype is not dtypes.index and self.random.random() < 0.3:
            return self._with_truths(dtype, others) ^ truth.cast(dtype)
        first, second = [self._with_truths(dtype, others) for _ in range(2)]
        if truth in self._counters and dtype is not dtypes.index and self.random.random() < 0.5:
            first = self._read_under(truth, dtype)
        return truth.where(first, second)

    def _read_under(self, mask: UOp, dtype: DType) -> UOp:
        """A load whose position leaves the buffer where its mask is false."""
        memory = UOp(Ops.PARAM, dtype, (), (self._leaves.fresh(), 1))
        position = UOp(Ops.INDEX, dtype, (memory, self._counters[mask], mask))
        return UOp(Ops.LOAD, dtype, (position,))

    def _varying(self, dtype: DType) -> UOp:
        """A term that changes with the loops around it."""
        loop = self.random.choice(self._leaves.loops)
        if dtype is dtypes.index:
            return loop + self.random.choice([0, 0, 1])
        if dtype.is_bool and self._about.solved and self.random.random() < 0.5:
            return loop < self.random.choice([0, 1, 2])
        return self._leaves.loaded(dtype, varies=True)

    def _mask(self) -> UOp:
        """A truth about the first loop, that a search can solve for its counter."""
        random, leaves = self.random, self._leaves
        loop = leaves.loops[0] if leaves.loops else UOp.range(3, 300)
        position = loop + random.choice([0, 0, 2])
        inner, leaves.loops = leaves.loops, leaves.loops[1:]
        about = random.choice([UOp.index(0), UOp.index(1), leaves.of(dtypes.index)])
        if random.random() < 0.4:
            about = leaves.loaded(dtypes.int8).cast(dtypes.index)
        leaves.loops = inner
        ends = random.choice([(position, about), (about, position)])
        mask = ends[0].eq(ends[1]) if "solve" in self._about.solved else ends[0] < ends[1]
        other = leaves.loaded(dtypes.bool)
        return random.choice([mask, mask & other, other & mask])

    def _clause(self) -> UOp:
        """A truth that bounds the loop of `_within`, or is about a remainder of it."""
        loop = UOp.range(8, 301)
        other = UOp.range(2, 302)
        forms = [loop < 4, loop % 4 < 3, (3 < loop) & (loop < 6), loop < 6, loop % 4 + other < 6]
        return self.random.choice([*forms, loop + other < 7, loop + other < 9])

    def _within(self) -> UOp:
        """A remainder that is none within some clauses."""
        return self.random.choice(
            [UOp.range(8, 301) % 4, UOp.range(8, 301) // 4, UOp.range(8, 301)]
        )

    def _tensor(self, dtype: DType) -> UOp:
        shape: tuple[int, ...] = self.random.choice(SHAPES)
        same = [n for n in self._nodes.values() if n.shape != ()]
        if same and self.random.random() < 0.5:
            shape = self.random.choice(same).shape
        return self._in_memory(dtype, shape)

    def _in_memory(self, dtype: DType, shape: tuple[int, ...]) -> UOp:
        parts = (UOp(Ops.UNIQUE, arg=self._leaves.fresh()), UOp(Ops.DEVICE, arg="CPU"))
        return UOp(Ops.RESHAPE, dtype, (UOp(Ops.BUFFER, dtype, parts, prod(shape)),), shape)

    # -- operations -------------------------------------------------------------------------------

    def _node(self, term: Node) -> UOp:
        op, dtype = Ops[term.op], self._case.dtype(term.type)
        if op is Ops.REDUCE:
            return self._reduction(term, dtype)
        if op in _OTHERS and self._misses():
            op = self.random.choice(_OTHERS[op])
        if op is Ops.INDEX and not isinstance(term.src[0], Node):
            self._buffer(term.src[0], dtype)
        src = tuple([self.build(source) for source in term.src])
        if op in ELEMENTWISE and self._about.on_tensors:
            src = self._of_one_shape(term, src)
        if op is Ops.REDUCE_AXIS and dtype.is_bool:
            raise ShapeError("bools are not reduced")
        if op is Ops.BITCAST and dtype.itemsize != src[0].dtype.itemsize:
            raise ShapeError("a BITCAST is between types of one width")
        return UOp(op, dtype, src, self._arg(term.arg, op, src))

    def _of_one_shape(self, term: Node, src: tuple[UOp, ...]) -> tuple[UOp, ...]:
        """Sources of one shape; constants repeat at every position, other leaves are made anew."""
        shape = src[0].shape
        for position, source in enumerate(src):
            if source.shape != shape:
                part = term.src[position]
                if isinstance(part, Var):
                    source = self._nodes[part.name] = self._in_memory(source.dtype, shape)
                else:
                    ones = UOp(Ops.RESHAPE, source.dtype, (source,), (1,) * len(shape))
                    source = UOp(Ops.EXPAND, source.dtype, (ones,), shape)
                src = (*src[:position], source, *src[position + 1 :])
        return src

    def _buffer(self, term: Term, dtype: DType) -> None:
        assert isinstance(term, Var)
        size = self.random.choice([1, 2, 3, 4, 9])
        self._nodes.setdefault(term.name, UOp(Ops.PARAM, dtype, (), (self._leaves.fresh(), size)))

    def _reduction(self, term: Node, dtype: DType) -> UOp:
        """A reduction; a range that the rule names comes first."""
        body, *ranges = term.src
        loops: list[UOp] = []
        for source in ranges:
            assert isinstance(source, Var)
            if source.name not in self._loops:
                count = 1 if source.type == "range" else self.random.choice([1, 1, 2, 0])
                self._loops[source.name] = tuple([self._leaves.loop() for _ in range(count)])
                if source.type == "range":
                    self._nodes[source.name] = self._loops[source.name][0]
            loops += self._loops[source.name]
        outer, self._leaves.loops = self._leaves.loops, tuple(loops)
        inner = self.build(body)
        self._leaves.loops = outer
        return UOp(Ops.REDUCE, dtype, (inner, *loops), self._arg(term.arg, Ops.REDUCE, ()))

    # -- args -------------------------------------------------------------------------------------

    def _arg(self, expr: Expr | None, op: Ops, src: tuple[UOp, ...]) -> Any:
        match expr:
            case None:
                return None
            case Text(name):
                return self._combined_by(Ops[name]) if name in Ops.__members__ else name
            case Name(name):
                if name not in self._args:
                    self._args[name] = self._legal_arg(op, src[0].shape)
                elif self._misses():
                    return self._legal_arg(op, src[0].shape)
                return self._args[name]
            case Apply("pair", (Text(name), Name(axes))):
                if axes not in self._args:
                    rank = len(src[0].shape)
                    chosen = [k for k in range(rank) if self.random.random() < 0.5]
                    self._args[axes] = tuple(chosen)
                return (self._combined_by(Ops[name]), self._args[axes])
            case _:
                raise ShapeError(f"no legal arg is known for {expr!r}")

    def _combined_by(self, op: Ops) -> Ops:
        """The operation of a reduction."""
        return self.random.choice(_OTHERS[op]) if op in _REDUCTIONS and self._misses() else op

    def _legal_arg(self, op: Ops, shape: tuple[int, ...]) -> Any:
        """An arg that is legal, or that another operation has."""
        choose, rank = self.random.choice, len(shape)
        pairs = op in (Ops.PAD, Ops.SHRINK)
        alike = [a for a in self._args.values() if all([type(p) is tuple for p in a]) is pairs]
        if alike and self.random.random() < 0.3:
            return choose(alike)
        match op:
            case Ops.RESHAPE:
                shapes = [n.shape for n in self._nodes.values() if prod(n.shape) == prod(shape)]
                return choose([shape, (prod(shape),), (1, *shape), tuple(reversed(shape)), *shapes])
            case Ops.PERMUTE:
                return tuple(self.random.sample(range(rank), rank))
            case Ops.EXPAND:
                wider = tuple([choose([0, 1, 2, 4]) if size == 1 else size for size in shape])
                shapes = [n.shape for n in self._nodes.values() if len(n.shape) == rank]
                return choose([wider, *shapes])
            case Ops.PAD:
                return tuple([(choose([0, 0, 1]), choose([0, 0, 2])) for _ in shape])
            case Ops.SHRINK:
                return tuple([self._cut(size) for size in shape])
            case Ops.FLIP:
                return tuple([choose([False, True]) for _ in shape])
            case Ops.SKEW if rank > 1:
                axis, by = self.random.sample(range(rank), 2)
                return (axis, by, choose([-1, 1, 2]), choose([0, 1, 2, 4]))
            case _:
                raise ShapeError(f"no legal arg is known for {op.name}")

    def _cut(self, size: int) -> tuple[int, int]:
        begin, end = sorted([self.random.randint(0, size), self.random.randint(0, size)])
        return self.random.choice([(0, size), (begin, end), (size // 2, size)])
