"""One reading of a rule: what the parser elaborates is what is proved, sampled, run and shown.

Wrong rules that two parts of the system would read differently are refuted (proofs/refuted/readings.rules,
checked in test_prover.py) or refused with their position; what is right of them is proved; and rules with
computed constants do in the engine what the interpreter says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import z3
from rules_from_text import rules_from, unproven_facts

import proofgrad
from proofgrad import Tensor
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.functions import (
    ARG_FUNCTIONS,
    FACTS,
    NUMBER_FUNCTIONS,
    TYPE_FUNCTIONS,
    TYPE_NUMBERS,
)
from proofgrad.core.rewrite.ledger import PROVED
from proofgrad.core.rewrite.rule import Apply, Calc, Const, Instance, Lit, Name, Node, Rule, Var
from proofgrad.core.rewrite.sorts import (
    ARITHMETIC,
    EQUALITY,
    ORDER,
    SIGNATURES,
    IllSorted,
    check_sorts,
)
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.library import PROOFS, library_names, rule_file
from proofgrad.verify.dsl.errors import RuleError
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode.fresh_terms import fresh_terms
from proofgrad.verify.encode.integers import Integers, Quotients
from proofgrad.verify.encode.strict_sorts import Coerced
from proofgrad.verify.encode.types import cases
from proofgrad.verify.explain.counterexample import explain
from proofgrad.verify.prove.rules import Result, prove_rules
from proofgrad.verify.sample.rules import About, drawn


def parsed(text: str) -> Rule:
    (rule,) = parse_rules(f"ruleset t over int\n{text}", check_order=False).rules
    return rule


def proved(text: str) -> Result:
    (result,) = prove_rules([parsed(text)], processes=1)
    return result


# -- what does not fit together is refused, with its position ------------------------------------------------

ILL_SORTED = [
    # rule, what the caret points at, a part of the reason
    ("rule a (T in int) over tensor: expand(sum[a](x), s) => x where is_no_flip(a)", "a", "axes"),
    (
        "rule a over tensor: pad(shrink(x, p), q) => x where is_empty(expanded_axes(p, q))",
        "p",
        "ends",
    ),
    ("rule a over tensor: pad(x, p) => x where is_identity(p)", "p", "padding"),
    ("rule a over tensor: reshape(x, s) => permute(x, s)", "s", "shape"),
    ("rule a over tensor: flip(x, a) => flip(x, compose(a, a))", "a", "flips"),
    ("rule a over tensor: flip(shrink(x, a), b) => x where a == b", "a == b", "compared"),
    ("rule a over tensor: flip(x, a) => x where a == 0", "a == 0", "compared"),
    ("rule a over tensor: flip(x, a) => x where a < 1", "a", "flips"),
    ("rule a over float32: x / c => x where is_power_of_two(c)", "c", "integer"),
    ("rule a over float: x + c => x where divides(c, 2)", "c", "integer"),
    ("rule a over int: x + c => x where c & 1.0 == 0", "1.0", "integer"),
    ("rule a over float: x + y => x where divisor(x) == 2", "divisor(x)", "divisor"),
    ("rule a over int: x + y => x where not_nan(x)", "not_nan(x)", "not_nan"),
    ("rule a over index: x + y => x where may(x) == 0", "may(x)", "may"),
    ("rule a over int: x + c => x where (c < 1) == 1", "(c < 1) == 1", "compared"),
    ("rule a over float: exp2(c) => {wrap: exp2(c)}", "exp2(c)", "approximated"),
    ("rule a over float: sin(c) + x => x + {wrap: 1.0 * sin(c)}", "1.0 * sin(c)", "approximated"),
]


@pytest.mark.parametrize(("rule", "at", "reason"), ILL_SORTED)
def test_parts_that_do_not_fit_are_refused_with_their_position(
    rule: str, at: str, reason: str
) -> None:
    with pytest.raises(RuleError, match=reason) as refused:
        parsed(rule)
    *_, line, caret = str(refused.value).splitlines()
    position = re.search(r"\^+", caret)
    assert refused.value.line == 2 and position is not None
    assert line[position.start() : position.end()] == at


def test_every_function_of_conditions_has_a_signature() -> None:
    known = {*SIGNATURES, *ARITHMETIC, *EQUALITY, *ORDER, *FACTS, "pair"}
    assert {*NUMBER_FUNCTIONS, *ARG_FUNCTIONS, *TYPE_FUNCTIONS, *TYPE_NUMBERS, *FACTS} <= known


def test_every_rule_of_the_library_passes() -> None:
    for name in library_names():
        for rule in parse_rules(rule_file(name).read_text(), name, False).rules:
            check_sorts(rule)


_x, _c = Var("x", "T"), Const("c", "T")
_plus = Node("ADD", (_x, _c), "T")
BROKEN = {
    "operands of two types": Node("ADD", (_x, Lit(1, "int8")), "T"),
    "a comparison that is no bool": Node("CMPLT", (_x, _c), "T"),
    "a constant of another type": Calc(Lit(1, "int8"), "T", "wrap"),
    "a constant made of a variable": Calc(_plus, "T", "wrap"),
    "a truth as a number": Calc(Apply("<", (Name("c"), Name("c"))), "T"),
    "a position in what is no counter": Instance("x", "T", "x", Lit(0, "index")),
    "a truth for a number": Instance("x", "T", "c", Lit(True, "bool")),
    "a name of the left side at another type": Var("x", "int8"),
    "an unbound name": Var("y", "T"),
    "an arg that is none": Node("FLIP", (_x,), "T", None),
}


@pytest.mark.parametrize("right", BROKEN.values(), ids=BROKEN.keys())
def test_data_that_no_parser_made_is_checked_too(right: Node) -> None:
    rule = parsed("rule a over int: x + c => x")
    broken = Rule(rule.name, rule.ruleset, rule.kind, rule.domains, rule.types, rule.left, (right,))
    with pytest.raises(IllSorted):
        check_sorts(broken)
    (result,) = prove_rules([broken], processes=1)
    assert result.verdict == "unknown" and "not well formed" in result.reason


def test_a_truth_is_no_position_of_a_loop() -> None:
    result = proved(
        "rule a (T in int) over loop: product[r, R](where(g, v * cast(q: bool, T), 1)) =>"
        " product[R](where(p & (i < {count(r)}), v[q := false] * cast(q, T), 1))"
        " where independent(i, r), independent(p, r), independent(q, r), lo(i) == 0, hi(i) == 0"
        " let (i, p, a, b, s) = solve(g, r)"
    )
    assert result.verdict == "refuted"
    assert result.reason.endswith("which reads a loop outside of it")


# -- conditions that nothing meets ------------------------------------------------------------------------

VACUOUS = [
    "rule a: x + y => x where 1 == 2",
    "rule a: x + c => x where c < 0, 0 < c",
    "rule a (T in int) over loop: sum[R](x * y) => sum[R](y) where 1 == 2",
    "rule a (T in int) over loop: sum[r, R](x) => sum[R](x) where count(r) == 1, count(r) == 2",
    "rule a over tensor: flip(x, a) => x where shape(x) == shape(pad(x, p)), is_zero_pad(p), 1 == 2",
    "bounds a over index: x + y in [lo(x), hi(y)] where lo(x) < 0, 0 <= lo(x)",
    "fact a over float: finite(x / y) where lo(x) < 0.0, 1.0 < lo(x)",
]


@pytest.mark.parametrize("rule", VACUOUS)
def test_a_rule_that_no_values_meet_is_not_proved(rule: str) -> None:
    try:
        result = proved(rule)
    except RuleError:
        return  # nothing on the left binds what the condition asks
    assert result.verdict == "unknown"


# -- what is right of them is proved ----------------------------------------------------------------------


@pytest.mark.long
def test_what_is_right_of_wrong_readings_is_proved() -> None:
    text = (PROOFS / "corrected" / "readings.rules").read_text()
    results = prove_rules(parse_rules(text, check_order=False).rules)
    assert {r.rule.name: r.reason for r in results if r.verdict != PROVED} == {}
    assert all(result.agreement is not None and result.agreement.is_met for result in results)


COMPUTED = [
    "rule a over index: 0 < c + d => {wrap: 0 < c + d}",
    "rule a over index: c * d < 0 => {wrap: c * d < 0}",
    "rule a over int8: where(k, 2: T, 3) => {wrap: where(k, 2, 3)}",
    "rule a over int32: where(x < 5, c, x) < 5 => (x < 5) & {wrap: c < 5}",
    "rule a over cast: cast(c: int8, int16) * 2 => {wrap: cast(c, int16) * 2}",
    "rule a over cast: cast(c * 2: int8, int16) => {wrap: cast(c * 2, int16)}",
]


@pytest.mark.parametrize("rule", COMPUTED)
def test_a_number_in_a_computed_constant_has_the_type_of_its_position(rule: str) -> None:
    assert proved(rule).verdict == PROVED, explain(proved(rule))


def test_literals_keep_the_sign_of_zero() -> None:
    (right,) = parsed("rule a over float: x + c => {wrap: c * -0.0}").right
    assert isinstance(right, Calc) and isinstance(right.value, Node)
    assert right.value.src[1] == Lit(-0.0, "T") != Lit(0.0, "T")


@pytest.mark.long
def test_the_remainder_of_a_shifted_term_is_proved_as_it_was_asked() -> None:
    """With a condition that the others imply, the law itself holds all the same."""
    result = proved(
        "rule a over index: (x + c1) % c2 == c3 => x % c2 == {(c3 - c1) % c2}"
        " where c2 > 0, 0 <= c3, c3 < c2"
    )
    assert [o.decision.method for o in result.obligations] == ["remainders"]
    assert "`0 < c2` is not needed" in result.reason


@pytest.mark.parametrize("divisor", [1, 2, 3, 7])
def test_different_multiples_differ_by_the_divisor(divisor: int) -> None:
    """The lemma of remainders, for all small quotients."""
    with fresh_terms():
        arithmetic = Integers(Quotients.FRESH)
        y = z3.Int("y")
        for name in "pqr":
            arithmetic.floor(z3.Int(name), y)
        claim = z3.And(*arithmetic.spaced_multiples())
        quotients = [z3.Int(f"quotient#{k}") for k in range(3)]
        for values in product((-2, -1, 0, 1, 5), repeat=3):
            chosen = [(q, z3.IntVal(v)) for q, v in zip(quotients, values)]
            assert z3.is_true(z3.simplify(z3.substitute(claim, *chosen, (y, z3.IntVal(divisor)))))


# -- values within the bounds of conditions -------------------------------------------------------------

BOUNDED = [
    ("rule a: x + c => x where 3 <= x, x < 6, c == 77", {"x": (3, 5), "c": (77, 77)}),
    ("rule a over index: x % c => x where 0 < c, c < 9, 0 <= x, x < c", {"x": (0, 7), "c": (1, 8)}),
    ("rule a over float32: x + y => x where 1.0 <= x, x <= 2.0", {"x": (1.0, 2.0)}),
    ("rule a over uint8: x + c => x where 250 < c", {"c": (251, 255)}),
]


@pytest.mark.parametrize(("rule", "ends"), BOUNDED)
def test_values_are_drawn_where_a_rule_speaks_of_them(rule: str, ends: dict[str, Any]) -> None:
    case = list(cases(parsed(rule)))[-1]
    source, about = Random(1), About(case)
    choices = [drawn(case, about, source) for _ in range(400)]
    meant = [c for c in choices if all(low <= c[n] <= high for n, (low, high) in ends.items())]
    assert len(meant) > 150


# -- the engine does what was proved ----------------------------------------------------------------------


@pytest.fixture
def rules_of(tmp_path: Path) -> Iterator[None]:
    yield
    compiler().library._added.clear()


def _loaded(folder: Path, text: str) -> None:
    file = folder / "readings.rules"
    file.write_text(f"ruleset readings over int\n{text}\n")
    proofgrad.load_rules(file)


def _chosen(first: int, second: int, dtype: str) -> Tensor:
    return Tensor([True, False]).where(
        Tensor.full((2,), first, dtype=dtype), Tensor.full((2,), second, dtype=dtype)
    )


@pytest.mark.usefixtures("rules_of")
def test_a_computed_constant_wraps_at_the_type_of_each_operation(tmp_path: Path) -> None:
    _loaded(
        tmp_path,
        "rule a over cast: cast(where(p, c1: uint8, c2) << 1, int32) =>"
        " where(p, {wrap: cast(c1 << 1, int32)}, {wrap: cast(c2 << 1, int32)})\n"
        "rule b over cast: cast(where(p, c: int8, d) * 2, int64) =>"
        " where(p, {wrap: cast(c * 2, int64)}, {wrap: cast(d * 2, int64)})\n"
        "rule d over int32: max(where(p, c1, c2), 1) == 5 =>"
        " where(p, {wrap: max(c1, 1) == 5}, {wrap: max(c2, 1) == 5})\n"
        "rule e over int32: where(x < 5, c, x) < 5 => (x < 5) & {wrap: c < 5}",
    )
    assert (_chosen(200, 3, "uint8") << 1).cast("int32").tolist() == [144, 6]
    assert (_chosen(100, 7, "int8") * 2).cast("int64").tolist() == [-56, 14]
    assert (_chosen(5, 1, "int32").maximum(1) == 5).tolist() == [True, False]
    x = Tensor([1, 9, 4], dtype="int32")
    assert ((x < 5).where(3, x) < 5).tolist() == [True, False, True]


@pytest.mark.usefixtures("rules_of")
def test_a_loop_that_never_runs_is_not_one_that_runs_once(tmp_path: Path) -> None:
    _loaded(
        tmp_path,
        "rule pinned over index: x => {lo(x)} where lo(x) == hi(x) or (0 <= lo(x) and hi(x) < 0)",
    )
    assert (Tensor.ones(3, 0, dtype="int32").contiguous() + 1).sum(axis=1).tolist() == [0, 0, 0]
    assert (Tensor.full((3, 0), 5, dtype="int32") + 7).prod(1).tolist() == [1, 1, 1]
    assert Tensor.full((3, 1), 5, dtype="int32").sum(1).tolist() == [5, 5, 5]


ANY_COUNTER = "ruleset t over index\nrule first: x => 0 where lo(x) == 0, hi(x) < 9\n"


@pytest.mark.parametrize(("size", "is_kept"), [(0, True), (1, False), (2, True), (None, True)])
def test_only_a_loop_that_runs_once_is_dropped(size: int | None, is_kept: bool) -> None:
    """Whatever a rule says of the values of its counter; None: a size that may be 0 or 1."""
    count = UOp(Ops.VARIABLE, dtypes.index, (), ("n", 0, 1)) if size is None else size
    loop = UOp.range(count, 0)
    total = UOp(Ops.REDUCE, dtypes.int32, (loop.cast(dtypes.int32) + 7, loop), Ops.ADD)
    found = Rewriter([rules_from(ANY_COUNTER)], unproven_facts()).rewrite(total)
    assert (len(found.src) > 1) is is_kept


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_bounds_always_have_a_number_between_them(size: int) -> None:
    low, high = unproven_facts().interval(UOp.range(size, 0))
    assert low == 0 and (high is None or low <= high)


# -- terms of the solver keep their sorts -----------------------------------------------------------------


def _mixtures() -> list[object]:
    i, r, p = z3.Int, z3.Real, z3.Bool
    bits = lambda: z3.BitVec("b", 8)  # noqa: E731
    f = lambda: z3.Function("f", z3.IntSort(), z3.IntSort())  # noqa: E731
    half = lambda: z3.FP("h", z3.Float16())  # noqa: E731
    return [
        lambda: i("i") + p("p"),
        lambda: p("p") + 1,
        lambda: p("p") * i("i"),
        lambda: 2 * p("p"),
        lambda: i("i") == p("p"),
        lambda: i("i") < r("r"),
        lambda: f()(p("p")),
        lambda: z3.If(p("p"), i("i"), p("q")),
        lambda: z3.If(p("p"), i("i"), r("r")),
        lambda: z3.If(True, i("i"), i("j")),
        lambda: z3.Not((1, 2) != (1, 3)),
        lambda: z3.And(p("p"), None == p("p")),  # noqa: E711
        lambda: z3.And(True, True),
        lambda: z3.Implies(False, p("p")),
        lambda: bits() == 300,
        lambda: bits() < -129,
        lambda: bits() + True,
        lambda: i("i") + 1.5,
        lambda: r("r") * 0.1,
        lambda: i("i") == "7",
        lambda: half() + 1,
        lambda: half() == 1.0,
    ]


@pytest.mark.parametrize("mixture", _mixtures())
def test_no_term_of_the_solver_is_taken_for_one_of_another_sort(mixture: object) -> None:
    with fresh_terms(), pytest.raises((Coerced, z3.Z3Exception)):
        mixture()  # type: ignore[operator]


def test_outside_of_proofs_the_solver_is_as_it_was() -> None:
    with fresh_terms():
        pass
    assert z3.is_int(z3.Int("i") + z3.Bool("p"))
