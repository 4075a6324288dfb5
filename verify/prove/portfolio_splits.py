"""One goal as several: for each value of its bools, each power of two, each choice of signs.

Owns: the splits. All goals of a split together are the goal. Does not own: which goals are split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import z3

from proofgrad.core.ir.dtypes import Kind
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import Apply, Const, Expr, Name, Node
from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.integers import QUOTIENT
from proofgrad.verify.encode.semantics import NoMeaning
from proofgrad.verify.encode.types import Case

MOST_SPLITS = 64
MOST_ALTERNATIVES = 8


def alternatives(case: Case) -> list[Case]:
    """The case for each choice among the parts of conditions that `or` joins: together they are it."""
    choices = [_disjuncts(condition) for condition in case.rule.where]
    count = prod([len(choice) for choice in choices])
    if not 1 < count <= MOST_ALTERNATIVES:
        return []
    return [replace(case, rule=replace(case.rule, where=where)) for where in product(*choices)]


def _disjuncts(condition: Expr) -> list[Expr]:
    match condition:
        case Apply("or", parts):
            return [disjunct for part in parts for disjunct in _disjuncts(part)]
        case _:
            return [condition]


def split_values(case: Case, goal: Goal) -> list[Goal]:
    """The goal for each value of its bools and each power of two that a condition asks for."""
    choices = _bools(goal)
    powers = powers_of_two(case)
    for name, (value, dtype) in goal.variables.items():
        if name in powers and z3.is_bv(value):
            top = dtype.bits - (dtype.kind is Kind.SIGNED)
            numerals = [z3.BitVecVal(1 << k, dtype.bits) for k in range(top)]
            choices.append([(value, numeral) for numeral in numerals])
    return _each(goal, choices)


def split_amounts(case: Case, goal: Goal) -> list[Goal]:
    """The goal for each value of a constant that is an amount of a shift, and for all larger ones."""
    for name in _amounts(case.rule.left):
        value, dtype = goal.variables[name]
        numerals = [z3.BitVecVal(k, dtype.bits) for k in range(dtype.bits)]
        larger = with_premise(goal, z3.UGE(value, dtype.bits))
        return [*_each(goal, [[(value, numeral) for numeral in numerals]]), larger]
    raise NoMeaning("no shift by a constant")


def has_amounts(case: Case) -> bool:
    """Whether something is shifted by a constant."""
    return bool(_amounts(case.rule.left))


def _amounts(term: Any) -> list[str]:
    """The constants by which something is shifted."""
    if not isinstance(term, Node):
        return []
    below = [name for source in term.src for name in _amounts(source)]
    shifts = term.op in (Ops.SHL.name, Ops.SHR.name) and isinstance(term.src[1], Const)
    return [*below, term.src[1].name] if shifts else below  # type: ignore[union-attr]


def split_bools(goal: Goal) -> list[Goal]:
    """The goal for each value of its bools."""
    return _each(goal, _bools(goal))


Choices = list[list[tuple[Any, Any]]]


def _bools(goal: Goal) -> Choices:
    truths = [z3.BoolVal(False), z3.BoolVal(True)]
    values = [value for value, dtype in goal.variables.values() if dtype.kind is Kind.BOOL]
    return [[(value, truth) for truth in truths] for value in values]


def _each(goal: Goal, choices: Choices) -> list[Goal]:
    if not choices:
        raise NoMeaning("nothing to split")
    count = prod([len(choice) for choice in choices])
    if count > MOST_SPLITS:
        raise NoMeaning(f"{count} cases are too many")
    return [_substituted(goal, combination) for combination in product(*choices)]


def _substituted(goal: Goal, combination: Sequence[tuple[Any, Any]]) -> Goal:
    """The goal at some values, which its variables have then."""
    variables = {
        name: (z3.substitute(value, *combination), dtype)
        for name, (value, dtype) in goal.variables.items()
    }
    premises = [z3.substitute(p, *combination) for p in goal.premises]
    conclusion = z3.substitute(goal.conclusion, *combination)
    return replace(goal, premises=premises, conclusion=conclusion, variables=variables)


def with_premise(goal: Goal, premise: Any) -> Goal:
    """The goal with one more premise."""
    return replace(goal, premises=[*goal.premises, premise])


def without_quotients(divisors: Sequence[Any]) -> list[Any]:
    """The different divisors in which no quotient stands, and which are no numbers."""
    found = {d.get_id(): d for d in divisors if not _has_quotient(d) and not z3.is_int_value(d)}
    return list(found.values())


def _has_quotient(term: Any) -> bool:
    return QUOTIENT.heads(term) or any(_has_quotient(part) for part in term.children())


def split_signs(goal: Goal) -> list[Goal]:
    """The goal for each choice of signs of its integers."""
    values = [v for v, _ in goal.variables.values() if z3.is_int(v)]
    if not 1 <= len(values) <= 3:
        raise NoMeaning("nothing to split, or too much")
    signs = [[value > 0, value == 0, value < 0] for value in values]
    return [Goal([*goal.premises, *choice], goal.conclusion) for choice in product(*signs)]


def powers_of_two(case: Case) -> set[str]:
    """Constants that are powers of two by a condition, so that the other values need no case."""
    return {
        name
        for condition in case.rule.where
        for name in [_power_name(condition)]
        if name is not None
    }


def _power_name(condition: Any) -> str | None:
    match condition:
        case Apply("is_power_of_two", (Name(name),)):
            return name
        case _:
            return None
