"""Values of two kernels compared: are they made in the same way, of the same elements of memory?

Owns: walking two value terms side by side, down to claims about index terms and masks. Does not
own: the first kernel and its tensor graph (kernels/tensor.py), deciding the claims
(kernels/questions.py), the stores (kernels/match_stores.py), maps between loops (kernels/loops.py), other forms of an index
(kernels/index_terms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, product
from math import prod

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import COMMUTATIVE, CONVERSIONS, ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.index_terms import selected, shortened
from proofgrad.verify.kernels.loops import LoopMap, common_loops, guesses, map_by_position
from proofgrad.verify.kernels.orders import map_by_values
from proofgrad.verify.kernels.questions import TRUE, Questions, Verdict, all_of
from proofgrad.verify.kernels.reduction_forms import (
    by_stride,
    choice_of,
    combined_by,
    in_one,
    is_masked,
    is_nested,
    is_written_out,
    offset_sum,
    with_inner_sums,
    written_out,
)
from proofgrad.verify.kernels.terms import is_integer, loads_below, loop_size
from proofgrad.verify.kernels.unions import is_in_parts

Given = tuple[UOp, ...]

# Deeper nested choices are not taken apart.
MOST_CASES = 12
# Larger terms of integers are compared operation by operation instead of in one question.
LARGEST_QUESTION = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two kernels do not agree; `point`: loop values at which two index terms differ.

    `is_of_order`: the same iterations in another order, or combined by another operation: few values show it.
    """

    what: str
    before: UOp
    after: UOp
    point: dict[str, int] = field(default_factory=dict)
    is_of_order: bool = False

    @property
    def is_counterexample(self) -> bool:
        """Whether there are loop values that show it, rather than only a failed comparison."""
        return bool(self.point)


_UNKNOWN = Difference("nothing that was asked", TRUE, TRUE)


