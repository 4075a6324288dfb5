"""Transfer functions against brute force at 8 bits, by code that shares nothing with the prover."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import numpy as np
import pytest
from rules_from_text import rules_from, unproven_facts, unproven_library

from proofgrad.core.compile.passes.stages import RuleSets
from proofgrad.core.ir.dtypes import DType, Kind, dtype_named, dtypes, round_float
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import Const, Lit, Node, Rule, RuleKind, Term, Var
from proofgrad.core.rewrite.scope import types_of_class
from proofgrad.rules.pipeline import FACTS, KERNEL_STAGES

SMALL = (*(dtypes.bool, dtypes.index, dtypes.int8, dtypes.uint8, dtypes.float16, dtypes.bfloat16),)
DRAWS = 150
Values = dict[UOp, list[Any]]


def loaded(dtype: DType, number: int) -> UOp:
    memory = UOp(Ops.PARAM, dtype, (), (number, 1))
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))


# -- each line by itself, on sets of values of its sources ------------------------------------------


class FactsOfValues(Facts):
    """The strongest facts that hold of the values that each leaf may have, and of nothing else."""

    def __init__(self, values: Values) -> None:
        super().__init__(RuleSet("bounds", ()))
        self.values = values

    def interval(self, node: UOp) -> tuple[Any, Any]:
        numbers = [v for v in self._of(node) if v == v]
        return (min(numbers), max(numbers)) if numbers else (-math.inf, math.inf)

    def bits(self, node: UOp) -> tuple[Any, Any]:
        values = self._of(node)
        ones = may = values[0]
        for value in values:
            ones, may = ones & value, may | value
        return ones, may

    def divisor(self, node: UOp) -> int | None:
        return math.gcd(*[int(value) for value in self._of(node)])

    def finite(self, node: UOp) -> bool:
        return all(math.isfinite(value) for value in self._of(node))

    def not_nan(self, node: UOp) -> bool:
        return all(value == value for value in self._of(node))

    def _of(self, node: UOp) -> list[Any]:
        return [node.arg] if node.op is Ops.CONST else self.values[node]


def transfer_lines() -> list[Rule]:
    return [rule for name in FACTS for rule in unproven_library()[name].rules]


def assignments(rule: Rule) -> Iterator[dict[str, DType]]:
    """Each choice of small types for the type variables of a rule."""
    classes = [[d for d in types_of_class(rule, kind) if d in SMALL] for _, kind in rule.types]
    for types in product(*classes):
        yield {name: dtype for (name, _), dtype in zip(rule.types, types)}


def values_of(dtype: DType, random: Random) -> list[Any]:
    """A few values, near each other or at the edges of the type."""
    return [value_of(dtype, random) for _ in range(random.choice([1, 1, 2, 3]))]


def value_of(dtype: DType, random: Random) -> Any:
    match dtype.kind:
        case Kind.BOOL:
            return random.random() < 0.5
        case Kind.FLOAT:
            edges = [0.0, -0.0, 1.0, -1.5, math.inf, -math.inf, math.nan, 65504.0, 1e38, 6e-8]
            edges += [300.0, -200.0, 1e19, 2.0, 32000.0]
            return round_float(random.choice(edges), dtype)
        case Kind.INDEX:
            return random.randint(-9, 9)
        case _:
            assert dtype.lo is not None and dtype.hi is not None
            edges = [dtype.lo, dtype.hi, 0, 1, 2, 3, 4, 8, 16, 64, 127]
            near = random.choice(edges) + random.randint(-2, 2)
            return near if dtype.lo <= near <= dtype.hi else random.randint(dtype.lo, dtype.hi)


class Trial:
    """One choice of types and values for a line."""

    def __init__(self, rule: Rule, types: dict[str, DType], random: Random) -> None:
        self.types, self.random = types, random
        self.factors = (1, 3, 12, 24) if rule.kind is RuleKind.DIVISOR else (1,)
        self.leaves: dict[str, UOp] = {}
        self.values: Values = {}

    def dtype(self, name: str) -> DType:
        return self.types.get(name) or dtype_named(name)

    def node(self, term: Term) -> UOp:
        dtype = self.dtype(term.type)
        match term:
            case Var(name, _) | Const(name, _):
                if name not in self.leaves:
                    self.leaves[name] = self.leaf(isinstance(term, Const), dtype)
                return self.leaves[name]
            case Lit(value, _):
                return UOp.const(dtype, value)
            case Node(op, src, _):
                return UOp(Ops[op], dtype, tuple([self.node(source) for source in src]))
            case _:
                raise TypeError(f"{term!r} on a left side")

    def leaf(self, is_constant: bool, dtype: DType) -> UOp:
        if is_constant:
            return UOp.const(dtype, value_of(dtype, self.random))
        leaf = loaded(dtype, len(self.leaves))
        values = values_of(dtype, self.random)
        factor = self.random.choice(self.factors)
        if factor > 1 and not dtype.is_bool:
            values = [math.trunc(value / factor) * factor for value in values]
        self.values[leaf] = values
        return leaf

    def results(self, root: UOp) -> list[Any]:
        """The values of `root` for every choice of values of the leaves."""
        leaves = list(self.values)
        choices = product(*self.values.values())
        return [_computed(root, dict(zip(leaves, choice))) for choice in choices]


def _computed(node: UOp, given: dict[UOp, Any]) -> Any:
    if node in given:
        return given[node]
    if node.op is Ops.CONST:
        return node.arg
    args = [_computed(source, given) for source in node.src]
    return evaluate(node.op, node.dtype, args, [source.dtype for source in node.src])


@pytest.mark.parametrize("rule", transfer_lines(), ids=lambda rule: rule.full_name)
def test_what_a_line_says_holds_of_all_values(rule: Rule) -> None:
    random = Random(rule.full_name)
    applied = 0
    for types in assignments(rule):
        for _ in range(DRAWS):
            trial = Trial(rule, types, random)
            root = trial.node(rule.left)
            for line in RuleSet("one", [rule]).candidates(root):
                applied += _check(rule, line, root, trial)
    assert applied or not list(assignments(rule)), "never applied"


@pytest.mark.parametrize(
    "line",
    [
        "ruleset w over int bounds add: x + y in [lo(x) + lo(y), hi(x) + hi(y) - 1]",
        "ruleset w over signed bounds cast (A in unsigned): cast(x: A, T) in [0, largest(T)]",
        "ruleset w over int fact or: bits(x | y) in [ones(x), may(x)]",
        "ruleset w over int fact add: bits(x + y) in [ones(x) | ones(y), may(x) | may(y)]",
        "ruleset w over int fact add: divisor(x + y) is gcd(divisor(x), divisor(y))",
        "ruleset w over index fact mul: divisor(x * y) is 2 * divisor(x) * divisor(y)",
        "ruleset w over int fact cast (A in int): divisor(cast(x: A, T)) is divisor(x)",
        "ruleset w over index fact div: divisor(x // c) is divisor(x) // c where c > 0",
        "ruleset w over float fact add: finite(x + y) where finite(x), finite(y)",
        "ruleset w over float fact add: not_nan(x + y) where not_nan(x), not_nan(y)",
        "ruleset w over float bounds max: max(x, y) in [max(lo(x), lo(y)), hi(x)]",
    ],
)
def test_a_wrong_line_is_found(line: str) -> None:
    (rule,) = rules_from(line).rules
    with pytest.raises(AssertionError):
        test_what_a_line_says_holds_of_all_values(rule)


def divides(divisor: int | None, value: int) -> bool:
    """Whether a value is a multiple; 0 is the only one of 0."""
    return value % divisor == 0 if divisor else value == 0


def _check(rule: Rule, line: Any, root: UOp, trial: Trial) -> bool:
    facts, dtype = FactsOfValues(trial.values), root.dtype
    if rule.kind in (RuleKind.FINITE, RuleKind.NOT_NAN):
        if not line.holds(root, facts):
            return False
        is_met = math.isfinite if rule.kind is RuleKind.FINITE else (lambda v: v == v)
        assert all(is_met(v) for v in trial.results(root)), (root, trial.values)
        return True
    if rule.kind is RuleKind.DIVISOR:
        divisor = line.divisor(root, facts)
        if divisor is not None:
            assert divisor >= 0
            assert all(divides(divisor, v) for v in trial.results(root)), (root, trial.values)
        return divisor is not None
    found = line.interval(root, facts)
    if found is None or None in found:
        return False
    low, high = found
    if dtype.lo is not None and not (dtype.lo <= low and high <= dtype.hi):
        return False
    if rule.kind is RuleKind.BITS and not (dtype.lo <= high and low <= dtype.hi):
        return False
    for value in trial.results(root):
        if rule.kind is RuleKind.BITS:
            assert value & low == low and value & high == value, (root, trial.values, found)
        else:
            assert value != value or low <= value <= high, (root, trial.values, found)
    return True


# -- all lines together, on every value of every interval or mask of a grid -------------------------

BINARY = (
    *(Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MAX, Ops.MIN),
    *(Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR, Ops.CMPLT, Ops.CMPEQ),
)
CUTS = {dtypes.int8: (-128, -9, -1, 0, 5, 8, 127), dtypes.uint8: (0, 1, 5, 8, 255)}


def table(op: Ops, dtype: DType) -> np.ndarray:
    """The value of `op` for every pair of 8-bit values, in order."""
    assert dtype.lo is not None and dtype.hi is not None
    result = dtypes.bool if op in (Ops.CMPLT, Ops.CMPEQ) else dtype
    every = range(dtype.lo, dtype.hi + 1)
    return np.array([[int(evaluate(op, result, (a, b))) for b in every] for a in every])


@pytest.mark.parametrize("dtype", CUTS, ids=repr)
@pytest.mark.parametrize("op", BINARY, ids=repr)
def test_bounds_and_bits_of_every_value_in_a_grid(op: Ops, dtype: DType) -> None:
    values = table(op, dtype)
    result = dtypes.bool if op in (Ops.CMPLT, Ops.CMPEQ) else dtype
    x, y = loaded(dtype, 0), loaded(dtype, 1)
    root = UOp(op, result, (x, y))
    intervals = list(combinations_with_replacement(CUTS[dtype], 2))
    first = dtype.lo or 0
    for (a, b), (c, d) in product(intervals, intervals):
        facts = unproven_facts()
        facts.assume(x, (a, b))
        facts.assume(y, (c, d))
        part = values[a - first : b - first + 1, c - first : d - first + 1]
        low, high = facts.interval(root)
        assert low <= high
        assert low <= part.min() and part.max() <= high, ((a, b), (c, d), low, high)
        if result is dtype:
            ones, may = facts.bits(root)
            assert np.bitwise_and.reduce(part, axis=None) & ones == ones
            assert np.bitwise_or.reduce(part, axis=None) & ~may == 0


@pytest.mark.parametrize("dtype", CUTS, ids=repr)
@pytest.mark.parametrize("op", BINARY[:-2], ids=repr)
def test_bits_of_every_value_with_known_bits(op: Ops, dtype: DType) -> None:
    values = table(op, dtype)
    assert dtype.lo is not None and dtype.hi is not None
    every = np.arange(dtype.lo, dtype.hi + 1)
    random = Random(f"{op} {dtype}")
    masks = [(0, 0), (0, 1), (0, 4), (1, 7), (4, 12), (0, 0x70), (3, 3)]
    masks += [tuple(sorted([random.randint(0, 127) for _ in range(2)])) for _ in range(12)]
    masks = [(ones & may, may) for ones, may in masks]
    terms = [(loaded(dtype, k % 2) & may) | ones for k, (ones, may) in enumerate(masks)]
    facts = unproven_facts()
    for (xs, x), (ys, y) in product(zip(masks, terms), repeat=2):
        root = UOp(op, dtype, (x, y))
        rows, columns = [(every & ones == ones) & (every & ~may == 0) for ones, may in (xs, ys)]
        part = values[np.ix_(rows, columns)]
        ones, may = facts.bits(root)
        assert np.bitwise_and.reduce(part, axis=None) & ones == ones, (xs, ys)
        assert np.bitwise_or.reduce(part, axis=None) & ~may == 0, (xs, ys)
        low, high = facts.interval(root)
        assert low <= part.min() and part.max() <= high, (xs, ys)


FACTORS = (1, 2, 3, 4, 6, 12, 18, 24, 64, 96)


@pytest.mark.parametrize("dtype", CUTS, ids=repr)
@pytest.mark.parametrize("op", BINARY[:-2], ids=repr)
def test_divisors_of_every_value_of_products(op: Ops, dtype: DType) -> None:
    """Of factors times few values, which do not wrap, and of factors times all, which do."""
    values = table(op, dtype)
    assert dtype.lo is not None and dtype.hi is not None
    every = np.arange(dtype.lo, dtype.hi + 1)
    facts = unproven_facts()
    found: list[tuple[UOp, Any]] = []
    for number, factor in enumerate([f for f in FACTORS if f <= dtype.hi]):
        leaf = loaded(dtype, number % 2)
        for term, of in ((leaf, every), (leaf & 7, np.arange(8)), (leaf % 5, np.arange(5))):
            products = (of * factor - dtype.lo) % 256
            found.append((term * factor, np.unique(products)))
    for (x, rows), (y, columns) in product(found, repeat=2):
        divisor = facts.divisor(UOp(op, dtype, (x, y)))
        assert divisor is not None
        part = values[np.ix_(rows, columns)]
        assert not part.any() if divisor == 0 else not (part % divisor).any(), (x, y, divisor)


@pytest.mark.parametrize("dtype", [dtypes.index, dtypes.int8, dtypes.uint8], ids=repr)
def test_divisors_of_all_values_of_random_terms(dtype: DType) -> None:
    random = Random(f"divisors {dtype}")
    facts, known = unproven_facts(), 0
    for _ in range(400):
        leaves = [UOp.range(3, 0), UOp.range(4, 1)]
        counters = [leaf if dtype is dtypes.index else leaf.cast(dtype) for leaf in leaves]
        root = random_multiple(counters, random, 3)
        divisor = facts.divisor(root)
        known += divisor != 1
        choices = product(range(3), range(4))
        results = [_computed(root, dict(zip(leaves, choice))) for choice in choices]
        assert all(divides(divisor, v) for v in results), (root, divisor, results)
    assert known > 200


def random_multiple(counters: list[UOp], random: Random, depth: int) -> UOp:
    """A term of one type, made of multiples of what counts."""
    dtype = counters[0].dtype
    if not depth:
        return random.choice(counters) * random.choice([2, 3, 4, 6, 12, 24])
    x, y = [random_multiple(counters, random, depth - 1) for _ in range(2)]
    number = UOp.const(dtype, random.choice([1, 2, 3, 4, 6, 8, 12]))
    match random.choice(["where", "other type", "unary", "binary", "binary", "number"]):
        case "where":
            return (counters[0] < counters[1]).where(x, y)
        case "other type":
            small = x.cast(random.choice([dtypes.int8, dtypes.uint8, dtypes.int16]))
            return small.cast(dtype)
        case "unary":
            return -x
        case "binary":
            return UOp(random.choice([Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN, Ops.MOD]), dtype, (x, y))
        case _:
            ops = [Ops.FLOORDIV, Ops.TRUNCDIV, Ops.MOD, Ops.TRUNCMOD, Ops.MUL, Ops.ADD]
            return UOp(random.choice(ops), dtype, (x, number))


SIMPLIFY = next(stage.step for stage in KERNEL_STAGES if stage.name == "simplify index terms")


def test_divisions_of_random_multiples_keep_their_values() -> None:
    random, journal = Random("divisions of multiples"), Journal()
    assert isinstance(SIMPLIFY, RuleSets)
    sets = [unproven_library()[name] for name in SIMPLIFY.names]
    counters = [UOp.range(3, 0), UOp.range(4, 1)]
    for _ in range(150):
        multiple = random_multiple(counters, random, 2) * random.choice([1, 2, 5])
        total = multiple + random.choice(counters) + random.randint(-9, 9)
        by = random.choice([2, 3, 4, 6, 12, 24, -4])
        digits = total // abs(by) % 4 * abs(by) + total % abs(by)
        for root in (total // by, total % by, total // by * by + counters[0], digits):
            simple = Rewriter(sets, unproven_facts(), journal).rewrite(root)
            for choice in product(range(3), range(4)):
                given = dict(zip(counters, choice))
                assert _computed(simple, given) == _computed(root, given), (root, simple, given)
    names = ["mod_of_multiples", "div_of_multiples", "mod_beside_multiples"]
    for name in [*names, "exact_quotient_in_sum", "exact_digit_in_sum"]:
        assert journal.applied[f"divmod.{name}"] > 2
