"""Rules that other systems shipped and that are wrong: each has a source and a counterexample, and
what is right of it is proved. That they are refuted is checked in test_prover.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proofgrad.core.rewrite.ledger import PROVED
from proofgrad.rules.library import PROOFS
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.prove.rules import Result, prove_rules

SYSTEMS = ("tinygrad", "halide", "tvm", "compilers")
NUMBERED = re.compile(r"[alhptv][0-9]{2}_")


def refuted(system: str) -> Path:
    return PROOFS / "refuted" / f"{system}.rules"


def corrected(system: str) -> Path:
    return PROOFS / "corrected" / f"{system}.rules"


def names(path: Path) -> list[str]:
    return [rule.name for rule in parse_rules(path.read_text(), path.name, False).rules]


def test_none_of_the_known_wrong_rules_is_missing() -> None:
    found = [name[:3] for system in SYSTEMS for name in names(refuted(system))]
    assert len(found) == len(set(found)) == 105


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_wrong_rule_has_a_counterexample_and_a_source(system: str) -> None:
    text = refuted(system).read_text()
    for name in names(refuted(system)):
        assert NUMBERED.match(name)
        above = text.split(f"\nrule {name}")[0].rsplit("\n\n", 1)[1]
        counterexample, source = above.splitlines()[-2:]
        assert re.fullmatch(r"# .+: .+ against .+", counterexample), name
        assert source.startswith("# https://"), name


@pytest.mark.long
@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_right_of_them_is_proved(system: str) -> None:
    rules = parse_rules(corrected(system).read_text(), system, check_order=False).rules
    assert {rule.name for rule in rules} <= set(names(refuted(system)))
    results = prove_rules(rules)
    assert {
        r.rule.name: r.reason for r in results if r.verdict != PROVED and not _is_strict(r)
    } == {}
    assert all(result.agreement is not None and result.agreement.is_met for result in results)


def _is_strict(result: Result) -> bool:
    """Proved, with a condition that it does not need: these are printed as they were shipped."""
    return "is not needed for soundness" in result.reason


def test_a_rule_that_is_wrong_only_where_a_remainder_is_undefined_is_right_here() -> None:
    text = "ruleset total over signed\nrule sign: truncmod(y, -x) => truncmod(y, x)\n"
    (result,) = prove_rules(parse_rules(text, check_order=False).rules)
    assert result.verdict == PROVED
