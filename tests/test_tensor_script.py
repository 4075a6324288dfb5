"""The program at the end of a counterexample runs, and prints two different results."""

from __future__ import annotations

import subprocess
import sys
from re import findall

import pytest

from proofgrad import Tensor
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.explain.counterexample import explain
from proofgrad.verify.explain.tensor_script import _FORMS
from proofgrad.verify.prove.rules import prove_rules

HEAD = "  the same with Tensors:\n"


def explanation(line: str, domain: str) -> str:
    rules = parse_rules(f"ruleset wrong over {domain}\n{line}", check_order=False).rules
    (result,) = prove_rules(rules, processes=1)
    assert result.verdict == "refuted"
    return explain(result)


@pytest.mark.parametrize(
    ("line", "domain"),
    [
        ("rule halves: x * 2 // 2 => x", "int8"),
        ("rule zeros: x + 0.0 => x", "float32"),
        ("rule nothing: x * 0.0 => 0.0", "float16"),
        ("rule rounded: (x + y) + -y => x", "bfloat16"),
        ("rule shift: (x + c) << 1 => x << 1", "uint8"),
        ("rule turned: where(x < y, x, y) => max(x, y)", "int32"),
        ("rule negated: !(x < y) => y < x", "float64"),
        ("rule same: x == x => true", "float32"),
        ("rule wide (A in int8, B in uint8): cast(cast(x: A, B), int16) => cast(x, int16)", "cast"),
        ("rule gone: truncdiv(x, c) => x // c", "int16"),
        ("rule near: x // c * c => x", "uint16"),
        ("rule computed: x + c => x + {wrap: c + 1}", "uint64"),
    ],
)
@pytest.mark.timeout(120)
def test_the_script_of_a_counterexample_prints_two_different_results(
    line: str, domain: str
) -> None:
    script = "\n".join(
        [
            shown.removeprefix("    ")
            for shown in explanation(line, domain).split(HEAD)[1].split("\n")
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    left, right = done.stdout.strip("[]\n").split("] [")
    assert left != right


def test_each_method_of_scripts_is_one_of_tensors() -> None:
    methods = {name for form in _FORMS.values() for name in findall(r"\.(\w+)\(", form)}
    assert {"sqrt", "trunc", "maximum"} <= methods
    assert [name for name in sorted(methods) if not hasattr(Tensor, name)] == []


@pytest.mark.parametrize(
    ("line", "domain"),
    [
        ("rule halves: x // 2 * 2 => x", "index"),  # Tensors have no index type
        ("rule double: exp2(x + x) => exp2(x)", "float32"),  # machines round it in their own way
        ("rule digits: tf32(x) => x", "float32"),  # Tensors have no such method
        ("rule bits: bitcast(bitcast(x: int32, float32), int32) => x", "cast"),  # a NaN is any NaN
    ],
)
def test_a_counterexample_that_tensors_cannot_say_has_no_script(line: str, domain: str) -> None:
    shown = explanation(line, domain)
    assert "<-- differs" in shown
    assert HEAD not in shown
