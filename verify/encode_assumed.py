"""Variables for which a right side assumes a truth: `v[p := true]`.

Such a variable is any function of the truth `p`, and so two values, one for each. Owns: which
variables those are, and what the two values are called.
"""

from __future__ import annotations

from proofgrad.core.rewrite.rule import Instance, Node, Rule


def assumed(rule: Rule) -> dict[str, str]:
    """By variable, the truth that is assumed for it, or the range that is another there."""
    found: dict[str, str] = {}
    terms = [term for term in rule.right if term is not None]
    while terms:
        term = terms.pop()
        if isinstance(term, Instance):
            found[term.name] = term.counter
        if isinstance(term, Node):
            terms += term.src
    return found


def if_truth(name: str, truth: bool) -> str:
    """The name of the value that a variable has if the truth is this one."""
    return f"{name} if {'true' if truth else 'false'}"
