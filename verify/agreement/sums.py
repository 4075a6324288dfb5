"""Index rules as the engine compiles them: sums and sums divided by numbers, by one rule and the laws of sums.

Owns: rewriters of one rule that work on sums, reductions over short loops. Does not own: the code
made from rules (core/rewrite/index_code.py), what is compared (agree.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.index_terms import ROOTS
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import Rule, RuleKind, Var
from proofgrad.core.rewrite.scope import takes
from proofgrad.core.rewrite.sum_laws import is_collector, is_linear_law, missing_laws
from proofgrad.verify.agreement.library import Uncounted, rules_in


def is_about_sums(rule: Rule) -> bool:
    """Whether the engine compiles the rule for sums of index terms."""
    if rule.kind is not RuleKind.REWRITE or not takes(rule, dtypes.index):
        return False
    left = rule.left
    if isinstance(left, Var):
        return True
    return Ops[left.op] in ROOTS and not is_linear_law(rule)


def sums_by(rules: RuleSet, facts: Facts) -> Rewriter:
    """A rewriter by the rules and the laws of sums."""
    return Rewriter([rules, laws_of_sums()], facts, Uncounted())


@cache
def laws_of_sums() -> RuleSet:
    """The laws of the library that sums need, and no other rule. Raises: ValueError if one is missing."""
    algebra = rules_in("algebra")
    laws = [rule for rule in algebra if is_collector(rule)]
    for rule in algebra:
        if missing_laws([*laws, rule]) != missing_laws(laws):
            laws.append(rule)
    if missing_laws(laws):
        raise ValueError(f"rules/algebra.rules does not state: {', '.join(missing_laws(laws))}")
    return RuleSet("algebra", laws)


def sums_over_short_loops() -> Iterator[UOp]:
    """Sums of elements of memory over loops of 0 to 3 values, and over two of them."""
    for dtype in (dtypes.int32, dtypes.float32):
        for first in range(4):
            for second in (None, 0, 1, 2):
                sizes = [first] if second is None else [first, second]
                loops = [UOp.range(size, 200 + k, AxisRole.REDUCE) for k, size in enumerate(sizes)]
                position = loops[0] if second is None else loops[0] * 3 + loops[1]
                memory = UOp(Ops.PARAM, dtype, (), (1, 12))
                value = UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, position)),))
                for op in (Ops.ADD, Ops.MAX):
                    yield UOp(Ops.REDUCE, dtype, (value, *loops), op)
