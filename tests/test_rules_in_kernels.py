"""Every rule about values fires, with its evidence, in a kernel of the whole compiler.

A kernel is made around an instance of the rule's left side. It goes through every stage of the
compiler with all proven rules, is compiled and run, and must store what brute force computes. Rules that name one range of a loop are
left out: a random kernel does not have the mask about its counter that they need.
"""

from __future__ import annotations

import pytest
from rule_coverage import allowed_not_to_fire, not_among_all
from rule_kernels import Witness, kernels_of, may_fire, to_linear, wrong_elements

from proofgrad.core.rewrite.rule import Rule
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.verify.encode.ranges import names_a_range

SETS = ("algebra", "cast", "compare", "divmod", "fp8", "legalise", "ranges", "reduce", "where")
ATTEMPTS = 600


@pytest.mark.parametrize("name", SETS)
def test_every_rule_fires_among_all_others_and_the_kernel_is_right(name: str) -> None:
    every = compiler().library.sets[name].rules
    unseen = allowed_not_to_fire() | not_among_all()
    wanted = [rule for rule in every if rule.full_name not in unseen]
    rules = [r for r in wanted if "tensor" not in r.domains and not names_a_range(r)]
    failures = {rule.full_name: _failure(rule) for rule in rules}
    assert {name: why for name, why in failures.items() if why} == {}


def _failure(rule: Rule) -> str:
    """Why no kernel shows the rule at work; "" if one does."""
    for made in kernels_of(rule, ATTEMPTS):
        if not may_fire(rule, made.kernel):
            continue
        witness = Witness(rule.full_name)
        try:
            linear = to_linear(made.kernel, witness)
        except OverflowError:  # the leaves have no bounds: no machine integer holds them
            continue
        if witness.fired:
            return "; ".join(wrong_elements(made, linear))
    return f"did not fire in {ATTEMPTS} kernels"
