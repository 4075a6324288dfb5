"""What the compiler's rules make of a term, step by step, with the proof of each step.

Owns: reading the term as a graph, the steps, their text. Does not own: the rules that run
(rules/pipeline.py says which), proofs (the ledgers), syntax (verify/dsl).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from proofgrad.core import settings
from proofgrad.core.compile.passes.stages import RuleSets
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import Const, Lit, Node, Term, Var
from proofgrad.rules.evidence import Proof, Proofs, proofs_of_set
from proofgrad.rules.library import LOOSE, load_library, load_loose
from proofgrad.rules.pipeline import FACTS, KERNEL_STAGES
from proofgrad.verify.dsl.open_terms import OpenTerm
from proofgrad.verify.dsl.parser import read_open_term
from proofgrad.verify.dsl.show import show_term


@dataclass(frozen=True, slots=True)
class Step:
    """One application of a rule."""

    rule: str
    before: UOp
    after: UOp


@dataclass(frozen=True, slots=True)
class Explained:
    """A term, what was done to it, and its normal form."""

    start: UOp
    steps: tuple[Step, ...]
    normal: UOp
    names: dict[UOp, str]

    def show(self, node: UOp) -> str:
        """A node as a term of the rule language."""
        return show_term(_term(node, self.names))


def explain_term(text: str, added: Sequence[RuleSet] = (), proofs: Proofs | None = None) -> str:
    """Each rule that fires on the term, before, after, its proof; then the normal form.

    `added`: more rules than those of the compiler, with their `proofs`. Raises: RuleError.
    """
    found = rewritten(read_open_term(text), added)
    known = {} if proofs is None else dict(proofs)
    loose = {rule.full_name for rules in added for rule in rules.rules if rule.loose_classes}
    lines = [found.show(found.start)]
    for step in found.steps:
        ruleset = step.rule.partition(".")[0]
        if step.rule not in known:
            known |= proofs_of_set(ruleset)
        lines.append(f"  {step.rule}:  {found.show(step.before)}  =>  {found.show(step.after)}")
        is_loose = ruleset.startswith(LOOSE) or step.rule in loose
        mark = "LOOSE, not exact to the bit: " if is_loose else ""
        lines.append(f"    {mark}{_fitting(known[step.rule], step.before)}")
    if not found.steps:
        lines.append("  no rule fires")
    return "\n".join([*lines, f"normal form: {found.show(found.normal)}"])


def rewritten(asked: OpenTerm, added: Sequence[RuleSet] = ()) -> Explained:
    """The term under the rules of the compiler's first pass over index terms, and those added."""
    library = load_library()
    facts = Facts(*[library[name] for name in FACTS])
    leaves = _Leaves(asked, facts)
    start = leaves.graph(asked.term)
    steps: list[Step] = []
    journal = Journal(lambda rule, before, after: steps.append(Step(rule, before, after)))
    loose = [load_loose(name) for name in settings.fastmath()]
    sets = [*[library[name] for name in _set_names()], *added, *loose]
    normal = Rewriter(sets, facts, journal).rewrite(start)
    return Explained(start, tuple(steps), normal, leaves.names)


def _set_names() -> tuple[str, ...]:
    """The sets of the first rule stage of kernels."""
    return next(stage.step.names for stage in KERNEL_STAGES if isinstance(stage.step, RuleSets))


def _fitting(proofs: Sequence[Proof], node: UOp) -> Proof:
    """The proof of the case that a node is of."""
    types = {node.dtype.name, *[source.dtype.name for source in node.src]} - {"bool"}
    return next((proof for proof in proofs if types & set(proof.types)), proofs[0])


# -- terms and graphs ------------------------------------------------------------------------------


class _Leaves:
    """Nodes for the names of a term: loops where the bounds are those of one, else loaded values."""

    def __init__(self, asked: OpenTerm, facts: Facts) -> None:
        self._asked = asked
        self._facts = facts
        self._nodes: dict[str, UOp] = {}
        self.names: dict[UOp, str] = {}

    def graph(self, term: Term) -> UOp:
        dtype = self._asked.dtype_of(term.type)
        match term:
            case Var(name, _) | Const(name, _):
                if name not in self._nodes:
                    self._nodes[name] = node = self._leaf(name, dtype)
                    self.names[node] = name
                return self._nodes[name]
            case Lit(value, _):
                return UOp.const(dtype, value)
            case Node(op, src, _) if term.arg is None:
                return UOp(Ops[op], dtype, tuple([self.graph(source) for source in src]))
            case _:
                raise ValueError(
                    f"only terms of single values are explained, not {show_term(term)}"
                )

    def _leaf(self, name: str, dtype: DType) -> UOp:
        number = len(self._nodes)
        low, high = self._asked.bounds.get(name, (None, None))
        if dtype is dtypes.index and low == 0 and high is not None:
            return UOp.range(high + 1, number)
        memory = UOp(Ops.PARAM, dtype, (), (number, 1))
        leaf = UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))
        least, most = (-inf, inf) if dtype.is_float else (dtype.lo, dtype.hi)
        bounds = (least if low is None else low, most if high is None else high)
        self._facts.assume(leaf, bounds)
        return leaf


def _term(node: UOp, names: dict[UOp, str]) -> Term:
    if node in names:
        return Var(names[node], node.dtype.name)
    if node.op is Ops.CONST:
        return Lit(node.arg, node.dtype.name)
    return Node(node.op.name, tuple([_term(s, names) for s in node.src]), node.dtype.name)
