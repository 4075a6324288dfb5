"""Stores of two kernels compared: are the same elements written, of the same values, and those that combine in the same order?

Owns: which store before one is compared with, and for which values of its loops. Does not own: the values (match.py), maps between loops
(loops.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from math import prod

from proofgrad.core.ir.uop import UOp
from proofgrad.verify.kernels.loops import (
    LoopMap,
    common_loops,
    guesses,
    loops_at_first,
    map_by_position,
)
from proofgrad.verify.kernels.match import Difference, Given, Matcher
from proofgrad.verify.kernels.questions import Verdict
from proofgrad.verify.kernels.readback import Written
from proofgrad.verify.kernels.terms import loop_size

# Maps between output loops that are tried beside the one that the stored position gives.
MOST_OUTPUT_GUESSES = 24


def _same_order(before: Written, after: Written) -> bool:
    """Whether two stores combine by the same operation, in the same loops in the same order."""
    order = common_loops(before.own_loops, after.own_loops)
    is_whole = tuple(order.values()) == after.own_loops and len(order) == len(before.own_loops)
    return is_whole and before.store.arg is after.store.arg


def _other_loops(before: Written, after: Written) -> Difference:
    order = common_loops(before.own_loops, after.own_loops)
    is_of_order = set(order.values()) == set(after.own_loops) and len(order) == len(
        before.own_loops
    )
    return Difference("the loops of a store", before.store, after.store, {}, is_of_order)


def _written_out_stores(before: list[Written], after: list[Written]) -> list[Written]:
    """One store as many, where those after are a store for each iteration of some of its loops whose order does not count."""
    if len(before) != 1 or len(after) < 2:
        return before
    (whole,) = before
    kept = common_loops(whole.loops, after[0].loops)
    gone = [x for x in whole.loops if x not in kept and x not in whole.own_loops]
    if prod(map(loop_size, gone)) != len(after):
        return before
    rest = tuple([x for x in whole.loops if x not in gone])
    return [
        Written(whole.store.substitute(dict(zip(gone, map(UOp.index, numbers)))), rest)
        for numbers in product(*[range(loop_size(x)) for x in gone])
    ]


@dataclass(slots=True)
class StoreMatcher(Matcher):
    """Compares the stores of one stage with those of the stage before."""

    def stores(
        self, before: list[Written], after: list[Written], strict: bool
    ) -> Difference | None:
        """The first difference. `strict`: the stage may change loops, but no value.

        Stores that combine at computed positions, of which there may be several for each of before, are compared in their order.
        """
        combines = any([store.own_loops and store.changes_address for store in (*before, *after)])
        before = _written_out_stores(before, after) if combines else before
        for k, store in enumerate(after):
            likely = [before[k]] if len(before) == len(after) else []
            others = [b for b in before if b not in likely and not (combines and likely)]
            difference = self._store([*likely, *others], store, strict)
            if difference is not None:
                return difference
        return None

    def _store(self, candidates: list[Written], after: Written, strict: bool) -> Difference | None:
        first: Difference | None = None
        address, value, *own = after.store.src
        if own or any(before.own_loops for before in candidates):
            if after.changes_address or any(before.changes_address for before in candidates):
                return self._combining(candidates, after, strict)
            others = [before for before in candidates if not _same_order(before, after)]
            if others:
                return _other_loops(others[0], after)
        given = self._mask(address)
        for before in candidates:
            order = common_loops(before.own_loops, after.own_loops)
            for terms in self._output_maps(before.once(), after.once(), given):
                old = before.store.substitute({**order, **terms})
                difference = self._iterations(terms, given) or self._same_position(
                    old.src[0], address, given
                )
                if difference is None:
                    return self.made_of(old.src[1], value, given, strict)
                first = first or difference
        return first or Difference("the stored position", candidates[0].store.src[0], address)

    def _combining(
        self, candidates: list[Written], after: Written, strict: bool
    ) -> Difference | None:
        """The same iterations combine the same values with the same elements, in the same order."""
        (before, *others), address = candidates, after.store.src[0]
        order = common_loops(before.own_loops, after.own_loops)
        first = Difference("the loops of a store", before.store, after.store)
        if others or not _same_order(before, after):
            return first if others else _other_loops(before, after)
        for guess in guesses(before.loops, after.loops):
            if any(guess.terms[x] is not y for x, y in order.items()):
                continue
            old, given = before.store.substitute(dict(guess.terms)), self._mask(address)
            difference = self._same_position(old.src[0], address, given) or self._one_to_one(
                guess, given
            )
            difference = difference or self._nothing_left_out(before, after, guess)
            if difference is None:
                return self.made_of(old.src[1], after.store.src[1], given, strict)
            first = difference
        return first

    def _nothing_left_out(
        self, before: Written, after: Written, guess: LoopMap
    ) -> Difference | None:
        """Where the mask before holds, so does the one after, in the iteration that belongs to it."""
        there = {y: x for x, y in common_loops(before.loops, after.loops).items()}
        for mask in self._mask(after.store.src[0]):
            claim = mask.substitute({**there, **guess.inverse})
            decision = self.questions.holds(claim, self._mask(before.store.src[0]))
            if decision.verdict is Verdict.REFUTED:
                return Difference("the mask of a store", before.store, after.store, decision.point)
        return None

    def _output_maps(
        self, before: Written, after: Written, given: Given
    ) -> Iterator[dict[UOp, UOp]]:
        """Guesses at the loops before, for the element that the store after writes."""
        same = common_loops(before.loops, after.loops)
        if len(same) == len(before.loops) == len(after.loops):
            yield same
            return
        position = before.store.src[0].src[1], after.store.src[0].src[1]
        changed = [loop for loop in before.loops if loop not in same]
        at_first = loops_at_first(before.loops, self._mask(before.store.src[0]))
        still = dict.fromkeys(at_first, UOp.index(0))
        for kept, loops in ((same, changed), ({}, before.loops)):
            known = position[0].substitute({**still, **kept})
            terms = map_by_position(known, position[1], loops, given)
            if terms is not None:
                yield {**kept, **terms}
        for guess in islice(guesses(before.loops, after.loops), MOST_OUTPUT_GUESSES):
            yield dict(guess.terms)
        gone = [x for x in changed if x not in after.loops]
        if len(same) == len(after.loops) and prod(map(loop_size, gone)) <= MOST_OUTPUT_GUESSES:
            for numbers in product(*[range(loop_size(x)) for x in gone]):  # one store of several
                yield {**same, **dict(zip(gone, map(UOp.index, numbers)))}

    def _same_position(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        return self._claim("the stored position", before.src[1], after.src[1], given) or (
            self._masks(before, after, given) if len(before.src) > 2 else None
        )
