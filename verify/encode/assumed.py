"""Variables with another truth in place of one: `v[p := t]`.

Whatever v is made of, v[p := t] is v where p is t. Where it is not, it is any value, and the same one
whatever t is, since a bool has only one other value. Owns: what that value is called.
"""

from __future__ import annotations

from proofgrad.core.rewrite.rule import Instance, Node, Rule, Term

_UNLESS = " unless "  # no name of a rule has a space in it


def otherwise(name: str, truth: str) -> str:
    """The name of the value that a variable has if a truth is not what it is."""
    return f"{name}{_UNLESS}{truth}"


def variable_of(name: str) -> str:
    """The variable that a name made by `otherwise` is about; any other name is its own."""
    return name.partition(_UNLESS)[0]


def assumed(rule: Rule) -> frozenset[tuple[str, str]]:
    """The pairs of a variable and a counter for which a right side puts something else."""
    found: set[tuple[str, str]] = set()
    terms: list[Term] = [term for term in rule.right if term is not None]
    while terms:
        term = terms.pop()
        if isinstance(term, Instance):
            found.add((term.name, term.counter))
            terms.append(term.value)
        if isinstance(term, Node):
            terms += term.src
    return frozenset(found)
