"""Sums of index terms: arithmetic, reading, writing, and the laws that allow working with them."""

from __future__ import annotations

import random

import pytest
from random_terms import TermMaker, same, value_of
from rules_from_text import rules_from, unproven_library

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite import searches
from proofgrad.core.rewrite.division_bounds import bounds_code, division_bounds, division_code
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.index_terms import index_program
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.sum_laws import LAWS, is_collector, missing_laws
from proofgrad.core.rewrite.sum_order import goes_down
from proofgrad.core.rewrite.sums import MOST_TERMS, add, interval, scale
from proofgrad.rules.library import load_library
from proofgrad.rules.pipeline import KERNEL_STAGES

R0, R1, R2 = UOp.range(4, 0), UOp.range(5, 1), UOp.range(6, 2)
SIMPLIFY = ("algebra", "compare", "where", "cast", "divmod", "ranges", "reduce")


def facts() -> Facts:
    return Facts(unproven_library()["bounds"])


def sets() -> list[RuleSet]:
    return [unproven_library()[name] for name in SIMPLIFY]


# -- sums ----------------------------------------------------------------------------------------


def test_a_term_is_read_with_like_terms_collected() -> None:
    forms = (_known := facts()).forms
    found = forms.read(R0 * 3 - R1 + 4 - (R0 * 2 - 1) + UOp.index(2) * R1)
    assert found is not None
    assert (found[0], found[1]) == ({forms.wrapped(R0): 1, forms.wrapped(R1): 1}, 5)
    assert (found.low, found.high) == (5, 12)


def test_equal_sums_are_one_object_and_one_term() -> None:
    forms = (_known := facts()).forms
    for a, b in ((R0 * 2 + R1, R1 + R0 * 2), (R0 + 3 + R1, R1 + R0 + 3), (R0 - R0, UOp.index(0))):
        first, second = forms.read(a), forms.read(b)
        assert first is second is not None
        assert forms.read(forms.written(first)) is first


def test_divisions_by_numbers_are_read_through_and_written_back() -> None:
    forms = (_known := facts()).forms
    term = (R0 + R1 * 4) // 3 % 2 * 5 + R2 // R1
    found = forms.read(term)
    assert found is not None
    assert sorted([atom.kind is None for atom in found[0]]) == [False, True]
    assert forms.written(found) is term or forms.read(forms.written(found)) is found


def test_a_nest_of_5000_divisions_is_read_and_written() -> None:
    node = R0
    for k in range(5_000):
        node = (node + R1 * (k % 3 + 1)) // 2
    forms = (_known := facts()).forms
    found = forms.read(node)
    assert found is not None
    assert forms.read(forms.written(found)) is found


def test_a_term_too_large_to_look_at_is_one_summand() -> None:
    term = R0
    for k in range(2 * MOST_TERMS):
        term = term + UOp.range(9, k + 10)
    found = (_known := facts()).forms.read(term)
    assert found is not None
    assert [atom.node for atom in found[0]] == [term]
    assert Rewriter(sets(), facts()).rewrite(term - term) is UOp.index(0)


def test_machine_integers_are_not_read() -> None:
    assert (_known := facts()).forms.read(UOp.const(dtypes.int32, 3)) is None


@pytest.mark.parametrize("seed", range(3))
def test_arithmetic_of_sums_is_that_of_integers(seed: int) -> None:
    for k in range(60):
        maker = TermMaker(100 * seed + k, (dtypes.index,) * 3)
        forms = (_known := facts()).forms
        a, b = [maker.term(dtypes.index, 3) for _ in range(2)]
        factor = maker.random.randint(-3, 3)
        first, second = forms.read(a), forms.read(b)
        assert first is not None and second is not None
        total = forms.written(add(first, scale(second, factor)))
        low, high = interval(add(first, scale(second, factor)))
        for _ in range(8):
            given = maker.leaf_values()
            expected = value_of(a, given) + factor * value_of(b, given)
            assert same(value_of(total, given), expected)
            assert low is None or low <= expected
            assert high is None or expected <= high


