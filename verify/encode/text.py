"""The text of an obligation: SMT-LIB as the standard has it, so that any solver can read it.

Owns: writing terms out, names that do not depend on what was written before. Does not own: goals.

The one operation of z3 that the standard lacks is the bits of a float. There `b` stands for the bits of
`x`, with `to_fp(b) = x` asserted. Every float has such bits, and all floats but NaN have one choice
of them. So where this text has no model, the one with the operation has none, whatever bits a NaN
has, at each position where it is asked for them: the claim gets stronger, never weaker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import z3

Term = Any

_BITS_OF_FLOAT = "fp.to_ieee_bv"


def text_of(assertions: Sequence[Term]) -> str:
    """The assertions as an SMT-LIB text."""
    text = _written(assertions)
    return stable(_written(_with_named_bits(assertions)) if _BITS_OF_FLOAT in text else text)


_NUMBERED = re.compile(r"(\?x|\$x|\bany!|reduction#\w+_)\d+")


def stable(text: str) -> str:
    """The same text with each name that z3 numbered, numbered by its first position in the text."""
    numbers: dict[str, str] = {}
    return _NUMBERED.sub(lambda name: numbers.setdefault(name[0], f"{name[1]}{len(numbers)}"), text)


def _written(assertions: Sequence[Term]) -> str:
    """What `Solver.to_smt2` writes, without the solver, which takes longer than to write."""
    *others, last = [z3.BoolSort().cast(assertion) for assertion in assertions]
    written = (z3.Ast * len(others))(*[assertion.as_ast() for assertion in others])
    head = "benchmark generated from python API", "", "unknown", ""
    context = z3.main_ctx().ref()
    return str(
        z3.Z3_benchmark_to_smtlib_string(context, *head, len(others), written, last.as_ast())
    )


def _with_named_bits(assertions: Sequence[Term]) -> list[Term]:
    """The assertions with a name for the bits of each float, and what the name stands for."""
    named = _bits_of_floats(assertions)
    names = [z3.Const(f"bits#{number}", term.sort()) for number, term in enumerate(named)]
    pairs = list(zip(named, names))
    known = [z3.fpBVToFP(name, term.arg(0).sort()) == term.arg(0) for term, name in pairs]
    return [z3.substitute(term, *pairs) for term in (*known, *assertions)]


def _bits_of_floats(terms: Sequence[Term]) -> list[Term]:
    """Every application of the operation, in an order that the terms determine."""
    found: list[Term] = []
    seen: set[int] = set()
    waiting = list(terms)
    while waiting:
        term = waiting.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_FPA_TO_IEEE_BV:
            found.append(term)
        waiting += term.children()
    return found
