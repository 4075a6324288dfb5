"""Goals about integers in steps: hard ones are decided, and nothing that has a model is."""

from __future__ import annotations

from itertools import product

import pytest
import z3

from proofgrad.verify.audit.second_products import (
    Polynomials,
    Signs,
    degree,
    key_of,
    opposite,
    products_of_pairs,
    products_with_variables,
    text_of_polynomial,
)
from proofgrad.verify.audit.second_solver import _ask_for_steps
from proofgrad.verify.audit.second_steps import can_take_steps, decide_in_steps
from proofgrad.verify.dsl.polynomial import Polynomial
from proofgrad.verify.prove.solve import OPEN, PROVED

pytest.importorskip("cvc5")

RECIPROCAL = """
(declare-fun x () Int) (declare-fun c () Int) (declare-fun m () Int) (declare-fun p () Int)
(declare-fun e () Int) (declare-fun top () Int)
(assert (and (<= 0 x) (<= x top) (> c 0) (>= m 0) (> p 0) (>= e 0)))
(assert (= (* m c) (+ p e)))
(assert (< (* e top) {p}))
(assert (not (= (ite (> c 0) (div x c) 0) (div (* x m) p))))
(check-sat)
"""
CORNERS = """
(declare-fun x () Int) (declare-fun y () Int) (declare-fun top () Int) (declare-fun low () Int)
(assert (and (<= low y) (<= y (- 1)) {above}))
(assert (not (<= (ite (< (div top y) (div top low)) (div top y) (div top low)) (div x y))))
(check-sat)
"""


def decided(text: str) -> str:
    return decide_in_steps(text, _ask_for_steps)


def test_a_quotient_by_reciprocal_is_decided_in_steps() -> None:
    assert decided(RECIPROCAL.format(p="p")) == PROVED


def test_a_reciprocal_that_is_not_close_enough_is_open() -> None:
    assert decided(RECIPROCAL.format(p="(* 2 p)")) == OPEN


def test_bounds_of_a_quotient_by_negative_numbers_are_decided_in_steps() -> None:
    assert decided(CORNERS.format(above="(<= x top)")) == PROVED
    assert decided(CORNERS.format(above="(<= x (+ top 1))")) == OPEN


@pytest.mark.parametrize(
    "claim",
    [
        "(= (ite (> x 0) x (- x)) 3)",
        "(=> (> x y) (= (mod x y) (div x 7)))",
        "(and (= (* x y) 12) (= (f x) (f (+ y 1))))",
        "(distinct (div x 0) (mod y 0))",
        "(< (* x x) (* 2 y) (* y y))",
    ],
)
def test_what_has_a_model_is_never_decided(claim: str) -> None:
    names = "(declare-fun x () Int)(declare-fun y () Int)(declare-fun f (Int) Int)"
    assert decided(f"{names}(assert {claim})(check-sat)") == OPEN


def test_names_that_z3_numbered_stay_those_of_the_goal() -> None:
    """Written in another order they would get other numbers, and conditions another meaning."""
    declared = "(declare-fun any!1 () Int)(declare-fun any!0 () Int)"
    ends = "(assert (>= any!1 5))(assert (<= any!0 (- 5)))"
    choice = "(assert (= (ite (> any!1 0) 1 2) {}))(check-sat)"
    assert decided(declared + ends + choice.format(1)) == OPEN
    assert decided(declared + ends + choice.format(2)) == PROVED


X, Y = ("x",), ("y",)
SUM: Polynomial = {X: 1, Y: 2, (): -3}


def value(polynomial: Polynomial, values: dict[str, int]) -> int:
    total = 0
    for monomial, coefficient in polynomial.items():
        for name in monomial:
            coefficient *= values[name]
        total += coefficient
    return total


@pytest.mark.parametrize("with_variables", [False, True])
@pytest.mark.parametrize(
    "signs",
    [
        Signs(above=[SUM, {X: 1}]),
        Signs(above=[SUM, {X: 1}], either=[{Y: 1, X: -1}, {Y: 1}]),
        Signs(zero=[SUM], above=[{X: 1}], either=[{Y: 1}]),
        Signs(may_be_zero=[SUM], above=[{X: 1}]),
    ],
)
def test_products_hold_wherever_the_signs_do(signs: Signs, with_variables: bool) -> None:
    found = products_with_variables(signs, [{X: 1}]) if with_variables else products_of_pairs(signs)
    x, y = z3.Ints("x y")
    names = "(declare-fun x () Int)(declare-fun y () Int)"
    facts = z3.And(*z3.parse_smt2_string(names + "".join(found)))
    positions = 0
    for at in product(range(-5, 6), repeat=2):
        values = dict(zip("xy", at))
        if all(value(p, values) == 0 for p in signs.zero) and all(
            value(p, values) >= 0 for p in signs.above
        ):
            positions += 1
            here = z3.substitute(facts, (x, z3.IntVal(at[0])), (y, z3.IntVal(at[1])))
            assert z3.is_true(z3.simplify(here)), values
    assert positions >= 3
    assert facts.num_args() >= 1


def test_a_term_and_its_polynomial_have_the_same_values() -> None:
    x, y = z3.Ints("x y")
    term = (x - 2 * y) * (y + 3) - -x * x
    polynomial = Polynomials().of(term)
    assert polynomial == {("x", "x"): 1, ("x", "y"): 1, X: 3, ("y", "y"): -2, Y: -6}
    assert degree(polynomial) == 2
    names = "(declare-fun x () Int)(declare-fun y () Int)"
    (written,) = z3.parse_smt2_string(f"{names}(assert (= 7 {text_of_polynomial(polynomial)}))")
    solver = z3.Solver()
    solver.add(written.arg(1) != term)
    assert solver.check() == z3.unsat
    assert Polynomials().of(z3.If(x > 0, x, y)) is None
    assert Polynomials().of(x / y + 1) is None
    assert key_of(opposite(opposite(polynomial))) == key_of(polynomial)


def test_the_products_and_the_definition_of_division_are_true() -> None:
    a, b = z3.Ints("a b")
    whole, rest = a / b, a % b
    claims = [
        z3.Implies(z3.And(a >= 0, b >= 0), a * b >= 0),
        z3.Implies(a == 0, a * b == 0),
        z3.Implies(b != 0, z3.And(a == whole * b + rest, rest >= 0)),
        z3.Implies(b > 0, rest < b),
        z3.Implies(b < 0, rest < -b),
        (a >= 0) == z3.Not(-a - 1 >= 0),
    ]
    for claim in claims:
        solver = z3.Solver()
        solver.add(z3.Not(claim))
        assert solver.check() == z3.unsat, claim


def test_other_numbers_take_no_steps() -> None:
    assert can_take_steps("(declare-fun x () Int)(assert (> x 0))")
    assert not can_take_steps("(declare-fun x () Real)(assert (> x 0.0))")
    assert not can_take_steps("(assert (forall ((x Int)) (> x 0)))")
    assert not can_take_steps("(declare-fun x () Int)(assert (= (ubv_to_int (_ bv1 2)) x))")
    assert not can_take_steps("(declare-fun p (Int) Bool)(assert (= (fp.neg (_ +zero 5 11)) y))")
