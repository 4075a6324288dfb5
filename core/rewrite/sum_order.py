"""The order in which rules about sums of index terms go down, tested at each use.

Owns: the order. Does not own: the order of rules that match terms, which is tested when they are
read (verify/dsl/termination.py), the functions that use this one (index_code.py).

An extractor is free to find what it likes within its contract, so that no look at a rule can show that it
ends. So a rule whose right side divides is used only where this right side is smaller:

1. The load of a sum is that of its atoms together; a quotient has 8 times the load of what it
   divides, and 1, a remainder 8 times and 2; other atoms have none. A sum with less load is smaller.
2. Of equal load, a sum is smaller if some atoms are gone from it and each that is new in it is smaller
   than one of them; of the same atoms, if no coefficient grew and one became less.
3. An atom is smaller than another by load, then by its divisor, then by coefficients as in 2.

Numbers are ordered 0 < 1 < 2 < ... < -1 < -2 < ..., so that -1 % 4 = 3 goes down. All of these are
well-founded, and so is the order: a function that calls itself for smaller sums only comes to an end.
"""

from __future__ import annotations

from proofgrad.core.rewrite.sums import Atom, Form, Sum


def goes_down(after: Sum, before: Sum) -> bool:
    """Whether the sum `after` is smaller than `before`."""
    load, load_before = load_of(after), load_of(before)
    if load != load_before:
        return load < load_before
    terms, terms_before = after[0], before[0]
    gone = [atom for atom in terms_before if atom not in terms]
    new = [atom for atom in terms if atom not in terms_before]
    if gone or new:
        return bool(gone) and all([any([_is_smaller(atom, old) for old in gone]) for atom in new])
    return _has_less(after, before)


def division_goes_down(beside: int, dividend: Sum, number: int, form: Form, by: int) -> bool:
    """Whether `dividend` divided by `number`, beside summands with so much load, goes down.

    From `form` divided `by` a number, in the same way. As `goes_down`, without making the sums.
    """
    spare = 8 * (form.load - load_of(dividend)) - beside
    if spare:
        return spare > 0
    if number != by:
        return _less(number, by)
    return _has_less(dividend, form)


def is_lighter(after: Sum, before: Sum) -> bool:
    """Whether `after` has less load, or as much, and less in it: summands of `before` are gone, and none is new.

    Then it weighs less in the measure of size as well (verify/dsl/termination.py), as a tree and as a sum.
    """
    load, load_before = load_of(after), load_of(before)
    return load < load_before or (load == load_before and _left_out(after, before) > 0)


def _left_out(form: Sum, other: Sum) -> float:
    """How many summands `other` has, in divisions too, that `form` lacks; less than 0: it is no part of it.

    Numbers may be others, but where there was none there is none.
    """
    (terms, constant), (others, other_constant) = form, other
    gone = dict(others)
    missing = 0.0
    for atom, factor in terms.items():
        fitting = [
            old for old in gone if _may_stand_for(factor, gone[old]) and _missing(atom, old) >= 0
        ]
        if not fitting:
            return -1
        missing += _missing(atom, fitting[0])
        del gone[fitting[0]]
    missing += len(gone)
    return missing if missing or constant == 0 or other_constant else -1


def _may_stand_for(factor: int, other: int) -> bool:
    return factor == 1 or factor == other or abs(other) != 1


def _missing(atom: Atom, other: Atom) -> float:
    """As `_left_out`, of two atoms."""
    if atom is other:
        return 0
    if atom.kind is None or atom.kind is not other.kind:
        return -1
    return _left_out(atom.form, other.form)


def load_of(form: Sum) -> int:
    """The load of a sum."""
    return sum([atom.load for atom in form[0]])


def _is_smaller(atom: Atom, other: Atom) -> bool:
    if atom.load != other.load:
        return atom.load < other.load
    if atom.kind is None or other.kind is None:
        return False
    if atom.number != other.number:
        return _less(atom.number, other.number)
    return _has_less(atom.form, other.form)


def _has_less(form: Sum, other: Sum) -> bool:
    """Whether no coefficient of `form` is more than in `other`, and they are not the same."""
    terms, constant = form
    others, other_constant = other
    for atom, factor in terms.items():
        if factor != others.get(atom, 0) and not _less(factor, others.get(atom, 0)):
            return False
    if constant != other_constant and not _less(constant, other_constant):
        return False
    return constant != other_constant or terms != others


def _less(number: int, other: int) -> bool:
    """0 < 1 < 2 < ... < -1 < -2 < ..."""
    if (number < 0) == (other < 0):
        return abs(number) < abs(other)
    return number >= 0
