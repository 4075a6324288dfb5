"""Rules of a file that never fire, for an earlier rule takes all that they match.

Owns: that question, answered for rules without conditions. Does not own: which rules other sets forestall (a test of kernels asks that of
the library), rules that undo each other (dsl/termination.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proofgrad.core.rewrite.functions import DOMAIN_TYPES
from proofgrad.core.rewrite.rule import LOOSE_CLASSES, Const, Lit, Node, Rule, RuleKind, Term, Var

Found = dict[str, Term]


def forestalled(rules: Sequence[Rule]) -> Iterator[tuple[Rule, Rule]]:
    """Each rule that never fires, and the first one that takes what it matches."""
    for position, later in enumerate(rules):
        for earlier in rules[:position]:
            if _takes_all(earlier, later):
                yield later, earlier
                break


def _takes_all(earlier: Rule, later: Rule) -> bool:
    """Whether an earlier rule fires wherever the later one would: it asks for nothing, and its left side is as general."""
    if not earlier.kind is later.kind is RuleKind.REWRITE:
        return False
    if earlier.where or earlier.when or earlier.extractors or not _always_fires(earlier):
        return False
    if not _claims(later) <= _claims(earlier) or not set(later.types) <= set(earlier.types):
        return False
    return _matches(earlier.left, later.left, {})


def _claims(rule: Rule) -> set[object]:
    """Where it is claimed: types, or domains that are about more than types. Those of FASTMATH are not always used."""
    found: set[object] = set()
    for domain in rule.domains:
        is_loose = domain in LOOSE_CLASSES
        found |= {domain} if is_loose else set(DOMAIN_TYPES.get(domain) or (domain,))
    return found


def _always_fires(rule: Rule) -> bool:
    """Whether no computed constant may fail to fit its type: a right side of variables and literals alone."""
    terms: list[Term | None] = list(rule.right)
    while terms:
        term = terms.pop()
        if isinstance(term, Node):
            terms += term.src
        elif not isinstance(term, Var | Const | Lit):
            return False
    return True


def _matches(pattern: Term, term: Term, found: Found) -> bool:
    """Whether a pattern matches all that a more special one does."""
    if pattern.type != term.type:
        return False
    match pattern, term:
        case (Var(name), _) | (Const(name), Const() | Lit()):
            return found.setdefault(name, term) == term
        case Node(op, src), Node(other_op, other_src):
            is_alike = op == other_op and pattern.arg == term.arg and len(src) == len(other_src)
            return is_alike and all([_matches(a, b, found) for a, b in zip(src, other_src)])
        case _:
            return pattern == term
