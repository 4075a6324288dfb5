"""Rules beside sums of index terms in normal form: what they weigh there, and which may weigh the same.

The engine settles sources first. A sum of index terms, or one divided by numbers, it settles by
functions that end by an order of their own (core/rewrite/sum_order.py). For rules around them to end
beside them, nothing that these functions do may make room for such a rule. So in this reading a sum
weighs what its atoms weigh, each as often as it occurs, whatever its factors, divisors and
constants are: no law of sums and no extractor makes that more. Of a rule that is not smaller either:

- a law of sums is no step, for sums are normal by construction;
- of a rule about sums divided by numbers the engine asks at each use that it goes down in their order;
- a comparison becomes one of parts of its sums, or of what an extractor found, which has to be smaller at
  each use: both go down in the order of sums, and the sums stay normal or are smaller yet;
- what is left moves signs and constants out of a selection, a maximum or a product, or into a
  selection of constants: its parts are normal and stay as they are, so it is compared as a tree.

Owns: this reading, these exceptions. Does not own: measures, their comparison (termination.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import COMPARE
from proofgrad.core.rewrite.rule import Calc, Const, Lit, Node, Rule, Term, Var
from proofgrad.core.rewrite.scope import types_of_class
from proofgrad.core.rewrite.sum_laws import is_linear_law

SUM_OPS = frozenset({"ADD", "NEG", "MUL", "FLOORDIV", "MOD"})
# What an operation on index terms weighs more than they do: one that makes another type of them, and a
# selection, a maximum or the like, which gives an index term that is an atom of sums.
READS, CHOOSES = 4, 2
# A number that is made of an index weighs so much more: a comparison may bring its other side near instead.
MAKES = 8
_NUMBERS = (Const, Lit, Calc)


class Reading:
    """Which type variables of a rule stand for index terms, and which of its names for numbers."""

    def __init__(
        self, rule: Rule, is_index: Mapping[str, bool], numbers: frozenset[str] = frozenset()
    ) -> None:
        self._is_index = is_index
        self.numbers = numbers
        terms = [t for t in (rule.left, *rule.right) if t is not None]
        self.has_sums = any([self.is_index(part) for term in terms for part in parts(term)])
        arithmetic = [p for p in parts(rule.left) if isinstance(p, Node) and self.is_sum(p)]
        self.factors = {name for node in arithmetic for name in _factors(node)}
        scaled = [node for node in arithmetic if node.op == "NEG" or self.has_number(node)]
        names = {s.name for node in scaled for s in node.src if isinstance(s, Var)}
        self.never_numbers = (names | self.factors) - numbers

    def is_index(self, term: Term) -> bool:
        """Whether a term is an index term."""
        return self._is_index.get(term.type, term.type == dtypes.index.name)

    def is_sum(self, term: Term) -> bool:
        """Whether a term is arithmetic of index terms."""
        return isinstance(term, Node) and term.op in SUM_OPS and self.is_index(term)

    def is_number(self, term: Term) -> bool:
        """Whether a term is a number."""
        return isinstance(term, _NUMBERS) or (isinstance(term, Var) and term.name in self.numbers)

    def has_number(self, node: Node) -> bool:
        """Whether a source of a term is a number."""
        return any([self.is_number(source) for source in node.src])

    def reads_index(self, term: Node) -> bool:
        """Whether a term of another type has a source that is an index term."""
        return not self.is_index(term) and any([self.is_index(source) for source in term.src])


def readings(rule: Rule) -> Iterator[Reading]:
    """Every way to read a rule beside sums: which types are index terms, which factors numbers."""
    choices: list[dict[str, bool]] = [{}]
    for name, kind in rule.types:
        kinds = {dtype is dtypes.index for dtype in types_of_class(rule, kind)}
        choices = [{**chosen, name: is_index} for chosen in choices for is_index in sorted(kinds)]
    for chosen in choices:
        factors = sorted(Reading(rule, chosen).factors)
        for count in range(len(factors) + 1):
            for numbers in combinations(factors, count):
                yield Reading(rule, chosen, frozenset(numbers))


def _factors(node: Node) -> list[str]:
    """Names of factors and divisors: terms or numbers."""
    if any([isinstance(source, _NUMBERS) for source in node.src]):
        return []
    of = {"MUL": node.src, "FLOORDIV": node.src[1:], "MOD": node.src[1:]}.get(node.op, ())
    return [source.name for source in of if isinstance(source, Var)]


def may_weigh_the_same(rule: Rule, reading: Reading) -> bool:
    """Whether another order than that of weights sees to it that `rule` goes down."""
    return (
        is_linear_law(rule)
        or is_tested_at_each_use(rule)
        or _divides_by_a_number(rule.left, reading)
        or _compares_parts(rule, reading)
        or _keeps_parts(rule, reading)
    )


def is_tested_at_each_use(rule: Rule) -> bool:
    """Whether the rule is about sums of index terms that an extractor takes apart."""
    return bool(rule.extractors) and rule.domains == ("index",)


def _divides_by_a_number(left: Node | Var, reading: Reading) -> bool:
    """Whether the engine makes a function of a rule, which asks at each use for the order of sums."""
    is_division = isinstance(left, Node) and left.op in ("FLOORDIV", "MOD")
    return is_division and reading.is_sum(left) and reading.is_number(left.src[1])  # type: ignore[union-attr]


def _compares_parts(rule: Rule, reading: Reading) -> bool:
    """Whether one comparison of index terms becomes one of parts of the same sums."""
    left, right = rule.left, rule.right[0]
    compared = {op.name for op in COMPARE}
    if not (isinstance(left, Node) and isinstance(right, Node)):
        return False
    if left.op not in compared or right.op not in compared or not reading.reads_index(left):
        return False
    sums = [side for side in left.src if reading.is_sum(side)]
    inside = [part for side in sums for part in parts(side)[1:]]
    taken = [side for side in right.src if not isinstance(side, _NUMBERS) and side not in left.src]
    kept = [side for side in sums if side in right.src]
    return len(kept) < len(sums) and all([side in inside for side in taken])


def _keeps_parts(rule: Rule, reading: Reading) -> bool:
    """Whether in the right side each index term below an atom of sums is a name or a number."""
    right = rule.right[0]
    if right is None or rule.extractors:
        return False
    atoms = [p for p in parts(right) if isinstance(p, Node) and not _is_linear(p, reading)]
    return not any([reading.is_sum(source) for atom in atoms for source in atom.src])


def _is_linear(node: Node, reading: Reading) -> bool:
    """Whether a term is a sum, a negation, or a product with a number."""
    return reading.is_sum(node) and (node.op in ("ADD", "NEG") or reading.has_number(node))


def parts(term: Term) -> list[Term]:
    """A term and all terms in it."""
    below = term.src if isinstance(term, Node) else ()
    return [term, *[part for source in below for part in parts(source)]]
