"""What facts show of a term for all values of its loops: that it lies between two numbers.

Owns: the one question that steps ask of bounds, so that a position is inside of its memory, and a value one of a type.
Does not own: the bounds themselves (core/rewrite/facts.py).

    least ... low ... term ... high ... most

A term whose bounds are not known lies nowhere.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.loops import elements_of
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts


def lies_between(term: UOp, least: Any, most: Any, facts: Facts) -> bool:
    """Whether all values of a term are known to be from `least` to `most`."""
    low, high = facts.lo(term), facts.hi(term)
    return low is not None and high is not None and least <= low and high <= most


def is_inside(index: UOp, memory: UOp, facts: Facts) -> bool:
    """Whether an index is one of an element of its memory, whatever the loops are and masks say."""
    return lies_between(index, 0, elements_of(memory) - 1, facts)


def fits(term: UOp, dtype: DType, facts: Facts) -> bool:
    """Whether an index term is a value of a machine integer."""
    return lies_between(term, dtype.lo, dtype.hi, facts)