# -- bounds of divisions -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Ops.FLOORDIV, Ops.MOD])
def test_bounds_of_divisions_are_those_of_the_rules(kind: Ops) -> None:
    bounds = unproven_library()["bounds"]
    bounded = division_bounds(division_code(bounds.rules))[kind]
    rng = random.Random(int(kind))
    memory = UOp(Ops.PARAM, dtypes.index, (), (0, 1))
    leaf = UOp(Ops.LOAD, dtypes.index, (UOp(Ops.INDEX, dtypes.index, (memory, UOp.index(0))),))
    for _ in range(400):
        ends = sorted([rng.randint(-20, 20), rng.randint(-20, 20)])
        low, high = [None if rng.random() < 0.15 else end for end in ends]
        number = rng.randint(-6, 12)
        known = facts()
        known.assume(leaf, (low, high))
        term = UOp(kind, dtypes.index, (leaf, UOp.index(number)))
        assert bounded(low, high, number) == known.interval(term)


def test_a_line_that_gives_no_end_leaves_it_to_the_next() -> None:
    rules = rules_from(
        "ruleset b over index\n"
        "bounds first: x // y in [lo(x) // lo(y), hi(x) // lo(y)] where 4 < y\n"
        "bounds second: x // y in [-7, 7]\n"
    )
    bounded = division_bounds(division_code(rules.rules))[Ops.FLOORDIV]
    assert bounded(10, None, 5) == (2, None)
    assert bounded(None, None, 5) == (-7, 7)
    assert bounded(10, 20, 2) == (-7, 7)
    assert "# rule 0\n" in bounds_code(Ops.FLOORDIV, rules.rules)


# -- the laws ------------------------------------------------------------------------------------


def test_every_law_of_sums_is_a_rule_with_evidence() -> None:
    library = load_library()
    names = next(stage.step.names for stage in KERNEL_STAGES if stage.name.startswith("simplify"))
    rules = [rule for name in names for rule in library[name].rules]
    assert missing_laws(rules) == []
    assert any(is_collector(rule) for rule in rules)
    assert all(library[name].proven for name in names)


@pytest.mark.parametrize("law", list(LAWS))
def test_without_one_of_the_laws_terms_are_rewritten_as_trees(law: str) -> None:
    rules = unproven_library()["algebra"].rules
    without = [rule for rule in rules if law not in _laws_stated_by_all_but(rule, rules)]
    assert missing_laws(without) == [law]
    assert index_program([RuleSet("algebra", without)]) is None
    assert index_program([RuleSet("algebra", rules)]) is not None


def _laws_stated_by_all_but(rule: object, rules: tuple[object, ...]) -> list[str]:
    """The laws that are lost without `rule`."""
    return missing_laws([other for other in rules if other is not rule])  # type: ignore[misc]


# -- both ways to match --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_sums_and_trees_give_terms_of_the_same_value(seed: int) -> None:
    plain = [RuleSet(s.name, [r for r in s.rules if not is_collector(r)]) for s in sets()]
    for k in range(60):
        maker = TermMaker(1000 * seed + k, (dtypes.index,) * 4)
        term = maker.term(dtypes.index, 4)
        as_sum = Rewriter(sets(), facts()).rewrite(term)
        as_tree = Rewriter(plain, facts()).rewrite(term)
        for _ in range(10):
            given = maker.leaf_values()
            expected = value_of(term, given)
            assert same(value_of(as_sum, given), expected)
            assert same(value_of(as_tree, given), expected)


def test_each_step_that_is_seen_keeps_the_value() -> None:
    steps: list[tuple[str, UOp, UOp]] = []
    makers = [TermMaker(k, (dtypes.index,) * 4) for k in range(60)]
    for maker in makers:
        steps.clear()
        journal = Journal(lambda *step: steps.append(step))
        Rewriter(sets(), facts(), journal).rewrite(maker.term(dtypes.index, 5))
        for name, before, after in steps:
            for _ in range(6):
                given = maker.leaf_values()
                assert same(value_of(before, given), value_of(after, given)), name


def test_rules_of_other_operations_in_a_sum_still_fire() -> None:
    largest = R0.maximum(R1) + R0.minimum(R1)
    assert Rewriter(sets(), facts()).rewrite(largest) is R0 + R1
    chosen = (R0 < 2).where(UOp.index(3), UOp.index(5))
    assert Rewriter(sets(), facts()).rewrite(chosen + 1) is (R0 < 2).where(
        UOp.index(4), UOp.index(6)
    )


