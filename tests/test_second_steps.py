"""Goals about integers in steps: hard ones are decided, and nothing that has a model is."""

from __future__ import annotations

import pytest
import z3

from proofgrad.verify.second_solver import _ask_for_steps
from proofgrad.verify.second_steps import can_take_steps, decide_in_steps
from proofgrad.verify.solve import OPEN, PROVED

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