@dataclass(slots=True)
class Matcher:
    """Compares the terms of one stage with those of the stage before."""

    questions: Questions
    # Whether a stage may compute a node in another way: its loads are compared, and nothing else.
    computes: Callable[[UOp], bool] = lambda node: False
    rewritten: int = 0  # values that were computed in another way
    _known: dict[tuple[UOp, UOp, Given], Difference | None] = field(default_factory=dict)
    _short: dict[UOp, UOp] = field(default_factory=dict)

    def made_of(self, before: UOp, after: UOp, given: Given, strict: bool) -> Difference | None:
        """Are two value terms the same or, unless `strict`, made of elements of which the one before is made, too?"""
        difference = self.value(before, after, given)
        if difference is None or strict:
            return difference
        return self._accesses(before, after, given)

    def _mask(self, address: UOp) -> Given:
        return () if len(address.src) < 3 else (address.src[2],)

    def _iterations(self, terms: Mapping[UOp, UOp], given: Given) -> Difference | None:
        """The loops before do run over these values."""
        for loop, term in terms.items():
            if term.op is Ops.RANGE and loop_size(term) <= loop_size(loop):
                continue
            decision = self.questions.holds(~(term < 0) & (term < loop_size(loop)), given)
            if decision.verdict is Verdict.REFUTED:
                return Difference("the stored element", loop, term, decision.point)
        return None

    # -- values ---------------------------------------------------------------------------------

    def value(self, before: UOp, after: UOp, given: Given = ()) -> Difference | None:
        """Are two value terms made in the same way, of the same elements, wherever `given` holds?"""
        if before is after:
            return None
        key = before, after, given
        if key not in self._known:
            # What is the same wherever less is given is the same here.
            fewer = [(before, after, given[:count]) for count in range(len(given))]
            is_same = any([self._known.get(one, _UNKNOWN) is None for one in fewer])
            if not is_same and given and self.questions.likeness.are_alike(before, after):
                # Most likely it is the same everywhere: then it is compared once, and not in each choice.
                is_same = self.value(before, after) is None
            self._known[key] = None if is_same else self._compare(before, after, given)
        return self._known[key]

    def _compare(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        if self._is_index_term(before) and self._is_index_term(after):
            return self._claim("an index term", before, after, given)
        if before.dtype is not after.dtype and is_integer(before.dtype) and is_integer(after.dtype):
            number = self.questions.terms.number
            if (number(before), number(after)) != (before, after):
                return self.value(number(before), number(after), given)
        if before.op is after.op is Ops.LOAD:
            return self._loads(before, after, given)
        if before.op is Ops.REDUCE and is_written_out(before, after):
            whole = written_out(before)
            if whole.op not in (after.op, Ops.REDUCE):  # multiply-adds, one after the other
                return self._terms(whole, after, before.arg, given)
            return self.value(whole, after, given)
        if before.op is after.op is Ops.REDUCE and before.arg is after.arg:
            if len(before.src) < len(after.src):
                before = with_inner_sums(before)
            elif is_nested(after) and not is_nested(before):
                after = by_stride(in_one(after))
            difference = self._reductions(before, after, given)
            if difference is None or self._is_in_parts(before, after, given):
                return None
            return self._accesses(before, after, given) if self.computes(before) else difference
        if before.op is Ops.REDUCE and self._is_in_parts(before, after, given):
            return None
        if before.op is Ops.REDUCE and (offset := offset_sum(after)) is not None:
            return self.value(offset.wanted, offset.beside, given) or self.value(
                before, offset.plain, given
            )
        difference = self._operands(before, after, given)
        if difference is None:
            return None
        if self.computes(before):
            return self._accesses(before, after, given)
        if self._are_equal(before, after, given):
            return None
        split = self._by_cases(before, after, given)
        return None if split is None else difference

    def _is_index_term(self, node: UOp) -> bool:
        """Small enough for one question, and made of loops only."""
        scalar = is_integer(node.dtype) or node.dtype.is_bool
        return (
            scalar
            and self.questions.terms.is_plain(node)
            and self.questions.terms.size(node) < LARGEST_QUESTION
        )

    def _claim(self, what: str, before: UOp, after: UOp, given: Given) -> Difference | None:
        decision = self.questions.same(before, after, given)
        if decision.verdict is Verdict.REFUTED:
            return Difference(what, before, after, decision.point or {"(no loops)": 0})
        return None

    def _are_equal(self, before: UOp, after: UOp, given: Given) -> bool:
        """Whether integer or bool terms over memory are equal whatever the memory holds."""
        scalar = is_integer(before.dtype) or before.dtype.is_bool
        alike = before.dtype.is_bool == after.dtype.is_bool and not after.dtype.is_float
        size = self.questions.terms.size
        if not scalar or not alike or size(before) + size(after) > LARGEST_QUESTION:
            return False
        claim = UOp(Ops.CMPEQ, dtypes.bool, (before, after))
        return self.questions.seems(claim, given).verdict is Verdict.PROVED

    def _loads(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        old, new = before.src[0], after.src[0]
        what = f"the load of parameter {new.src[0].arg[0]}"
        if old.src[0] is not new.src[0]:
            return Difference(what, old, new)
        masks = self._masks(old, new, given)
        if masks is not None:
            return masks
        inside = (*given, *self._mask(new))
        first = shortened(old.src[1], self.questions, self._short)
        positions = first, shortened(new.src[1], self.questions, self._short)
        if not all(map(self._is_index_term, positions)):
            difference = self.value(*positions, inside)
            if difference is None or not all(map(self.questions.terms.is_plain, positions)):
                return difference
        return self._claim(what, *positions, inside)

    def _masks(self, old: UOp, new: UOp, given: Given) -> Difference | None:
        old_mask = old.src[2] if len(old.src) > 2 else TRUE
        new_mask = new.src[2] if len(new.src) > 2 else TRUE
        if not self._is_index_term(old_mask) and self.value(old_mask, new_mask, given) is None:
            return None
        return self._claim("the mask of an access", old_mask, new_mask, given)

    def _operands(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        """The same operation of the same operands, in either order where that does not matter."""
        alike = before.op is after.op and before.arg == after.arg and len(before.src) > 0
        if (
            not alike
            or not _same_type(before.dtype, after.dtype)
            or len(before.src) != len(after.src)
            or before.op not in ELEMENTWISE
        ):
            return Difference("a value term", before, after)
        if before.op is Ops.WHERE:
            return self._choices(before, after, given)
        orders = [before.src]
        if before.op in COMMUTATIVE:
            orders.append(before.src[::-1])
            unlike = self._unlike(orders[0], after.src, given)
            if unlike and self._unlike(orders[1], after.src, given) < unlike:
                orders.reverse()
        differences = [self._each(orders[0], after.src, given)]
        if differences[0] is not None and len(orders) > 1:
            differences.append(self._each(orders[1], after.src, given))
        return None if None in differences else differences[0]

    def _unlike(self, before: Sequence[UOp], after: Sequence[UOp], given: Given) -> int:
        """How often operands differ in samples: to compare all that is below the wrong ones takes long."""
        return sum([self.questions.likeness.unlike(b, a, given) for b, a in zip(before, after)])

    def _each(self, before: Sequence[UOp], after: Sequence[UOp], given: Given) -> Difference | None:
        for b, a in zip(before, after):
            difference = self.value(b, a, given)
            if difference is not None:
                return difference
        return None

    def _choices(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        condition = after.src[0]
        return (
            self.value(before.src[0], condition, given)
            or self.value(before.src[1], after.src[1], (*given, condition))
            or self.value(before.src[2], after.src[2], (*given, ~condition))
        )

    def _by_cases(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        """One side chooses where the other does not, or loads 0 under a false mask."""
        if len(given) > MOST_CASES:
            return Difference("a value term", before, after)
        for chooser, other, swapped in ((after, before, False), (before, after, True)):
            choice = choice_of(chooser)
            if choice is None:
                continue
            condition, yes, no = choice
            for branch, holds in ((yes, condition), (no, ~condition)):
                known = (*given, holds)
                if not self.questions.likeness.meets(known) and self._never(known):
                    continue  # before all that is below is compared in vain
                pair = (branch, other) if swapped else (other, branch)
                difference = self.value(*pair, known)
                if difference is not None and not self._never(known):
                    return difference
            return None
        for load, other in ((before, after), (after, before)):
            is_zero = load.op is Ops.LOAD and other.op is Ops.CONST and other.arg == 0
            if is_zero and self._never((*given, *self._mask(load.src[0]))):
                return None
        for term, other in ((before, after), (after, before)):
            is_zero = term.op is Ops.MUL and other.op is Ops.CONST and other.arg == 0
            if is_zero and all([self._is_nothing(factor, given) for factor in term.src]):
                return None
        return Difference("a value term", before, after)

    def _is_nothing(self, factor: UOp, given: Given) -> bool:
        """Whether a factor is what is loaded, or chosen, under a false mask, which is 0 in every type."""
        while factor.op in CONVERSIONS:
            factor = factor.src[0]
        if is_masked(factor):
            return self._never((*given, factor.src[0]))
        is_load = factor.op is Ops.LOAD and len(factor.src[0].src) > 2
        return is_load and self._never((*given, *self._mask(factor.src[0])))

    def _never(self, given: Given) -> bool:
        claim = ~given[-1] if given else ~TRUE
        return self.questions.seems(claim, given[:-1]).verdict is Verdict.PROVED

    # -- reductions -----------------------------------------------------------------------------

    def _reductions(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        first: Difference | None = None
        likely = guesses(before.src[1:], after.src[1:])
        for guess in chain(islice(likely, 1), self._orders(before, after), likely):
            difference = self._reduction(before, after, given, guess)
            if difference is None:
                return None
            first = first or difference
        if self._has_fewer(before, after, given):
            return None
        return first or Difference("the loops of a reduction", before, after)

    def _is_in_parts(self, before: UOp, after: UOp, given: Given) -> bool:
        """Whether what one reduction combined is combined by several, over parts of its iterations."""

        def is_same(one: UOp, other: UOp, inside: Given) -> bool:
            return self.value(one, other, inside) is None

        return is_in_parts(before, after, given, self.questions, is_same)

    def _orders(self, before: UOp, after: UOp) -> Iterator[LoopMap]:
        """Maps where the loops after count the digits of those before in another order, as what both load tells."""
        old, new = [
            [n.src[0] for n in loads_below(x.src[0]) if n.src[0].src[0].op is Ops.PARAM]
            for x in (before, after)
        ]
        known: list[LoopMap] = []
        for one, other in product(old, new):
            if one.src[0] is other.src[0]:
                positions = one.src[1], other.src[1]
                guess = map_by_values(
                    self.questions.terms, positions, before.src[1:], after.src[1:]
                )
                if guess is not None and guess not in known:
                    known.append(guess)
                    yield guess

    def _has_fewer(self, before: UOp, after: UOp, given: Given) -> bool:
        """Whether the reduction after leaves out iterations of the one before, which change nothing."""
        if prod(map(loop_size, before.src[1:])) <= prod(map(loop_size, after.src[1:])):
            return False
        return any(
            guess.partial and self._reduction(after, before, given, guess) is None
            for guess in guesses(after.src[1:], before.src[1:])
        )

    def _reduction(
        self, before: UOp, after: UOp, given: Given, guess: LoopMap
    ) -> Difference | None:
        body = before.src[0].substitute(dict(guess.terms))
        inside = given
        if guess.partial:
            inside = (*given, *[t < loop_size(x) for x, t in guess.terms.items() if t is not x])
            outside = (*given, ~all_of(inside[len(given) :]))
            neutral = UOp.const(after.dtype, identity(after.arg, after.dtype))
            padding = self.value(neutral, after.src[0], outside)
            if padding is not None:
                return padding
        return self._terms(body, after.src[0], after.arg, inside) or self._one_to_one(guess, inside)

    def _terms(self, before: UOp, after: UOp, op: Ops, given: Given) -> Difference | None:
        """What one iteration combines: the same terms, in an order that is not specified."""
        old, new = combined_by(op, before), combined_by(op, after)
        if len(new) == 1 or len(old) != len(new):
            return self.value(before, after, given)
        for term in new:
            same = next((o for o in old if self.value(o, term, given) is None), None)
            if same is None:
                return self.value(before, after, given)
            old.remove(same)
        return None

    def _one_to_one(self, guess: LoopMap, inside: Given) -> Difference | None:
        """Each iteration before is one iteration after: there is a way back, and back again."""
        changed = {
            x: t for x, t in guess.terms.items() if t.op is not Ops.RANGE or t in guess.inverse
        }
        back = {s: (s, t.substitute(changed)) for s, t in guess.inverse.items()}
        again = {x: (x, t.substitute(dict(guess.inverse))) for x, t in changed.items()}
        claims = [(pair, inside) for pair in back.values()]
        claims += [(pair, ()) for pair in again.values()]
        for (loop, term), given in claims:
            wrong = self._claim("the loops of a reduction", loop, term, given)
            if wrong is not None:
                return wrong
        return self._iterations(changed, inside) or self._iterations(guess.inverse, ())

    # -- accesses -------------------------------------------------------------------------------

    def _accesses(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        """Where a value is computed in another way: every load is one of those before, of the same element."""
        old, new = loads_below(before), loads_below(after)
        self.rewritten += 1
        for load in new:
            if load in old:
                continue
            differences = [self._access(o, load, given) for o in old]
            if all(d is not None for d in differences):
                closest = [d for d in differences if d is not None and d.point]
                what = f"the load of parameter {load.src[0].src[0].arg[0]}"
                return closest[0] if closest else Difference(what, before, load.src[0])
        return None

    def _access(self, before: UOp, after: UOp, given: Given) -> Difference | None:
        """The element of the load after is one that the load before reads in some iteration."""
        old, new = before.src[0], after.src[0]
        what = f"the load of parameter {new.src[0].arg[0]}"
        if old.src[0] is not new.src[0]:
            return Difference(what, old, new)
        inside = (*given, *self._mask(new))
        there = {n for n in toposort((after,)) if n.op is Ops.RANGE}
        gone = [n for n in toposort((old,)) if n.op is Ops.RANGE and n not in there]
        same = common_loops(gone, list(there))
        index = old.src[1].substitute(same)
        left = [x for x in gone if x not in same]
        if left:
            terms = map_by_position(index, new.src[1], left)
            guess = index if terms is None else index.substitute(terms)
            if terms is None or self._claim(what, guess, new.src[1], inside) is not None:
                terms = selected(self.questions, index, new.src[1], left, inside)
            index = guess if terms is None else index.substitute(terms)
        return self._claim(what, index, new.src[1], inside)


def _same_type(before: DType, after: DType) -> bool:
    """Index terms get a width on the way; every other type stays."""
    return before is after or (before is dtypes.index and is_integer(after))
