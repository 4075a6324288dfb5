"""Laws of reals on whole numbers: refutes most wrong ones at once, where a solver would search.

Owns: the choice of numbers. Does not own: what a law claims (encode/loose.py).
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

import z3
from z3 import z3util

from proofgrad.verify.encode.fresh_terms import fresh_terms
from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.loose import law_of_reals
from proofgrad.verify.encode.types import Case

DRAWS = 3  # two polynomials that differ do so at nearly every choice
LARGEST = 99
# The names that encode/derivative.py gives to ln 2 and 1 / ln 2: a law holds for any that its premises
# admit, and no whole numbers are each other's reciprocal by chance.
_LOGARITHMS = {"ln2#": Fraction(2, 3), "one_over_ln2#": Fraction(3, 2)}


def refutes_reals(case: Case) -> bool:
    """Whether numbers were found at which a law of reals is wrong; not if it has no meaning there."""
    random = Random(case.rule.full_name)
    try:
        with fresh_terms():
            return any(_is_false(goal, random) for goal in law_of_reals(case) for _ in range(DRAWS))
    except (ValueError, TypeError, z3.Z3Exception):  # no terms of SMT in this way
        return False


def _is_false(goal: Goal, random: Random) -> bool:
    """At one choice the premises hold and the conclusion does not; unknown functions decide nothing."""
    claim = z3.Implies(z3.And(*goal.premises), goal.conclusion)
    names = [term for term in z3util.get_vars(claim) if z3.is_real(term)]
    numbers = {name: random.randint(-LARGEST, LARGEST) for name in names}
    values = [(name, z3.RealVal(_LOGARITHMS.get(str(name), numbers[name]))) for name in names]
    return bool(z3.is_false(z3.simplify(z3.substitute(claim, *values))))
