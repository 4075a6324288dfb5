"""Laws of casts to floats of many bits, decided by what rounding keeps."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import z3

from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode.opaque_casts import Cast, facts_of_cast, facts_of_casts
from proofgrad.verify.encode.types import cases
from proofgrad.verify.prove.case import decide
from proofgrad.verify.prove.portfolio import attempts

NEAREST = z3.RNE()
SMALL = [z3.FPSort(3, 4), z3.FPSort(4, 3), z3.FPSort(4, 6)]


def holds(claim: Any) -> bool:
    solver = z3.Solver()
    solver.add(z3.Not(claim))
    return bool(solver.check() == z3.unsat)


def claims(casts: list[Cast]) -> list[Any]:
    return [*facts_of_cast(casts[0]), *facts_of_casts(*casts)]


@pytest.mark.parametrize(("given", "to"), list(product(SMALL, SMALL)), ids=str)
def test_what_is_said_of_rounding_floats_holds(given: Any, to: Any) -> None:
    named = [z3.FP(name, given) for name in "xy"]
    casts = [Cast(x, z3.fpFPToFP(NEAREST, x, to), True, NEAREST) for x in named]
    for claim in claims(casts):
        assert holds(claim), claim


@pytest.mark.parametrize("bits", [3, 4, 5, 7])
@pytest.mark.parametrize("is_signed", [True, False])
@pytest.mark.parametrize("to", SMALL, ids=str)
def test_what_is_said_of_rounding_integers_holds(bits: int, is_signed: bool, to: Any) -> None:
    """Of more bits than the float has digits, and than its exponents reach."""
    convert = z3.fpSignedToFP if is_signed else z3.fpUnsignedToFP
    named = [z3.BitVec(name, bits) for name in "xy"]
    casts = [Cast(x, convert(NEAREST, x, to), is_signed, NEAREST) for x in named]
    for claim in claims(casts):
        assert holds(claim), claim


def test_casts_of_other_types_or_roundings_are_not_compared() -> None:
    x, y, z = z3.BitVec("x", 8), z3.BitVec("y", 16), z3.BitVec("z", 8)
    to, down = z3.Float32(), z3.RTN()
    signed = Cast(x, z3.fpSignedToFP(NEAREST, x, to), True, NEAREST)
    others = [
        Cast(y, z3.fpSignedToFP(NEAREST, y, to), True, NEAREST),
        Cast(z, z3.fpUnsignedToFP(NEAREST, z, to), False, NEAREST),
        Cast(z, z3.fpSignedToFP(down, z, to), True, down),
    ]
    assert [facts_of_casts(signed, other) for other in others] == [[], [], []]
    assert facts_of_casts(signed, Cast(z, z3.fpSignedToFP(NEAREST, z, to), True, NEAREST))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("max(cast(x: int64, float64), cast(y: int64, float64)) => cast(max(x, y), float64)", True),
        ("min(cast(x: uint64, float16), cast(y: uint64, float16)) => cast(min(x, y), float16)", True),
        ("cast(x: float32, float64) < cast(y: float32, float64) => x < y", True),
        ("cast(x: int32, float64) == cast(y: int32, float64) => x == y", True),
        ("cast(x: float64, float32) < cast(y: float64, float32) => x < y", False),
        ("cast(x: int64, float64) == cast(y: int64, float64) => x == y", False),
        ("cast(x: int64, float64) < cast(y: uint64, float64) => cast(x, uint64) < y", False),
    ],
)  # fmt: skip
def test_laws_of_casts_of_many_bits_are_decided_in_few_steps(line: str, expected: bool) -> None:
    text = f"ruleset t over cast\nrule a: {line}\n"
    (case,) = cases(parse_rules(text, check_order=False).rules[0])
    tried = [a for a in attempts(case) if a.method == "bits, casts opaque"]
    assert (decide(case, tried).verdict == "unsat") == expected
