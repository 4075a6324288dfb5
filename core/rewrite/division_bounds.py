"""Bounds of quotients and remainders of sums by a number: lines of BOUNDS rules as one function.

Owns: that function, which is Python made from the rules' data: the first line that applies and
gives an end. Does not own: the lines (rules/bounds.rules), bounds of other nodes (facts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.expression_code import LIBRARY, Expressions, NoCode, known
from proofgrad.core.rewrite.rule import Calc, Const, Node, Rule, RuleKind, Var
from proofgrad.core.rewrite.scope import takes

Ends = tuple["int | None", "int | None"]
DivisionBounds = Callable[["int | None", "int | None", int], Ends]
DIVISIONS = (Ops.FLOORDIV, Ops.MOD)


def division_code(rules: Sequence[Rule]) -> tuple[CodeType, ...]:
    """For each kind of division, the code of its function."""
    return tuple(
        [
            compile(bounds_code(kind, rules), f"<bounds of {kind.name}>", "exec")
            for kind in DIVISIONS
        ]
    )


def division_bounds(code: Sequence[CodeType]) -> dict[Ops, DivisionBounds]:
    """For each kind of division, a function (low, high of the dividend, divisor) -> (low, high)."""
    return {kind: _function(one) for kind, one in zip(DIVISIONS, code, strict=True)}


def _function(code: CodeType) -> DivisionBounds:
    namespace: dict[str, Any] = dict(LIBRARY)
    exec(code, namespace)  # noqa: S102
    function: DivisionBounds = namespace["bounds"]
    return function


def bounds_code(kind: Ops, rules: Sequence[Rule]) -> str:
    """The function as Python."""
    lines = ["def bounds(low, high, number):"]
    for number, rule in enumerate(rules):
        if _is_about(kind, rule):
            lines += [f"    # rule {number}", *_rule_lines(rule)]
    return "\n".join([*lines, "    return None, None\n"])


def _is_about(kind: Ops, rule: Rule) -> bool:
    """Whether `rule` bounds any sum divided by any number."""
    left = rule.left
    if rule.kind is not RuleKind.BOUNDS or rule.extractors or not takes(rule, dtypes.index):
        return False
    if not isinstance(left, Node) or left.op != kind.name or len(left.src) != 2:
        return False
    dividend, divisor = left.src
    return isinstance(dividend, Var) and isinstance(divisor, Var | Const) and dividend != divisor


def _rule_lines(rule: Rule) -> list[str]:
    assert isinstance(rule.left, Node)
    dividend, divisor = rule.left.src
    assert isinstance(dividend, Var) and isinstance(divisor, Var | Const)

    def bound(side: str, name: str) -> str:
        if name == divisor.name:
            return "(number)"
        return "low" if side == "lo" else "high"

    code = Expressions({divisor.name: "number"} if isinstance(divisor, Const) else {}, bound)
    try:
        conditions = [code.condition(c) for c in (*rule.where, *rule.when)]
        ends = [code.value(end.number) for end in rule.right if isinstance(end, Calc)]
    except NoCode:
        return ["    # not about numbers"]
    low, high = [
        f"({text}) if {known(unknown, 'True')} else None" if unknown else text
        for text, unknown in ends
    ]
    return [
        f"    if {' and '.join(conditions) or 'True'}:",
        f"        least, most = {low}, {high}",
        "        if least is not None or most is not None:",
        "            return least, most",
    ]
