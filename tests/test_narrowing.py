"""Terms within masks: what clauses say is used, nothing is wrong, and promises are kept."""

from __future__ import annotations

import itertools
import random

import pytest
from rules_from_text import unproven_facts, unproven_library

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.op_names import AND, CONST, RANGE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite import narrowing, sum_order
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.sum_order import load_of
from proofgrad.rules.pipeline import KERNEL_STAGES

(SIMPLIFY,) = {s.step.names for s in KERNEL_STAGES if s.name == "simplify index terms"}
SETS = [unproven_library()[name] for name in SIMPLIFY]
R0, R1, R2 = UOp.range(12, 0), UOp.range(5, 1), UOp.range(8, 2)
BUFFER = UOp(Ops.PARAM, dtypes.float32, (), (1, 64))


def access(position: UOp, mask: UOp) -> UOp:
    return UOp(Ops.INDEX, dtypes.float32, (BUFFER, position, mask))


def position_within(position: UOp, mask: UOp, sets: list[RuleSet] | None = None) -> UOp:
    """The position of an access, simplified under its mask."""
    found = Rewriter(SETS if sets is None else sets, unproven_facts()).rewrite(
        access(position, mask)
    )
    return found.src[1]


@pytest.mark.parametrize(
    ("position", "mask", "expected"),
    [
        (R0 % 4, R0 < 4, R0),
        (R0 % 4, (3 < R0) & (R0 < 8), R0 + -4),
        (R0 // 4, (3 < R0) & (R0 < 8), UOp.index(1)),
        (R0 % 4 + R1, R0.eq(6), R1 + 2),
        (((R0 * 3 + R1 * 6) % 14), R0 + R1 * 2 < 4, R1 * 6 + R0 * 3),
        ((R0 + R1 * 11) % 12, (-1 < R0 - R1) & (R0 - R1 < 12), R0 - R1),
        ((R0 + R1 * 11) % 12 + R2, (3 < R0 - R1) & (R0 - R1 < 8), R0 - R1 + R2),
        ((R1 * 16 + R0 - 1) // 32, (0 < R0) & (R0 < 12), R1 // 2),
        ((R1 * 16 + R2 * 2 + R0 - 3) // 32, (2 < R0) & (R0 < 5) & (R2 < 7), R1 // 2),
        ((R2 % 4 + R0) % 5, (R2 % 4 < 2) & (R0 < 4), R0 + R2 % 4),
    ],
)
def test_clauses_settle_divisions(position: UOp, mask: UOp, expected: UOp) -> None:
    plain = Rewriter(SETS, unproven_facts()).rewrite(expected)
    assert position_within(position, mask) is plain


def test_a_term_outside_of_the_mask_stays() -> None:
    term = (R0 < 4).where(R1, R0 % 4)
    assert Rewriter(SETS, unproven_facts()).rewrite(term) is term


def test_without_a_law_of_clauses_nothing_is_narrowed() -> None:
    law = "max_where_above"
    where = unproven_library()["where"]
    fewer = RuleSet("where", [rule for rule in where.rules if rule.name != law])
    sets = [fewer if known.name == "where" else known for known in SETS]
    assert position_within(R0 % 4, R0 < 4, sets) is R0 % 4
    assert narrowing.states_laws(where.rules)
    assert not narrowing.states_laws(fewer.rules)


def test_what_cannot_be_taken_out_again_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    put_in = narrowing.Narrowing._put_in

    def wrong(self: narrowing.Narrowing, x: object, clauses: narrowing.Clauses) -> object:
        terms, constant = put_in(self, x, clauses)  # type: ignore[arg-type]
        return terms, constant + 1

    assert position_within(R0 % 4, R0 < 4) is R0
    monkeypatch.setattr(narrowing.Narrowing, "_put_in", wrong)
    assert position_within(R0 % 4, R0 < 4) is R0 % 4


def random_index(rng: random.Random) -> UOp:
    """A sum of loops, quotients and remainders."""
    x = UOp.index(rng.randint(-3, 9))
    for loop in rng.sample([R0, R1, R2], rng.randint(1, 3)):
        x = x + loop * rng.choice([1, 1, 2, 3, -1])
    for _ in range(rng.randint(0, 2)):
        number = rng.choice([2, 3, 4, 6])
        x = x // number if rng.random() < 0.5 else x % number
        x = x * rng.choice([1, 2]) + rng.choice([R0, R1, UOp.index(1)])
    return x


def random_mask(rng: random.Random, conjuncts: int) -> UOp:
    mask = None
    for _ in range(conjuncts):
        term, number = random_index(rng), UOp.index(rng.randint(-2, 12))
        part = rng.choice([term < number, number < term, term.eq(number), term < random_index(rng)])
        mask = part if mask is None else mask & part
    assert mask is not None
    return mask


def value(term: UOp, at: dict[UOp, int]) -> object:
    """The value of an index term or truth."""
    known: dict[UOp, object] = {}
    for node in term.toposort():
        if node.op is CONST:
            known[node] = node.arg
        elif node.op is RANGE:
            known[node] = at[node]
        else:
            args = [known[source] for source in node.src]
            known[node] = evaluate(node.op, node.dtype, args, [s.dtype for s in node.src])
    return known[term]


@pytest.mark.parametrize("seed", range(4))
def test_a_position_is_the_same_wherever_its_mask_holds(seed: int) -> None:
    rng = random.Random(seed)
    narrowed = 0
    for _ in range(60):
        position, mask = random_index(rng), random_mask(rng, rng.randint(1, 4))
        found = Rewriter(SETS, unproven_facts()).rewrite(access(position, mask))
        alone = Rewriter(SETS, unproven_facts()).rewrite(position)
        narrowed += found.src[1] is not alone
        for values in itertools.product(range(12), range(5), range(8)):
            at = dict(zip((R0, R1, R2), values))
            is_open = value(mask, at)
            assert is_open == (value(found.src[2], at) if len(found.src) > 2 else True)
            assert not is_open or value(position, at) == value(found.src[1], at)
    assert narrowed > 5


@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_keeps_the_promises_of_its_extractor(seed: int) -> None:
    """Less load, or as much and less size, or fewer conjuncts: verify/dsl/promises.py."""
    rng = random.Random(seed)
    known = unproven_facts()
    at_work = Rewriter(SETS, known)
    at_work.rewrite(R0 + 1)
    known.narrowing = at_work.narrowing
    assert known.narrowing is not None
    tried = set()
    for _ in range(300):
        mask = at_work.rewrite(random_mask(rng, rng.randint(1, 3)))
        truth = at_work.rewrite(random_mask(rng, rng.randint(1, 3)))
        position = at_work.rewrite(random_index(rng))
        found = known.narrowing.find("narrow", position, mask)
        if found is not None:
            tried.add("narrow")
            lighter = load_of(known.forms.read(position)) - load_of(known.forms.read(found))
            assert lighter >= 0
            for leaf in (3, 5):
                assert lighter or weighted_size(found, leaf) < weighted_size(position, leaf)
        found = known.narrowing.find("narrow_truth", truth, mask)
        if found is not None:
            tried.add("narrow_truth")
            assert load(found, known.forms) < load(truth, known.forms)
        found = known.narrowing.find("implied", truth, mask)
        if found is not None:
            tried.add("implied")
            assert found.op is CONST or set(conjuncts(found)) < set(conjuncts(truth))
    assert tried == {"narrow", "narrow_truth", "implied"}


def weighted_size(term: UOp, leaf: int) -> int:
    """As the measure of that name weighs an index term, loops `leaf` (verify/dsl/termination.py)."""
    if term.op is CONST or term.op is RANGE:
        return leaf if term.op is RANGE else 2
    weights = [weighted_size(source, leaf) for source in term.src]
    if term.op is Ops.MUL:
        return weights[0] * weights[1]
    if term.op is Ops.FLOORDIV or term.op is Ops.MOD:
        return weights[0] ** 2 + weights[1] + (1 if term.op is Ops.FLOORDIV else 2)
    return sum(weights) + 1


@pytest.mark.parametrize(
    ("after", "before", "is_lighter"),
    [
        (R1 // 2, (R1 * 4 + R0) // 8, True),
        (R1 // 2 + R0, (R1 * 4 + R0) // 8, False),
        (R1 // 2 + 5, (R1 * 4 + R0) // 8 + 1, True),
        (R1 // 2, R1 // 4, False),
        (R2 // 2, (R1 * 4 + R0) // 8, False),
        (R1 // 2 * 3, (R1 * 4 + R0) // 8, False),
        (R1 % 2, (R1 * 4 + R0) // 8, False),
        (R0 + R1, (R1 * 4 + R0) // 8, True),
    ],
)
def test_of_as_much_load_less_is_what_has_summands_left_out(
    after: UOp, before: UOp, is_lighter: bool
) -> None:
    forms = (_known := unproven_facts()).forms
    sums = [forms.read(term) for term in (after, before)]
    assert sum_order.is_lighter(*sums) == is_lighter
    if is_lighter and load_of(sums[0]) == load_of(sums[1]):
        assert weighted_size(after, 3) < weighted_size(before, 3)


def conjuncts(truth: UOp) -> list[UOp]:
    return [truth] if truth.op is not AND else conjuncts(truth.src[0]) + conjuncts(truth.src[1])


def load(truth: UOp, forms: object) -> int:
    sums = [forms.read(side) for part in conjuncts(truth) for side in part.src]  # type: ignore[attr-defined]
    return sum(load_of(form) for form in sums if form is not None)


@pytest.mark.parametrize("off", [-1, 1])
def test_bounds_that_the_mask_does_not_claim_are_not_used(
    monkeypatch: pytest.MonkeyPatch, off: int
) -> None:
    read = narrowing.Narrowing._bounds

    def wrong(self: narrowing.Narrowing, part: UOp) -> object:
        found = read(self, part)
        if found is None:
            return None
        core, low, high = found
        return core, None if low is None else low + off, None if high is None else high + off

    position, mask = R0 % 4, (3 < R0) & (R0 < 8)
    assert position_within(position, mask) is not position
    monkeypatch.setattr(narrowing.Narrowing, "_bounds", wrong)
    assert position_within(position, mask) is position
    assert position_within(position, R0.eq(6)) is position