@pytest.mark.parametrize(
    "rule",
    [
        "wrong over int: x * 4 // 4 => x",
        "wrong (T in int) over loop: x // 3 => x",
        "wrong over uint8: x % 7 => x",
        "wrong over int: x + x => x",
    ],
)
def test_rules_of_other_types_say_nothing_of_sums(rule: str) -> None:
    added = rules_from(f"ruleset t over index\nrule {rule}")
    journal = Journal()
    for term in ((R0 * 4 + 3) // 4, (R0 + R1) // 3, (R0 + R1 + R2) % 7, R0 + R0):
        expected = Rewriter(sets(), facts()).rewrite(term)
        assert Rewriter([added, *sets()], facts(), journal).rewrite(term) is expected
    assert "t.wrong" not in journal.applied


@pytest.mark.parametrize("rule", ["x // -4 => -x // 4", "x % -4 => -(-x % 4)"])
def test_a_rule_for_one_divisor_that_divides_again_fires_where_it_goes_down(rule: str) -> None:
    added = rules_from(f"ruleset t over index\nrule turned: {rule}")
    divide = UOp.__floordiv__ if "//" in rule else UOp.__mod__
    journal = Journal()
    for term in (R0, R0 * 3 + R1, R0 - R1 + 7):
        before = divide(term, -4)
        after = Rewriter([added, *sets()], facts(), journal).rewrite(before)
        for i, j in ((0, 0), (1, 4), (3, 2)):
            given = {R0: i, R1: j}
            assert same(value_of(after, given), value_of(before, given))
    assert "t.turned" in journal.applied


# -- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (R0 % 4, R0 // 4 % 2 + R0),
        (R0 // 4, (R0 * 5) // 4),
        ((R0 + 3) % 4, (R0 - 1) % 4),
        (R0 // 2, R0 // 4),
        (R0 + R1 // 3, (R0 * 3 + R1) // 3),
        (R0 // 2 % 3, R0 % 6 // 2),
        (R0 + 1, R0 * 2 + 1),
        (UOp.index(-5), R0 // 2),
    ],
)
def test_the_order_of_sums(after: UOp, before: UOp) -> None:
    forms = (_known := facts()).forms
    small, large = forms.read(after), forms.read(before)
    assert small is not None and large is not None
    assert goes_down(small, large)
    assert not goes_down(large, small)
    assert not goes_down(small, small)


def test_the_order_of_sums_has_no_circle() -> None:
    forms = (_known := facts()).forms
    maker = TermMaker(7, (dtypes.index,) * 3)
    read = [forms.read(maker.term(dtypes.index, 3)) for _ in range(150)]
    sums = [form for form in read if form is not None]
    below = {id(a): [b for b in sums if goes_down(b, a)] for a in sums}
    depth: dict[int, int] = {}

    def height(form: object, above: frozenset[int]) -> int:
        assert id(form) not in above
        if id(form) not in depth:
            inner = above | {id(form)}
            depth[id(form)] = 1 + max([height(b, inner) for b in below[id(form)]], default=0)
        return depth[id(form)]

    assert max([height(form, frozenset()) for form in sums]) > 10


LARGE = UOp.range(6, 9) // 4 * 1000


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        # x == q*c + r holds for each of them; none is smaller
        ("x % c => r % c where c > 0 let (q, r) = residue(x, c)", (R0 + 1, R1 - 4)),
        ("x // c => q + r // c where c > 0 let (q, r) = split(x, c)", (R0 - LARGE, R1 + LARGE * 4)),
        ("x // c => q where c > 0 let (q, r) = split(x, c)", (LARGE, R0 * 4 + R1 - LARGE * 4)),
    ],
)
def test_a_search_that_answers_in_circles_keeps_its_rule_from_firing(
    rule: str, answer: tuple[UOp, UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("residue", "split"):
        monkeypatch.setitem(
            searches.SEARCHES, name, lambda x, c, forms: tuple([forms.read(a) for a in answer])
        )
    text = rules_from(f"ruleset t over index\nrule wrong: {rule}")
    journal = Journal()
    term = UOp(Ops.MOD if "%" in rule else Ops.FLOORDIV, dtypes.index, (R1 + R0 * 4, UOp.index(4)))
    Rewriter([text, unproven_library()["algebra"]], facts(), journal).rewrite(term)
    assert "t.wrong" not in journal.applied


def test_a_product_of_terms_is_one_summand() -> None:
    forms = (_known := facts()).forms
    found = forms.read(R0 * R1 * 3 + R2)
    assert found is not None
    assert found[0] == {forms.wrapped(R0 * R1): 3, forms.wrapped(R2): 1}


def test_a_long_sum_of_few_terms_is_read_to_its_end() -> None:
    term = R0
    for _ in range(3 * MOST_TERMS):
        term = term + R1
    forms = (_known := facts()).forms
    found = forms.read(term)
    assert found is not None
    assert found[0] == {forms.wrapped(R0): 1, forms.wrapped(R1): 3 * MOST_TERMS}
